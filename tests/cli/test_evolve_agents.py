"""clew evolve agents: on the desk without a model, and on data of one's own with models behind an endpoint."""

from __future__ import annotations

import json
import re

import pytest

from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset
from clew.store import open_store
from tests.models.server import chat, failing, serving

pytest.importorskip("scipy", reason="did not run: scipy is not installed")
register("tasksets", "dataset", Dataset)  # as the entry point does
DESK = ("--world", "desk(rules=('domain','spend'),tickets=0)")
SMALL = ("--outcomes", 200, "--labelled", 60, "--test", 20, "--tasks", 24)
SECRET = "the private question number"


def words(result) -> str:
    return " ".join(result.output.split())


def test_the_desk_without_a_model_and_a_killed_search_goes_on_to_the_same_bytes(clew, tmp_path):
    line = ("evolve", "agents", *DESK, *SMALL, "--folder", "search")
    said = clew(*line)
    assert "200 outcomes at 24 tasks" in said.output
    assert re.search(r"held-out gain +-?\d\.\d{3} \[.*\] +20 tasks", said.output)
    assert said.output.splitlines()[-1] == "Next: clew evolve show search"
    assert "200 of 200 outcomes" in clew("evolve", "show", "search").output
    best, log = (tmp_path / "search/best.txt").read_text(), tmp_path / "search/evolution.log"
    whole = log.read_bytes()
    with_runs = open_store(tmp_path / ".clew/store.db")
    parts = {name.split("/")[2] for name in with_runs.group_names().values() if name.startswith("evolve/")}
    many = len(with_runs.groups())
    with_runs.close()
    assert parts == {"agent", "labelled", "test"}
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: len(lines) // 2]))
    told = json.loads(clew(*line, "--json").stdout)
    assert log.read_bytes() == whole
    assert told["spent"]["outcomes"] == 200
    assert told["ended_by"] == "outcomes"
    assert told["best"]["agent"] == best.strip()
    again = open_store(tmp_path / ".clew/store.db")
    assert len(again.groups()) == many, "what was performed is not performed again"
    again.close()


def test_what_it_costs_is_told_and_nothing_is_done(clew, tmp_path):
    said = clew("evolve", "agents", "--world", "desk", "--dry").output
    assert "8,192 outcomes" in said
    assert "No model is asked." in said
    assert not (tmp_path / ".clew").exists()


@pytest.fixture
def own(tmp_path):
    rows = [{"question": f"what is {a} plus 2", "answer": str(a + 2)} for a in range(60)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "check.py").write_text("def right(reply, answer):\n    return float(answer in reply)\n")
    anchored(tmp_path)
    return ("--data", "q.jsonl", "--reward", "check.py:right", "--held-out", 0.3)


def anchored(folder, rows=None):
    made = [{"task": f"{SECRET} {i}", "work": f"{i} is my reply", "accept": bool(i % 2)} for i in range(30)]
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows or made)
    (folder / "anchor.jsonl").write_text(text)


class Endpoint:
    """An agent that adds where its prompt tells it to, a judge that reads the reply, and who writes the prompts."""

    def __init__(self, judge="Verdict: accept"):
        self.asked, self.judge = {"agent": [], "judge": [], "proposer": []}, judge

    def __call__(self, body, count):
        text = body["messages"][-1]["content"]
        if text.startswith("You improve the prompt"):
            self.asked["proposer"].append(text)
            return chat(f"<prompt>Add carefully, please, in way {len(self.asked['proposer'])}.</prompt>")
        if "Verdict: accept" in text:
            self.asked["judge"].append(text)
            return chat(self.judge(text) if callable(self.judge) else self.judge)
        self.asked["agent"].append(text)
        careful = "Add carefully" in body["messages"][0]["content"]
        return chat(f"It is {int(re.findall(r'[0-9]+', text)[0]) + 2}" if careful else "I cannot say")


ENOUGH = ("--outcomes", 48, "--test", 10, "--tasks", 12, "--anchor", "anchor.jsonl", "--json")


def test_own_tasks_checker_and_anchor_with_models(clew, own, tmp_path):
    with serving() as peer:
        peer.answer = end = Endpoint(lambda text: "Verdict: " + ("reject" if "cannot say" in text else "accept"))
        line = ("evolve", "agents", *own, *ENOUGH, "--model", f"{peer.url}#toy")
        told = json.loads(clew(*line).stdout)
        asked = len(peer.bodies)
        again = json.loads(clew(*line).stdout)
        assert len(peer.bodies) == asked, "the same line asks nothing again"
    assert again == told
    assert told["before"]["estimate"] == 0
    assert told["after"]["estimate"] == 1
    assert told["best"]["agent"].startswith("Add carefully")
    assert end.asked["proposer"]
    assert not [text for text in end.asked["proposer"] if SECRET in text or "anchor-" in text]
    assert any(SECRET in text for text in end.asked["judge"])
    store = open_store(tmp_path / ".clew/store.db")
    parts = {name.split("/")[2] for name in store.group_names().values()}
    store.close()
    assert parts == {"agent", "judge", "shown", "test"}


def test_tokens_bind_and_a_judge_that_says_neither_is_counted(clew, own):
    with serving() as peer:
        peer.answer = Endpoint("I would rather not say.")
        line = ("evolve", "agents", *own, *ENOUGH, "--model", f"{peer.url}#toy", "--tokens", 400)
        told = json.loads(clew(*line).stdout)
    assert told["ended_by"] == "tokens"
    assert 400 <= told["spent"]["tokens"] < 400 + 8 * 4 * 14
    assert any("said neither accept nor reject" in note for note in told["notes"])


def test_a_judge_that_accepts_everything_is_named(clew, own):
    with serving() as peer:
        peer.answer = Endpoint()
        said = clew("evolve", "agents", *own, *ENOUGH, "--model", f"{peer.url}#toy", "--gate", "never")
    assert "the last judge accepts 100% of the anchor: it says the same of nearly everything" in said.stdout


def test_the_reward_itself_may_decide(clew, own):
    with serving() as peer:
        peer.answer = Endpoint()
        line = ("evolve", "agents", *own, *ENOUGH[:6], "--model", f"{peer.url}#toy", "--judge", "reward")
        said = clew(*line).output
    assert "with a reward above 0.5" in said
    assert "held-out after  1.000" in said


def test_an_endpoint_that_is_down_ends_the_search_and_not_the_budget(clew, own):
    with serving() as peer:
        peer.answer = lambda body, count: failing(400, "no such model")
        line = ("evolve", "agents", *own, *ENOUGH, "--model", f"{peer.url}#toy")
        said = words(clew(*line, code=None))
        assert "the model fails in every run" in said
        peer.answer = Endpoint()
        assert json.loads(clew(*line).stdout)["spent"]["outcomes"] == 48


ROW = {"task": "some other question", "work": "a reply", "accept": True}
OVERLAP = [{"task": f"what is {a}  plus 2", "work": f"{a}", "accept": bool(a % 2)} for a in range(60)]
BAD = {
    "": "holds 0 pieces of labelled work",
    "no json\n": "anchor.jsonl:1 is no JSON",
    "[1]\n": "anchor.jsonl:1 is no JSON object",
    '{"task": "a", "accept": true}\n': "anchor.jsonl:1 has no text 'work'",
    '{"task": "a", "work": "b", "accept": "maybe"}\n': "does not say whether its work is accepted",
    json.dumps(ROW) + "\n" + json.dumps({**ROW, "accept": False}) + "\n": "accepts and rejects the same work",
    "".join(json.dumps({**ROW, "work": f"reply {i}"}) + "\n" for i in range(20)): "accepts all of its 20 pieces",
    "".join(json.dumps(row) + "\n" for row in OVERLAP): "are on tasks of the search, as",
}


@pytest.mark.parametrize("text", BAD)
def test_an_anchor_that_is_none_is_refused_in_a_sentence(clew, own, tmp_path, text):
    anchored(tmp_path, text or "\n")
    line = ("evolve", "agents", *own, *ENOUGH, "--model", "echo")
    assert BAD[text] in words(clew(*line, code=2))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--world", "household"), "knows the desk alone"),
        (("--agent", "tool_user"), "needs a model, and the line names none"),
        (("--model", "echo", "--agent", "player", "--argument", "style"), "takes no argument 'style'"),
        (("--model", "echo", "--proposer", "lines"), "has no lines to write"),
        (("--judge", "reward", "--anchor", "anchor.jsonl"), "an anchor is for judges"),
        (("--start", "nowhere.txt"), "nowhere.txt cannot be read"),
    ],
)
def test_lines_that_cannot_be_meant_are_refused(clew, own, more, said):
    assert said in words(clew("evolve", "agents", *more, code=2))
