"""The fast router of a measured pool: a head fitted to all of its questions, written as the folder that serves.

``clew route fit`` calls it. What it is worth is told by ``advice`` from held-out questions, never by these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput
from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Head, Worker
from clew.models.remote.prices import price_of
from clew.route import soft_targets
from clew.route.advice import Advice
from clew.route.question_space import Space, vectors
from clew.route.reward_matrix import Matrix


def head_of(found: Matrix, features: Ngrams, tau: float = soft_targets.TAU, seed: int = 0) -> tuple[Head, int]:
    """A linear head over n-grams, fitted to soft targets; and the iteration at which it stopped."""
    h = vectors(found.texts, features)
    space = Space.of(h, seed)
    fitted = soft_targets.fit(space(h), found.means, tau=tau, seed=seed)
    constant = float(np.median(h[:, 0]))  # equal for every text with a word in it
    weights = space.unfold(fitted.weights, fitted.bias, constant)
    return Head(weights.astype(np.float32)), fitted.at


def workers_of(names: Sequence[str], refs: Mapping[str, str]) -> tuple[Worker, ...]:
    """The workers of a folder: each with a short name of its own, the model it is loaded by, and its price if known.

    Args:
        refs: model by worker, where the worker's name is not the model's own.

    Raises:
        BadInput: ``refs`` names a worker that is none.
    """
    if unknown := sorted(set(refs) - set(names)):
        raise BadInput(f"{unknown[0]!r} is no worker of this pool", remedy=f"Its workers are {', '.join(names)}.")
    out, taken = list[Worker](), set[str]()
    for name in names:
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[-60:].lstrip("-._") or "worker"
        while short in taken:
            short = f"{short[:56]}-{len(taken)}"
        taken.add(short)
        ref = refs.get(name, name)
        price = price_of(ref.partition("@")[0].rpartition(":")[2])
        out.append(Worker(short, ref, price and price.prompt, price and price.completion))
    return tuple(out)


def write(
    advice: Advice, folder: Path, *, refs: Mapping[str, str] | None = None, tau: float = soft_targets.TAU, seed: int = 0
) -> Path:
    """Fit to all questions and write the folder; gives it.

    Raises:
        BadInput: see ``workers_of`` and ``soft_targets.targets``.
    """
    found, features = advice.found, Ngrams()
    workers = workers_of(found.workers, refs or {})
    head, stopped = head_of(found, features, tau, seed)
    about: dict[str, Any] = {
        "method": "soft targets, KL loss (arXiv 2606.21228, 3.2)",
        "questions": len(found), "matrix": found.label, "tau": tau, "seed": seed, "stopped": stopped,
        "held out": advice.held, "verdict": advice.verdict,
    }  # fmt: skip
    for name, arm in (("reward", advice.ours), ("best single", advice.arm("best single"))):
        about[name] = {"estimate": arm.reward.estimate, "low": arm.reward.low, "high": arm.reward.high}
    return router.save(folder, workers, features, head, about)
