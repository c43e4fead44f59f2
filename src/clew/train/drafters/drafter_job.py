"""The steps of `clew draft`: from a model and text to a drafter in a folder, and to its calibration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.fit import checkpoint
from clew.models.drafters import calibration, ready
from clew.models.drafters import folder as folders
from clew.models.drafters.layers import Design, Trained
from clew.models.engine.forwards.weights import text_config, weights_digest
from clew.models.local.model import Local
from clew.train.drafters import acceptance, drafter_losses, temperature_scaling
from clew.train.drafters.drafter_losses import Schooling, Step, Taps
from clew.train.drafters.target_text import Text

F64 = npt.NDArray[np.float64]
HELD = 10  # every tenth text is kept back for the table at the end
CE_ONLY = ("eagle3", "independent")  # learn by cross-entropy alone, as published


def mask_of(model: Local) -> int:
    """A token id that text never holds: the tokenizer's mask, or a row of the embedding that it does not use.

    Raises:
        BadInput: there is none.
    """
    tokenizer, vocabulary = model.tokenizer, text_config(model.module).vocab_size
    if tokenizer is not None and tokenizer.mask_token_id is not None:
        return int(tokenizer.mask_token_id)
    if tokenizer is not None and len(tokenizer) < vocabulary:
        return len(tokenizer)
    for name in ("pad_token_id", "unk_token_id"):
        found = getattr(tokenizer, name, None)
        if found is not None and found != getattr(tokenizer, "eos_token_id", None):
            return int(found)
    raise BadInput(
        "the tokenizer has no mask token and no id to spare", remedy="Name a token id that text never holds: --mask ID."
    )


def tapped(
    model: Local,
    texts: Sequence[Text],
    taps: Sequence[int],
    making: Path,
    advance: Callable[[int], None] = lambda n: None,
) -> tuple[Taps, Taps]:
    """Text to learn from and text held back, with what the target computed on it; kept below ``making``.

    Raises:
        BadInput: fewer than two texts with a token of their own.
    """
    longest = model.context
    kept = [Text(t.ids[:longest], t.first, t.domain) for t in texts if t.first + 2 <= min(len(t.ids), longest)]
    if len(kept) < 2:
        raise BadInput(f"{len(kept)} texts to learn from", remedy="Give more prompts or runs; several hundred are few.")
    held = [i for i in range(len(kept)) if i % HELD == HELD - 1] or [len(kept) - 1]
    parts = [[t for i, t in enumerate(kept) if i not in set(held)], [kept[i] for i in held]]
    found = []
    for name, part in zip(("learn", "held"), parts, strict=True):
        about = value_digest([list(taps), [[list(t.ids), t.first] for t in part], model.digest()]).hex()[:16]
        where = making / f"{name}-{about}"
        if checkpoint.exists(where):
            advance(len(part))
            found.append(Taps.open(checkpoint.locate(where)))
            continue
        ids, first, domains = ([getattr(t, f) for t in part] for f in ("ids", "first", "domain"))
        found.append(drafter_losses.tap(model.module, ids, first, taps, where, domains, advance=advance))
    return found[0], found[1]


def learn(model: Local, design: Design, how: Schooling, data: Taps, making: Path) -> Iterator[tuple[Step, Trained]]:
    """Train, giving each step and the module; goes on where a killed training stopped."""
    torch.manual_seed(how.seed)
    module = folders.fresh(design, model.module)
    for step in drafter_losses.train(module, data, how, making / "training"):
        yield step, module


def learnt(model: Local, design: Design, how: Schooling, making: Path) -> tuple[Step, Trained]:
    """The same of a training that was killed behind its last step."""
    module = folders.fresh(design, model.module)
    return Step(how.steps, cpu_s=drafter_losses.resume(module, making / "training")), module


def put(model: Local, module: Trained, how: Schooling, folder: Path, step: Step) -> Path:
    """Write the drafter; the folder appears whole or not at all."""
    target = folders.target_of(model.module, model.tokenizer, model.ref)
    about = {"schooling": asdict(how), "cpu_s": round(step.cpu_s, 1)}
    return checkpoint.replace(folder, lambda fresh: folders.write(module, fresh, target, about))


def lengths(module: Trained, data: Taps) -> dict[str, dict[str, Any]]:
    """What the target would accept on text held back, by domain and in all: accepted length with the 95 % interval
    of a percentile bootstrap over texts, conditional acceptance by position, texts; see
    clew.train.drafters.acceptance."""
    walked: dict[str, list[F64]] = {}
    for row, along, _ in acceptance.acceptances(module, data, np.arange(len(data))):
        n, reached = acceptance.walk(along)
        for name in {"all", data.domains[row] if data.domains else "all"}:
            walked.setdefault(name, []).append(np.array([n, *reached]))
    order = sorted(walked, key=lambda name: (name != "all", name))
    return {name: _accepted(np.array(walked[name])) for name in order}


def _accepted(walked: F64) -> dict[str, Any]:
    """The figures of some texts, from their rounds and how many of these reach each length: [texts, 1 + block + 1]."""
    texts, (rounds, *reached) = len(walked), walked.sum(0)
    drawn = np.random.default_rng(0).multinomial(texts, np.full(texts, 1 / texts), size=2000) @ walked
    low, high = np.percentile(drawn[:, 1:].sum(1) / drawn[:, 0], [2.5, 97.5])
    accepted = [float(after / before) for before, after in itertools.pairwise(reached)]
    length = float(sum(reached) / rounds)
    return {"length": length, "low": float(low), "high": float(high), "accepted": accepted, "texts": texts}


def calibrate(
    model: Local,
    folder: Path,
    data: Taps,
    temperature: float,
    wanted: int,
    advance: Callable[[int], None] = lambda n: None,
) -> tuple[calibration.Table, dict[str, list[float]]]:
    """Fit a table on one half of the texts, judge it on the other, and keep it beside the drafter.

    Returns:
        the table; and by position "raw", "scaled" and "floor": calibration errors of the half that was held back.
    """
    module = folders.read(folder, model.module, model.tokenizer)
    drafter, half = ready(module), len(data) // 2
    if not half:
        raise BadInput("one text is too few to calibrate on", remedy="Give more prompts.")
    each = -(-wanted // len(data))
    parts = []
    for number, rows in enumerate((np.arange(half), np.arange(half, len(data)))):
        found = []
        for start in range(0, len(rows), 64):
            part = rows[start : start + 64]
            found.append(acceptance.rounds(model.module, drafter, data, part, each, temperature, 1000 * number + start))
            advance(len(part))
        parts.append([np.concatenate([getattr(f, name) for f in found]) for name in ("logits", "mask")])
    (logits, mask), (others, happened) = parts
    heat = temperature_scaling.scale(logits, mask)
    raw, scaled = temperature_scaling.survival(others), temperature_scaling.survival(others, heat)
    told = {
        "raw": [temperature_scaling.ece(c, y) for c, y in zip(raw.T, happened.T, strict=True)],
        "scaled": [temperature_scaling.ece(c, y) for c, y in zip(scaled.T, happened.T, strict=True)],
        "floor": [temperature_scaling.noise_floor(c) for c in scaled.T],
    }
    before, after = (float(np.mean(told[name])) for name in ("raw", "scaled"))
    heats, block = tuple(heat.tolist()), module.design.block
    table = calibration.Table(weights_digest(module), block, temperature, heats, len(logits), before, after)
    calibration.keep(folder, table)
    return table, told
