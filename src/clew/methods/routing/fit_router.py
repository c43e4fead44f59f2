"""The fast router of a measured pool: a head fitted to all of its questions, written as the folder that serves.

``clew route fit`` and ``clew route add`` call it. What a router is worth is told by ``advice`` from held-out questions,
never by these. Beside the router's own files a folder may hold the probe questions by which a worker joins later:

    probes.json   the questions' names and the pool's mean reward at each
    probes.npy    float32 [probes, dim], what each adds to the head of a worker
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.values import F32
from clew.methods.routing import probe_head, soft_targets
from clew.methods.routing.advice import Advice
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import F64, Matrix
from clew.models.compose import fitted_tasks, router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Features, Head, Router, Worker
from clew.models.remote.prices import price_of

PROBES, NUMBERS = "probes.json", "probes.npy"
LONGEST = 1 << 22  # bytes of probes.json


class Probes(NamedTuple):
    """What a folder keeps for workers that join later.

    questions: names. middle: float64 [P], the known workers' mean reward at each. adds: float32 [P, dim], what a reward
    above that adds to a worker's row of the head. head: digest of the head that belongs to it.
    """

    questions: tuple[str, ...]
    middle: F64
    adds: F32
    head: str

    def row(self, given: Mapping[str, float]) -> F32:
        """A worker's row of the head, float32 [dim], of its mean rewards by question; one without says nothing."""
        pairs = zip(self.questions, self.middle.tolist(), strict=True)
        over = [given[name] - middle if name in given else 0.0 for name, middle in pairs]
        made: F32 = (np.array(over) @ self.adds.astype(np.float64)).astype(np.float32)
        return made


def head_of(
    found: Matrix, features: Features, tau: float = soft_targets.TAU, seed: int = 0, h: F64 | None = None
) -> tuple[Head, int]:
    """A linear head over the features, fitted to soft targets; and the iteration at which it stopped.

    Args:
        h: the questions' vectors, float64 [Q, dim], where they are known.
    """
    h = vectors(found.texts, features) if h is None else h
    space = Space.of(h, seed, centred=features.centred)
    fitted = soft_targets.fit(space(h), found.means, tau=tau, seed=seed)
    constant = float(np.median(h[:, 0]))  # equal for every text with a word in it
    weights = space.unfold(fitted.weights, fitted.bias, constant)
    return Head(weights.astype(np.float32)), fitted.at


def probed(
    found: Matrix, features: Features, probes: int, tau: float = soft_targets.TAU, seed: int = 0, h: F64 | None = None
) -> tuple[Head, Probes]:
    """A head over workers known by their rewards at so many probe questions, and what a worker needs to join later.

    Raises:
        BadInput: see ``probe_head.chosen`` and ``probe_head.fit``.
    """
    h = vectors(found.texts, features) if h is None else h
    space, at = Space.of(h, seed, centred=features.centred), probe_head.chosen(len(found), probes, seed)
    made = probe_head.fit(space(h), found.means, at, tau=tau, seed=seed)
    adds = space.unfold(made.u[:-1].T, made.u[-1], float(np.median(h[:, 0]))).astype(np.float32)
    names = tuple(found.questions[i] for i in at)
    kept = Probes(names, made.middle, adds, "")
    rows = [kept.row(dict(zip(names, found.means[at, w], strict=True))) for w in range(len(found.workers))]
    head = Head(np.stack(rows))
    return head, kept._replace(head=_named(head))


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
    advice: Advice,
    folder: Path,
    *,
    refs: Mapping[str, str] | None = None,
    tau: float = soft_targets.TAU,
    seed: int = 0,
    features: Features | None = None,
    h: F64 | None = None,
    probes: int = 0,
) -> Path:
    """Fit to all questions and write the folder; gives it.

    Args:
        features: default: n-grams. h: the questions' vectors, float64 [Q, dim], where they are known. probes: probe
            questions by which a worker may join later; 0 for the usual head.

    Raises:
        BadInput: see ``workers_of`` and ``soft_targets.targets``.
    """
    found, features = advice.found, features or Ngrams()
    workers = workers_of(found.workers, refs or {})
    about: dict[str, Any] = {
        "method": "soft targets, KL loss (arXiv 2606.21228, 3.2)",
        "questions": len(found), "matrix": found.label, "tau": tau, "seed": seed,
        "held out": advice.held, "verdict": advice.verdict, fitted_tasks.FIELD: fitted_tasks.told(found.questions),
    }  # fmt: skip
    if probes:
        head, kept = probed(found, features, probes, tau, seed, h)
        about["method"] = "workers by probe questions"
    else:
        (head, about["stopped"]), kept = head_of(found, features, tau, seed, h), None
    for name, arm in (("reward", advice.ours), ("best single", advice.arm("best single"))):
        about[name] = {"estimate": arm.reward.estimate, "low": arm.reward.low, "high": arm.reward.high}
    out = router.save(folder, workers, features, head, about)
    keep(out, kept)
    return out


def keep(folder: Path, probes: Probes | None) -> None:
    """Write the probe questions beside a router, or remove those of an earlier one."""
    if probes is None:
        for name in (PROBES, NUMBERS):
            (folder / name).unlink(missing_ok=True)
        return
    beside = folder / f".{os.getpid()}.npy"
    np.save(beside, probes.adds.astype("<f4"), allow_pickle=False)
    os.replace(beside, folder / NUMBERS)
    said = {"questions": list(probes.questions), "middle": probes.middle.tolist(), "head": probes.head}
    (folder / PROBES).write_text(json.dumps(said | {"adds": _hashed(probes.adds)}, indent=1) + "\n", encoding="utf-8")


def probes_of(folder: Path, made: Router) -> Probes:
    """The probe questions of a router.

    Raises:
        BadInput: it was fitted without, or its head was changed since. BadRecord: the files are damaged.
    """
    path, remedy = folder / PROBES, "Fit the router with --probe."
    if not path.is_file():
        raise BadInput(f"{folder} has no probe questions, by which a worker could join", remedy=remedy)
    damaged = BadRecord(f"{path} and {NUMBERS} hold no probe questions", remedy=remedy)
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError
        said = json.loads(path.read_bytes())
        names, middle = tuple(map(str, said["questions"])), np.asarray(said["middle"], np.float64)
        if not 0 < len(names) <= probe_head.MOST or middle.shape != (len(names),) or not np.isfinite(middle).all():
            raise ValueError
        adds = np.load(folder / NUMBERS, mmap_mode="r", allow_pickle=False)
        if adds.shape != (len(names), made.features.dim) or adds.dtype != np.dtype("<f4"):
            raise ValueError
        adds = np.array(adds, np.float32)
        if not np.isfinite(adds).all() or _hashed(adds) != said["adds"]:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, RecursionError, EOFError, SyntaxError, MemoryError):
        raise damaged from None
    if said.get("head") != _named(made.head):
        told = f"the head of {folder} was changed after its probe questions were chosen"
        raise BadInput(told, remedy="Add the worker to the router as it was fitted, then change the head.")
    return Probes(names, middle, adds, said["head"])


def with_worker(folder: Path, worker: Worker, given: Mapping[str, float], out: Path) -> Router:
    """Write a router with one worker more, known by its mean rewards at probe questions; gives it.

    Raises:
        BadInput: it has rewards at fewer than half of them, or its name is taken; see ``probes_of``.
    """
    made = router.load(folder)
    probes = probes_of(folder, made)
    has = sum(name in given for name in probes.questions)
    if 2 * has < len(probes.questions):
        told = f"{worker.name} has rewards at {has} of {len(probes.questions)} probe questions"
        raise BadInput(told, remedy="Measure it at the questions that the pool was measured at.")
    if worker.name in made.names:
        raise BadInput(f"the pool has a worker {worker.name} already", remedy="Name a model that is not in it.")
    head = Head(np.concatenate([made.head.weights, probes.row(given)[None]]))
    larger = replace(made, workers=(*made.workers, worker), head=head)
    about = dict(made.about) | {"joined": [*made.about.get("joined", []), worker.name]}
    router.save(out, larger.workers, larger.features, head, about)
    keep(out, probes._replace(head=_named(head)))
    return larger


def _named(head: Head) -> str:
    return _hashed(head.weights)


def _hashed(numbers: F32) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f4").tobytes()).hexdigest()
