"""Rollouts under a drafter: the policy's own tokens, a drafter that follows it, a training that goes on with both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clew.credit
from clew.core.errors import BadInput, UnknownName
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.drafters import folder as folders
from clew.models.drafters import load
from clew.models.engine.forwards.weights import weights_digest
from clew.models.engine.speculation.costs import FILE, Costs, hardware
from clew.models.local import Local, small
from clew.train.drafters.drafter_losses import Schooling
from clew.train.drafters.refresh import FOLDER, Drafting, Trial
from clew.train.loop import Plan, Training
from clew.worlds.sums import Sums


class Lenient(Sums):
    """Rewards two of three runs: a signal, whatever an untrained model does."""

    async def judge(self, task: Any, run: Any, world: Any) -> dict[str, float]:
        return {"reward": float(run.row.seed % 3 > 0)}


WORLD = Lenient(2, 3, 3)


def policy(**options: Any) -> Local:
    made = small(WORLD.vocabulary(), d=32, layers=3, heads=2, kv_heads=1, context=64, ref="tiny", **options)
    with torch.no_grad():
        made.module.model.embed_tokens.weight.mul_(6)  # type: ignore[union-attr, operator]  # tied: sharper laws
    made.publish()
    return made


@pytest.fixture
def model() -> Iterator[Local]:
    made = policy()
    yield made
    made.close()


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained, for the policy above."""
    made = policy()
    torch.manual_seed(0)
    module = folders.fresh(folders.design_for(made.module, mask=0, block=3, layers=1), made.module)
    where = tmp_path_factory.mktemp("drafter") / "fresh"
    where.mkdir()
    folders.write(module, where, folders.target_of(made.module, made.tokenizer, made.ref))
    made.close()
    return where


def priced(model: Local, source: str | Path, folder: Path, draft: float) -> Path:
    """A folder with a table in which any number of tokens is verified in a second, and drafting takes ``draft``."""
    folder.mkdir(exist_ok=True)
    module = None if source == "lookup" else folders.read(source, model.module, model.tokenizer)
    Costs(
        (1, 4096), (1.0, 1.001), (1, 512), (1.0, 1.001), (draft, draft), block=7 if module is None else 3,
        hardware=hardware(), model=model.digest(), drafter="lookup" if module is None else weights_digest(module),
    ).save(folder)  # fmt: skip
    return folder


def training(model: Local, store: Any, draft: Drafting | None, **plan: Any) -> Training:
    runner = Runner(player, WORLD, model, store, sampling={"max_tokens": 16})
    settings = {"name": "t", "iterations": 3, "tasks": 2, "rollouts": 6, "checkpoint_every": 1, **plan}
    return Training(runner, Trainer(model, 1e-3), clew.credit.grpo, Plan(**settings), draft=draft)


@pytest.mark.parametrize("kind", ["lookup", "trained"])
def test_what_is_recorded_is_the_policys_own(kind: str, model: Local, drafter: Path, tmp_path: Path) -> None:
    source = drafter if kind == "trained" else kind
    draft = Drafting(model, source, kept=priced(model, source, tmp_path / "costs", 0.0))
    done = []
    for it in training(model, ":memory:", draft).run():
        if not done:  # the weights that sampled: of the iteration before the step
            continue_ = policy()
            for run in it.groups.runs[:4]:
                check_tokens(continue_, run)
            continue_.close()
        done.append(it)
    assert ["length" in it.draft for it in done] == [True, False, True], "tried with drafts and without"
    assert all(it.draft["gain"] > 0 for it in done[1:])
    for it in done[::2]:
        assert it.draft["drafted"] > 0.3
        assert 1 <= it.draft["length"] <= draft._drafter.block + 1
        assert 0 < it.draft["share"] < 1
    assert {f"draft/{name}" for name in ("length", "drafted", "share")} < set(done[0].metrics())
    steps = [it.step for it in done if it.step is not None]
    assert steps
    assert all(step.mismatch < 1e-5 for step in steps), "trainer and sampler agree on logprobs"
    assert model.engine.drafted is not None
    assert model.engine.drafted.faults == 0


def check_tokens(model: Local, run: Any) -> None:
    """The sampled tokens of a run, scored by the module they were sampled with, have the logprobs recorded."""
    checked = 0
    for call in run.calls:
        if call.kind == "ask" and call.logprobs is not None:
            ids = [token for node in run.conversation() for token in node.ids or ()]
            scored = model.score([ids])[0][-len(call.logprobs) :]
            assert np.abs(scored - call.logprobs).max() < 1e-4
            checked += len(call.logprobs)
    assert checked


def test_a_refresh_follows_a_policy_that_moved(model: Local, drafter: Path, tmp_path: Path) -> None:
    """To a policy that moved far the drafter is worth less than to its own, until it is refreshed on its runs."""
    how = Schooling(steps=60, lr=5e-3)
    draft = Drafting(model, drafter, kept=priced(model, drafter, tmp_path / "costs", 0.0), how=how)

    def rounds(seed: int) -> tuple[float, Any]:
        draft.trial = Trial()  # which begins with drafts
        draft.begin()
        runner = Runner(player, WORLD, model, sampling={"max_tokens": 16})
        runs = runner.collect(WORLD.sample(8, seed=seed), n=8, seed=seed).runs
        return draft.end(1.0)["length"], runs

    untrained, runs = rounds(1)
    draft.refresh(runs)
    learnt, _ = rounds(2)
    moved = policy(seed=1)
    with torch.no_grad():
        for mine, theirs in zip(model.module.parameters(), moved.module.parameters(), strict=True):
            mine.copy_(theirs)
    moved.close()
    model.publish()
    stale, runs = rounds(3)
    before = weights_digest(draft.module)
    assert len(draft.refresh(runs)) == 60
    assert weights_digest(draft.module) != before
    policys: Any = model.module
    assert torch.equal(draft.module.embed_tokens.weight, policys.get_input_embeddings().weight)
    now, _ = rounds(4)
    print(f"tokens a round: {untrained:.2f}, learnt {learnt:.2f}, policy moved {stale:.2f}, refreshed {now:.2f}")
    assert learnt > untrained + 0.2
    assert now > stale + 0.2


def test_a_drafter_that_does_not_pay_is_skipped_and_not_refreshed(model: Local, drafter: Path, tmp_path: Path) -> None:
    """By the scheduler in a round, as the costs say; by trial in an iteration, as the clock does."""
    draft = Drafting(model, drafter, kept=priced(model, drafter, tmp_path / "costs", 60.0))
    [done] = training(model, ":memory:", draft, iterations=1).run()
    assert done.draft["drafted"] < 0.1
    for on, pace in ((True, 2.0), (False, 1.0), (True, 2.0), (False, 1.0)):
        draft.trial.note(on, pace)
    before = weights_digest(draft.module)
    [done] = training(model, ":memory:", draft, iterations=1).run()
    assert set(done.draft) == {"gain"}
    assert model.engine.drafted is None
    assert weights_digest(draft.module) == before


def test_a_trial_keeps_to_the_faster_way_and_looks_at_the_other_again() -> None:
    def tried(pace: Any, n: int) -> tuple[list[bool], Trial]:
        trial, ways = Trial(), []
        for i in range(n):
            ways.append(trial.next())
            trial.note(ways[-1], pace(i, ways[-1]))
        return ways, trial

    for paid in (True, False):
        ways, trial = tried(lambda i, on, paid=paid: 1.0 if on == paid else 1.5, 44)
        assert ways[:4] == [True, False, True, False]
        assert sum(way != paid for way in ways[4:]) == 2
        assert trial.pays == paid
        assert trial.gain == pytest.approx(1.5 if paid else 1 / 1.5)
    ways, _ = tried(lambda i, on: 1.0 if on == (i < 20) else 1.5, 60)
    assert ways[5:19] == [True] * 14, "drafts paid at first"
    assert not any(ways[-8:]), "and later did not"
    assert Trial().gain is None


def test_a_refresh_that_costs_more_than_drafts_save_does_not_pay() -> None:
    trial = Trial()
    for _ in range(2):
        assert trial.pays, "not known yet"
        trial.note(True, 1.0)
        trial.charge(0.4)
        trial.note(False, 1.2)
    assert trial.gain == pytest.approx(1.2 / 1.4)
    assert not trial.pays


def test_chances_count_as_far_as_they_held(model: Local, tmp_path: Path) -> None:
    """Prompt lookup says .7 of whatever it finds; what the policy then accepts is known after an iteration."""
    draft = Drafting(model, "lookup", kept=priced(model, "lookup", tmp_path / "costs", 0.0))
    [done] = training(model, ":memory:", draft, iterations=1).run()
    counts = model.engine.drafted
    assert counts is not None
    assert counts.reached[0] > 32
    assert counts.told[0] == pytest.approx(0.7 * counts.reached[0])
    assert draft._lengths.factors[0] == pytest.approx(counts.accepted[0] / counts.told[0])
    assert done.draft["length"] == counts.emitted / counts.rounds


def test_costs_are_measured_once_and_kept(model: Local, tmp_path: Path) -> None:
    told: list[str] = []
    Drafting(model, "lookup", kept=tmp_path / "t", rows=4, advance=lambda what, done, all: told.append(what))
    assert (tmp_path / "t" / FILE).exists()
    assert told
    Drafting(model, "lookup", kept=tmp_path / "t", rows=4, advance=lambda what, done, all: told.append("again"))
    assert "again" not in told


def test_a_training_goes_on_with_its_drafter(drafter: Path, tmp_path: Path) -> None:
    """It lies in the checkpoint, as a drafter of the weights there; with another, or none, the training goes on too."""
    first = policy()
    draft = Drafting(first, drafter, kept=priced(first, drafter, tmp_path / "costs", 0.0))
    work = training(first, tmp_path / "runs.db", draft, iterations=2)
    list(work.run())
    assert weights_digest(draft.module) != draft.digest
    assert work.checkpoint is not None
    served = Local(work.checkpoint)
    assert load(work.checkpoint / FOLDER, served.module, served.tokenizer).block == 3
    served.close()

    def again(kind: str | Path | None, iterations: int) -> tuple[Drafting | None, list[Any]]:
        model = policy()
        draft = kind and Drafting(model, kind, kept=priced(model, kind, tmp_path / "costs", 0.0))
        loop = training(model, tmp_path / "runs.db", draft or None, iterations=iterations).run()
        found = next(loop)
        state = draft and draft.module and weights_digest(draft.module)
        rest = list(loop)
        model.close()
        return state, [found, *rest]

    whole = policy()
    begun = Drafting(whole, drafter, kept=tmp_path / "costs")
    begun.load(work.checkpoint)
    assert weights_digest(begun.module) == weights_digest(draft.module)
    whole.close()
    _, done = again(drafter, 3)
    assert [it.number for it in done] == [2]
    assert (work.checkpoint / FOLDER).exists()
    assert [it.number for it in again("lookup", 4)[1]] == [3]
    assert not (work.checkpoint / FOLDER).exists()
    [last] = again(None, 5)[1]
    assert (last.number, last.draft) == (4, {})
    first.close()


def test_refusals(model: Local, drafter: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no drafter at"):
        Drafting(model, tmp_path / "nowhere")
    other = small([*WORLD.vocabulary(), "more"], d=32, layers=3, heads=2, kv_heads=1, context=64)
    with pytest.raises(BadInput, match="was made for"):
        Drafting(other, drafter)
    other.close()
    with torch.no_grad():
        model.module.model.norm.weight.add_(0.5)  # type: ignore[union-attr, operator]
    with pytest.raises(BadInput, match="made for weights"):
        Drafting(model, drafter)
    for source in ("lookup", drafter):
        steady = policy(steady=True)
        with pytest.raises(BadInput, match="a steady engine does not draft"):
            Drafting(steady, source)
        steady.close()
