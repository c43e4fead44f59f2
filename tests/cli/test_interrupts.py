"""An interrupt ends `clew run` at whatever moment it comes: the process ends with 130, and its runs can be resumed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from clew.store import open_store

AGENT = """
import asyncio, gc, os, signal, threading, time, weakref

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the interpreter looks for signals here
        pass

class Finalised:
    def __del__(self):
        interrupt()

class Watched:
    pass

def callback():
    one = Watched()
    kept = weakref.ref(one, lambda _: interrupt())
    del one

def collected():
    gc.callbacks.append(lambda phase, info: gc.callbacks.clear() or interrupt())
    gc.collect()

def stubborn():
    try:
        interrupt()
    finally:
        time.sleep(0.01)

MOMENTS = {"finaliser": Finalised, "weak reference": callback, "garbage": collected, "code": stubborn,
           "thread": lambda: threading.Thread(target=interrupt).start(),
           "many": lambda: threading.Thread(target=many, daemon=True).start()}

def many():
    for _ in range(100):
        interrupt()
        time.sleep(0.005)

if WHEN == "load":
    MOMENTS[WHERE]()

async def agent(run):
    chat = run.chat()
    while not run.done:
        if WHEN == "run" and run.step == 2:
            MOMENTS[WHERE]()
        await run.act(await chat.ask(run.view))
        await asyncio.sleep(0.01)
"""
PLACES = ("finaliser", "weak reference", "garbage", "code", "thread")
WORLD = "household(rooms=2,steps=40)"
LINE = ("run", "own.py:agent", "--world", WORLD, "--model", "echo", "--tasks", "2")


def test_a_run_that_a_script_starts_behind_an_ampersand_can_be_stopped(tmp_path):
    """A shell without job control starts it with SIGINT ignored, which the program and its children inherit."""
    (tmp_path / "own.py").write_text(f"WHEN, WHERE = 'run', 'code'\n{AGENT}")
    line = shlex.join([sys.executable, "-m", "clew.cli", *LINE])
    script = f"{line} & wait $!; exit $?"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 130, done.stderr
    assert len(unfinished(tmp_path)) == 2


@pytest.mark.parametrize("when", ["load", "run"])
@pytest.mark.parametrize("where", PLACES)
def test_an_interrupt_is_never_lost(tmp_path, when, where):
    (tmp_path / "own.py").write_text(f"WHEN, WHERE = {when!r}, {where!r}\n{AGENT}")
    done = subprocess.run(
        [sys.executable, "-m", "clew.cli", *LINE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "Interrupted" in done.stderr
    assert "ignored" not in done.stderr
    left = unfinished(tmp_path)
    assert len(left) == (2 if when == "run" else 0)


def test_many_interrupts_end_as_one_does(tmp_path):
    (tmp_path / "own.py").write_text(f"WHEN, WHERE = 'run', 'many'\n{AGENT}")
    line = [sys.executable, "-m", "clew.cli", *LINE]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert len(unfinished(tmp_path)) == 2


def unfinished(folder):
    if not (folder / ".clew" / "store.db").exists():
        return []
    store = open_store(folder / ".clew" / "store.db")
    try:
        assert store.verify() == []
        return store.find("stop=open")
    finally:
        store.close()


MANY = """
import os, random, signal, sys, time
from clew import cli
from clew.core.registry import build
import clew.cli.run, clew.harness.runner, clew.models, clew.view.terminal
build("tasksets", "household")

def interrupted(delay):
    os.mkdir(f"{delay}")
    child = os.fork()
    if not child:
        os.chdir(f"{delay}")
        sys.argv = ["clew", *LINE]
        try:
            cli.main()
        finally:
            os._exit(0)
    time.sleep(delay)
    os.kill(child, signal.SIGINT)
    began = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return delay, code, time.monotonic() - began

draw = random.Random(0)
print([interrupted(draw.random() * 0.6) for _ in range(12)])
"""


@pytest.mark.whole
def test_interrupts_at_many_moments_end_the_process_and_leave_runs_that_resume(clew, tmp_path):
    """From the start of the line, over the opening of runs, to the middle of them: they take 4 seconds or more."""
    (tmp_path / "own.py").write_text(f"WHEN, WHERE = '', ''\n{AGENT.replace('0.01)', '0.1)')}")
    line = [str(tmp_path / "own.py:agent") if word == "own.py:agent" else word for word in LINE]
    program = f"LINE = {line!r}\n{MANY}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = eval(done.stdout)
    assert [code for _, code, _ in found] == [130] * len(found), done.stderr
    assert done.stderr.count("Interrupted") == len(found)
    left = {delay: unfinished(tmp_path / str(delay)) for delay, _, _ in found}
    assert any(left.values())
    assert all(len(runs) in (0, 2) for runs in left.values())
    latest = max(delay for delay, runs in left.items() if runs)
    store = tmp_path / str(latest) / ".clew" / "store.db"
    ended = json.loads(clew("resume", "--store", store, "--json").output)["finished"]
    assert len(ended) == 2
