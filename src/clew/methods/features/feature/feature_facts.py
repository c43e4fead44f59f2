"""What is known of a feature of two checkpoints as the store keeps it: figures, places, what it did to behaviours.

``feature_filing`` writes it and the viewer's page of a feature reads it. A feature is named as its token values are, by
``name_of``: its Report has that id and names the runs of its places, and the first of these holds the facts. Places are
cursors: this must never hold text of a run, so that what is redacted there is shown nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from clew.core.records import Annotation, Report
from clew.store import Keeper

NAME = re.compile(r"diff-([0-9a-f]{8})-f(\d{1,7})")
MOST = 400  # entries of a list that are read back: a store may come from anywhere


class Place(NamedTuple):
    """A token at which a feature is active: the model call, the position in all that it read and replied, the number
    of the token in the reply (negative in the prompt), and the activation."""

    run: str
    seq: int
    position: int
    token: int
    value: float


class Arm(NamedTuple):
    """What a feature did in one arm: ``stage`` rate (nothing written), selection, test or control; what was written;
    the Report's id; p."""

    stage: str
    about: str
    report: str
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Figures of a feature.

    a, b: the models. share, fitted: decoder-norm share and fitted share of A. tokens: that were read, ``active`` of
    them with the feature. calls: model calls whose tokens have values. high: the 95th percentile of its activation.
    top: the greatest. counts: active tokens in equal bins from 0 to ``top``. label: in words, by the run ``labeller``.
    """

    latent: int
    a: str
    b: str
    layer: int
    whose: str
    share: float
    fitted: float
    tokens: int
    active: int
    calls: int
    high: float
    top: float
    counts: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    label: str = ""
    labeller: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of writing a feature while the model answered: the behaviour, the verdict over all features, the arms.

    ``part`` is "exclusive" or "shared" where this feature was the best of its part, and else empty.
    """

    behaviour: str
    kind: str
    text: str
    part: str
    arms: tuple[Arm, ...]


def name_of(label: str, latent: int) -> str:
    """The name of a feature's token values, and the id of its Report."""
    return f"diff-{label}-f{latent}"


def noted(it: Facts | Asked) -> str:
    """As the data of an annotation."""
    return json.dumps(asdict(it), ensure_ascii=False)


def known(store: Keeper, reports: Mapping[str, Report] | None = None) -> dict[str, Report]:
    """The Reports of all features of a store, by name."""
    every = store.reports() if reports is None else reports
    return {name: report for name, report in every.items() if NAME.fullmatch(name)}


def read(store: Keeper, name: str, report: Report) -> tuple[Facts | None, list[Asked]]:
    """The facts of a feature and what was asked of it; None where they are gone or are none."""
    rows = store.annotations(report.runs[:1], method=name, target="run") if report.runs else []
    facts = next((found for row in rows if not row.params and (found := _facts(row.data)) is not None), None)
    asked = [one for row in rows if row.params and (one := _asked(row.data)) is not None]
    return facts, sorted(asked, key=lambda one: one.behaviour)


def row_of(name: str, run: str, it: Facts | Asked, params: str = "") -> Annotation:
    """The annotation that holds them. ``params``: digest of what was asked."""
    return Annotation("run", name, None, run, params=params, data=noted(it))


_NUMBERS = {"latent": int, "layer": int, "share": float, "fitted": float, "tokens": int, "active": int, "calls": int,
            "high": float, "top": float}  # fmt: skip


def _facts(data: str) -> Facts | None:
    found = _object(data)
    try:
        numbers: dict[str, Any] = {name: kind(found[name]) for name, kind in _NUMBERS.items()}
        words: dict[str, Any] = {name: str(found[name]) for name in ("a", "b", "whose", "label", "labeller")}
        listed = found["places"][:MOST]
        places = [Place(str(run), int(seq), int(at), int(token), float(x)) for run, seq, at, token, x in listed]
        counts = tuple(map(int, found["counts"][:MOST]))
        return Facts(**numbers, **words, places=tuple(places), counts=counts)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _asked(data: str) -> Asked | None:
    found = _object(data)
    try:
        words = {name: str(found[name]) for name in ("behaviour", "kind", "text", "part")}
        arms = [(*map(str, (stage, about, report)), p) for stage, about, report, p in found["arms"][:MOST]]
        told = tuple(Arm(stage, about, report, None if p is None else float(p)) for stage, about, report, p in arms)
        return Asked(**words, arms=told)
    except (KeyError, TypeError, ValueError):
        return None


def _object(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
