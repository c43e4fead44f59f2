"""Estimators over plain arrays, for trainers that keep no Clew store: columns of steps in, one advantage a step out.

Other people's trainers call ``of_arrays``. Nothing is stored, and nothing is read but what is passed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.registry import parse_ref
from clew.credit import presets
from clew.credit.alias import aliasing
from clew.credit.family import Term, advantages
from clew.credit.filing import Rescale
from clew.credit.steps import F64, Move, Path, Steps, from_paths

ESTIMATORS: dict[str, Callable[..., list[Term]]] = {
    "grpo": presets.grpo,
    "gigpo": presets.gigpo,
    "hgpo": presets.hgpo,
    "gagpo": presets.gagpo,
    "graphgpo": presets.graphgpo,
    "g2po": presets.g2po,
    "bellman": presets.bellman,
}


def of_arrays(
    method: str,
    states: Sequence[Hashable],
    actions: Sequence[Hashable] | None,
    rewards: Sequence[float] | npt.NDArray[Any],
    group: Sequence[Hashable],
    run: Sequence[Hashable],
    *,
    ends: Mapping[Hashable, Hashable] | None = None,
    valid: Sequence[bool] | None = None,
    rescale: Rescale = None,
) -> F64:
    """The advantage of each of n steps.

    Args:
        method: ``grpo``, ``gigpo``, ``hgpo``, ``gagpo``, ``graphgpo``, ``g2po`` or ``bellman``, with settings as in
            ``g2po(gamma=1.0)``; the functions of ``clew.credit`` say which there are. ``bellman(lam="auto")`` warns
            where it takes ``grpo`` instead.
        states: n names of what the agent stood in before its action; equal names in one group are one node.
        actions: n names of what it did; None: unknown, which no estimator but the aliasing detector misses.
        rewards: n rewards of single steps; the return of a run is their sum. A verdict on the whole run stands at its
            last step, with 0 before it.
        group: n names of the group of runs that are compared with each other. run: n names of the run, each in one
            group; the rows of a run stand in order of time, and may stand apart.
        ends: the state in which a run ended, by its name; without one what followed its last action is unknown.
        valid: n, whether the action was admissible; default: all were.
        rescale: ``rms`` divides by the root mean square of the advantages.

    Returns:
        float64 [n]; NaN where the estimator says nothing of a step, as in a group whose returns are all equal. A
        trainer leaves the tokens of such a step out: absent is not zero.

    Raises:
        BadInput: the method or a setting of it is not known, lengths differ, a reward is not finite, or a run stands in
            two groups.
    """
    name, settings = parse_ref(method)
    columns, order = _columns(states, actions, rewards, group, run, ends or {}, valid)
    auto = name == "bellman" and settings.get("lam") == "auto"
    settings |= {"lam": 1.0} if auto else {}
    try:
        spec = ESTIMATORS[name](**settings)
    except KeyError:
        raise BadInput(f"no estimator is called {name!r}", remedy=f"Known: {', '.join(ESTIMATORS)}.") from None
    except TypeError as error:
        raise BadInput(f"{method!r}: {error}", remedy="See the functions of clew.credit for settings.") from None
    found = aliasing(columns) if auto else None
    if found and found.verdict != "markov":
        warnings.warn(f"{method} took grpo instead. {found.why}", stacklevel=2)
        spec = presets.grpo(settings.get("mode", "std"))
    value, diagnostics = advantages(columns, spec, rescale=rescale, share=name == "hgpo")
    out = np.full(len(order), np.nan)
    out[order] = np.where(diagnostics.present, value, np.nan)
    return out


def _columns(
    states: Sequence[Hashable],
    actions: Sequence[Hashable] | None,
    rewards: Sequence[float] | npt.NDArray[Any],
    group: Sequence[Hashable],
    run: Sequence[Hashable],
    ends: Mapping[Hashable, Hashable],
    valid: Sequence[bool] | None,
) -> tuple[Steps, list[int]]:
    """The steps as the estimators read them, run by run, and the row that each of them was."""
    given = {"actions": actions, "rewards": rewards, "group": group, "run": run, "valid": valid}
    for name, column in given.items():
        if column is not None and len(column) != len(states):
            told = f"{name} has {len(column)} rows and states has {len(states)}"
            raise BadInput(told, remedy="Give one entry for each step in every column.")
    rows: dict[Hashable, dict[Hashable, list[int]]] = {}
    home: dict[Hashable, Hashable] = {}
    for row, (where, who) in enumerate(zip(group, run, strict=True)):
        if home.setdefault(who, where) != where:
            told = f"run {who!r} stands in the groups {home[who]!r} and {where!r}"
            raise BadInput(told, remedy="Name runs apart from group to group.")
        rows.setdefault(where, {}).setdefault(who, []).append(row)
    paths, order = list[list[Path]](), list[int]()
    for runs in rows.values():
        paths.append([])
        for who, mine in runs.items():
            moves = [
                Move(
                    states[i],
                    None if actions is None else actions[i],
                    float(rewards[i]),
                    valid is None or bool(valid[i]),
                )
                for i in mine
            ]
            paths[-1].append(Path(moves, sum(move.reward for move in moves), ends.get(who)))
            order += mine
    return from_paths(paths, [str(name) for name in rows], [str(who) for runs in rows.values() for who in runs]), order
