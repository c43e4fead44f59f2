"""Which column of a table is what: prompts, answers, ids and splits of its rows, found by name or named by the user.

``Dataset`` calls it once for a table. What was chosen is said in plain words (``Layout.about``), since a column that
was guessed wrong would train on the wrong thing without a word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from string import Formatter
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.exchange.dataset.table import SPLIT, Table
from clew.exchange.files import brief

PROMPTS = ("messages", "prompt", "question", "problem", "instruction", "query", "input")
ANSWERS = ("answer", "solution", "final_answer", "ground_truth", "target", "expected", "label", "output", "response")
SPLITS = {"train": "train", "training": "train", "eval": "eval", "validation": "eval", "valid": "eval", "dev": "eval"}
SPLITS |= {"val": "eval", "test": "test", "testing": "test"}
ROLES = ("system", "user", "assistant", "tool")
PARTS = ("train", "eval", "test")

Said = dict[str, str]  # a message: role and content


class Row(NamedTuple):
    """One row as a task: ``messages`` is empty where the prompt is all that is said."""

    number: int
    id: str
    prompt: str
    messages: tuple[Said, ...]
    answer: object
    columns: Mapping[str, Any]
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows become tasks.

    prompt: a template such as ``"{question} Answer briefly."``, or the name of a column: text, or a list of messages.
    answer, id, split: names of columns. system: the first message, of role system. held_out: share of the rows that
    goes to eval, and the same to test, where no column says it. An empty text: found by name, or none.
    """

    prompt: str = ""
    answer: str = ""
    id: str = ""
    split: str = ""
    system: str = ""
    held_out: float = 0.1

    def rows(self, table: Table) -> list[Row]:
        """Every row as a task.

        Raises:
            BadInput: there is no such column, the template is none, or ids stand twice. BadRecord: a row has no prompt,
            or a split that is none; the error names it.
        """
        if not 0 <= self.held_out < 0.5:
            raise BadInput(f"held_out is {self.held_out}", remedy="Give a share of at least 0 and below 0.5.")
        chosen = self.chosen(table)
        wanted = template_columns(chosen.prompt) if "{" in chosen.prompt else ()
        made = [_row(number, cells, chosen, wanted, table.name) for number, cells in table.rows]
        return _split(_numbered(made, bool(chosen.id), table.name), chosen, table.name)

    def chosen(self, table: Table) -> Layout:
        """The same with the columns that were found by name.

        Raises:
            BadInput: no column of a known name holds prompts, or a named one is not there.
        """
        names = table.columns
        told = f"The columns are {', '.join(map(repr, names[:30]))}."
        prompt = self.prompt or next((name for name in PROMPTS if name in names), "")
        if not prompt:
            remedy = f"{told} Name one with prompt= (--prompt), or write a template: prompt='{{{names[0]}}}'."
            raise BadInput(f"no column of {table.name} is called as prompts are ({', '.join(PROMPTS)})", remedy=remedy)
        named = {"answer": self.answer, "id": self.id, "split": self.split}
        wanted = template_columns(prompt) if "{" in prompt else (prompt,)
        for name in (*wanted, *filter(None, named.values())):
            if name not in names:
                raise BadInput(f"{table.name} has no column {name!r}", remedy=told)
        answer = self.answer or next((name for name in ANSWERS if name in names and name not in wanted), "")
        split = self.split or (SPLIT if _says_splits(table) else "")
        found = self.id or ("id" if "id" in names else "")
        how = {"prompt": prompt, "answer": answer, "id": found, "split": split}
        return Layout(**how, system=self.system, held_out=self.held_out)

    def about(self, table: Table, rows: Sequence[Row]) -> str:
        """What was chosen, in plain words: one line."""
        chosen, counts = self.chosen(table), Counter(row.split for row in rows)
        prompt = "a template" if "{" in chosen.prompt else f"column {chosen.prompt!r}"
        also = [n for n in PROMPTS if not self.prompt and n in table.columns and n != chosen.prompt]
        said = [f"{table.name}: {len(rows)} rows", f"prompt from {prompt}"]
        said[-1] += f" ({', '.join(map(repr, also))} not taken: name it with prompt=)" if also else ""
        said.append(f"answer from column {chosen.answer!r}" if chosen.answer else "no column of answers")
        said.append(f"ids from column {chosen.id!r}" if chosen.id else "ids by hash of the prompt")
        by = f"by column {chosen.split!r}" if chosen.split else f"by hash, {chosen.held_out:.0%} held out for each"
        return "; ".join(said) + f"; {', '.join(f'{p} {counts[p]}' for p in PARTS)} ({by})"


def template_columns(template: str) -> tuple[str, ...]:
    """The columns that a template names.

    Raises:
        BadInput: it is no template, or asks for more than the text of a column.
    """
    remedy = "Write columns in braces, as in '{question} Answer briefly.'; a brace itself is written twice."
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise BadInput(f"{template!r} is no template: {error}", remedy=remedy) from error
    names = [name for _, name, _, _ in parts if name is not None]
    for (_, name, form, turned), text in ((part, part[1]) for part in parts):
        if name is not None and (not text or form or turned or any(sign in text for sign in ".[]!")):
            raise BadInput(f"{template!r} asks for {name!r}, which is no plain column", remedy=remedy)
    if not names:
        raise BadInput(f"{template!r} names no column, so that every prompt would be the same", remedy=remedy)
    return tuple(dict.fromkeys(names))


def _says_splits(table: Table) -> bool:
    return all(str(row.get(SPLIT, "")).strip().lower() in SPLITS for _, row in table.rows)


def _row(number: int, cells: dict[str, Any], chosen: Layout, wanted: Sequence[str], name: str) -> Row:
    where = f"{name}:{number}"
    for column in wanted or (chosen.prompt,):
        if cells.get(column) in (None, "", []) or (isinstance(cells[column], str) and not cells[column].strip()):
            remedy = "Fill it in, or leave the row out."
            raise BadRecord(f"{where} has nothing in {column!r}, which the prompt is made of", remedy=remedy)
    answer = cells.get(chosen.answer) if chosen.answer else None
    if chosen.answer and answer is None:
        remedy = "Fill it in, or leave the row out."
        raise BadRecord(f"{where} has nothing in {chosen.answer!r}, the column of answers", remedy=remedy)
    said: list[Said] = []
    if wanted:
        prompt = chosen.prompt.format(**{column: _shown(cells[column]) for column in wanted})
    elif isinstance(cells[chosen.prompt], (list, tuple)):
        said = [_message(one, where) for one in cells[chosen.prompt]]
        if said[-1]["role"] == "assistant":  # a whole exchange: what it ends with is the known answer
            answer = said.pop()["content"] if not chosen.answer else answer
        if not said or said[-1]["role"] == "assistant":
            raise BadRecord(f"{where} has no message to answer", remedy="End the prompt with a user's message.")
        prompt = next((m["content"] for m in reversed(said) if m["role"] == "user"), said[-1]["content"])
    else:
        prompt = _shown(cells[chosen.prompt])
    if chosen.system:
        said = [{"role": "system", "content": chosen.system}, *(said or [{"role": "user", "content": prompt}])]
    identity = "" if not chosen.id or cells.get(chosen.id) in (None, "") else str(cells[chosen.id])
    if chosen.id and not identity:
        raise BadRecord(f"{where} has nothing in {chosen.id!r}, the column of ids", remedy="Fill it in.")
    split = str(cells.get(chosen.split, "")).strip().lower() if chosen.split else ""
    if chosen.split and split not in SPLITS:
        remedy = f"Write one of {', '.join(SPLITS)}."
        raise BadRecord(f"{where} has {brief(cells.get(chosen.split))} in {chosen.split!r}", remedy=remedy)
    return Row(number, identity, prompt, tuple(said), answer, cells, SPLITS.get(split, ""))


def _message(value: object, where: str) -> Said:
    role, content = (value.get("role"), value.get("content")) if isinstance(value, Mapping) else (None, None)
    if role not in ROLES or not isinstance(content, str):
        remedy = (
            'Write messages as [{"role": "user", "content": "..."}]; transcripts with tool calls are for `clew import`.'
        )
        raise BadRecord(f"{where} has {brief(value)} for a message", remedy=remedy)
    return {"role": str(role), "content": content}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _said_to(row: Row) -> str:
    return json.dumps([row.prompt, row.messages])


def _numbered(rows: list[Row], named: bool, name: str) -> list[Row]:
    """Rows with ids: their own, or a hash of what is asked, so that a row keeps its id when others come and go."""
    seen: dict[str, int] = {}
    out = []
    for row in rows:
        identity = row.id if named else f"row-{_hash(_said_to(row)):016x}"
        if named and identity in seen:
            remedy = "Give each row an id of its own, or leave id out."
            raise BadInput(
                f"{name}:{row.number} and line {seen[identity]} have the id {brief(identity)}", remedy=remedy
            )
        again = 1
        while identity in seen:  # the same question once more, perhaps with another answer
            again += 1
            identity = f"row-{_hash(_said_to(row)):016x}-{again}"
        seen[identity] = row.number
        out.append(row._replace(id=identity))
    return out


def _split(rows: list[Row], chosen: Layout, name: str) -> list[Row]:
    """Rows with their splits; those that ask the same are in one split.

    Raises:
        BadInput: the column of splits puts one question into two.
    """
    first: dict[str, Row] = {}
    out = []
    for row in rows:
        like = first.setdefault(_said_to(row), row)
        if chosen.split:
            if like.split != row.split:
                said = f"{name}:{row.number} asks in {row.split!r} what line {like.number} asks in {like.split!r}"
                raise BadInput(said, remedy="Put rows with one prompt into one split, or leave the column out.")
            out.append(row)
            continue
        place = _hash(f"clew.split {like.id}") / 2**64
        share = chosen.held_out
        out.append(row._replace(split="test" if place < share else "eval" if place < 2 * share else "train"))
    return out
