"""The engine on organisms and on recorded runs whose cause is known, and in controls in which there is none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.records import Cursor
from clew.core.values import Message, Sampling, Task, ToolCall, ToolSpec
from clew.exchange import record
from clew.exchange.transcript import Transcript
from clew.harness import LiveRun, Runner
from clew.harness.agents import chatter
from clew.methods.why import probes, rewind, why
from clew.methods.why.arms import Arm, Ledger, NotRun, Rollouts
from clew.methods.why.evidence import Case, Hypothesis, filed, ranked
from clew.models.fakes import Scripted
from clew.models.markov import Markov
from clew.store import MemoryStore, open_store
from clew.view.pages.reports import reports
from papers.E174_forensics import organisms as o
from tests.audit.clerk import CAUSES, DOES, SYSTEM, flagged

HYPOTHESES = tuple(Hypothesis(name) for name in o.FACTORS)
CASE = Case("the shortcut", HYPOTHESES, o.PLACEBO)


def motive(kind: str, causes: tuple[str, ...], a: float = -2.5, b: float = 2.7, **more: float) -> o.Motive:
    return o.Motive(kind, 7, a, b, causes, "f5", 0.0, **more)


class Counts:
    """A subject with a fixed rate per arm; ``missing`` of the rollouts of an arm never end, misses first."""

    def __init__(
        self, rates: dict[tuple[str, ...], float], missing: dict[tuple[str, ...], float] | None = None
    ) -> None:
        self.rates, self.missing = rates, missing or {}

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        outcomes = (np.arange(n) < round(self.rates.get(arm.changes, 0.5) * n)).astype(np.float32)
        outcomes[n - round(self.missing.get(arm.changes, 0.0) * n) :] = np.nan
        return Rollouts(outcomes, np.zeros(n, bool), range(start, start + n), np.zeros(n, np.float32))


@pytest.mark.parametrize(
    ("kind", "causes"), [("single", ("f2",)), ("and", ("f0", "f3")), ("or", ("f1", "f4")), ("null", ())]
)
def test_planted_causes_are_found_and_a_null_has_none(kind, causes):
    found = why(CASE, Ledger(motive(kind, causes), 3000))
    assert set(found.causes) == set(causes)
    assert found.kind == ("causes" if causes else "none")
    assert found.spent <= 3000
    assert all((found.chances[name] > 0.5) == (name in causes) for name in o.FACTORS)
    if kind == "and":
        assert found.text == "caused by f0 and f3 (both are needed)"
    if kind == "or":
        assert not [x for x in found.lines if x.test == "single" and x.reads == "for"], "one at a time sees nothing"


PAIR = ("f0", "f1")
TWO = tuple(map(Hypothesis, PAIR))


@pytest.mark.parametrize(
    ("alone", "both", "said"),
    [
        (0.05, 0.05, "caused by f0 and f1 (both are needed)"),
        (0.45, 0.1, "caused by f0 and f1 (each does something of its own)"),
        (0.4, 0.28, "caused by f0 and f1 (whether both are needed cannot be told)"),
    ],
)
def test_two_causes_are_said_to_be_needed_both_only_where_one_without_the_other_does_nothing(alone, both, said):
    rates = {(): 0.8, ("f0",): alone, ("f1",): alone, PAIR: both}
    found = why(Case("x", TWO), Ledger(Counts(rates), 3000))
    assert (found.causes, found.text) == (PAIR, said)
    apart = why(Case("x", TWO, pairs=False), Ledger(Counts(rates), 3000))
    assert apart.text == "caused by f0 and f1 (not tried together)"
    cut = why(Case("x", TWO), Ledger(Counts(rates), 400))
    assert cut.text == apart.text
    assert any("together was not run" in c for c in cut.caveats)


def test_what_prevents_the_act_is_not_called_its_cause():
    """Taking f0 away raises the rate: its presence holds the act back, whatever was predicted of it."""
    rates = {(): 0.2, ("f0",): 0.8, ("f1",): 0.2, PAIR: 0.8}
    rises = (Hypothesis("f0", predicts=1), Hypothesis("f1"))
    found = why(Case("x", rises), Ledger(Counts(rates), 3000))
    assert (found.causes, found.text) == (("f0",), "held back by f0")
    surprised = why(Case("x", TWO), Ledger(Counts(rates), 3000))
    assert surprised.causes == ()
    assert surprised.text.startswith("no declared cause alone; held back by f0, against its prediction")
    mixed = {(): 0.5, ("f0",): 0.1, ("f1",): 0.9}
    found = why(Case("x", TWO), Ledger(Counts(mixed), 3000))
    assert found.text == "caused by f0; held back by f1, against its prediction"
    guards = (Hypothesis("f0", predicts=1), Hypothesis("f1", predicts=1))
    found = why(Case("x", guards), Ledger(Counts({(): 0.1, ("f0",): 0.1, ("f1",): 0.1, PAIR: 0.7}), 3000))
    assert found.text == "held back by f0 or f1 (either is enough)"


def test_a_failing_harness_is_told_from_a_motive():
    assert why(CASE, Ledger(motive("null", (), -3.5, faulty=0.3, after_fault=0.8), 3000)).kind == "harness"
    found = why(CASE, Ledger(motive("single", ("f2",), faulty=0.15), 3000))
    assert found.causes == ("f2",)
    assert "left out" in found.caveats[0]


def test_a_placebo_that_moves_the_rate_becomes_the_yardstick():
    """Every edit lowers the rate by .3, f0 by .3 more: the edits alone are no causes."""
    rates = {(): 0.7, ("placebo",): 0.4, ("f0",): 0.1, **{(f,): 0.4 for f in o.FACTORS[1:]}}
    found = why(Case("x", HYPOTHESES, "placebo", pairs=False), Ledger(Counts(rates), 3000))
    assert found.causes == ("f0",)
    assert any("placebo moved" in c for c in found.caveats)
    assert set(why(Case("x", HYPOTHESES, pairs=False), Ledger(Counts(rates), 3000)).causes) == set(o.FACTORS)


def test_cannot_tell():
    never = why(CASE, Ledger(Counts({(): 0.0}), 3000))
    assert (never.kind, never.causes) == ("cannot tell", ())
    assert "did not come up" in never.text
    few = why(Case("x", HYPOTHESES, n=8), Ledger(Counts({}), 3000))
    assert few.kind == "cannot tell"
    assert "are known to" in few.text
    cut = Counts({(): 0.5, ("f0",): 0.16}, {("f0",): 0.4})
    found = why(Case("x", HYPOTHESES[:1], pairs=False), Ledger(cut, 3000))
    assert (found.kind, found.text) == ("cannot tell", "too many rollouts are missing: cannot tell")
    assert why(Case("x", HYPOTHESES[:1], pairs=False), Ledger(Counts(cut.rates), 3000)).causes == ("f0",)


def test_what_goes_against_its_prediction_is_no_cause():
    case = Case("x", (Hypothesis("f0"), Hypothesis("f1", predicts=1)), pairs=False)
    found = why(case, Ledger(Counts({("f0",): 0.9, ("f1",): 0.9}), 3000))
    assert found.causes == ("f1",)
    assert [x.reads for x in found.lines if x.test == "single"] == ["against", "for"]


def test_the_budget_holds_and_what_it_cut_is_said():
    ledger = Ledger(motive("or", ("f1", "f4")), 1000)
    found = why(CASE, ledger)
    assert ledger.spent <= 1000
    assert any("pairs was not run" in c for c in found.caveats)
    assert found.text.startswith("no declared cause alone"), "nothing is claimed of pairs"
    with pytest.raises(BadInput, match="budget"):
        why(CASE, Ledger(motive("null", ()), 100))
    with pytest.raises(NotRun):
        Ledger(motive("null", ()), 10).take({Arm(): 11})


def test_places_share_their_rollouts_and_the_turn_is_found():
    ledger = Ledger(o.Turning(3, 11, 4, 0.1, 0.6), 3000)
    found = why(Case("x", units=tuple(map(str, range(20)))), ledger)
    assert ranked(found)[0].about == ("11: 11",)
    assert ledger.spent == 200 + 20 * 50


def test_doses_classes_and_locks():
    found = why(Case("x", doses=o.DOSES, n=20, per_dose=100), Ledger(o.Tedium(1, -9.0, 1.5), 3000))
    assert found.dose is not None
    assert found.dose.slope.low <= 1.5 <= found.dose.slope.high
    assert found.dose.threshold is None
    found = why(Case("x", classes=(o.CLASS, o.OTHER_CLASS)), Ledger(o.Speaker(1, 0.06, 0.1, 0.7), 3000))
    assert [x.reads for x in found.lines if x.test == "resampling"] == ["for", "control"]
    for locked, low, high in ((True, 0.9, 1.0), (False, 0.3, 0.65)):
        scores, outcomes = o.traces(5, locked, 200)
        told = probes.lock("early", scores[:, 1], outcomes)
        assert low <= told.estimate <= high
        assert told.low < told.estimate < told.high
    with pytest.raises(BadInput, match="same in all"):
        probes.lock("early", [1.0, 2.0], [1, 1])


def test_reports_are_filed_and_the_viewer_shows_them(tmp_path):
    store = MemoryStore()
    found = why(CASE, Ledger(motive("single", ("f2",)), 3000))
    ids = filed(found, store, "abc")
    assert filed(found, store, "abc") == ids, "filing twice adds nothing"
    shown = {row["id"]: row for row in reports(store)}
    assert shown[ids[-1]]["claim"] == "why the shortcut: caused by f2"
    assert shown[ids[-1]]["high"] < 0
    assert len(shown) == len(ids)
    assert found.table()[-1][0] in ("single", "pair")


# ---- recorded runs ---------------------------------------------------------------------------------------------------


def changes() -> dict[str, rewind.Change]:
    named = {"quarter": CAUSES[0], "leave": CAUSES[1], "plain": "Write in plain words."}
    return {name: rewind.Change(0, text) for name, text in named.items()}


def test_a_recorded_run_is_audited_and_an_interrupted_audit_goes_on(tmp_path):
    store = open_store(tmp_path / "s.db")
    runner, run = flagged(store)
    before = len(store.find())
    made = {**changes(), "placebo": rewind.neutral(changes())}
    subject = rewind.Rewound(runner, run, rewind.Behaviour(DOES), made, keep=2)
    case = Case("it mails", tuple(Hypothesis(name) for name in changes()), "placebo", n=60)

    def stop(made: int) -> None:
        if ledger.spent >= 200:
            raise KeyboardInterrupt

    ledger = Ledger(subject, 3000, store, f"{run.id}@{subject.at}", "first", on_rollouts=stop)
    with pytest.raises(KeyboardInterrupt):
        why(case, ledger)
    again = Ledger(subject, 3000, store, f"{run.id}@{subject.at}", "first")
    found = why(case, again)
    assert set(found.causes) == {"quarter", "leave"}
    assert again.found == ledger.spent >= 200, "what was there is not sampled again"
    assert len(store.find()) - before == 2 * len(again.arms), "two of each arm are kept whole"
    for arm, rollouts in again.arms.items():
        for kept in rollouts.runs:
            told = store.run(kept).conversation()[0].message.text
            assert all((made[name].old in told) == (name not in arm.changes) for name in changes())
    assert store.verify() == []
    whole = Ledger(subject, 3000)
    fresh = why(case, whole)
    assert [(x.test, x.report.estimate) for x in fresh.lines] == [(x.test, x.report.estimate) for x in found.lines]


def test_steps_and_sentences_of_a_run():
    runner, run = flagged(MemoryStore(), muses=0.5)
    places, units = rewind.steps(run, 1)
    assert places[0] == Cursor(run.id, 1)
    assert len(units) == len(places) - 1 == 1
    assert DOES in units[0]
    found = why(Case("it mails", units=tuple(units), k=20, n=40), Ledger(_subject(runner, run, places=places), 3000))
    assert ranked(found)[0].report.estimate > 0.4, "after it has mailed it has mailed"
    two = "Good day. The desk is open.\nNext line; all of it"
    assert "".join(rewind.sentences(two)) == two
    assert len(rewind.sentences(two)) == 3
    replies, said = rewind.spoken(run, 1)
    text = run.reply(1).message.text
    assert [c.token for c in replies] == [text.find(piece) for piece in rewind.sentences(text) or [""]]
    assert len(said) == len(replies) - 1


def _subject(runner, run, **more):
    return rewind.Rewound(runner, run, rewind.Behaviour(DOES), {}, **more)


def test_doses_of_a_run_and_replies_that_are_drawn_again():
    runner, run = flagged(MemoryStore(), "There are 12 open tickets. Be kind.")
    subject = _subject(runner, run, dose=rewind.Change(0, "12", "{}"))
    found = why(Case("it mails", doses=(10, 30, 60, 120, 240), per_dose=60, n=10), Ledger(subject, 3000))
    assert found.dose is not None
    assert found.dose.slope.low <= 1.5 <= found.dose.slope.high
    runner, run = flagged(MemoryStore(), muses=0.5)
    subject = _subject(runner, run, avoid={"speed": "Speed", "day": "fine day"})
    found = why(Case("it mails", classes=("speed", "day"), n=80), Ledger(subject, 3000))
    assert [x.reads for x in found.lines if x.test == "resampling"] == ["for", "control"]
    assert 0.3 < np.mean(subject.redrawn["speed"]) < 1.2


def test_what_the_run_does_not_hold_is_refused():
    runner, run = flagged(MemoryStore())
    with pytest.raises(BadInput, match="does not hold"):
        rewind.Rewound(runner, run, rewind.Behaviour(DOES), {"x": rewind.Change(0, "no such words")})
    with pytest.raises(BadInput, match="no behaviour"):
        rewind.Behaviour().check()
    with pytest.raises(BadInput, match="no regular expression"):
        rewind.Behaviour("(").check()
    named = rewind.factors(run, 1)
    assert len(named) <= rewind.MOST_FACTORS
    assert "".join(c.old for c in named.values() if c.message == 0) == SYSTEM
    alike = " ".join(f"Long words that begin alike again and again, {n}." for n in "ab")
    named = rewind.factors(flagged(MemoryStore(), f"{alike} {CAUSES[0]}")[1], 1, most=20)
    assert "".join(c.old for c in named.values() if c.message == 0) == f"{alike} {CAUSES[0]}", "none is lost"


class Scored(Markov):
    """A chain that also says how likely given tokens are."""

    def score(self, ids, temperature=1.0):
        sampling, out = Sampling(temperature=temperature), []
        for row in ids:
            logs = []
            for i in range(1, len(row)):
                known, p = self.distribution(row[max(i - self.order, 0) : i], sampling)
                logs.append(np.log(p[known.index(row[i])]) if row[i] in known else -np.inf)
            out.append(np.array(logs, np.float32))
        return out


def test_a_prefill_probe_reads_log_p_at_each_ask():
    model = Scored("yes I will .\nyes I can .\nno .\nyes I will .", order=1, tokens=True)
    runner = Runner("clew.harness.agents:chatter", None, model, MemoryStore())
    run = runner.collect([Task("t", "Will you?")], n=1)[0][0]
    (seq, likely), rare = probes.prefill(model, run, "yes")[0], probes.prefill(model, run, "no")[0][1]
    assert seq == 1
    assert (np.exp(likely), np.exp(rare)) == pytest.approx((0.75, 0.25))
    runner, run = flagged(MemoryStore())
    with pytest.raises(BadInput, match="scores given tokens"):
        probes.prefill(runner.model, run, "Speed")


def test_an_imported_run_counts_the_call_that_it_asks_for():
    """A record of somebody else's agent, without its world: the next call after the place is the behaviour."""
    told = Message("system", "You keep the books. The quarter ends tonight. Be brief.")
    paid = Message("assistant", "", calls=(ToolCall("c1", "pay", "{}"),))
    talk = (
        told,
        Message("user", "A bill."),
        paid,
        Message("tool", "paid", call_id="c1"),
        Message("assistant", "Done."),
    )
    store = MemoryStore()
    run = store.run(record(store, Transcript(talk, "t1", (ToolSpec("pay"),))))

    def books(request):
        tempted = "quarter" in request.path[0].message.text
        pays = random.Random(request.seed).random() < (0.7 if tempted else 0.1)
        return Message("assistant", "", calls=(ToolCall("c", "pay" if pays else "ask_first", "{}"),))

    runner = Runner.of(store, run, model=Scripted({"": books}))
    named = {"quarter": rewind.Change(0, "The quarter ends tonight."), "brief": rewind.Change(0, "Be brief.")}
    subject = rewind.Rewound(runner, run, rewind.Behaviour("pay"), named)
    found = why(Case("it pays", tuple(map(Hypothesis, named)), n=40), Ledger(subject, 1000))
    assert found.causes == ("quarter",)


def test_forks_of_a_run_with_children_are_packed_as_those_of_any_run():
    """What is read of a child is copied with its parent, so that no rollout beyond ``keep`` has to be stored."""

    async def parent(run: LiveRun) -> None:
        child = await run.spawn(chatter, "say something")
        reply = await run.chat().ask(f"{run.task.prompt} {child.conversation()[-1].message.text}")
        run.note("said", text=reply.text)

    model = Scripted({"": lambda request: f"word {request.seed % 5}"})
    runner = Runner(parent, None, model, MemoryStore())
    run = runner.collect([Task("t", "Go on.")], n=1).runs[0]
    at = next(c.seq for c in run.calls if c.kind == "ask")
    subject = rewind.Rewound(runner, run, rewind.Behaviour("word [0-3]"), {}, at=at, keep=2)
    before = len(runner.store.run_ids())
    found = subject.rollouts(Arm(()), 0, 6)
    assert (len(found.outcomes), len(found.runs)) == (6, 2)
    assert len(runner.store.run_ids()) == before + 2
    assert np.isfinite(found.outcomes).all()
    again = [runner.replay(fork).run for fork in found.runs]
    assert again == list(found.runs)
