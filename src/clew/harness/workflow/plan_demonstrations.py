"""Demonstrations of plans: their language and shapes, with workers drawn at random, on questions of other kinds.

``clew tune --plans`` imitates them before a leading model is trained (specs/E166 sections 4.2 and 7.3: from a random
start such a training collapses, and demonstrations of other kinds of tasks are not copied lazily). They say nothing of
which worker is good at what: that must be learnt from rewards.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.values import Message
from clew.harness.workflow.clearance import Team
from clew.harness.workflow.orchestrator import instructions
from clew.harness.workflow.subsets import some
from clew.harness.workflow.workplan import Part, written

Said = tuple[Message, ...]
Shape = tuple[tuple[str, tuple[int, ...]], ...]  # of each part its subtask, and the parts it reads
ANSWER, FIRST, SECOND, THIRD = "Do the whole task.", "Do step 1.", "Do step 2.", "Do step 3."
CHECK, JUDGE = "Check the result and correct it.", "Compare the results and give the right one."
SHAPES: tuple[Shape, ...] = (
    ((ANSWER, ()),),
    ((FIRST, ()), (SECOND, (0,))),
    ((ANSWER, ()), (CHECK, (0,))),
    ((FIRST, ()), (SECOND, (0,)), (THIRD, (1,))),
    ((ANSWER, ()), (ANSWER, ()), (JUDGE, (0, 1))),
    ((FIRST, ()), (SECOND, (0,)), (CHECK, (0, 1))),
    ((ANSWER, ()), (ANSWER, ()), (ANSWER, ()), (JUDGE, (0, 1, 2))),
    ((ANSWER, ()), (CHECK, (0,)), (CHECK, (0, 1)), (JUDGE, (0, 1, 2))),
)
PLACES = ("the Alps", "Lake Garda", "Norway", "the harbour", "the old town", "the museum")
THINGS = ("a bicycle", "a glass roof", "three apples", "a letter", "the timetable", "a wooden chair")
QUESTIONS = (
    "Which rivers rise in {place}?",
    "Describe {thing} to somebody who has never seen one.",
    "Write a short poem about {place}.",
    "What would it take to bring {thing} to {place}?",
    "Name what is old and what is new in {place}, and say why.",
    "Translate into Latin: there is {thing} in {place}.",
    "Plan a day in {place} for a school class.",
    "How is {thing} made, and who made the first one?",
    "Put in order of size: {place}, {thing}, a cloud.",
    "Who could have left {thing} in {place}?",
)


def demonstrations(
    n: int,
    workers: Sequence[object] | Mapping[str, object],
    parts: int = 5,
    subset: bool = False,
    seed: int = 0,
    questions: Sequence[str] = (),
) -> list[tuple[Said, Said]]:
    """What the leading model of ``orchestrator`` is told, and a valid plan that it might write.

    Args:
        n: how many.
        workers, parts, subset: as the agent takes them.
        questions: to plan for, each as often as the others; the built-in ones of other kinds where none are given.

    Returns:
        (messages before, the plan as the assistant's message) of each.

    Raises:
        BadInput: there are no workers, or not such as the agent takes; or no part is allowed.
    """
    if isinstance(workers, Mapping):
        workers = dict(sorted(workers.items()))  # as the arguments of a run are kept
    shapes = [shape for shape in SHAPES if len(shape) <= parts]
    if not shapes:
        raise BadInput("plans cannot be shown without parts", remedy="Let a plan have a part or more (parts).")
    dice, out = random.Random(derive(seed, "plans")), list[tuple[Said, Said]]()
    for i in range(n):
        offered = some(workers, dice.random()) if subset else workers
        names = [post.name for post in Team.read(offered).posts]
        plan = [Part(dice.randrange(len(names)), subtask, reads) for subtask, reads in dice.choice(shapes)]
        asked = questions[i % len(questions)] if questions else _question(dice)
        told = (Message("system", instructions(names, parts)), Message("user", asked))
        out.append((told, (Message("assistant", written(plan)),)))
    return out


def _question(dice: random.Random) -> str:
    return dice.choice(QUESTIONS).format(place=dice.choice(PLACES), thing=dice.choice(THINGS))
