"""A program that knows nothing of Clew as the agent of runs: collected, judged, forked, replayed, resumed."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
if not shutil.which("bwrap"):
    pytest.skip("bubblewrap is not installed", allow_module_level=True)

import clew
from clew.core.errors import BadInput
from clew.core.values import StopReason
from clew.models.fakes import Scripted
from clew.serve.gateway.run_files import files_at, files_of
from clew.serve.noted_files import trees
from clew.serve.programs.commanded import commanded
from clew.serve.programs.program_world import Programs
from clew.worlds.workspace import TreeShelf, Workspace, restore

CODER = f"{sys.executable} {Path(__file__).parents[2] / 'examples' / 'plain_coder.py'}"
TEST = "from total import total\nassert total([1, 2, 3]) == 6\n"
WRONG, FIX = "def total(xs):\n    return sum(xs) + 1\n", "sed -i 's/ + 1//' total.py"
TWO = """
import json, os, sys, threading, urllib.request
def ask(text):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
    said[text] = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
said = {}
threads = [threading.Thread(target=ask, args=(text,)) for text in ("left", "right")]
[t.start() for t in threads]
[t.join() for t in threads]
print(said["left"], said["right"], os.environ["CLEW_TASK"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "total.py").write_text(WRONG)
    (folder / "check.py").write_text(TEST)
    return folder


def world_of(project: Path, command: str = CODER, **how) -> Programs:
    inner = Workspace(str(project), verify="python3 check.py", shelf=str(project.parent / "files"))
    return Programs(inner, command, **how)


def collected(taskset, model, store=":memory:", n=1):
    runner = clew.Runner(commanded, taskset, model, store)
    return runner, runner.collect([taskset.find("fix total")], n).runs


def test_its_requests_are_the_runs_asks_and_its_files_are_judged(project):
    runner, runs = collected(world_of(project), Scripted(["cat total.py", FIX, "done"]), n=3)
    for run in runs:
        assert (run.stop, run.reward) == (StopReason.DONE, 1.0)
        asks = [call for call in run.calls if call.kind == "ask"]
        assert len(asks) == 3
        heard = [node.message.text for node in run.store.thread(asks[-1].node_in)]
        assert heard[1] == "fix total"
        assert "return sum(xs) + 1" in heard[3]
        shelf = TreeShelf(project.parent / "files")
        known = files_of(run)
        assert {known[0].tree, known[-1].tree} <= trees(runner.store).keys()
        restore(shelf, files_at(run, None).tree, project.parent / run.id)
        assert "+ 1" not in (project.parent / run.id / "total.py").read_text()
    states = [[call.state for call in run.calls if call.kind in ("open", "act")] for run in runs]
    assert states[0] == states[1] == states[2]  # files meet, whoever wrote them
    assert len({*states[0]}) == 2
    assert (project / "total.py").read_text() == WRONG
    assert runner.store.verify() == []


def test_a_fork_starts_the_program_again_and_goes_on_live(project):
    runner, (run,) = collected(world_of(project), Scripted(["echo no > note", FIX, "done"]))
    assert runner.replay(run).calls == len(run.calls)
    second = [call.seq for call in run.calls if call.kind == "ask"][1]
    model = Scripted(["", "", "done"])
    again = clew.Runner.of(runner.store, run, model=model)
    other = again.fork(run, second, reply="rm check.py")[0]
    assert (other.reward, other.stop) == (0.0, StopReason.DONE)
    assert model.calls == 1  # what is recorded is not asked again
    restore(TreeShelf(project.parent / "files"), files_at(other, None).tree, project.parent / "other")
    assert sorted(p.name for p in (project.parent / "other").iterdir()) == ["note", "total.py"]


def test_requests_at_the_same_time_are_asked_at_the_same_time(project, tmp_path):
    (tmp_path / "two.py").write_text(TWO)
    taskset = world_of(project, f"{sys.executable} {tmp_path / 'two.py'}")
    _, (run,) = collected(taskset, Scripted({"left": "L", "right": "R"}))
    assert any("L R fix total" in call.text for call in run.calls if call.kind == "act")
    assert {call.conversation for call in run.calls if call.kind == "ask"} == {0, 1}
    assert run.store.verify() == []


ASKS = """
import json, os, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode()).read()
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("line", "told"),
    [("print('bad luck'); raise SystemExit(3)", "exit status 3"), ("while True: pass", "the limit"), ("", "status 0")],
)
def test_a_program_that_ends_badly_is_judged_where_it_asked_and_named_where_it_did_not(project, tmp_path, line, told):
    ends = {"exit status 3": StopReason.PROGRAM_FAILED, "the limit": StopReason.TIME_LIMIT}
    for first, stop in (
        (ASKS, ends.get(told, StopReason.DONE)),
        ("", StopReason.WORLD_ERROR if line else StopReason.DONE),
    ):
        (tmp_path / "bad.py").write_text(first + line)
        taskset = world_of(project, f"{sys.executable} {tmp_path / 'bad.py'}", seconds=2.0)
        runner, (run,) = collected(taskset, Scripted(["done"]))
        assert runner.replay(run).calls == len(run.calls)
        assert (run.stop, run.reward) == (stop, None if stop is StopReason.WORLD_ERROR else 0.0)
        said = [call.error + call.text + call.action for call in run.calls if call.kind in ("note", "end")]
        assert any(told in text for text in said)
        assert not line.startswith("print") or any("bad luck" in text for text in said)
        if stop is StopReason.PROGRAM_FAILED:
            assert run.calls[-1].error == "the program ended: exit status 3"
            assert run.store.find("stop=program_failed") == [run.id]


def test_settings_of_the_line_go_before_the_programs(project, tmp_path):
    source = (
        Path(CODER.split()[1]).read_text().replace('"messages": messages}', '"messages": messages, "temperature": 0.2}')
    )
    (tmp_path / "cool.py").write_text(source)
    taskset = world_of(project, f"{sys.executable} {tmp_path / 'cool.py'}")
    for config, wanted in (({}, 0.2), ({"held": ["temperature"]}, 0.7)):
        runner = clew.Runner(commanded, taskset, Scripted(["done"]), config=config, sampling={"temperature": 0.7})
        run = runner.collect([taskset.find("fix total")], 1).runs[0]
        assert next(c for c in run.calls if c.kind == "ask").setup.asked.temperature == wanted


def test_the_server_of_a_taskset_ends_with_it(project):
    taskset = world_of(project)
    collected(taskset, Scripted(["done"]))
    thread, socket = taskset.hub()._thread, taskset.hub().socket
    assert (thread.is_alive(), socket.exists()) == (True, True)
    del taskset
    gc.collect()
    thread.join(20)
    assert (thread.is_alive(), socket.exists()) == (False, False)


def test_a_command_that_is_none(project):
    for command, told in (("", "empty"), ("'", "no command"), ("no-such-program x", "no program")):
        with pytest.raises(BadInput, match=told):
            world_of(project, command)


def test_the_program_sees_neither_the_folder_of_its_file_nor_a_network(project, tmp_path):
    (tmp_path / "secret.jsonl").write_text("the patch")
    look = "import os, socket\nprint(os.listdir(os.path.dirname(__file__)))\n"
    look += "try: socket.create_connection(('1.1.1.1', 53), 1); print('out')\nexcept OSError: print('no network')\n"
    (tmp_path / "look.py").write_text(look)
    _, (run,) = collected(world_of(project, f"{sys.executable} {tmp_path / 'look.py'}"), Scripted(["done"]))
    said = next(call.text for call in reversed(run.calls) if call.kind == "act")
    assert "['look.py']" in said
    assert "no network" in said


TURNED = """
import json, os, sys, threading, time, urllib.request
def ask(text):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
    said[text] = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
said, flag = {}, open(sys.argv[1]).read().strip()
first, second = ("left", "right") if flag == "0" else ("right", "left")
threads = [threading.Thread(target=ask, args=(text,)) for text in (first, second)]
threads[0].start(); time.sleep(0.4 if flag else 0); threads[1].start()
[t.join() for t in threads]
ask("both " + said["left"] + said["right"])
ask(f"and {flag if len(sys.argv) > 2 else ''}" + said["left"])
ask("last " + said["right"])
"""


@pytest.mark.whole
@pytest.mark.parametrize("drifts", [False, True])
def test_started_again_each_request_gets_its_own_answer_in_whatever_order_it_comes(project, tmp_path, drifts):
    (tmp_path / "turned.py").write_text(TURNED)
    (tmp_path / "flag").write_text("0")
    taskset = world_of(project, f"{sys.executable} {tmp_path / 'turned.py'} {tmp_path / 'flag'}{' x' * drifts}")
    runner, (run,) = collected(taskset, Scripted({"left": "L", "right": "R", "": "-"}))
    last = [call for call in run.calls if call.kind == "ask"][-1]
    (tmp_path / "flag").write_text("1")
    other = runner.fork(run, last.seq)[0]
    assert (other.stop, other.calls[last.seq].node_in) == (StopReason.DONE, last.node_in)
    assert ["started again" in call.action + call.text for call in other.calls if call.kind == "note"].count(
        True
    ) == drifts
    assert runner.replay(other).calls == len(other.calls)
