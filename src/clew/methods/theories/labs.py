"""Where a design is asked: of a bank of choices that people made before, or of people on Prolific.

The closed loop calls it. A lab takes a design and gives people's choices on it; what it costs is told before it is
asked. People's ids must never enter a folder or a log: a person is a number in the order of arrival.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clew.core.errors import BadInput, ClewError
from clew.core.printable import short, visible
from clew.methods.theories.choice_fits import Choices, cells
from clew.methods.theories.choice_trials import Design, Trials, together
from clew.methods.theories.prolific import ADDRESS, DONE, Prolific, Study, dry_run

MOST_BYTES = 64 << 20  # of the page's file of choices


class Unfinished(ClewError):
    """People were still at it when the wait was given up. Nothing is lost: the study goes on."""


class Lab(Protocol):
    """Asks people, or what stands for them."""

    def cost(self, design: Design) -> str:
        """What asking the design costs, in one sentence."""
        ...

    def offers(self) -> Sequence[Design] | None:
        """The designs that may be asked; None where any may."""
        ...

    async def collect(self, design: Design) -> Choices:
        """People's choices on the design. Trials again after an interruption it goes on where it was."""
        ...


class Bank:
    """A lab of experiments that people have done already: each design can be drawn once, with all who were asked on it.

    Experiments with the same pairs and validities are one design: their people are put together, so that none is lost
    and no design is left out of a fit that has seen it. A person counts once in each experiment.

    Raises:
        BadInput: there is no experiment.
    """

    def __init__(self, experiments: Sequence[Choices]) -> None:
        if not experiments:
            raise BadInput("the bank is empty", remedy="Give a file of choices with at least one experiment.")
        alike: dict[str, list[Choices]] = {}
        for one in experiments:
            alike.setdefault(_design(one)._replace(repeats=1).key, []).append(one)
        whole = [some[0] if len(some) == 1 else together(some) for some in alike.values()]
        self._left = {_design(one).key: one for one in whole}

    def cost(self, design: Design) -> str:
        return "It costs nothing: these people were asked before."

    def offers(self) -> Sequence[Design]:
        return [_design(one) for one in self._left.values()]

    async def collect(self, design: Design) -> Choices:
        """The experiment of that design.

        Raises:
            BadInput: no experiment that is left has it.
        """
        if design.key not in self._left:
            raise BadInput("the bank has no such experiment left", remedy="Draw one of those that it offers.")
        return self._left.pop(design.key)


class PeopleOnProlific:
    """A lab of people whom Prolific finds and pays; your page shows them the pairs and writes down what they chose.

    A design becomes ``FOLDER/design-KEY.json`` for your page (pairs, validities, repeats, completion code) and a study
    on Prolific. Your page appends one JSON object a line to ``choices``: ``{"session": ..., "pair": 0, "chose_b": 1}``,
    session being the SESSION_ID of its address. Only sessions that Prolific lists as finished, with the study's code,
    are read. A study is found again by its internal name, so that no design is paid for twice.

    Args:
        api: of Prolific. study: what people are told and paid; its internal name is set here.
        folder: of designs and of the studies' ids. choices: the file that your page appends to.
        most: pence or cents that one study may cost, fee and tax included.
        every: seconds between two looks. patience: seconds after which the wait is given up.
        wait: how to wait; another for trials.
    """

    def __init__(
        self,
        api: Prolific,
        study: Study,
        folder: Path,
        choices: Path,
        *,
        most: int,
        every: float = 60.0,
        patience: float = 48 * 3600.0,
        wait: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.api, self.study, self.folder, self.choices, self.most = api, study, folder, choices, most
        self._every, self._patience, self._wait = every, patience, wait

    def cost(self, design: Design) -> str:
        paid = f"{self.study.places} people x {self.study.reward / 100:.2f} = {self.study.rewards / 100:.2f}"
        return f"{paid}, and Prolific's fee and tax; at most {self.most / 100:.2f} in all, or it is not published."

    def offers(self) -> None:
        return None

    def rehearse(self, design: Design) -> str:
        """What would be sent and written, and what it costs. Nothing is, and no token is needed."""
        return f"write {self.folder / f'design-{design.key}.json'}\n{dry_run(self._named(design), self.api.address)}"

    async def collect(self, design: Design) -> Choices:
        """Publish the design, wait until people have finished, and read what they chose.

        Raises:
            BadInput: the token is missing, it costs more than allowed, or the page's file is not as it should be.
            Refused, Unreachable: Prolific's. Unfinished: people have not finished in time.
        """
        study = self._named(design)
        known = self._begun(design, study) or await self.api.find(study.known) or await self.api.draft(study)
        _replace(self.folder / f"study-{design.key}.json", {"study": known})
        if await self.api.status(known) == "UNPUBLISHED":
            await self.api.publish(known, cost=await self.api.cost(study), most=self.most)
        waited = 0.0
        while True:
            people = await self.api.submissions(known)
            done = [one.id for one in people if one.status in DONE and one.code == study.code]
            if len(done) >= study.places:
                return self._read(design, set(done))
            if waited >= self._patience:
                raise Unfinished(
                    f"{len(done)} of {study.places} people have finished after {waited / 3600:.0f} hours",
                    remedy="The study goes on: run the same line again, and it waits for the same people.",
                )
            await self._wait(self._every)
            waited += self._every

    def _named(self, design: Design) -> Study:
        fields = {name: getattr(self.study, name) for name in Study.__slots__}
        return Study(**fields | {"known": f"clew {design.key}"})

    def _begun(self, design: Design, study: Study) -> str | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        page = {
            "a": design.a.tolist(),
            "b": design.b.tolist(),
            "validities": design.validities.tolist(),
            "repeats": design.repeats,
            "completion_code": study.code,
        }
        _replace(self.folder / f"design-{design.key}.json", page)
        path = self.folder / f"study-{design.key}.json"
        try:
            told = json.loads(path.read_text()).get("study") if path.is_file() else None
        except (ValueError, AttributeError):
            told = None
        return told if isinstance(told, str) and told.isascii() and told.isalnum() else None

    def _read(self, design: Design, done: set[str]) -> Trials:
        people: dict[str, int] = {}
        rows = [
            (pair, people.setdefault(session, len(people)), chosen)
            for session, pair, chosen in _lines(self.choices, len(design.a))
            if session in done
        ]
        if missing := len(done) - len(people):
            raise BadInput(
                f"{missing} of {len(done)} people who finished have no choices in {self.choices.name}",
                remedy="Check that the page writes the SESSION_ID of its address; then run the same line again.",
            )
        pair, who, chosen = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        return Trials(design.a[pair], design.b[pair], design.validities, who, chosen)


def lab_of(options: Mapping[str, Any], experiments: Sequence[Choices] = ()) -> Bank | PeopleOnProlific:
    """The lab that a command line names.

    Args:
        options: ``connector`` ("bank" or "prolific"); for Prolific also ``name``, ``description``, ``url``, ``code``,
            ``places``, ``minutes``, ``reward`` (as ``Study``), ``folder``, ``choices`` and ``most`` (as
            ``PeopleOnProlific``), and perhaps ``address``, ``every`` and ``patience``; ``token`` gives the token.
        experiments: of the bank.

    Raises:
        BadInput: there is no such connector, or an option is missing or out of bounds.
    """
    match options.get("connector", "bank"):
        case "bank":
            return Bank(experiments)
        case "prolific":
            needed = ("name", "description", "url", "code", "places", "minutes", "reward", "folder", "choices", "most")
            if missing := [option for option in needed if options.get(option) is None]:
                raise BadInput(f"a study on Prolific needs {', '.join(missing)}", remedy="Give each of them.")
            numbers = (*needed[4:7], "most")
            for option in needed:
                if (
                    type(options[option]) is not int
                    if option in numbers
                    else not isinstance(options[option], (str, Path))
                ):
                    what = "a whole number" if option in numbers else "a text"
                    raise BadInput(f"{option} of the study is no {what[2:]}", remedy=f"Give {what}.")
            study = Study(**{option: options[option] for option in needed[:7]})
            api = Prolific(options.get("token") or (lambda: None), options.get("address") or ADDRESS)
            more = {option: options[option] for option in ("every", "patience") if options.get(option) is not None}
            folder, choices = Path(options["folder"]), Path(options["choices"])
            return PeopleOnProlific(api, study, folder, choices, most=options["most"], **more)
        case other:
            raise BadInput(f"there is no connector {other!r}", remedy="Choose from bank, prolific.")


def _design(one: Choices) -> Design:
    pairs, people = cells(one), len(np.unique(one.subject))
    repeats = max(1, round(len(one.chose_b) / people / len(pairs.share)))
    return Design(pairs.a, pairs.b, pairs.validities, repeats)


def _lines(path: Path, pairs: int) -> Iterator[tuple[str, int, int]]:
    """(session, pair, chose_b) of each line of the page's file.

    Raises:
        BadInput: it is absent or too large, or a line is not as it should be.
    """
    want = 'Write lines like {"session": "...", "pair": 0, "chose_b": 1}.'
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise BadInput(f"{visible(str(path))} is absent or larger than {MOST_BYTES >> 20} MiB", remedy=want)
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                session, pair, chosen = row["session"], row["pair"], row["chose_b"]
                fine = isinstance(session, str) and type(pair) is int and type(chosen) is int
            except (ValueError, TypeError, LookupError, RecursionError):
                fine, session, pair, chosen = False, "", 0, 0
            if not fine or not 0 <= pair < pairs or chosen not in (0, 1):
                raise BadInput(f"line {number} of {visible(path.name)}: {short(line, 80)}", remedy=want)
            yield session, pair, chosen


def _replace(path: Path, told: Mapping[str, Any]) -> None:
    """Write a small file whole or not at all."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(told) + "\n")
    os.replace(beside, path)
