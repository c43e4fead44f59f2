"""Finder: questions on invented people, answered by searching an invented encyclopedia and reading its pages.

Search results show the facts themselves (``rich`` snippets), or only what a page is about (``poor``), so that the page
must be opened (specs/E167, section 6). No memory of the real world helps. An agent that is trained on one kind of
snippets can be tried on the other. The judge compares the answer; a world must never hold what is asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence

from clew.core.errors import BadInput
from clew.core.keys import state_key
from clew.core.registry import make_ref
from clew.core.values import Task, ToolCall, ToolSpec
from clew.worlds.bases import Answering, Demonstrated, Exact, load
from clew.worlds.finder.encyclopedia import (
    SHOWN,
    SITE,
    TOWNS,
    TRADES,
    Person,
    Question,
    Snippets,
    page,
    people,
    question_of,
    searched,
    values_in,
)
from clew.worlds.schemas import read_arguments, tool_spec
from clew.worlds.seeds import kept, split_of

TOOLS: tuple[ToolSpec, ...] = (
    tool_spec("search", "Search the encyclopedia by words; five pages are shown.", query="string"),
    tool_spec("open", "Open a page by its address.", url="string"),
    tool_spec("answer", "End the task with the answer.", text="string"),
)
USAGE = "search WORDS, open ADDRESS, or answer TEXT"
LONGEST = 300  # characters of an action's text


class FinderWorld(Exact, Answering):
    """One question; exact. ``opened``: addresses in the order of their first opening. ``answer``: None until given."""

    def __init__(
        self, name: str, number: int, rows: tuple[Person, ...], kind: Snippets, steps: int, tools: bool
    ) -> None:
        self._name, self.number, self._rows, self._kind = name, number, rows, kind
        self.tools: Sequence[ToolSpec] = TOOLS if tools else ()
        self.opened: list[str] = []
        self.answer: str | None = None
        self._said, self._left, self._closed = "The encyclopedia is open.", steps, False

    @property
    def _ended(self) -> bool:
        return self.answer is not None

    @property
    def state_key(self) -> bytes:
        """Which pages were opened and what was answered; neither the searches nor the steps left."""
        return state_key(self._name, json.dumps([sorted(self.opened), self.answer]))

    def _answered(self, action: str | ToolCall) -> str:
        if isinstance(action, ToolCall):
            spec = next((tool for tool in TOOLS if tool.name == action.name), None)
            if spec is None:
                return f"error: there is no tool {action.name[:40]!r}; the tools are search, open, answer"
            try:
                (text,) = map(str, read_arguments(spec, action.arguments).values())
            except BadInput as error:
                return f"error: {action.name}: {error.message}"
            verb = action.name
        else:
            verb, _, text = action.strip().partition(" ")
        text = " ".join(text.split())[:LONGEST]
        if verb == "search" and text:
            return searched(self._rows, text, self._kind)
        if verb == "open" and text:
            return self._open(text)
        if verb == "answer" and text:
            self.answer = text
            return "The task is over."
        return f"error: not understood; {USAGE}"

    def _open(self, url: str) -> str:
        whole = url if url.startswith(SITE) else SITE + url
        found = next((one for one in self._rows if one.url == whole), None)
        if found is None:
            return f"404 Not Found: {url[:SHOWN]}"
        if found.url not in self.opened:
            self.opened.append(found.url)
        return page(self._rows, found)

    def account(self) -> str:
        """What is true now, in a few words: the pages that were opened."""
        return " ; ".join(self.opened) or "nothing was opened"

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.opened, self.answer, self._left, self._said]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is not one of this task."""
        _, self.opened, self.answer, self._left, self._said = load(snapshot, self._name, 5)


class Finder(Demonstrated[FinderWorld]):
    """Answer questions on invented people by searching pages; a task id ``finder-NUMBER`` fixes table and question.

    Args:
        snippets: what a search shows of a page: ``rich``, its facts; ``poor``, only what it is about.
        hops: pages on the way to the answer, 1, or 2 where the teacher of somebody is asked about.
        rows: of a table, 10 to 1000. tables: how many tables there are; a task has one of them.
        steps: the task ends after so many actions.
        tools: offer tools; actions as text are understood in any case.
    """

    prefix, plays = "finder", FinderWorld

    def __init__(
        self,
        snippets: Snippets = "rich",
        hops: int = 1,
        rows: int = 300,
        tables: int = 1000,
        steps: int = 12,
        tools: bool = False,
    ) -> None:
        given = {"snippets": snippets, "hops": hops, "rows": rows, "tables": tables, "steps": steps, "tools": tools}
        if snippets not in ("rich", "poor") or hops not in (1, 2):
            raise BadInput(f"finder({given})", remedy="Snippets are rich or poor, and hops are 1 or 2.")
        if not 10 <= rows <= 1000 or tables < 1 or steps < 1:
            raise BadInput(f"finder({given})", remedy="Needs 10 to 1000 rows, at least 1 table and at least 1 step.")
        self.ref = make_ref("finder", given, Finder)
        self.snippets, self.hops, self.rows, self.tables = snippets, hops, rows, tables
        self.steps, self.tools = steps, tools
        self.question = kept(lambda number: question_of(number, number % tables, rows, hops))  # of a task number

    def content(self, number: int) -> Hashable:
        return (number % self.tables, self.question(number).text)

    def find(self, task_id: str) -> Task:
        number = self.number(task_id)
        asked: Question = self.question(number)
        prompt = f"{asked.text} Look it up in the encyclopedia: {USAGE}, which ends the task."
        return Task(task_id, prompt, {"split": split_of(self.content(number))}, secret={"answer": asked.answer})

    def open(self, task: Task) -> FinderWorld:
        number = self.number(task.id)
        rows = people(number % self.tables, self.rows)
        return FinderWorld(f"{self.ref} {number}", number, rows, self.snippets, self.steps, self.tools)

    def verdict(self, task: Task, last: FinderWorld) -> dict[str, float]:
        """Reward 1 where the answer names the right town, trade or year and no other.

        ``answered``: there was one. ``opens``: pages that were opened.
        """
        right = values_in(last.answer or "") == {self.question(self.number(task.id)).answer.lower()}
        return {"reward": float(right), "answered": float(last.answer is not None), "opens": float(len(last.opened))}

    def expert(self, world: FinderWorld) -> str:
        """Searches for a person, opens the page, and goes on to the teacher's or answers."""
        asked: Question = self.question(world.number)
        everyone = people(world.number % self.tables, self.rows)
        unread = [everyone[place] for place in asked.path if everyone[place].url not in world.opened]
        if not unread:
            return f"answer {asked.answer}"
        shown = f"{unread[0].url}\n" in world.observe().text
        return f"open {unread[0].url}" if shown else f"search {unread[0].name}"

    def slip(self, world: FinderWorld, rng: random.Random) -> str:
        """A search or a page that the question may not need."""
        one = rng.choice(people(world.number % self.tables, self.rows))
        words = (one.name, one.name.split()[1], rng.choice(TOWNS), rng.choice(TRADES), "nothing at all")
        odd = f"{SITE}{rng.choice(TRADES)}"
        return rng.choice(
            [f"search {rng.choice(words)}", f"search {one.name}", f"open {one.url}", f"open {odd}", "look"]
        )
