"""A player for the world ``apps`` that asks no model: it tries endpoints, logs in when told to, pages, filters, acts.

Experiments on memories for agents run it. What a memory has to say reaches it in two forms. ``advice`` is text, which
it reads, which reorders its choices, and which it can see to be wrong. ``tools`` are functions, which it calls in one
turn and trusts. Its choices by lot go through ``run.draw``, so that its runs replay and fork. It must never look at
what the judge knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from clew.core.values import Observation, Task, ToolCall
from clew.worlds.apps.app_goals import answered
from clew.worlds.apps.app_rules import CHANGE, CHANGES, FETCH, FIELDS, Row
from papers.E168_metis.reading import Advice, Asked, advice, read

Api = Callable[..., dict[str, Any]]
Tool = Callable[[str, Api], object]
BUDGET, CALLS = 14, 40  # turns of a task; calls of one tool
TOKEN = 4  # characters


class Errand(Protocol):
    """What the player needs of a run: a ``LiveRun`` has it, and ``errands.Bare``."""

    task: Task

    @property
    def done(self) -> bool: ...
    async def act(self, call: ToolCall, /) -> Observation: ...
    async def draw(self, name: str, /) -> float: ...
    def note(self, text: str, /, **data: Any) -> None: ...


class Outcome(NamedTuple):
    """How a task went. turns: messages of the player. tokens: read and written, the whole context at every turn.

    calls: of the world, a tool's included. tool: whose answer was submitted; empty where the player's own was.
    refused: tools that gave None. submitted: whether an answer was handed in.
    """

    turns: int
    tokens: int
    calls: int
    tool: str
    refused: tuple[str, ...]
    submitted: bool


async def explorer(run: Errand, advice: Sequence[str] = (), budget: int = BUDGET, override: float = 1.0) -> None:
    """The player as an agent, with the same advice for every task; see ``explore``."""
    await explore(run, advice, budget=budget, override=override)


async def explore(
    run: Errand,
    advice: Iterable[str] = (),
    tools: Mapping[str, Tool] | None = None,
    budget: int = BUDGET,
    override: float = 1.0,
) -> Outcome:
    """Play the task of a run, and note the Outcome in its record.

    Args:
        advice: lines as ``reading`` has them.
        tools: functions of the query and of ``api``, tried in this order, a turn each. ``api("fetch", app=...)``
            calls a tool of the world and gives what it answers, or ``{"error": ...}``. A tool gives the answer to be
            submitted, or None, upon which the player goes on by itself. It must be deterministic: it is begun anew for
            each call that it makes, and the calls before are answered from memory. One that raises, makes more
            than 40 calls or strays from its own calls counts as one that gave None.
        budget: turns after which the player gives up.
        override: chance that the player sees where a plan's ``pages`` or ``where`` does not fit and does what the
            query asks instead; drawn once a run, when it first matters.
    """
    lines = list(advice)
    player = Player(run, lines, budget, override)
    with suppress(OutOfTurns):
        await player.play(tools or {})
    found = player.outcome
    run.note("explored", **found._asdict())
    return found


class OutOfTurns(Exception):
    """The budget is used up, or the world is closed."""


class Wants(BaseException):
    """A tool has come to a call that is not answered yet. No Exception: a tool may catch those."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        super().__init__(name)
        self.name, self.given = name, given


class Player:
    """One task as it is played: what was read so far, and what it cost."""

    def __init__(self, run: Errand, lines: Sequence[str], budget: int, override: float) -> None:
        self.run, self.lines, self.budget, self.override = run, lines, budget, override
        self.query = run.task.prompt
        self.read = len(self.query) + sum(map(len, lines))  # characters of the context
        self.turns = self.spent = self.calls = 0
        self.tool, self.refused, self.submitted = "", list[str](), False
        self._overrides: bool | None = None

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.turns, self.spent // TOKEN, self.calls, self.tool, tuple(self.refused), self.submitted)

    async def play(self, tools: Mapping[str, Tool]) -> None:
        """Play to the end.

        Raises:
            OutOfTurns: before an answer was submitted.
        """
        for name, tool in tools.items():
            answer = await self._trust(name, tool)
            if answer is not None:
                self.tool = name
                return await self._submit(answer)
            self.refused.append(name)
        asked = read(self.query)
        if asked is None:
            return None
        told = advice(self.lines, asked.app)
        if told.login:
            await self._turn("login", app=asked.app)
        rows = await self._meant(asked, told)
        if asked.verb not in CHANGES:
            return await self._submit(str(answered(asked.verb, rows)))
        if rows:
            ids = [row.id for row in rows]
            await self._at(CHANGE, told.change, "change", asked, verb=asked.verb, ids=ids)
        return await self._submit("done")

    # ---- what it does by itself -----------------------------------------------------------------------------------

    async def _meant(self, asked: Asked, told: Advice) -> list[Row]:
        """The rows that the query means, as far as the player knows."""
        rows: list[Row] = []
        page, more, first = 1, True, told.fetch
        while more:
            if told.pages and page > told.pages and not await self._sees():
                break
            seen, endpoint = await self._at(FETCH, first, "fetch", asked, page=page)
            first, page, more = [endpoint], page + 1, bool(seen.get("has_more"))
            rows += [_row(row, told) for row in seen.get("rows", ())]
        filters = asked.filters
        if told.where is not None and set(told.where) != set(filters) and not await self._sees():
            filters = told.where
        return [row for row in rows if all(f.keeps(row) for f in filters) and not (row.pending and told.leaves_out)]

    async def _at(
        self, names: Sequence[str], first: Sequence[str], tool: str, asked: Asked, **given: Any
    ) -> tuple[dict[str, Any], str]:
        """Call a tool of the world at the first endpoint that answers: those advised, then the others by lot."""
        tried: list[str] = []
        while True:
            left = [name for name in first if name not in tried]
            if not left:
                left = [name for name in names if name not in tried] or list(names)
                left = [left[int(await self.run.draw("endpoint") * len(left))]]
            tried.append(left[0])
            call = {"app": asked.app, "endpoint": left[0], "table": asked.table, **given}
            seen = await self._turn(tool, **call)
            if str(seen.get("error", "")).startswith("401"):
                await self._turn("login", app=asked.app)
                seen = await self._turn(tool, **call)
            if "has no endpoint" not in str(seen.get("error", "")):
                return seen, left[0]

    async def _sees(self) -> bool:
        """Whether the player sees that a plan does not fit, and does otherwise."""
        if self._overrides is None:
            sure = self.override in (0, 1)
            self._overrides = bool(self.override) if sure else await self.run.draw("override") < self.override
        return self._overrides

    async def _submit(self, answer: str) -> None:
        await self._turn("submit", answer=answer)
        self.submitted = True

    # ---- tools that it trusts -------------------------------------------------------------------------------------

    async def _trust(self, name: str, tool: Tool) -> str | None:
        """What a tool answers, in one turn; None where it gives none."""
        self._charge(f"{name}({json.dumps(self.query)})")
        calls: list[tuple[str, str, dict[str, Any]]] = []
        while True:
            try:
                answer = tool(self.query, _Api(calls))
                break
            except Wants as wants:
                if len(calls) >= CALLS or self.run.done:
                    answer = None
                    break
                calls.append((wants.name, _text(wants.given), await self._perform(wants.name, wants.given)))
            except (Exception, SystemExit) as error:  # whatever a tool that a memory wrote may raise
                self.run.note("tool failed", tool=name, error=type(error).__name__)
                answer = None
                break
        good = isinstance(answer, (str, int, float)) and not isinstance(answer, bool) and len(str(answer)) <= 40
        found = str(answer) if good else None
        self.read += len(str(found))
        self.run.note("tool", tool=name, calls=len(calls), answer=found)
        return found

    # ---- the world, and what it costs -----------------------------------------------------------------------------

    def _charge(self, said: str) -> None:
        if self.turns >= self.budget or self.run.done:
            raise OutOfTurns
        self.turns += 1
        self.read += len(said)
        self.spent += self.read

    async def _turn(self, name: str, **given: Any) -> dict[str, Any]:
        self._charge(f"{name}({_text(given)})")
        seen = await self._perform(name, given)
        self.read += len(json.dumps(seen))
        return seen

    async def _perform(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        seen = await self.run.act(ToolCall(f"c{self.calls}", name, _text(given)))
        self.calls += 1
        if seen.text.startswith("error: "):
            return {"error": seen.text.removeprefix("error: ")}
        found = json.loads(seen.text)
        return found if isinstance(found, dict) else {"error": "no object"}


class _Api:
    """What a tool calls the world by: calls that were made before are answered, the next one ends the attempt."""

    def __init__(self, made: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        self._made, self._at = made, 0

    def __call__(self, name: str, **given: Any) -> dict[str, Any]:
        if name not in ("login", "fetch", "change"):
            return {"error": "a tool may login, fetch and change"}
        if self._at == len(self._made):
            _text(given)  # raises in the tool where it is no JSON
            raise Wants(name, given)
        was, text, seen = self._made[self._at]
        if (was, text) != (name, _text(given)):
            raise RuntimeError("the tool is not deterministic")
        self._at += 1
        return dict(json.loads(json.dumps(seen)))


def _text(given: Mapping[str, Any]) -> str:
    return json.dumps(given, sort_keys=True, allow_nan=False)


def _row(row: Mapping[str, Any], told: Advice) -> Row:
    """A row as the player understands it: it knows every name of a column."""
    amount, kind, person = (next(row[name] for name in names if name in row) for names in FIELDS.values())
    dollars = amount // 100 if told.cents else amount
    return Row(row["id"], dollars, kind, person, row["status"] == "pending")
