"""Apps: a stream of small errands in six apps whose habits must be found out, and can be remembered (specs/E168, 7.1).

Each app answers at endpoints of its own, wants a login or not, names its columns its own way and shows few rows at a
time. Some count in cents, and in some houses pending rows are left out; no answer says so. Queries come in families,
few of which are frequent, so that what is learnt of an app or a family pays later. Errors say in plain words what was
wrong. The judge looks at the end state and the submitted answer; a world must never hold what it is judged by.

    fetch bank list transfers 1  ->  error: 404 bank has no endpoint 'list'
    fetch bank search transfers 1  ->  error: 401 log in to bank first
    login bank ; fetch bank search transfers 1  ->  {"rows": [...], "page": 1, "has_more": true}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from clew.core.errors import BadInput, WorldError
from clew.core.keys import state_key
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.worlds.apps.app_goals import ALL, Family, Goal, asked, families, family_of, goal_of
from clew.worlds.apps.app_rules import FETCH, READS, TABLES, TOOLS, Face, Habits, habits, rows_of, shown
from clew.worlds.bases import Exact, Numbered, load
from clew.worlds.schemas import read_arguments
from clew.worlds.seeds import NUMBERS, Dice, split_of

DONE = {"like": "liked", "pay": "paid", "delete": "deleted"}


class Refused(Exception):
    """What an app answers to a call that it does not perform."""


class AppsWorld(Exact):
    """One errand; exact. ``changed``: what was done, (app, table, verb) -> ids of rows in the order of the calls."""

    tools: Sequence[ToolSpec] = TOOLS

    def __init__(self, name: str, number: int, query: str, faces: Mapping[str, Face], steps: int) -> None:
        self._name, self._number, self._query, self._faces = name, number, query, dict(faces)
        self.changed: dict[tuple[str, str, str], list[int]] = {}
        self.logged_in: list[str] = []
        self.answer: str | float | None = None
        self._left, self._closed = steps, False

    @property
    def over(self) -> bool:
        """Whether an answer was submitted or the last step is used up."""
        return self.answer is not None or self._left <= 0

    @property
    def state_key(self) -> bytes:
        """Who is logged in, what was changed and submitted; neither what was read nor the steps left."""
        return state_key(self._name, json.dumps([sorted(self.logged_in), self._changes(), self.answer]))

    def _changes(self) -> list[list[Any]]:
        return [[*what, ids] for what, ids in sorted(self.changed.items())]

    def observe(self) -> Observation:
        return Observation(self._query if not self.over else "The task is over.", None, self.over)

    def step(self, action: str | ToolCall) -> Observation:
        """Answer a tool call; what cannot be done is said in the answer.

        Raises:
            WorldError: the task is over or the world is closed.
        """
        if self._closed or self.over:
            raise WorldError(f"step({str(action)[:40]!r}) after the end", remedy="Open a fresh world.")
        self._left -= 1
        if not isinstance(action, ToolCall):
            return Observation("Use one of the tools; submit ends the task.", None, self.over)
        return Observation(self._answered(action), None, self.over, (), action.id)

    def _answered(self, call: ToolCall) -> str:
        spec = next((tool for tool in TOOLS if tool.name == call.name), None)
        if spec is None:
            return f"error: there is no tool {call.name[:40]!r}; the tools are {', '.join(t.name for t in TOOLS)}"
        try:
            given = read_arguments(spec, call.arguments)
            return json.dumps(self._tool(call.name)(**given))
        except BadInput as error:
            return f"error: {call.name}: {error.message}"
        except Refused as error:
            return f"error: {error}"

    def _tool(self, name: str) -> Callable[..., dict[str, Any]]:
        own: dict[str, Callable[..., dict[str, Any]]]
        own = {"login": self._login, "fetch": self._fetch, "change": self._change, "submit": self._submit}
        return own[name]

    def _login(self, app: str) -> dict[str, Any]:
        self._face(app)
        self.logged_in = [*self.logged_in, app] if app not in self.logged_in else self.logged_in
        return {"logged_in": app}

    def _fetch(self, app: str, endpoint: str, table: str, page: int) -> dict[str, Any]:
        face = self._enter(app, endpoint, self._face(app).fetch, table)
        if page < 1:
            raise Refused("400 the first page is 1")
        rows = self._rows(app, table, face)
        first = (page - 1) * face.page
        return {"rows": rows[first : first + face.page], "page": page, "has_more": first + face.page < len(rows)}

    def _change(self, app: str, endpoint: str, table: str, verb: str, ids: list[int]) -> dict[str, Any]:
        face = self._enter(app, endpoint, self._face(app).change, table)
        there, done = {row["id"] for row in self._rows(app, table, face)}, self.changed.get((app, table, verb), [])
        for one in ids:
            if one not in there:
                raise Refused(f"404 {table} has no row {str(one)[:20]}; nothing was changed")
            if one in done or ids.count(one) > 1:
                raise Refused(f"409 row {one} cannot be {DONE[verb]} twice; nothing was changed")
        self.changed[app, table, verb] = [*done, *ids]
        return {DONE[verb]: len(ids)}

    def _submit(self, answer: str | float) -> dict[str, Any]:
        self.answer = answer
        return {"submitted": True}

    def _face(self, app: str) -> Face:
        if app not in self._faces:
            raise Refused(f"404 there is no app {app!r}; there are {', '.join(self._faces)}")
        return self._faces[app]

    def _enter(self, app: str, endpoint: str, own: str, table: str) -> Face:
        """The face of an app, where a call may pass: endpoint, login and table are looked at in this order."""
        if endpoint != own:
            raise Refused(f"404 {app} has no endpoint {endpoint!r}")
        if self._faces[app].auth and app not in self.logged_in:
            raise Refused(f"401 log in to {app} first")
        if table not in TABLES[app]:
            raise Refused(f"404 {app} has no table {table!r}; it has {', '.join(TABLES[app])}")
        return self._faces[app]

    def _rows(self, app: str, table: str, face: Face) -> list[dict[str, Any]]:
        marks = {verb: set(self.changed.get((app, table, verb), ())) for verb in DONE}
        return [
            shown(row, face, [DONE[verb] for verb in ("like", "pay") if row.id in marks[verb]])
            for row in rows_of(self._number, app, table)
            if row.id not in marks["delete"]
        ]

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.logged_in, self._changes(), self.answer, self._left]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is of another task or cut short."""
        _, self.logged_in, changes, self.answer, self._left = load(snapshot, self._name, 5)
        self.changed = {(app, table, verb): ids for app, table, verb, ids in changes}


class Apps(Numbered[AppsWorld]):
    """Errands in six apps with habits of their own: sum, count, max, like, pay, delete. ``sample`` is a stream.

    Args:
        families: how many families of queries there are, 1 to 288.
        zipf: exponent of the law by which families are frequent, 0 to 3; 0 makes them equally so.
        world: the seed that fixes what each app is like and which families there are; in the default one there are
            apps of every kind.
        drift: from this task of a sample on (the first is 0), the app that is asked most answers its reads at another
            endpoint; 0 for never.
        steps: the task ends after so many calls.
    """

    prefix, plays = "apps", AppsWorld

    def __init__(self, families: int = 40, zipf: float = 1.1, world: int = 5, drift: int = 0, steps: int = 60) -> None:
        given = {"families": families, "zipf": zipf, "world": world, "drift": drift, "steps": steps}
        if not 1 <= families <= len(ALL) or not 0 <= zipf <= 3:
            raise BadInput(f"apps({given})", remedy=f"Needs 1 to {len(ALL)} families and a zipf from 0 to 3.")
        if drift < 0 or steps < 1 or not 0 <= world < 2**63:
            raise BadInput(f"apps({given})", remedy="Needs a drift and a world of at least 0, and at least 1 step.")
        self.ref = make_ref("apps", given, Apps)
        self.families, self.zipf, self.world, self.drift, self.steps = families, zipf, world, drift, steps

    def number(self, task_id: str) -> int:
        number = super().number(task_id)
        if number >= NUMBERS * (2 if self.drift else 1):
            raise BadInput(f"{task_id!r} is not a task of this set", remedy="Its number is too large.")
        return number

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """A stream of ``n`` tasks. From the place ``drift`` on their numbers are higher by 10 million."""
        found = [self.number(task.id) for task in super().sample(n, seed, split)]
        late = [number + NUMBERS * (0 < self.drift <= place) for place, number in enumerate(found)]
        return [self.find(f"{self.prefix}-{number}") for number in late]

    def family(self, number: int) -> Family:
        """The family of a task number."""
        at = family_of(number % NUMBERS, self.world, self.families, self.zipf)
        return families(self.world, self.families)[at]

    def apps(self, number: int) -> dict[str, Habits]:
        """What each app is like at a task number."""
        found = habits(self.world)
        if number >= NUMBERS:
            app = families(self.world, self.families)[0].app
            was = found[app]
            others = [name for name in FETCH if name != was.face.fetch]
            now = Dice(self.world, "apps drift").pick(others)
            found[app] = was._replace(face=was.face._replace(fetch=now))
        return found

    def goal(self, task_id: str) -> Goal:
        """What only the judge may know of a task."""
        number = self.number(task_id)
        return goal_of(number % NUMBERS, self.family(number), self.apps(number))

    def content(self, number: int) -> Hashable:
        family = self.family(number)
        query, _ = asked(number, family)
        return (query, tuple(tuple(row) for row in rows_of(number, family.app, family.table)))

    def find(self, task_id: str) -> Task:
        number = self.number(task_id)
        base, family, goal = number % NUMBERS, self.family(number), self.goal(task_id)
        query, _ = asked(base, family)
        data = {
            "family": family_of(base, self.world, self.families, self.zipf),
            "after_drift": number >= NUMBERS,
            "split": split_of(self.content(base)),
        }
        return Task(task_id, query, data, secret={"answer": goal.answer, "verb": goal.verb, "rows": list(goal.ids)})

    def open(self, task: Task) -> AppsWorld:
        number = self.number(task.id)
        query, _ = asked(number % NUMBERS, self.family(number))
        faces = {app: own.face for app, own in self.apps(number).items()}
        return AppsWorld(f"{self.ref} {task.id}", number % NUMBERS, query, faces, self.steps)

    def verdict(self, task: Task, last: AppsWorld) -> dict[str, float]:
        """Reward 1 where an answer was submitted, it is right, and exactly the rows that were meant are changed.

        ``submitted``: there was an answer. ``harm``: a row was changed that was not to be.
        """
        goal = self.goal(task.id)
        wanted = {(goal.app, goal.table, goal.verb): set(goal.ids)} if goal.verb not in READS else {}
        got = {what: set(ids) for what, ids in last.changed.items()}
        right = last.answer is not None and (goal.answer is None or number_in(last.answer) == goal.answer)
        harm = any(ids - wanted.get(what, set()) for what, ids in got.items())
        found = {"reward": right and got == wanted, "submitted": last.answer is not None, "harm": harm}
        return {name: float(value) for name, value in found.items()}

    def facts(self, task: Task) -> list[str]:
        """All that can be known of the app of a task, a fact a line, as papers/E168_metis hands it to a player.

        For experiments and for those who look into a failure afterwards. Who plays a task must not call it.
        """
        number = self.number(task.id)
        app = self.family(number).app
        face, leaves_out = self.apps(number)[app]
        columns = [
            f"{field} is called {name}"
            for field, name in zip(("amount", "category", "person"), face.names, strict=True)
        ]
        said = [
            f"endpoint is {face.fetch}",
            f"action endpoint is {face.change}",
            "login first" if face.auth else "no login",
            *columns,
            f"amounts are in {'cents' if face.unit == 100 else 'dollars'}",
            f"pending rows {'are left out' if leaves_out else 'count'}",
        ]
        return [f"fact: app {app}: {one}" for one in said]

    def demonstrate(self, task: Task, seed: int = 0) -> list[ToolCall]:
        """The calls of a run without fault."""
        number, goal = self.number(task.id), self.goal(task.id)
        face, at = self.apps(number)[goal.app].face, {"app": goal.app, "table": goal.table}
        rows = len(rows_of(number % NUMBERS, goal.app, goal.table))
        calls: list[tuple[str, dict[str, Any]]] = [("login", {"app": goal.app})] if face.auth else []
        calls += [("fetch", {**at, "endpoint": face.fetch, "page": 1 + i}) for i in range(math.ceil(rows / face.page))]
        if goal.answer is None:
            calls.append(("change", {**at, "endpoint": face.change, "verb": goal.verb, "ids": list(goal.ids)}))
        calls.append(("submit", {"answer": "done" if goal.answer is None else str(goal.answer)}))
        return [ToolCall(f"call_{i}", name, json.dumps(given)) for i, (name, given) in enumerate(calls)]


def number_in(answer: str | float) -> float | None:
    """The number that an answer states, as ``42``, ``42.0`` or ``$1,042``; None where it states none."""
    try:
        value = float(str(answer).strip().removeprefix("$").replace(",", "").removesuffix("dollars"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
