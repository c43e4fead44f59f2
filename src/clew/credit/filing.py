"""``Credit``: what an estimator found, and its annotations, one value for every ask of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput, need
from clew.core.keys import value_digest
from clew.core.reading import Grouped
from clew.core.records import Annotation
from clew.credit.family import Diagnostics, Term, advantages
from clew.credit.steps import F64, Key, Steps, as_groups, steps
from clew.store.protocol import stamped

if TYPE_CHECKING:
    from pandas import DataFrame

Rescale = Literal["rms"] | None
VERSION = "1"


@dataclass(frozen=True, slots=True)
class Credit:
    """What a method found for some groups.

    method, params, digest: its name, its parameters, and their hex digest.
    steps: the columns it read. value: float64 [n], each step's advantage, 0 where not ``diagnostics.present``.
    notes: sentences about what the method chose by itself, and why. comparisons: those behind the choice.
    """

    method: str
    params: Mapping[str, Any]
    digest: str
    steps: Steps
    value: F64
    diagnostics: Diagnostics
    notes: tuple[str, ...] = ()
    comparisons: Comparisons | None = None

    def annotations(self) -> list[Annotation]:
        """One row per ask: target ``call``, the run that issued it, scope the group.

        Every ask of a step carries the step's advantage. A Call shared by several runs of a group (forks) carries the
        mean over them. Steps without an advantage have no row: absent is not zero. Trainers skip their tokens, so they
        enter no denominator either.
        """
        found: dict[tuple[str, int, int], list[float]] = {}
        usable = self.diagnostics.present & np.isfinite(self.value)
        for row in np.flatnonzero(usable).tolist():
            group, value = int(self.steps.group[row]), float(self.value[row])
            for run, seq in self.steps.asks[row]:
                found.setdefault((run, seq, group), []).append(value)
        names = self.steps.groups
        return [
            Annotation("call", self.method, sum(v) / len(v), run, seq, b"", VERSION, self.digest, names[group])
            for (run, seq, group), v in found.items()
        ]

    def frame(self) -> DataFrame:
        """A pandas DataFrame with one row per step; the advantage is NaN where absent.

        Raises:
            MissingExtra: pandas is not installed.
        """
        s = self.steps
        value = np.where(self.diagnostics.present, self.value, np.nan)
        names = {"group": [s.groups[i] for i in s.group], "run": [s.runs[i] for i in s.run]}
        columns = {"t": s.t, "node": s.state, "next": s.next, "outcome": s.outcome, "valid": s.valid}
        return need("pandas", "frames").DataFrame({**names, **columns, self.method: value})

    def __repr__(self) -> str:
        d = self.diagnostics
        return (
            f"<Credit {self.method} {len(self.steps)} steps of {len(self.steps.runs)} runs, {d.nodes} nodes, "
            f"{d.singleton_steps:.0%} of steps in singletons, {d.silent_groups:.0%} of groups silent>"
        )


def assign(
    groups: Grouped,
    method: str,
    spec: Sequence[Term],
    params: Mapping[str, Any],
    *,
    rescale: Rescale = None,
    share: bool = False,
    store: bool = True,
    key: Key = "state",
    columns: Steps | None = None,
    notes: Sequence[str] = (),
) -> Credit:
    """Run a list of terms over stored groups; ``store`` files and commits the annotations in the groups' store.

    Args:
        params: what distinguishes this call of the method; JSON values. ``rescale`` joins them.
        key: what names a node, as for ``steps``; it joins ``params`` unless it is the world's state key.
        columns: the groups' ``Steps`` under that key, where the caller has read them already.

    Raises:
        BadInput: no run was judged, the key is not known, or the terms cannot be used.
    """
    if not method:
        raise BadInput("a method needs a name", remedy="Pass name='g2po', or another.")
    read = steps(groups, key=key) if columns is None else columns
    value, diagnostics = advantages(read, spec, rescale=rescale, share=share)
    settings = {**params, "rescale": rescale} | ({} if key == "state" else {"key": key})
    credit = Credit(method, settings, value_digest(settings).hex(), read, value, diagnostics, tuple(notes))
    if store:
        keeper = as_groups(groups)[0].store
        keeper.annotate(stamped(credit.annotations()))
        keeper.commit()
    return credit
