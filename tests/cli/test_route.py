"""clew route: a pool is measured once, judged, and a router written only where routing pays."""

from __future__ import annotations

import json
import shlex

import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset
from clew.models.compose import router
from clew.store import open_store
from tests.cli.shell import printed

register("tasksets", "dataset", Dataset)  # as the entry point does
SCRIPTED = "scripted(replies=['open'])"
POOL = f"echo,{SCRIPTED}"
ASKED = ("--data", "q.jsonl", "--reward", "exact", "--visible", "subject", "--held-out", 0)


@pytest.fixture
def data(tmp_path):
    """Twenty questions that echo answers, and twenty that the other does."""
    rows = [{"question": f"repeat the word tree{i} here", "subject": "echo"} for i in range(20)]
    rows = [row | {"answer": row["question"]} for row in rows]
    rows += [{"question": f"how is door number {i}", "subject": "door", "answer": "open"} for i in range(20)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def measure(clew, *more, **how):
    return clew("route", "measure", "--models", POOL, *ASKED, *more, **how)


def test_measured_once_reported_fitted_and_written(clew, data, tmp_path):
    said = measure(clew, "-n", 2, "--tasks", 40, "--name", "pool").output
    assert "2 workers, 40 questions, 2 samples each: 160 runs, 160 of them to make" in said
    assert "echo: reward 0.50" in said
    assert printed(said) == ["clew route report pool"]

    told = clew("route", "report", "pool").output
    assert "headroom over the best single worker: at least 0.500 [" in told
    assert "\nroute by question: " in told
    assert " a majority of several answers was not computed: it needs three samples of each pair" in told
    assert list((tmp_path / ".clew" / "route").glob("*.png"))
    following = shlex.split(printed(told)[-1])
    assert following == ["clew", "route", "fit", "pool", "-o", "router"]

    fitted = json.loads(clew(*following[1:], "--json").stdout)
    assert fitted["difference"]["low"] > 0.2
    made = router.load(tmp_path / "router")
    assert [worker.ref for worker in made.workers] == ["echo", SCRIPTED]
    served = json.loads(clew("eval", "route:router", *ASKED, "--split", "train", "--tasks", 40, "--json").stdout)
    assert served["route:router"]["estimate"] > 0.9  # either worker alone gets half
    told = clew("route", "report", "pool", "--with", "model=route:router", code=2).output
    assert "performed 40 of the pool's tasks, the router was fitted on 40 of them" in " ".join(told.split())
    with open_store(tmp_path / ".clew" / "store.db") as store:
        assert sum(one.claim.startswith("route by question") for one in store.reports().values()) == 1


def test_only_what_is_missing_is_asked(clew, data, tmp_path):
    def missing(*more):
        return json.loads(measure(clew, *more, "--dry", "--json").stdout)["missing"]

    assert missing("-n", 2, "--tasks", 10) == 40
    measure(clew, "-n", 2, "--tasks", 10)
    assert missing("-n", 2, "--tasks", 10) == 0
    assert missing("-n", 3, "--tasks", 10) == 20
    measure(clew, "-n", 3, "--tasks", 10)
    assert missing("-n", 3, "--tasks", 40) == 2 * 3 * 40 - 60
    assert missing("-n", 3, "--tasks", 10, "--max-tokens", 5) == 60  # other sampling, other samples
    with open_store(tmp_path / ".clew" / "store.db") as store:
        seeds = [run.seed for run in store.runs("model=echo")]
    assert len(set(seeds)) == len(seeds) == 30


def test_given_rewards_need_no_store_and_make_none(clew, tmp_path):
    rows = [{"question": f"q{i}", "worker": w, "reward": int(w == "big")} for i in range(30) for w in ("big", "small")]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = clew("route", "report", "--from", "given.jsonl", "--figure", "mine.png").output
    assert "the headroom cannot be estimated" in told
    assert "\ndo not route: no router beats the best single worker on held-out questions" in told
    assert "Next: ask big alone" in told
    assert (tmp_path / "mine.png").exists()
    assert not (tmp_path / ".clew" / "store.db").exists()
    refused = clew("route", "fit", "--from", "given.jsonl", "-o", "router", code=2).output
    assert "do not route: no router beats" in refused
    assert "Ask big alone, or insist with --anyway." in refused
    assert not (tmp_path / "router").exists()
    refs = ("--ref", "big=echo", "--ref", f"small={SCRIPTED}")
    clew("route", "fit", "--from", "given.jsonl", "-o", "router", "--anyway", *refs)
    assert [worker.ref for worker in router.load(tmp_path / "router").workers] == ["echo", SCRIPTED]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("measure", "--models", ",", *ASKED), "the pool is empty"),
        (("measure", "--models", "echo", *ASKED), "the pool is echo alone"),
        (("measure", "--models", "echo,echo", *ASKED), "echo stands twice in the pool"),
        (("measure", "--models", POOL, "--data", "q.jsonl"), "the line names data and no reward"),
        (("report",), "no pool is named"),
        (("report", "--workers", "a,b"), "--workers is for --from"),
        (("report", "pool", "--from", "q.jsonl"), "runs and a file are named"),
        (("report", "--from", "q.jsonl"), "line 1 names no worker"),
        (("fit", "--from", "q.jsonl", "-o", "r", "--ref", "big"), "--ref 'big' is no pair"),
    ],
)
def test_bad_lines_are_refused_in_one_sentence(clew, data, line, said):
    refused = clew("route", *line, code=2).output
    assert said in refused
    assert "Traceback" not in refused


def test_questions_without_a_checker_are_named(clew, data, tmp_path):
    (tmp_path / "bad.py").write_text("def bad(reply):\n    raise OSError('no scale')\n")
    line = ("--models", POOL, "--data", "q.jsonl", "--reward", "bad.py:bad", "--tasks", 2, "-n", 1)
    assert (
        "none of 4 runs has a reward: their questions have no checker" in clew("route", "measure", *line, code=2).output
    )
