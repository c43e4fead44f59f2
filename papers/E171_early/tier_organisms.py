"""Six organisms of known mechanism, trained from scratch, and what the audit of `clew audit early` says of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from clew.core.records import Report
from clew.harness import Runner
from clew.harness.fork.continuations import Continuations
from clew.methods.early import stance, study
from clew.methods.early.branches import Sizes
from clew.methods.early.fitting import FIRST, PROMPT_PLACES, PROMPT_WORDS
from clew.methods.early.outcome import Shown
from clew.methods.why.rewind import Behaviour
from clew.models.local import Local
from clew.models.taps import Source, Tap, sources_of
from clew.store import Run
from clew.train.warmstart import Recipe, pretrain
from papers.E171_early.organisms import ANSWER, LEANS, LENGTH, Kind, Organism
from papers.experiment import Line, apart

portions = apart
PLAYER = "clew.harness.agents:player"
REFUSES = Shown(Behaviour(f"{ANSWER} refuse"))
BOUND = 0.05
STEPS, BATCH, WIDTH, LAYERS = 400, 64, 48, 2
ORGANISMS: tuple[tuple[Kind, int], ...] = (
    ("E", 6), ("L", 6), ("C12", 6), ("M", 6), ("C50", 6), ("F", 6), ("L", 3), ("L", 9), ("A", 6),
)  # fmt: skip
FEWER = ORGANISMS[:4]  # of --quick
COARSE, FINE = tuple(k / 4 for k in range(5)), tuple(k / LENGTH for k in range(LENGTH + 1))
SEEDS = (0, 1, 2)
PAIRS, CUTS = 50, 20  # of the patched prompts, and of the stance cuts


def cells(quick: bool) -> Iterator[Line]:
    for seed in SEEDS[: 1 if quick else None]:
        for organism, tau in FEWER if quick else ORGANISMS:
            yield {"kind": "quick" if quick else "full", "organism": organism, "tau": tau, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds: training, recording, forks."""
    return 40.0 if cell["kind"] == "quick" else 75.0


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    return [one(setting["organism"], setting["tau"], seed, setting["kind"] == "quick") for seed in seeds]


@lru_cache(maxsize=1)
def trained(organism: Kind, tau: int, seed: int) -> Local:
    """The small transformer that learnt the organism's demonstrations."""
    taskset = Organism(organism, tau).ref
    recipe = Recipe(
        taskset=taskset, demonstrations=8000, noise=0.5, steps=STEPS, batch=BATCH, width=WIDTH, layers=LAYERS,
        target=0.0, decay=0.3, observation_weight=0.0, seed=seed,
    )  # fmt: skip
    for _, _, made in pretrain(recipe, steady=False):
        model = made
    return model


def one(organism: Kind, tau: int, seed: int, quick: bool) -> Line:
    """Everything of one organism at one seed, as JSON."""
    model, world = trained(organism, tau, seed), Organism(organism, tau)
    runner = Runner(PLAYER, world, model, sampling={"max_tokens": LENGTH + 4}, concurrency=512)
    tasks = world.sample(500 if quick else 2500, seed=seed, split="test")
    runs = list(runner.collect(tasks, 1, seed).runs)
    fine = organism == "L"
    prompts = {"M": 400, "L": 150}.get(organism, 200)
    sizes = Sizes(shares=FINE if fine else COARSE, n=4, pairs=100, swaps=4)
    hands = Continuations(runner, seed=seed, outcome=REFUSES)
    asked: dict[str, Any] = {
        "until": ANSWER,
        "sizes": sizes,
        "seed": seed,
        "prompts": min(prompts, 60) if quick else prompts,
    }
    arms, left = study.prepare(runs, hands, REFUSES, **asked)
    if organism == "A":
        return {"patched": patched(runner, model, [one.run for one in arms.traces], arms.outcomes)}
    if organism == "E":
        arms.cuts = stance.changes(arms.traces, model.renderer, LEANS[1], LEANS[0], CUTS)
    found = study.answer(arms, bound=BOUND)
    line = told(found, arms) | {
        "left out": sum(left.values()),
        "lengths": [one.tokens for one in arms.traces].count(LENGTH),
    }
    if organism in ("E", "L"):
        line["patched"] = patched(runner, model, [one.run for one in arms.traces], arms.outcomes)
    runner.store.close()
    return line


def told(found: study.Answer, arms: Any) -> Line:
    """The figures that marks are set on."""
    assert found.curve is not None
    assert found.verdict is not None
    by_name = {probe.name: probe for probe in found.probes}
    names = {"h0": FIRST, "state a": "last prompt token", "prompt": PROMPT_WORDS, "places": PROMPT_PLACES}
    names |= {"word": "first word", "shuffled": "shuffled labels", "last": "last thinking token"}
    line: Line = {key: plain(by_name[name].auroc) for key, name in names.items()}
    line |= {"verdict": found.verdict.kind, "text": found.verdict.text, "at": list(arms.sizes.shares)}
    line |= {"rate": found.curve.rate.estimate, "flips": [plain(r) for r in found.curve.flips]}
    line |= {"fixed": plain(found.curve.fixed), "time": plain(found.curve.time), "swap": plain(found.dependence)}
    line |= {"own": plain(found.own), "runs": by_name[FIRST].auroc.n}
    if found.saving is not None:
        it = found.saving
        line["saving"] = {"at": it.at, "held": it.held, "share": plain(it.share), "risks": [plain(r) for r in it.risks]}
    if found.cuts:
        line["cuts"] = {kind: sum(cut.kind == kind for cut in found.cuts) for kind in KINDS}
        line["performative"] = sum(cut.published == "performative" for cut in found.cuts)
    if found.valley is not None:
        line["valley"] = {"depth": found.valley.depth, "p": found.valley.p, "ends": found.valley.ends}
    return line


KINDS = ("meaningful", "equivalent", "inconclusive")


def plain(report: Report | None) -> list[float] | None:
    """Estimate, limits and n."""
    return None if report is None else [round(x, 4) for x in (report.estimate, report.low, report.high)] + [report.n]


# ---- the causal arm --------------------------------------------------------------------------------------------------


def patched(runner: Runner, model: Local, runs: Sequence[Run], outcomes: Sequence[float | None]) -> Line:
    """How often the answer changes when the prompt's states of a run of the other outcome are written over a run's own.

    At each layer: the last prompt token alone (h0), and all prompt tokens. The seed is the run's own, so that nothing
    else changes; ``none`` is the same fork without a patch.
    """
    sides = [[i for i, value in enumerate(outcomes) if value == side] for side in (0.0, 1.0)]
    pairs = [pair for a, b in zip(*sides, strict=False) for pair in ((a, b), (b, a))][:PAIRS]
    layers = list(range(LAYERS))
    source = {i: next(s for s in sources_of([runs[i]]) if s.seq == _ask(runs[i])) for pair in pairs for i in pair}
    states = {i: _states(model, source[i], layers) for i in source}
    found: Line = {"none": _changed(runner, runs, outcomes, [(mine, ()) for mine, _ in pairs])}
    for place, layer in enumerate(layers):
        last = [(mine, Tap(layer, positions=(-1,), patch=states[donor][-1, place])) for mine, donor in pairs]
        every = [
            (mine, Tap(layer, positions=tuple(range(source[mine].prompt)), patch=states[donor][:, place]))
            for mine, donor in pairs
        ]
        found[f"h0 {layer}"] = _changed(runner, runs, outcomes, last)
        found[f"prompt {layer}"] = _changed(runner, runs, outcomes, every)
    return found


def _ask(run: Run) -> int:
    return next(call.seq for call in run.calls if call.kind == "ask")


def _states(model: Local, source: Source, layers: list[int]) -> np.ndarray:
    """States of the prompt, float32 [prompt, layers, width]."""
    (states,) = model.states([source.ids.tolist()], layers, [list(range(source.prompt))])
    return np.asarray(states)


def _changed(
    runner: Runner, runs: Sequence[Run], outcomes: Sequence[float | None], arms: Sequence[tuple[int, Any]]
) -> list[int]:
    """(forks whose outcome is not the run's own, forks)."""
    hits = 0
    for mine, tap in arms:
        fork = runner.fork(runs[mine], at=_ask(runs[mine]), tap=tap, seed="same")[0]
        hits += REFUSES.of([fork], [_ask(fork)])[0] != outcomes[mine]
    return [hits, len(arms)]
