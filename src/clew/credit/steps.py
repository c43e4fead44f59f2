"""The steps of a group as column arrays: what every estimator reads.

A step is one action of one run together with the asks that led to it. Its state is the state key of the world
before the action (that of the last open or act Call which has one: a tool beside the world leaves the world as it is).
Equal keys inside one task group are one node of the merged graph; nodes never span groups. Tool calls are one action
where tool and arguments are equal, whatever id each has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, check_choice
from clew.core.reading import Grouped, Record, RecordGroup
from clew.core.records import Call, action_of
from clew.core.values import ToolCall
from clew.store.protocol import rewards as judged
from clew.store.protocol import undecided

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Ask = tuple[str, int]  # (run, seq) of an ask Call


class Move(NamedTuple):
    """One step of a run, for callers who build ``Steps`` from their own data.

    state: any hashable that names the world before the action. legal: the admissible actions there, if known.
    """

    state: Hashable
    action: Hashable = None
    reward: float = 0.0
    valid: bool = True
    legal: Hashable = None
    asks: tuple[Ask, ...] = ()


class Path(NamedTuple):
    """One run: its moves in time order, its episode return, the state it ended in (None: unknown)."""

    moves: Sequence[Move]
    outcome: float
    end: Hashable = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Columns of n steps; the rows of a run are contiguous and in time order, the runs of a group are contiguous.

    group, run, t, length: int64 [n]; index of task group and run, 0-based time, number of steps of the run.
    state, next: int64 [n]; node before and after the action, numbered over all groups; ``next`` is -1 where the
    state after the last action is unknown.
    outcome: float64 [n]; episode return R of the run, the same on all its rows.
    reward: float64 [n]; reward of the step. Summed over a run it is R unless ``rewards='world'`` was asked for.
    action, legal: int64 [n]; interned action and set of admissible actions, -1 where unknown.
    valid: bool [n]; the action was admissible. last: bool [n]; last step of its run.
    asks: per row the asks that carry its advantage, as (run, seq).
    groups, runs: names behind the indices. home: int64 [nodes], the group each node belongs to.
    given: float64 [n], a per-step target that was found elsewhere (``Term`` target ``given``), NaN where absent.
    """

    group: Ints
    run: Ints
    t: Ints
    length: Ints
    state: Ints
    next: Ints
    outcome: F64
    reward: F64
    action: Ints
    legal: Ints
    valid: Bools
    last: Bools
    asks: tuple[tuple[Ask, ...], ...]
    groups: tuple[str, ...]
    runs: tuple[str, ...]
    home: Ints
    given: F64 | None = None

    def __len__(self) -> int:
        return len(self.run)

    @property
    def nodes(self) -> int:
        return len(self.home)

    def with_rewards(self, reward: F64, outcome: F64) -> Steps:
        """The same steps under other rewards (float64 [n] each), for controls and reward studies."""
        return replace(self, reward=np.asarray(reward, np.float64), outcome=np.asarray(outcome, np.float64))

    def returns(self, gamma: float) -> F64:
        """Discounted return-to-go G_t = sum_k gamma^k r_{t+k} of each row, float64 [n]."""
        total = np.zeros(len(self))
        running = np.zeros(len(self.runs))
        for rows in by_time_backwards(self.length - self.t):
            running[self.run[rows]] = self.reward[rows] + gamma * running[self.run[rows]]
            total[rows] = running[self.run[rows]]
        return total

    def history(self, k: int) -> Ints:
        """Number of the context (the last ``k`` states, the current one included), int64 [n]; -1 where t < k - 1."""
        key = self.state.copy()
        for back in range(1, k):
            shifted = np.concatenate([np.full(back, -1), self.state[:-back]])[: len(self)]
            key = np.where(self.t >= back, pair(key, shifted), -1)
        return np.where(self.t >= k - 1, key, -1)


def pair(a: Ints, b: Ints) -> Ints:
    """One number, counted from 0, for each distinct pair; int64 [n]."""
    if not len(a):
        return a
    joint = (a + 1) * (int(b.max()) + 2) + b + 1
    numbers: Ints = np.unique(joint, return_inverse=True)[1].astype(np.int64)
    return numbers


def by_time_backwards(left: Ints) -> list[Ints]:
    """Row indices with 1, 2, ... steps left in their run: the order in which a backward recursion visits them."""
    order = np.argsort(left, kind="stable")
    return np.split(order, np.cumsum(np.bincount(left[order])[1:])[:-1]) if len(left) else []


def from_paths(groups: Iterable[Sequence[Path]], names: Sequence[str] = (), run_names: Sequence[str] = ()) -> Steps:
    """Build ``Steps`` from plain paths, one sequence of them per task group.

    Raises:
        BadInput: an episode return or reward is not finite.
    """
    cols: dict[str, list[Any]] = {f: [] for f in ("group", "run", "t", "length", "state", "next", "outcome", "reward")}
    cols |= {f: [] for f in ("action", "legal", "valid", "last")}
    asks: list[tuple[Ask, ...]] = []
    home: list[int] = []
    actions: dict[Hashable, int] = {None: -1}
    legals: dict[Hashable, int] = {None: -1}
    run = g = 0
    for g, paths in enumerate(groups, 1):
        nodes: dict[Hashable, int] = {}
        for path in paths:
            keys = [move.state for move in path.moves] + ([] if path.end is None else [path.end])
            ids = [nodes.setdefault(key, len(home) + len(nodes)) for key in keys]
            n = len(path.moves)
            cols["group"] += [g - 1] * n
            cols["run"] += [run] * n
            cols["t"] += range(n)
            cols["length"] += [n] * n
            cols["state"] += ids[:n]
            cols["next"] += ids[1:] if path.end is not None else [*ids[1:], -1][:n]
            cols["outcome"] += [path.outcome] * n
            cols["last"] += [False] * (n - 1) + [True] * (n > 0)
            for move in path.moves:
                cols["reward"].append(move.reward)
                cols["action"].append(actions.setdefault(move.action, len(actions) - 1))
                cols["legal"].append(legals.setdefault(move.legal, len(legals) - 1))
                cols["valid"].append(move.valid)
                asks.append(move.asks)
            run += 1
        home += [g - 1] * len(nodes)
    kinds = dict.fromkeys(cols, np.int64) | {"outcome": np.float64, "reward": np.float64, "valid": bool, "last": bool}
    arrays = {name: np.asarray(col, dtype=kinds[name]) for name, col in cols.items()}
    for name in ("outcome", "reward"):
        if not np.isfinite(arrays[name]).all():
            row = int(np.flatnonzero(~np.isfinite(arrays[name]))[0])
            remedy = "Judge the run again, or leave it out of the group."
            raise BadInput(f"{name} of run {cols['run'][row]} is {arrays[name][row]}", remedy=remedy)
    return Steps(
        **arrays,
        asks=tuple(asks),
        groups=tuple(names) or tuple(str(i) for i in range(g)),
        runs=tuple(run_names) or tuple(str(i) for i in range(run)),
        home=np.asarray(home, dtype=np.int64),
    )


Key = Literal["state", "text", "text+legal"]
Rewards = Literal["auto", "judge", "world"]


def as_groups(groups: Grouped) -> list[RecordGroup]:
    """One group, Groups, or any sequence of groups, as a list of groups."""
    return [groups] if isinstance(groups, RecordGroup) else list(groups)


def steps(groups: Grouped, rewards: Rewards = "auto", key: Key = "state") -> Steps:
    """Read one ``clew.store.run.Group``, or several, into columns.

    Args:
        groups: a Group, Groups, or a list of Group. Runs that were not judged are left out.
        rewards: the episode return is always the judge's annotation ``reward`` on the run. ``judge`` places it on the
            last step (the sparse form of the published graph estimators); ``world`` takes the world's own reward of
            each act. ``auto`` takes the world's in groups where they add up to the judge's in every run, so that a
            step is told from one that cost less; elsewhere it is ``judge``.
        key: what names a node: the world's state key, the text the agent saw, or that text with the admissible actions
            (the repaired anchor of G2PO, specs/E165 section 3a). Steps without a name are nodes of their own.

    Raises:
        BadInput: no run was judged, a reward is not finite, or ``rewards`` or ``key`` is none of the above.
    """
    for name, value, known in (("rewards", rewards, get_args(Rewards)), ("key", key, get_args(Key))):
        check_choice(name, value, known)
    chosen = as_groups(groups)
    verdicts = judged(chosen[0].store, [run.id for group in chosen for run in group]) if chosen else {}
    paths, names = [], []
    for group in chosen:
        members = [run for run in group if run.id in verdicts]
        mine = [_path(run, verdicts[run.id], key) for run in members]
        add_up = all(math.isclose(sum(m.reward for m in p.moves), p.outcome, abs_tol=1e-6) for p in mine)
        dense = rewards == "world" or (rewards == "auto" and add_up)
        paths.append(mine if dense else [_sparse(path) for path in mine])
        names += [run.id for run in members]
    if not names:
        why = undecided(chosen[0].store, [run.id for group in chosen for run in group]) if chosen else ""
        remedy = "" if why else "Judge them first: runner.judge(runs, judge)."
        raise BadInput(f"no run of these groups has a reward{f': {why}' if why else ''}", remedy=remedy)
    return from_paths(paths, [g.id for g in chosen], names)


def _path(run: Record, outcome: float, key: Key) -> Path:
    """A run under the world's own rewards."""
    moves, act, here = [], None, b""
    for step in run.steps:
        act, before = step.act, step.before
        here = (before.state if before else b"") or here
        legal = frozenset(before.legal if before else ())
        valid = act is None or not (act.error or (legal and act.action.strip() not in legal))
        reward = float(act.reward or 0.0) if act else 0.0
        asks = tuple((ask.run, ask.seq) for ask in step.asks)
        name = here if key == "state" else _name(before, key)
        moves.append(Move(name or (run.id, step.index), _deed(act), reward, valid, legal or None, asks))
    end = (act.state or here if act else b"") if key == "state" else _name(act, key)
    return Path(moves, outcome, end or None)


def _deed(act: Call | None) -> Hashable:
    """What an act did, in a form that is equal where it did the same: ids and spacing of tool calls say nothing."""
    if act is not None and act.redacted:
        return act.key  # it did nothing that another act is known to have done
    action = action_of(act) if act is not None else None
    if act is None or not isinstance(action, ToolCall):
        return act and act.action
    try:
        return action.name, json.dumps(json.loads(action.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return action.name, action.arguments


def _sparse(path: Path) -> Path:
    """The same run with its return on the last step."""
    moves = [move._replace(reward=0.0) for move in path.moves]
    if moves:
        moves[-1] = moves[-1]._replace(reward=path.outcome)
    return path._replace(moves=moves)


def _name(call: Call | None, key: Literal["text", "text+legal"]) -> Hashable:
    """Node name of what an open or act Call showed; falsy where it has none."""
    if call is None:
        return None
    return call.text if key == "text" or not call.text else (call.text, tuple(call.legal))
