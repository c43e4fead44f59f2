"""Planted models of a world that `clew world eval` must not call faithful, and one that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from clew.cli.world_eval import _comparisons
from clew.core.protocols import Model
from clew.core.records import Request
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.open_loop import Outcome, by_content, failures, outcomes
from clew.methods.world_model.prompting import Turn, reply_text
from clew.models.fakes import Scripted

FILES = ("notes.txt", "todo.txt", "plan.md")


def episodes(answer: Callable[[int, int], str], turns: int = 4) -> list[Episode]:
    """Runs of one length, one of each task."""
    made = []
    for task in range(6):
        told = tuple(Turn(f"look {turn}", answer(task, turn)) for turn in range(turns))
        made.append(Episode(f"r{task}", f"t{task}", "w", f"Task {task}.", "Begin.", (), told, (True,) * turns))
    return made


VARIED = episodes(lambda task, turn: f"the file {FILES[turn % 3]} of {task} {turn}")
ALIKE = episodes(lambda task, turn: "ok")


def measured(model: Model, some: Sequence[Episode] = VARIED) -> list[Outcome]:
    return asyncio.run(outcomes(model, some, ModelCard()))


def exact(found: Sequence[Outcome]) -> float:
    return sum(one.exact for one in found) / len(found)


def truth(request: Request) -> str:
    said = [node.message.text for node in request.path]
    task, turn = next(n for n in range(6) if f"Task {n}." in said[0]), int(said[-1].rpartition(" ")[2])
    return reply_text(VARIED[task].turns[turn].observation)


def test_a_model_that_knows_the_world_is_right():
    found = measured(Scripted({"": truth}))
    assert exact(found) == 1
    assert failures(found) == {}
    assert _comparisons(VARIED).tested


@pytest.mark.parametrize(
    "said",
    [
        reply_text("ok"),
        reply_text("Done, this matches the ground truth perfectly."),
        reply_text("the file notes.txt of 0 0"),
        "no marked observation at all",
        "",
    ],
)
def test_a_model_that_says_the_same_to_everything_is_not_faithful(said):
    found = measured(Scripted({"": said}))
    assert exact(found) < 0.1
    assert len(found) == 24, "answers that failed count as wrong"
    assert sum(len(part) for name, part in by_content(found).items() if name != "all") == 24


def test_where_all_true_answers_are_the_same_nothing_is_tested():
    found = measured(Scripted({"": reply_text("ok")}), ALIKE)
    assert exact(found) == 1
    tested = _comparisons(ALIKE)
    assert not tested.tested
    assert tested.verdict("more than half agree") == "not tested: all 24 true answers are the same"
    assert all(one.copied for one in found if one.turn), "what repeating the last answer does is told beside it"


def test_no_answers_are_no_test():
    assert not _comparisons([]).tested
