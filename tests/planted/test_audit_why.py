"""Planted failures of clew audit why: no verdict on a behaviour that was not there, or that could not have changed."""

from __future__ import annotations

import random

import pytest

import clew
from clew.core.errors import BadInput
from clew.methods.why import why
from clew.methods.why.arms import Ledger
from clew.methods.why.evidence import Case, Finding, Hypothesis
from clew.methods.why.rewind import Behaviour, Change, Rewound, neutral
from clew.models.fakes import Scripted, tool_call
from clew.store import MemoryStore, Run

SYSTEM = "You look things up. The index is old. Be brief."
CHANGES = {"old": Change(0, "The index is old."), "brief": Change(0, "Be brief.")}
LOST = "I cannot find it."


def lookup(name: str) -> str:
    """Look a name up."""
    return "the request timed out; three rows from the cache" if name == "slow" else "three rows"


def recorded(answer, wanted: str = "", n: int = 12) -> tuple[clew.Runner, Run]:
    """A run of an agent with one tool, the first one whose last reply holds ``wanted``."""
    model = Scripted({"": answer})
    runner = clew.Runner("tool_user", None, model, MemoryStore(), tools=[lookup], config={"system": SYSTEM})
    runs = runner.collect([clew.Task("t", "Find Ada.")], n=n).runs
    return runner, next(run for run in runs if wanted in run.conversation()[-1].message.text)


def searcher(request, p_old: float = 0.7, p_new: float = 0.05, name: str = "Ada"):
    """Looks up, then says that it cannot find it: more often where its index is old."""
    if request.path[-1].message.role != "tool":
        return tool_call("lookup", id="a", name=name)
    old = "old" in request.path[0].message.text
    return LOST if random.Random(request.seed).random() < (p_old if old else p_new) else "Here it is."


def audited(runner: clew.Runner, run: Run, does: str, n: int = 40, **more) -> Finding:
    named = {**CHANGES, "placebo": neutral(CHANGES)}
    subject = Rewound(runner, run, Behaviour(does), named, keep=0, **more)
    return why(Case(does, tuple(map(Hypothesis, CHANGES)), "placebo", n=n), Ledger(subject, 3000))


def test_truth_the_final_reply_of_a_run_with_actions_is_a_behaviour():
    runner, run = recorded(searcher, LOST)
    found = audited(runner, run, "I cannot find")
    assert found.lines[0].report.estimate == pytest.approx(0.7, abs=0.15)
    assert found.causes == ("old",)
    assert found.comparisons().tested


def test_a_behaviour_that_the_run_does_not_show_is_refused():
    runner, run = recorded(searcher, "Here")
    with pytest.raises(BadInput, match=r"does not show the behaviour.*matches /I cannot find/.*'Here it is\.'"):
        audited(runner, run, "I cannot find")
    with pytest.raises(BadInput, match="does not select it"):
        Rewound(runner, run, Behaviour(query="return>0.5"), {})


def test_what_the_run_did_before_the_place_only_is_refused():
    runner, run = recorded(searcher, LOST)
    last = [call.seq for call in run.calls if call.kind == "ask"][-1]
    with pytest.raises(BadInput, match="--at"):
        Rewound(runner, run, Behaviour("lookup"), {}, at=last)


def test_speaking_of_an_action_is_not_doing_it():
    """The recorded run calls the tool; without the cause the agent only says that it will not."""

    def careful(request):
        if request.path[-1].message.role == "tool":
            return "Done."
        old = "old" in request.path[0].message.text
        return tool_call("lookup", id="a", name="Ada") if old else "I will not use lookup."

    runner, run = recorded(careful, "Done")
    found = audited(runner, run, "lookup", n=20)
    assert found.causes == ("old",), found.text


def test_a_rate_that_has_no_room_to_fall_gives_no_verdict():
    """It came up in 1 of 80 rollouts: taking any cause away could not be seen to lower that."""
    runner, run = recorded(lambda request: searcher(request, 0.02, 0.0), LOST, n=200)
    found = audited(runner, run, "I cannot find")
    assert found.lines[0].report.estimate < 0.1
    assert found.kind == "cannot tell"
    assert "not tested" in found.text or "did not come up again" in found.text


def test_all_rollouts_show_it_and_the_change_is_predicted_to_raise_the_rate():
    runner, run = recorded(lambda request: searcher(request, 1.0, 1.0), LOST)
    subject = Rewound(runner, run, Behaviour("I cannot find"), CHANGES, keep=0)
    case = Case("x", tuple(Hypothesis(name, predicts=1) for name in CHANGES), n=40)
    found = why(case, Ledger(subject, 3000))
    assert found.kind == "cannot tell"
    assert found.text.startswith("not tested: the rate has 0.000 of room")
    assert found.comparisons().json()["tested"] is False


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"changes": {"same": Change(0, "Be brief.", "Be brief.")}}, "changes no text"),
        ({"dose": Change(0, "brief", "long")}, "same text at every dose"),
    ],
)
def test_a_change_of_nothing_is_refused(how, told):
    runner, run = recorded(searcher, LOST)
    with pytest.raises(BadInput, match=told):
        Rewound(runner, run, Behaviour("I cannot find"), **{"changes": {}, **how})


def test_results_that_speak_of_a_timeout_drop_no_rollouts():
    """Every result says "timed out": that is what this tool is about, and no failing harness."""
    runner, run = recorded(lambda request: searcher(request, name="slow"), LOST)
    found = audited(runner, run, "I cannot find")
    assert found.causes == ("old",), (found.text, found.caveats)
    assert [line for line in found.lines if line.test == "placebo"]
    named = audited(runner, run, "I cannot find", fault="timed out")
    assert not named.causes
    assert "placebo was not run" not in " ".join(named.caveats) or "harness failed" in " ".join(named.caveats)
