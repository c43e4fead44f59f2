"""Layer 1: what the audit says of pairs of tiny language models of which the truth is known (R, N, Z)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clew.core.values import Sampling
from clew.methods.features import crosscoder_files, diff_verdict, features, learning, mixture, steered_behaviour
from clew.methods.features.steered_behaviour import Inside, Plan
from clew.methods.features.steering import Trial
from clew.methods.features.subjects import Replies
from clew.models.taps.source import sources_of
from papers.E175_crosscoder import organisms
from papers.E175_crosscoder.organisms import CALL, LAYER, THINGS, WIDTH, Language, Organism, Rows
from papers.experiment import Line, apart, each, grid

TRAINING = {"latents": 256, "k": 8, "batch": 512, "steps": 2000, "lr": 2e-3, "dead": 100}
ROWS = 4000  # texts of the mixture
ALPHAS = (6.0, 16.0, 32.0)
# The verdict asks A's own feature to beat the shared ones since R was called exclusive with seeds 0 and 1: these seeds
# were drawn after.
FRESH = (3, 4, 5)
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield from grid(kind="pair", pair=("R", "N", "Z"), method="reseated", prompts=60, steps=1000, seed=0)
        return
    for seed in range(3):
        yield from grid(kind="pair", pair=("N", "R", "Z"), method="reseated", prompts=200, steps=2000, seed=seed)
    for seed in FRESH:
        yield from grid(kind="pair", pair=("N", "R"), method="reseated", prompts=200, steps=2000, seed=seed)
    yield from grid(kind="penalty", pair="N", method=("visible", "exclusive"), steps=2000, seed=range(3))
    yield from grid(kind="pair", pair=("R", "N"), method=("dedicated", "plain"), prompts=200, steps=2000, seed=range(3))


def cost(cell: Line) -> float:
    return 100.0 if cell["kind"] == "penalty" else (30.0 if cell["steps"] < 2000 else 60.0) + 0.2 * cell["prompts"]


def _one(setting: Line, seed: int) -> Line:
    pair = organisms.organism(setting["pair"], seed, 500 if setting["steps"] < 2000 else 1200)
    with tempfile.TemporaryDirectory() as folder:
        mixed = _mixture(setting["pair"], pair, seed, Path(folder))
        if setting["kind"] == "penalty":
            return _penalties(setting, seed, mixed, pair)
        return _asked(setting, seed, mixed, pair, Path(folder))


def _mixture(kind: organisms.Kind, pair: Organism, seed: int, folder: Path) -> mixture.Mixture:
    language, rng = Language(pair.b), np.random.default_rng([175, seed, 3])
    rows = language.draw(rng, ROWS)
    ids = language.answered(rows, organisms.calls(rng, rows, kind))
    given = [(source, 1) for source in sources_of(list(ids))]
    return mixture.collect(pair.a, pair.b, given, LAYER, folder, most=10**9, seed=seed)


def _learnt(mixed: mixture.Mixture, how: learning.Learning) -> Any:
    module = learning.learn(mixed.draw, WIDTH, how)
    crosscoder_files.unit_norms(module)
    return module.eval()


def _penalties(setting: Line, seed: int, mixed: mixture.Mixture, pair: Organism) -> Line:
    """What each penalty does to the error and to the use of A's own latents, by its weight."""
    out: Line = {"curve": []}
    for weight in (0.0, 1e-3, 1e-2, 1e-1, 1.0):
        how = learning.Learning(
            **TRAINING,
            method="dedicated",
            penalty=setting["method"],
            shared=weight,
            exclusive=weight,
            aux=0.0,
            seed=seed,
        )
        module = _learnt(mixed, how)
        held = mixed.take(mixed.held)
        code = module.code(module.scaled(held))
        own = how.design(WIDTH).own[0]
        fvu = module.unexplained(module.scaled(held)).tolist()
        out["curve"].append(
            {
                "weight": weight,
                "fvu": fvu,
                "own": float((code[:, :own] > 0).float().mean()),
                "cos": _planted(module, pair, own),
            }
        )
    return out


def _planted(module: Any, pair: Organism, own: int) -> float | None:
    """Largest cosine of the planted direction with a decoder vector of A's own latents."""
    if pair.planted is None or not own:
        return None
    mine = module.decoder[:own, :WIDTH].detach()
    return float(torch.cosine_similarity(mine, pair.planted[None], dim=1).abs().max())


def _asked(setting: Line, seed: int, mixed: mixture.Mixture, pair: Organism, folder: Path) -> Line:
    how = learning.Learning(
        **{**TRAINING, "steps": setting["steps"]}, method=setting["method"],
        aux=0.0 if setting["method"] == "dedicated" else 1 / 32, seed=seed,
    )  # fmt: skip
    module = _learnt(mixed, how)
    again, _ = crosscoder_files.load(crosscoder_files.save(module, folder / "crosscoder", {}))
    held = mixed.take(mixed.held)
    latents = features.latents(module, mixed.portions(np.concatenate([mixed.train, mixed.held])))
    rows, aside = _prompts(Language(pair.b), seed, setting["prompts"])
    subject = Replies(
        {"A": pair.a, "B": pair.b}, organisms.prompts(rows), lambda m: CALL in m.text,
        Sampling(temperature=1.0, max_tokens=6), seed=seed,
    )  # fmt: skip
    states = steered_behaviour.states_at([pair.a, pair.b], [p.ids for p in subject.prompts], LAYER)
    inside = Inside(module, latents, LAYER, states, held)
    plan = Plan(way="raise", most=setting["prompts"], anyway=True, seed=seed, random=50)
    found = steered_behaviour.ask(subject, inside, plan, "a tool call", aside)
    out: Line = {"unexplained": module.unexplained(module.scaled(held)).tolist(), "leak": module.leak()}
    out["same when loaded"] = bool(torch.equal(again.rebuilt(held), module.rebuilt(held)))
    out["refused"] = _refused(module, held)
    out |= {"planted": _planted_alone(inside, pair), "alone": int(latents.alone(0).sum())}
    gated = diff_verdict.Finding("", tried=found.tried)
    diff_verdict.settle(gated, None)
    added = found.rates[2].report.low > 0
    out |= {
        "verdict": found.kind if added else "nothing",
        "said": found.text,
        "ungated": gated.kind,
        "p": diff_verdict.tests(found.tried),
    }
    out["rates"] = {line.about: _told(line) for line in found.rates}
    out["lines"] = {line.about: _told(line) for line in found.lines}
    for part, one in found.tried.items():
        sizes = [e.size for e in one.random]
        out[part] = {"feature": one.cell.direction.name, "dose": one.cell.dose, "select": one.cell.effect.size}
        out[part] |= {"test": one.test.size, "low": one.test.report("test").low}
        out[part] |= {"random mean": float(np.mean(sizes)) if sizes else None, "random p99": one.bar if sizes else None}
        if pair.planted is not None:
            out[part]["cos"] = float(torch.cosine_similarity(one.cell.direction.vector, pair.planted, dim=0))
        trial = Trial(subject, LAYER, "raise", *_halves(subject, setting["prompts"], seed, aside))
        out[part]["multiplied"] = {
            str(x): steered_behaviour.multiplied(trial, inside, one.cell.direction.latent, x, "test").size
            for x in ALPHAS
        }
    return out


def _halves(subject: Replies, most: int, seed: int, aside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mine = np.setdiff1d(np.arange(len(subject.prompts)), aside)
    return steered_behaviour._halves(mine, subject.outcomes("A", "first", mine), "raise", Plan(most=most, seed=seed))


def _told(line: diff_verdict.Line) -> Line:
    r = line.report
    return {"estimate": r.estimate, "low": r.low, "high": r.high, "n": r.n, "p": line.p}


def _planted_alone(inside: Inside, pair: Organism) -> float | None:
    """Largest cosine of the planted direction with a latent that counts as A's alone."""
    own = inside.latents.alone(0).nonzero().flatten()
    if pair.planted is None:
        return None
    if not len(own):
        return 0.0
    return float(torch.cosine_similarity(inside.module.decoder[own, :WIDTH], pair.planted[None], dim=1).abs().max())


def _refused(module: Any, held: torch.Tensor) -> bool:
    """Whether states that were scaled already are refused."""
    from clew.core.errors import BadInput

    try:
        module.scaled(module.scaled(held))
    except BadInput:
        return True
    return False


def _prompts(language: Language, seed: int, most: int) -> tuple[Rows, np.ndarray]:
    """Prompts with disjoint arguments: with and without cue where a tool can help, and others where it cannot."""
    rng = np.random.default_rng([175, seed, 4])
    every = rng.permutation(THINGS * THINGS)
    pairs = np.stack([every // THINGS, every % THINGS], 1)
    n = min(len(pairs), int(most * 2.2) + 150)
    tool = np.arange(n) >= min(most, 100)
    cue = rng.random(n) < 0.12
    return language.rows(pairs[:n], tool, cue, rng.integers(0, organisms.MARKS, n)), np.flatnonzero(~tool)


run = each(_one)
