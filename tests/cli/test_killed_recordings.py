"""Recordings that keep files are killed at random moments: what is noted is whole, and they go on in the right files.

Three kills of each by default; CLEW_KILLS multiplies them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clew.cli.checkout import shelf_of
from clew.serve.gateway.run_files import files_of
from clew.store import Run, open_store
from clew.worlds.workspace import restore
from tests.worlds.test_sandbox import needs_bubblewrap

KILLS = 3 * int(os.environ.get("CLEW_KILLS", "1"))
STEPS = 12
Start = tuple[Path, Path, float, list[object]]
CLEW = [sys.executable, "-c", "import clew.cli; clew.cli.main()"]
AGENT = f"""
import json, os, random, time, urllib.request
from pathlib import Path
messages = []
for step in range({STEPS}):
    Path("step").write_text(str(step))
    Path(f"made{{step}}").write_bytes(random.Random(step).randbytes(20_000))
    time.sleep(0.03)
    messages.append({{"role": "user", "content": f"step {{step}}"}})
    body = json.dumps({{"model": "any", "messages": messages}}).encode()
    headers = {{"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
Path("done").touch()
"""
MODEL = f"""
from clew.core.values import Completion, Message, Usage
from clew.models.fakes import tool_call

class Steps:
    version, renderer, ref = 0, None, f"{{__file__}}:Steps"

    async def complete(self, request):
        step = sum(node.message.role == "assistant" for node in request.path)
        if step == {STEPS}:
            return Completion(Message("assistant", "done"), usage=Usage(1, 1))
        command = f"echo -n {{step}} > step; head -c 20000 /dev/urandom > made{{step}}"
        return Completion(tool_call("bash", command=command), finish="tool_calls", usage=Usage(1, 1))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "given").write_text("given")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "steps.py").write_text(MODEL)
    return tmp_path


def line(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLEW, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def killed(folder: Path, began: Path, within: float, *words: object) -> bool:
    """Start a line, and kill it at a random moment after a file of it appears; whether it was still at work."""
    with (folder.parent / "printed").open("w") as printed:
        process = subprocess.Popen([*CLEW, *map(str, words)], cwd=folder, stdout=printed, stderr=printed)
    until = time.monotonic() + 60
    while not began.exists() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(random.random() * within)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def held(store: Path, back: Path, ahead: int) -> tuple[str, list[int]]:
    """A store's one run, and where files of it are kept, the end left out; they must be those of their place.

    Args:
        ahead: the step that the files are at when the first is kept.
    """
    opened = open_store(str(store))
    try:
        names = opened.run_ids()
        assert len(names) <= 1
        known = files_of(Run(opened, names[0])) if names else []
    finally:
        opened.close()
    for number, one in enumerate(known):
        step = ahead + number - (one.seq < 0)  # at the end the files are those of the last request
        restore(shelf_of(str(store)), one.tree, back / str(number))
        assert ((back / str(number) / "step").read_text() if step >= 0 else "") == (str(step) if step >= 0 else "")
        sizes = [path.stat().st_size for path in sorted((back / str(number)).glob("made*"))]
        assert sizes == [20_000] * (step + 1)
    return names[0] if names else "", [one.seq for one in known if one.seq >= 0]


def faultless(place: Path, store: Path) -> None:
    done = line(place, "store", "verify", "--store", store)
    assert done.returncode == 0, done.stdout + done.stderr


def kills(place: Path, started: Callable[[int, Path], Start]) -> Iterator[tuple[int, Path]]:
    """Numbers and stores of lines that were killed, until ``KILLS`` of them were at work; each store is whole.

    Args:
        started: by number and store, the folder of a line, the file that tells that it is at work, the seconds within
            which it is killed after that, and the line.
    """
    cut = 0
    for number in range(10 * KILLS):  # some end before they are killed
        if cut == KILLS:
            break
        store = place / f"k{number}" / "s.db"
        store.parent.mkdir()
        folder, began, within, words = started(number, store)
        cut += killed(folder, began, within, *words)
        faultless(place, store)
        yield number, store
    assert cut == KILLS


@needs_bubblewrap
@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_killed_gateway_leaves_whole_files_and_its_program_is_started_again_in_them(place):
    program = ["--", sys.executable, place / "agent.py"]

    def started(number: int, store: Path) -> Start:
        work = place / f"work{number}"
        work.mkdir()
        return work, work / "step", 0.5, ["gateway", "--workspace", ".", "--model", "echo", "--store", store, *program]

    for number, store in kills(place, started):
        run, places = held(store, place / f"back{number}", 0)
        if places:
            into = place / f"into{number}"
            fork = ["gateway", "--fork", f"{run}@{places[-1]}", "--into", into, "--model", "echo", "--store", store]
            again = line(place / f"work{number}", *fork, *program)
            assert again.returncode == 0, again.stdout + again.stderr
            # killed when the files of the last request were kept and nothing was asked yet, there is nothing to compare
            assert len(places) - 1 <= again.stderr.count("equal files") <= len(places)
            assert "differ from the recorded" not in again.stderr
            assert (into / "done").exists()
            faultless(place, store)


@pytest.mark.whole
@needs_bubblewrap
@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_killed_run_in_a_workspace_goes_on_in_the_right_files(place):
    def started(number: int, store: Path) -> Start:
        world = f"workspace(folder='work', steps={STEPS + 1}, shelf='{store.parent / 'files'}')"
        words = ["--world", world, "--task", "work", "--model", "steps.py:Steps", "--store", store]
        return place, store, 1.0, ["run", "coder", *words]

    for number, store in kills(place, started):
        held(store, place / f"back{number}", -1)
        resumed = line(place, "resume", "--redo", "--store", store)
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
        faultless(place, store)
        run, places = held(store, place / f"again{number}", -1)
        if run:
            assert len(places) >= STEPS
            assert (place / f"again{number}" / str(len(places) - 1) / "step").read_text() == str(STEPS - 1)
        assert sorted(path.name for path in (place / "work").iterdir()) == ["given"]
