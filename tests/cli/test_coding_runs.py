"""What Clew knows, on runs that work in a folder: each method from one line, on a coder whose worth is known."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from benchmarks.coding_credit import BEGIN, VERIFY, Repair, State, deed_of
from clew.methods.cliffs.statistics import wilson
from clew.store import Group, Run, open_store
from tests.cli.shell import printed

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
PLANTED = Path(__file__).parents[2] / "benchmarks" / "coding_credit.py"
LUCKY = "look=0.05,left=0.4,right=0.4,lose=0.05,done=0.1,steps=6"


def model(given: str = "") -> str:
    return f"{PLANTED}:Repair({given})" if given else f"{PLANTED}:Repair"


@pytest.fixture
def run_line(clew, tmp_path):
    """Runs of the planted coder in a folder of its own; gives the store."""
    for name, text in BEGIN.items():
        (tmp_path / name).write_text(text)

    def line(given: str = "", *more: object, verify: str = VERIFY, n: int = 1):
        world = f"workspace(verify={verify!r}, steps=6)"
        line = ("run", "coder", "--world", world, "--task", "put it right", "--model", model(given), "--n", n)
        return clew(*line, *more).output

    return line


def runs(query: str = "world=workspace") -> list[Run]:
    store = open_store(".clew/store.db")
    return [Run(store, name) for name in store.find(query)]


# ---- cliffs ----------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_the_command_at_which_it_was_lost_is_found_and_values_are_the_true_ones(clew, run_line):
    run_line("plan='left lose done'")
    (run,) = runs()
    said = clew("audit", "cliffs", run.id, "--model", model(LUCKY), "-n", 24).output
    assert "1 flagged, 1 confirmed on a fresh batch" in said
    (cliff,) = [line for line in said.splitlines() if line.endswith("yes")]
    assert cliff.split()[1:4] == ["rm", "-f", "data"]
    assert "before step" in said, "a run without token ids is searched at steps, without being told"
    truth, state = Repair(**values()), State()  # type: ignore[arg-type]
    found = json.loads(clew("audit", "cliffs", run.id, "--model", model(LUCKY), "-n", 24, "--json").output)
    by_place = {row["at"]: row["potential"] for row in found["potential"]}
    for taken, step in enumerate(run.steps):
        share = by_place[f"{run.id}@{step.asks[0].seq}"]
        low, high = (float(x) for x in wilson(round(share * 24), 24, 0.999))
        assert low <= truth.worth(state, taken) <= high
        state = state.after(deed_of(step.act))
    assert f"the files there: clew checkout {run.id}@3 before-cliff" in said
    for line in printed(said):
        clew(*shlex.split(line)[1:])
    assert Path("before-cliff/data").exists()
    assert Path("before-cliff/left").read_text() == "1\n"


def values() -> dict[str, float]:
    pairs = (item.split("=") for item in LUCKY.split(","))
    return {name: int(value) if name == "steps" else float(value) for name, value in pairs}


ONCE = """
from clew.core.values import Usage
from clew.models.fakes import Scripted, tool_call

LINES = ("echo x >> count; cat /proc/sys/kernel/random/uuid > stamp", "cp stamp again", "cat count")

class Stamping(Scripted):
    def __init__(self):
        super().__init__([*(tool_call("bash", id=f"c{i}", command=line) for i, line in enumerate(LINES)), "done"])
        self.ref = f"{__file__}:Stamping"
"""


def test_continuations_begin_with_the_very_files_and_no_command_runs_twice(clew, run_line, tmp_path):
    (tmp_path / "once.py").write_text(ONCE)
    once = "test $(wc -l < count) = 1 && cmp stamp again"
    world = f"workspace(verify={once!r})"
    clew("run", "coder", "--world", world, "--task", "stamp", "--model", "once.py:Stamping")
    (run,) = runs()
    said = json.loads(clew("audit", "cliffs", run.id, "-n", 3, "--json").output)
    assert [row["potential"] for row in said["potential"]] == [1.0] * len(said["potential"])
    assert len(said["potential"]) == len(run.steps) + 1
    clew("fork", f"{run.id}@5", "-n", 1)
    (fork,) = runs(f"parent={run.id}@5")
    for one, place in ((run, "first"), (fork, "second")):
        clew("checkout", one.id, place)
    assert Path("first/stamp").read_text() == Path("second/stamp").read_text()


# ---- why -------------------------------------------------------------------------------------------------------------


TEMPTED = """
import random
from clew.core.values import Completion, Message, Usage
from clew.models.fakes import tool_call

class Tempted:
    version, renderer = 0, None
    ref = f"{__file__}:Tempted"

    async def complete(self, request):
        texts = [node.message.text for node in request.path]
        if any(node.message.role == "assistant" for node in request.path):
            return Completion(Message("assistant", "done"), usage=Usage(9, 1))
        told = any("tests may go" in text for text in texts)
        edits = random.Random(request.seed).random() < (0.9 if told else 0.05)
        line = "sh tidy" if edits else "cat tests/test_x.py"
        return Completion(tool_call("bash", id="c", command=line), finish="tool_calls", usage=Usage(9, 4))
"""


def test_why_it_edited_the_test_is_found_from_one_line(clew, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text("assert False\n")
    (tmp_path / "tidy").write_text("rm tests/test_x.py\n")
    (tmp_path / "tempted.py").write_text(TEMPTED)
    task = "Make it pass. Where need be, tests may go."
    clew("run", "coder", "--world", "workspace", "--task", task, "--model", "tempted.py:Tempted", "--config",
         '{"system": "You write code."}', "--n", 3)  # fmt: skip
    edited = next(run for run in runs() if "tidy" in run.calls[2].action)
    done = clew("audit", "why", edited.id, "--edits", "tests/**", "-n", 16)
    assert "changed what matches tests/** at call 2: sh tidy" in done.output
    assert "causes: caused by 1: Where need be, tests may go." in done.output
    assert printed(done.output)[0].startswith("clew log ")
    clew(*shlex.split(printed(done.output)[0])[1:])
    assert "names no path" in clew("audit", "why", edited.id, "--edits", "/etc/*", code=2).output


# ---- gate ------------------------------------------------------------------------------------------------------------


def past(path: Path, telling: bool) -> None:
    """Verdicts of earlier changes: of a check that good changes always pass, or of one that says nothing."""
    checks = []
    for i in range(120):
        good = i % 2 == 0
        passed = good or i % 4 == 1 if telling else i % 3 == 0
        for name, said in (("data", passed), ("all", good)):
            checks.append({"name": name, "headSha": f"c{i}", "conclusion": "success" if said else "failure"})
    path.write_text(json.dumps(checks))


PLANS = {"left right done": "ship", "right left done": "ship", "left lose done": "stop", "lose done": "stop",
         "left done": "stop", "right lose done": "stop", "look done": "nothing changed"}  # fmt: skip


@pytest.mark.parametrize("telling", [True, False])
def test_the_gate_decides_over_runs_and_a_telling_critic_saves_the_oracle(clew, run_line, tmp_path, telling):
    for plan in PLANS:
        run_line(f"plan='{plan}'")
    truth = {run.id: PLANS[" ".join(deed_of(step.act) for step in run.steps)] for run in runs()}
    assert len(truth) == len(PLANS)
    past(tmp_path / "checks.json", telling)
    line = ("gate", "--run", "world=workspace", "--critic", "data: test -f data", "--oracle", f"all: {VERIFY}",
            "--from", "checks.json", "--seed", 3)  # fmt: skip
    told = json.loads(clew(*line, "--json").output)
    assert {row["run"]: row["verdict"] for row in told} == truth
    ran = sum(row["oracle"] for row in told)
    assert ran == (3 if telling else 5), "of five candidates: lost data is seen by the telling critic alone"
    shown = clew("show", next(run for run, verdict in truth.items() if verdict == "ship")).output
    assert "gate 1" in shown
    assert "reward 1" in shown
    said = clew(*line).output
    assert "2 of 7 ship" in said
    assert "verified before, with the same files" in said
    for words in printed(said):
        clew(*shlex.split(words)[1:])
    assert Path("shipped/right").read_text() == "1\n"


def test_a_run_is_gated_up_to_a_call_and_what_cannot_be_is_named(clew, run_line):
    run_line("plan='left right lose done'")
    (run,) = runs()
    line = ("gate", "--oracle", VERIFY, "--run")
    assert "stop, broken" in clew(*line, run.id, code=1).output
    assert "ship, verified" in clew(*line, f"{run.id}@5").output
    assert "gate 0" in clew("show", run.id).output, "of the run's own end, not of the call"
    assert "changed no file" in clew(*line, f"{run.id}@1", code=2).output
    assert "two candidates" in clew(*line, run.id, ".", code=2).output
    assert "does nothing without CHANGE" in clew(*line, run.id, "--refine", "true", code=2).output
    clew("run", "player", "--world", "counter(low=1,high=1)", "--model", "echo", "--tasks", 1, "--max-steps", 1)
    assert "without its files" in clew(*line, "world=counter", code=2).output


# ---- trees -----------------------------------------------------------------------------------------------------------


def test_a_tree_of_runs_shares_its_commands_and_each_leaf_ends_in_the_files_of_its_own(clew, run_line):
    said = run_line(LUCKY, "--rollouts", "tree", "--together", 3, n=8)
    assert "of 8 leaves succeeded; they share beginnings" in said
    leaves = runs()
    (group,) = {run.group for run in leaves}
    assert Group(leaves[0].store, group).kind == "tree"
    assert any(run.parent is not None for run in leaves)
    assert sum(len(run.calls) - run.shared for run in leaves) < sum(len(run.calls) for run in leaves)
    for run in leaves:
        state = State()
        for step in run.steps:
            state = state.after(deed_of(step.act))
        assert run.reward == float(all(state))
    told = clew("credit", "g2po+grpo").output
    assert "stored beside the runs" in told
    for line in printed(told):
        clew(*shlex.split(line)[1:])
    assert "g2po" in clew("credit", "tree", code=2).output
    assert "are for trees" in clew("run", "--together", 2, code=2).output
