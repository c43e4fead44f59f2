"""The reflector of E168, by rules: from how a task went to lessons in the player's words, with where they were seen.

``mind`` calls it after each task. It reads what the apps answered, and after a wrong answer it asks what the judge
reveals (specs/E168 step 7): the habits that no answer of an app tells. A plan keeps no literal of the run that it is
from, except where an experiment plants one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clew.worlds.apps import Apps
from papers.E168_metis.errands import Played, Step, words_cost
from papers.E168_metis.reading import Asked, read

LINE, DRILLED = 80, 3  # characters of a step in the compact view; steps that are looked at whole
HIDDEN = {  # a habit that no answer tells: what is mistaken where it is not known
    "amounts are in cents": "cents were taken for dollars",
    "pending rows are left out": "pending rows were counted",
}


class Lesson(NamedTuple):
    """What is to be remembered. topic: what it is about; a later lesson of one topic contradicts or repeats it.

    text: as ``reading`` has it after its kind and app. Empty: ``wrong`` is what the topic cannot be any more.
    """

    kind: str
    app: str
    topic: str
    text: str
    seq: int = 0  # of the Call where it was seen
    wrong: str = ""

    @property
    def body(self) -> dict[str, str]:
        """The fields of an item."""
        if self.kind != "pitfall":
            return {"text": self.text}
        said, _, fix = self.text.partition("; fix: ")
        trigger, mistake, consequence = said.split(" -> ")
        return {"trigger": trigger, "mistake": mistake, "consequence": consequence, "fix": fix}


class Reflected(NamedTuple):
    """Lessons, and the tokens that a model would have read and written for them."""

    lessons: tuple[Lesson, ...] = ()
    read: int = 0
    written: int = 0


def reflect(taskset: Apps, played: Played) -> Reflected:
    """Lessons of one task."""
    asked = read(played.task.prompt)
    if asked is None:
        return Reflected()
    found = [*_facts(asked, played.steps)]
    if played.reward < 1 and played.outcome.submitted:
        found += _pitfalls(taskset, asked, played)
    if played.reward == 1 and not played.outcome.tool:
        found.append(Lesson("plan", asked.app, topic_of(asked), plan_of(asked, played.steps), played.steps[0].seq))
    view = [played.task.prompt, *(f"{step}"[:LINE] for step in played.steps)]
    drilled = [f"{step}" for step in played.steps[-DRILLED:]] if played.reward < 1 else []
    told = [f"{lesson.kind} {lesson.app}: {lesson.text or lesson.wrong}" for lesson in found]
    return Reflected(tuple(found), words_cost([*view, *drilled]), words_cost(told))


def topic_of(asked: Asked) -> str:
    """What plans of one kind of errand have in common."""
    return f"{asked.verb} {asked.table}"


def _facts(asked: Asked, steps: Sequence[Step]) -> Iterator[Lesson]:
    entered = False
    for step in steps:
        if step.given.get("app") != asked.app:
            continue
        error, name = str(step.seen.get("error", "")), step.given.get("endpoint")
        topic, says = ("change", "action endpoint is") if step.name == "change" else ("fetch", "endpoint is")
        if step.name == "login":
            entered = True
        elif error.startswith("401"):
            yield Lesson("fact", asked.app, "login", "login first", step.seq)
        elif "has no endpoint" in error:
            yield Lesson("fact", asked.app, topic, "", step.seq, str(name))
        elif not error:
            yield Lesson("fact", asked.app, topic, f"{says} {name}", step.seq)
            if not entered:
                yield Lesson("fact", asked.app, "login", "no login", step.seq)


def _pitfalls(taskset: Apps, asked: Asked, played: Played) -> Iterator[Lesson]:
    for fact in taskset.facts(played.task):
        habit = fact.partition(f"app {asked.app}: ")[2]
        if habit in HIDDEN:
            told = f"on submit -> {HIDDEN[habit]} -> wrong answer; fix: {habit}"
            yield Lesson("pitfall", asked.app, habit, told, played.steps[-1].seq)


def plan_of(asked: Asked, steps: Sequence[Step]) -> str:
    """The steps of a run that went well, without those that failed and without what this query alone has."""
    good = [step for step in steps if "error" not in step.seen and step.given.get("app") == asked.app]
    parts = ["login"] if any(step.name == "login" for step in good) else []
    for name in ("fetch", "change"):
        if end := next((step.given["endpoint"] for step in good if step.name == name), ""):
            parts.append(f"{name} {end} {asked.table if name == 'fetch' else asked.verb}")
    return "; ".join([*parts, "" if parts[-1].startswith("change") else asked.verb, "submit"]).replace("; ;", ";")
