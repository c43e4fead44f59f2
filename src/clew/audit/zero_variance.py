"""Groups without a signal, and why: by component of the judge's verdict, on raw outcomes (specs/E162 section 9).

A group is dead where the rewards of its decided runs are all equal: then a policy gradient has nothing to compare. A
shaped reward (a length penalty, a bonus) may still differ there, and training on it can ruin a policy; so only what
the judge said counts here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clew.core.records import Annotation, GroupRow
from clew.store.base import Keeper

WON = 0.5


class DeadGroups(NamedTuple):
    """Groups of one collection (``name/iteration``; empty for those without a name).

    groups: how many. dead: of them without two different rewards, which are lost (every decided run at or below .5),
    won (every one above .5) and undecided (fewer than two runs with a verdict). leaves: runs a group has on average.
    alike: per component of the verdict, in how many groups it is the same on all runs that have it, two at least.
    spared: per other component, in how many of the dead groups it differs, that is where it could still tell runs
    apart.
    """

    label: str
    groups: int
    dead: int
    lost: int
    won: int
    undecided: int
    leaves: float
    alike: dict[str, int]
    spared: dict[str, int]

    @property
    def share(self) -> float:
        return self.dead / self.groups


def dead_groups(store: Keeper, groups: Sequence[GroupRow]) -> list[DeadGroups]:
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


def _line(label: str, rows: Sequence[GroupRow], verdicts: dict[str, dict[str, float]]) -> DeadGroups:
    dead = lost = won = undecided = 0
    alike: dict[str, int] = {}
    spared: dict[str, int] = {}
    for group in rows:
        said = [verdicts[run] for run in group.runs if "reward" in verdicts.get(run, {})]
        found = {name: [v[name] for v in said if name in v] for name in {n for v in said for n in v}}
        same = {name: len(set(values)) == 1 for name, values in found.items() if len(values) > 1}
        for name in found:
            alike[name] = alike.get(name, 0) + same.get(name, False)
        if len(said) < 2:
            undecided, dead = undecided + 1, dead + 1
        elif same["reward"]:
            dead += 1
            won, lost = won + (said[0]["reward"] > WON), lost + (said[0]["reward"] <= WON)
            for name in same.keys() - {"reward"}:
                spared[name] = spared.get(name, 0) + (not same[name])
    leaves = sum(len(g.runs) for g in rows) / len(rows)
    return DeadGroups(label, len(rows), dead, lost, won, undecided, leaves, alike, spared)
