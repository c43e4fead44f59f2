"""Zero-variance groups and their causes, by what the judge said (specs/E162 section 9); ``clew log`` prints them.

A group has zero variance where the rewards of its decided runs are all equal: a policy gradient then has nothing to
compare. A shaped reward (a length penalty, a bonus) may differ in such a group, and training on it can ruin a policy.
Only the judge's own verdicts count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clew.core.records import Annotation, GroupRow
from clew.store.protocol import Tables

WON = 0.5


class ZeroVariance(NamedTuple):
    """Groups of one collection (``name/iteration``; empty for those without a name).

    groups: how many. zero_variance: how many of them have no two different rewards. These are lost (every decided run
    at or below .5), won (every one above .5) or undecided (fewer than two runs with a verdict). leaves: runs a group
    has on average. alike: per component of the verdict, in how many groups it is the same on all runs that have it,
    two at least. informative: per other component, in how many zero-variance groups it still varies.
    """

    label: str
    groups: int
    zero_variance: int
    lost: int
    won: int
    undecided: int
    leaves: float
    alike: dict[str, int]
    informative: dict[str, int]

    @property
    def share(self) -> float:
        """Of zero-variance groups among all."""
        return self.zero_variance / self.groups


def zero_variance(store: Tables, groups: Sequence[GroupRow]) -> list[ZeroVariance]:
    """One line per collection, in the order in which its first group was made. Groups of a single run are left out."""
    compared = [g for g in groups if len(g.runs) > 1]
    wanted = sorted({run for g in compared for run in g.runs})
    verdicts = _verdicts(store.annotations(wanted, None, "run") if wanted else ())
    by_label: dict[str, list[GroupRow]] = {}
    for group in compared:
        by_label.setdefault(group.name.rpartition("/")[0], []).append(group)
    return [_line(label, rows, verdicts) for label, rows in by_label.items()]


def _verdicts(found: Iterable[Annotation]) -> dict[str, dict[str, float]]:
    """What the judge said of each run: its annotations carry neither parameters nor a scope beyond the run."""
    out: dict[str, dict[str, float]] = {}
    for a in sorted(found, key=lambda a: a.version):
        if a.value is not None and not a.params and a.scope == a.run and a.method != "env":
            out.setdefault(a.run, {})[a.method] = a.value
    return out


def _line(label: str, rows: Sequence[GroupRow], verdicts: dict[str, dict[str, float]]) -> ZeroVariance:
    flat = lost = won = undecided = 0
    alike: dict[str, int] = {}
    informative: dict[str, int] = {}
    for group in rows:
        said = [verdicts[run] for run in group.runs if "reward" in verdicts.get(run, {})]
        found = {name: [v[name] for v in said if name in v] for name in {n for v in said for n in v}}
        same = {name: len(set(values)) == 1 for name, values in found.items() if len(values) > 1}
        for name in found:
            alike[name] = alike.get(name, 0) + same.get(name, False)
        if len(said) < 2:
            undecided, flat = undecided + 1, flat + 1
        elif same["reward"]:
            flat += 1
            won, lost = won + (said[0]["reward"] > WON), lost + (said[0]["reward"] <= WON)
            for name in same.keys() - {"reward"}:
                informative[name] = informative.get(name, 0) + (not same[name])
    leaves = sum(len(g.runs) for g in rows) / len(rows)
    return ZeroVariance(label, len(rows), flat, lost, won, undecided, leaves, alike, informative)
