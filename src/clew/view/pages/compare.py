"""Two queries side by side, such as two checkpoints, prompts or models: paired by task, with intervals.

The page calls ``compare``, and so may any program. Figures come from the lines of the lists; the Calls of a few runs
alone are read, for what the two sides were told and how they were asked.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.json_values import plain
from clew.core.records import Call
from clew.core.values import Message
from clew.methods.compare import design
from clew.store import Keeper, Summary
from clew.view.pages.list_pages import share

MOST = 20_000  # runs of one side that are read
RESAMPLED = 2_000  # tasks up to which the interval is a bootstrap; beyond, Student's t, which says the same there
FLIPS = 500  # tasks that flipped one way that are listed
WORDS = 3_000  # words of a text that are compared
SAMPLE = 5  # runs of a side whose first messages are read
LOOKED = 12  # Calls among which a run's first ask is looked for
GOOD = 0.5  # a task succeeds on a side where its mean return is above it

METRICS: dict[str, Callable[[Summary], float | None]] = {
    "return": lambda row: row.reward,
    "success": lambda row: None if row.reward is None else float(row.reward > GOOD),
    "crashed": lambda row: float(broken(row)) if row.stop else None,
    "steps": lambda row: float(row.steps),
    "tokens": lambda row: float(row.tokens),
    "cost": lambda row: row.cost,
    "seconds": lambda row: row.seconds,
}
F64 = npt.NDArray[np.float64]
Task = tuple[str, str]
Side = dict[Task, list[Summary]]


def broken(row: Summary) -> bool:
    """Whether a run ended because its agent, its model or its world failed."""
    return row.stop.endswith("_error")


def compare(store: Keeper, a: str, b: str) -> dict[str, Any]:
    """Everything the page shows of two queries.

    ``sides`` says how many runs and tasks each selects; ``metrics`` has for each figure its mean on both sides and the
    difference b - a with its interval, over the tasks that both sides have (a task's mean over its runs counts once);
    ``better`` and ``worse`` are the tasks that succeed with b alone and with a alone; ``prompts`` and ``settings`` say
    what differs.

    Raises:
        BadQuery: a query does not parse.
    """
    one, other = (store.page(query, MOST) for query in (a, b))
    mine, theirs = by_task(one.rows), by_task(other.rows)
    shared = [task for task in mine if task in theirs]
    better, worse = flips(mine, theirs, shared)
    found: dict[str, Any] = {"sides": [side(one.rows, one.total), side(other.rows, other.total)], "paired": len(shared)}
    found |= {"same": len({row.run for row in one.rows} & {row.run for row in other.rows})}
    found |= {"metrics": [metric(name, mine, theirs, shared) for name in METRICS]}
    found |= {"better": better[:FLIPS], "worse": worse[:FLIPS], "flipped": [len(better), len(worse)]}
    return found | told(store, mine, theirs, shared)


def by_task(rows: Sequence[Summary]) -> Side:
    """Runs by what pairs them: the name of the world, whatever its arguments, and the id of the task."""
    found: Side = {}
    for row in rows:
        found.setdefault((row.world.split("(")[0], row.task), []).append(row)
    return found


def side(rows: Sequence[Summary], total: int) -> dict[str, Any]:
    """One side at a glance; ``read`` is less than ``runs`` where there are too many."""
    ended, crashed = [row for row in rows if row.stop], sum(map(broken, rows))
    judged = [row.reward for row in rows if row.reward is not None]
    found: dict[str, Any] = {"runs": total, "read": len(rows), "ended": len(ended), "judged": len(judged)}
    found |= {"tasks": len({(row.world, row.task) for row in rows}), "crashed": share(crashed, len(ended))}
    success = share(sum(reward > GOOD for reward in judged), len(judged)) or {}
    found |= {"success": {"estimate": success["estimate"]} if success else None}  # runs of a task hang together
    for name in ("model", "agent", "world"):
        found[name + "s"] = [value for value, _ in Counter(getattr(row, name) for row in rows).most_common(5)]
    return found


def metric(name: str, a: Side, b: Side, shared: Sequence[Task]) -> dict[str, Any]:
    """Means of both sides and their difference over the tasks where both have a value."""
    pairs = [(means(a[task], name), means(b[task], name)) for task in shared]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    found: dict[str, Any] = {"metric": name, "n": len(known), "a": None, "b": None, "difference": None}
    if not known:
        return found
    left, right = (np.array(values) for values in zip(*known, strict=True))
    found |= {"a": float(left.mean()), "b": float(right.mean())}
    return found | {"difference": plain(difference(name, right - left))}


def difference(name: str, values: F64) -> dict[str, Any]:
    """The mean of paired differences [tasks] with its 95 % interval, and how that was made.

    Differences that are all equal have no interval: resampling them would say that nothing else could have come out.
    """
    n = len(values)
    if n < 2 or float(np.ptp(values)) == 0.0:
        how = "one task" if n == 1 else f"{n} tasks, the same difference on each"
        return {"estimate": float(values[0]), "low": None, "high": None, "how": how}
    if n > RESAMPLED:
        report = design.student(name, values, unit="tasks")
    else:
        report = design.bootstrap(name, lambda x: x.mean(-1), values, unit="tasks")
    return {"estimate": report.estimate, "low": report.low, "high": report.high, "how": report.design}


def means(rows: Sequence[Summary], name: str) -> float | None:
    """The mean of a figure over the runs of a task that have it."""
    values = [value for row in rows if (value := METRICS[name](row)) is not None]
    return math.fsum(values) / len(values) if values else None


def flips(a: Side, b: Side, shared: Sequence[Task]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tasks that succeed on the second side alone, and on the first alone; the largest difference first."""
    better: list[dict[str, Any]] = []
    worse: list[dict[str, Any]] = []
    for task in shared:
        x, y = means(a[task], "return"), means(b[task], "return")
        if x is None or y is None or (x > GOOD) == (y > GOOD):
            continue
        row = {"world": task[0], "task": task[1], "a": plain(x), "b": plain(y), "n": [len(a[task]), len(b[task])]}
        row["runs"] = [typical(a[task], x > GOOD), typical(b[task], y > GOOD)]
        (better if y > x else worse).append(row)
    return sorted(better, key=lambda row: row["a"] - row["b"]), sorted(worse, key=lambda row: row["b"] - row["a"])


def typical(rows: Sequence[Summary], good: bool) -> str:
    """A run that shows how a task went: one with the verdict of most."""
    fitting = (row.run for row in rows if row.reward is not None and (row.reward > GOOD) == good)
    return next(fitting, rows[0].run)


# ---- what the sides were told, and how they were asked ---------------------------------------------------------------


def told(store: Keeper, a: Side, b: Side, shared: Sequence[Task]) -> dict[str, Any]:
    """The first messages and the settings of both sides by what differs; from runs of one task where both have one."""
    picked = [_runs(one, shared) for one in (a, b)]
    first = [[_first(store, run) for run in runs] for runs in picked]
    found: dict[str, Any] = {"runs_read": picked, "prompts": [], "settings": []}
    if not all(first):
        return found
    (said, asked), (others, other) = first[0][0], first[1][0]
    for place in range(max(len(said), len(others))):
        x, y = (messages[place] if place < len(messages) else None for messages in (said, others))
        role = (x or y or Message("", "")).role
        words = word_difference(x.text if x else "", y.text if y else "")
        found["prompts"].append({"role": role, "equal": all(op == "=" for op, _ in words), "words": words})
    facts = [_settings(one) for one in (asked, other)]
    rows = ((name, *(str(fact.get(name, "")) for fact in facts)) for name in {**facts[0], **facts[1]})
    found["settings"] = [{"name": name, "a": x[:400], "b": y[:400]} for name, x, y in rows if x != y]
    system = [{tuple(m.text for m in messages if m.role == "system") for messages, _ in side} for side in first]
    return found | {"prompts_vary": [len(one) > 1 for one in system]}


def _runs(rows: Side, shared: Sequence[Task]) -> list[str]:
    tasks = [*shared[:SAMPLE], *rows][:SAMPLE]
    return [rows[task][0].run for task in dict.fromkeys(tasks) if rows.get(task)]


def _first(store: Keeper, run: str) -> tuple[list[Message], Call | None]:
    """The messages before a run's first reply, and that ask."""
    asked = next((call for call in store.calls(run, 0, LOOKED) if call.kind == "ask"), None)
    path = store.thread(asked.node_in, limit=LOOKED) if asked is not None and asked.node_in else []
    return [node.message for node in path], asked


def _settings(call: Call | None) -> Mapping[str, object]:
    if call is None or call.setup is None:
        return {}
    setup = call.setup
    sampling = setup.in_force or setup.asked
    found: dict[str, object] = {"model": setup.model, "weights version": setup.version, "served by": setup.served_by}
    found |= {"tools": ", ".join(tool.name for tool in setup.tools)}
    return found | ({name.replace("_", " "): value for name, value in sampling._asdict().items()} if sampling else {})


def word_difference(a: str, b: str) -> list[tuple[str, str]]:
    """Two texts as one: pieces marked ``=`` (both), ``-`` (the first alone), ``+`` (the second alone), by words.

    Words and the white space between them are compared, up to ``WORDS`` of each; what lies beyond is one piece a side.
    """
    if a == b:
        return [("=", a)] if a else []
    left, right = (re.findall(r"\s+|[^\s]+", text) for text in (a, b))
    pieces: list[tuple[str, str]] = []

    def add(op: str, words: Sequence[str]) -> None:
        if words:
            pieces.append((op, "".join(words)))

    matcher = difflib.SequenceMatcher(None, left[:WORDS], right[:WORDS])
    for op, i, j, m, n in matcher.get_opcodes():
        if op == "equal":
            add("=", left[i:j])
        else:
            add("-", left[i:j])
            add("+", right[m:n])
    if left[WORDS:] == right[WORDS:]:
        add("=", left[WORDS:])
    else:
        add("-", left[WORDS:])
        add("+", right[WORDS:])
    return pieces


def choices(store: Keeper) -> dict[str, Any]:
    """What a person may want to compare: models, agents and collections of the newest runs, the most frequent first."""
    rows = store.page("", 2_000).rows
    counted = {name: Counter(getattr(row, name) for row in rows if getattr(row, name)) for name in ("model", "agent")}
    names = store.group_names()
    counted["name"] = Counter(names[row.group].split("/")[0] + "/*" for row in rows if names.get(row.group))
    return {"choices": {field: counts.most_common(12) for field, counts in counted.items()}}
