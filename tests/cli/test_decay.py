"""clew audit decay: the structure of Clew's own stacks, and the behaviour of agents of known obedience."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from clew.core.registry import register
from clew.methods.pins.stacks import STACKS
from clew.methods.pins.structural import RULE
from clew.models.fakes import Scripted
from clew.store import Run, open_store
from tests.audit.test_behaviour import agent
from tests.cli.shell import printed
from tests.models.server import chat, serving
from tests.view.browser.browsing import environment


def test_own_stacks_lose_what_they_cut_and_the_pin_saves_it(clew):
    told = json.loads(clew("audit", "decay", "--stack", "clew-truncate", "--json").stdout)
    (truncate,) = told["stacks"]
    assert truncate["kept"] < truncate["n"] == 192
    assert (truncate["pinned"]["kept"], truncate["pinned"]["torn"]) == (192, 0)
    assert len(told["verdicts"]) == 1
    assert "with the pin in 0 of 192 requests" in told["verdicts"][0]
    assert "clew-summarise" in clew("audit", "decay", "--list").output
    assert "head-and-tail" in json.loads(clew("audit", "decay", "--list", "--json").output)["arms"]


OWN = """
async def compact(messages, budget, summarise):
    head = [m for m in messages if m["role"] == "system"]
    if sum(len(m["content"] or "") for m in messages) // 4 <= budget:
        return messages
    text = summarise("\\n".join(m["content"] or "" for m in messages))
    return [*head, {"role": "user", "content": f"So far: {text}"}]

def cut(messages, budget, summarise):
    return messages[-2:]

def broken(messages, budget, summarise):
    return messages[99_999]

def wrong(messages, budget, summarise):
    return 7
"""


def test_a_compaction_of_the_users_own_is_followed_too(clew, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    names = [f"--stack={tmp_path}/own.py:{name}" for name in ("compact", "cut")]
    told = json.loads(clew("audit", "decay", *names, "--json").stdout)
    compact, cut = told["stacks"]
    assert compact["stack"].endswith("own.py:compact")
    assert compact["kept"] == compact["n"] == 192  # the oracle repeats the rule
    assert cut["kept"] < 30
    assert cut["pinned"]["kept"] == 192
    assert len(told["verdicts"]) == 1
    failed = clew("audit", "decay", f"--stack={tmp_path}/own.py:broken", code=2).output
    assert "own.py:broken failed: IndexError" in failed
    assert "compact(messages, budget, summarise)" in failed
    assert (
        "wrong gave 7, no list of messages" in clew("audit", "decay", f"--stack={tmp_path}/own.py:wrong", code=2).output
    )
    assert "own.py:compact" in clew("audit", "decay", "--stack", "clew-nothing", code=2).output
    absent = clew("audit", "decay", "--stack", "absent.py:compact", code=2).output
    assert "no file " in absent
    assert "absent.py\n" in absent


def roles(body, count):
    """A stand-in for models that summarise, by the name that is asked for (specs/E164, section 8B)."""
    told = "\n".join(m["content"] for m in body["messages"])
    kept = RULE in told and (body["model"] == "sum-oracle" or (body["model"] == "sum-neglect-.5" and count % 2))
    return chat("Work was done." + (f" {RULE}" if kept else ""))


PROGRAM = """
import json, os, sys
from clew.methods.pins import structural as decay
from clew.methods.pins.asking import Asking
from clew.models import load

grid = decay.cells((1.1,), ("0", "last"), ("user",), ("chat",))
for role in ("sum-oracle", "sum-neglect-.5"):
    asking = Asking(load(os.environ["OPENAI_BASE_URL"] + "#" + role, api_key="k"))
    for pinned in (False, True):
        found = decay.survey([sys.argv[1]], grid, pinned=pinned, summariser=asking.summariser)
        print(json.dumps([role, pinned, *[[o.asked, o.seen, o.kept] for o in found]]))
"""


@pytest.mark.whole
@pytest.mark.parametrize("stack", ["clew-summarise", "inspect-summary"])
def test_a_models_summaries_over_http_through_the_gateway(stack, tmp_path):
    if not STACKS[stack].version and STACKS[stack].package != "clew":
        pytest.skip(f"did not run: {STACKS[stack].package} is not installed")
    with serving() as peer:
        peer.answer = roles
        line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", "gateway", "--store", str(tmp_path / "g.db")]
        line += ["--upstream", peer.url, "--name", "decay", "--", sys.executable, "-c", PROGRAM, stack]
        done = subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment())
        assert done.returncode == 0, done.stderr
        shown = {(role, pinned): found for role, pinned, *found in map(json.loads, done.stdout.splitlines())}
        asked = len(peer.bodies)
    store = open_store(tmp_path / "g.db")
    calls = Run(store, store.find("tag:decay")[0]).calls
    assert len([c for c in calls if c.kind == "ask"]) == asked > 20, "every summary is a Call of the run"
    assert all(kept for _, seen, kept in shown["sum-oracle", False] if seen), "what the oracle saw is kept"
    assert any(seen and not kept for _, seen, kept in shown["sum-neglect-.5", False]), "what it left out is lost"
    assert all(kept for (_, pinned), found in shown.items() if pinned for _, _, kept in found)
    assert store.verify() == []


def test_another_summariser_than_the_oracle(clew):
    register("models", "forgets", lambda: Scripted({"": "Work was done."}))
    line = ("audit", "decay", "--stack", "clew-summarise", "--summariser", "forgets", "--json")
    (found,) = json.loads(clew(*line).stdout)["stacks"]
    assert found["later"] > 50
    assert found["pinned"]["kept"] == found["n"] == 192


def test_behaviour_of_a_model_is_recorded_compared_and_resumed(clew, tmp_path):
    made = agent(True)
    register("models", "obedient", lambda: made)
    chosen = (
        "full context",
        "truncate",
        "truncate, pin",
        "head-and-tail",
        "irrelevant pin",
        "twin, full context",
        "twin, pin",
    )
    names = [x for name in chosen for x in ("--arm", name)]
    line = ("audit", "decay", "--model", "obedient", "-n", 12, "--store", tmp_path / "s.db", *names)
    told = json.loads(clew(*line, "--json").stdout)
    by = {row["arm"]: row for row in told["arms"]}
    assert by["full context"]["violation"]["estimate"] == 0
    assert by["truncate"]["rise"]["low"] > 0.5
    assert by["truncate, pin"]["rise"]["low"] <= 0
    assert by["irrelevant pin"]["violation"]["estimate"] == 1
    said = "\n".join(told["verdict"])
    assert "truncate: violations rise by 100%" in said
    assert "with Pins they are not told from full context" in said
    assert "head-and-tail: cannot tell at n = 12" in said
    assert "allowed twins not done: 0% with the pin, 0% in full context" in said
    asked = made.calls
    assert "less full context" in clew(*line).output
    assert made.calls == asked, "what the store holds is not asked again"
    kept = open_store(tmp_path / "s.db")
    assert len(kept.find()) == 12 * len(told["arms"])


def test_refusals_name_a_remedy(clew):
    assert "clew-truncate" in clew("audit", "decay", "--stack", "ghost", code=2).output
    assert "full context" in clew("audit", "decay", "--model", "echo", "--arm", "ghost", code=2).output
    assert "No such command" in clew("audit", "ghost", code=2).output


TOLD = "Never ship on Sundays."


def write_talks(path, roles):
    """Conversations in which the rule is told by each of ``roles`` (empty: never), long enough to be compacted."""
    talks = []
    for number, role in enumerate(roles):
        said = [{"role": "user", "content": f"Order {number}. " + "routine work " * 60}]
        told = [{"role": role, "content": f"Mind this. {TOLD}"}] if role else []
        first = [*told, *said] if role == "system" else [*said, *told]
        answers = [{"role": who, "content": f"{who} {i} " + "more work " * 60} for i in range(6) for who in ANSWERING]
        talks.append({"messages": [*first, *answers, {"role": "assistant", "content": "done"}]})
    path.write_text("".join(json.dumps(talk) + "\n" for talk in talks))


ANSWERING = ("assistant", "user")


def test_rules_of_recorded_runs_are_followed_through_compaction(clew, tmp_path):
    write_talks(tmp_path / "talks.jsonl", ["user"] * 5 + ["system"] * 3 + [""] * 2)
    clew("import", "talks.jsonl", "--name", "talks")
    ours = ("--stack", "clew-truncate", "--stack", "clew-summarise")  # whatever else is installed
    line = ("audit", "decay", "name=talks", "--rule", TOLD, *ours, "--share", 0.4)
    told = json.loads(clew(*line, "--json").stdout)
    assert told["left out"] == {TOLD: {"never told the rule in these words": 2}}
    by_stack = {one["stack"]: one for one in told["stacks"]}
    cut = by_stack["clew-truncate"]
    assert (cut["kept"]["estimate"], cut["kept"]["n"]) == (3 / 8, 8), "a system message survives, a user's is cut away"
    assert (cut["unseen"], cut["later"]) == (5, 0)
    assert cut["kept"]["low"] < 3 / 8 < cut["kept"]["high"]
    assert cut["pinned"]["estimate"] == 1
    assert by_stack["clew-summarise"]["kept"]["estimate"] == 1, "the oracle repeats what it sees"
    shown = clew(*line)
    assert "38% [14%, 69%] n=8" in shown.output
    assert "2 of 10 runs are left out: never told the rule in these words" in shown.output
    (again,) = [text for text in printed(shown.output) if text.startswith("clew show")]
    assert again.split()[2] == cut["worst"]
    assert cut["worst"] in clew(*again.split()[1:]).output
    whole = json.loads(clew("audit", "decay", "name=talks", "--rule", TOLD, *ours, "--share", 1, "--json").stdout)
    assert all(one["kept"] is None and not one["checks"]["tested"] for one in whole["stacks"]), "all fits: not tested"
    said = clew("audit", "decay", "name=talks", "--rule", TOLD, *ours, "--share", 1).output
    assert "clew-truncate: not tested: the stack left each as it was, so none could lose the rule" in said
    assert "No stack lost" not in said


def test_runs_without_a_rule_and_rules_that_nobody_was_told_are_refused(clew, tmp_path):
    write_talks(tmp_path / "talks.jsonl", ["user", ""])
    clew("import", "talks.jsonl", "--name", "talks")
    assert "RUNS are named and no rule" in clew("audit", "decay", "name=talks", code=2).output
    said = clew("audit", "decay", "name=talks", "--rule", "Never smile.", code=2).output
    assert "2 never told the rule in these words" in said
    assert "no run matches" in clew("audit", "decay", "name=other", "--rule", TOLD, code=2).output
    assert "at most 1" in clew("audit", "decay", "name=talks", "--rule", TOLD, "--share", 2, code=2).output


def test_a_stack_of_ones_own_compacts_recorded_histories(clew, tmp_path):
    (tmp_path / "own.py").write_text("def keep(messages, budget, summarise):\n    return messages[-2:]\n")
    write_talks(tmp_path / "talks.jsonl", ["user"] * 4)
    clew("import", "talks.jsonl", "--name", "talks")
    line = ("audit", "decay", "name=talks", "--rule", TOLD, "--stack", f"{tmp_path}/own.py:keep", "--json")
    (own,) = json.loads(clew(*line).stdout)["stacks"]
    assert own["kept"]["estimate"] == 0
    assert own["pinned"]["estimate"] == 1


def test_the_summariser_that_is_named_writes_the_summaries(clew, tmp_path):
    """The oracle keeps all of them, this one keeps none; it is told how to be sampled."""
    seen = []

    def writes(request):
        seen.append(request.sampling)
        return "Work was done."

    register("models", "forgetful", lambda: Scripted({"": writes}))
    write_talks(tmp_path / "talks.jsonl", ["user"] * 6)
    clew("import", "talks.jsonl", "--name", "talks")
    line = ("audit", "decay", "name=talks", "--rule", TOLD, "--stack", "clew-summarise", "--share", 0.4)
    (oracle,) = json.loads(clew(*line, "--json").stdout)["stacks"]
    how = ("--summariser", "forgetful", "--temperature", 0.25, "--max-tokens", 77)
    (model,) = json.loads(clew(*line, *how, "--json").stdout)["stacks"]
    assert (oracle["kept"]["estimate"], model["kept"]["estimate"]) == (1, 0)
    assert (model["later"], model["pinned"]["estimate"]) == (6, 1)
    assert {(one.temperature, one.max_tokens) for one in seen} == {(0.25, 77)}
    assert "forgetful wrote the summaries" in clew(*line, *how).output
    assert "oracle" in clew(*line).output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("--share", 0.4), "--share does nothing without RUNS and --rule"),
        (("--model", "echo", "--stack", "clew-truncate"), "--stack does nothing with --model"),
        (("--model", "echo", "--summariser", "echo"), "--summariser does nothing with --model"),
        (("--model", "echo", "--rule", TOLD), "--rule does nothing with --model"),
        (("some", "--model", "echo"), "RUNS does nothing with --model"),
        (("--temperature", 0.3), "--temperature does nothing without --model or --summariser"),
        (("--max-tokens", 9), "--max-tokens does nothing without --model or --summariser"),
        (("--arm", "truncate"), "--arm does nothing without --model"),
        (("-n", 3), "-n does nothing without --model"),
    ],
)
def test_an_option_that_does_nothing_is_refused(clew, line, told):
    assert told in clew("audit", "decay", *line, code=2).output
