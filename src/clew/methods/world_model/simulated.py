"""Simulated: tasks of a world or of recorded runs, in a world that a model makes up (arXiv 2606.24597).

``clew run --world "simulated(...)"`` builds it. The real world, where one is named, gives the tasks, what is seen first
and the verdict: the run's actions are performed there once more, and what it answers is compared with what the model
made up. A simulated run must never be judged by what the model says of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from clew.core.errors import BadInput, Undecided
from clew.core.printable import short
from clew.core.protocols import Taskset, World
from clew.core.reading import Record, Step
from clew.core.records import Call, action_of, changed
from clew.core.registry import absolute, build, make_ref
from clew.core.sources import file_of, placed
from clew.core.values import Task, ToolCall
from clew.methods.world_model import prompting, service_faults
from clew.methods.world_model.demonstrations import demonstrations_of, shown
from clew.methods.world_model.fiction import Fiction
from clew.methods.world_model.fidelity import Acted, Compared, Monitor, played, share
from clew.methods.world_model.instruction import Instruction
from clew.methods.world_model.leaks import Guard, answer_of, leaks
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.recorded_tasks import RecordedTasks
from clew.methods.world_model.simulated_world import NEXT, Manner, SimulatedWorld
from clew.methods.world_model.tool_files import Offer, tools_of_data, tools_of_file
from clew.worlds.judging import world_acts
from clew.worlds.world_asks import Asks, open_world

LIVE_RUNS = 8  # with a bound: a run counts when it has ended, so that those live when the bound falls are paid for too
NEEDS = "Write simulated(folder='FITTED'), or simulated(model='URL#NAME', tools='tools.json', demos='runs.jsonl')."


class Simulated:
    """A world that a model makes up: a fitted one (folder), or any chat model told of tools and recorded runs.

    Args:
        folder: what `clew world fit` wrote; it says how its model is asked.
        model: who answers, as `--model` names it; "" is the folder's, else the run's own model.
        tools: a file of OpenAI's tools, an MCP server's tools/list, or an OpenAPI document (perhaps FILE#name,name);
            "" is those of the world.
        demos: recorded runs as `clew export` writes them (.jsonl); the first ``shots`` are shown to the model.
        world: the taskset that gives the tasks and the verdict; "" takes the tasks from demos, and nothing judges.
        told: fields of a task's data that the model is told as the state at the start; the agent may know them too.
        instruction: how it is to behave, such as {'fail_rate': 0.1, 'paginate': 5, 'leak': 'tease', 'opens': ['open']}.
        bound: stop once the share of turns that agree with the real world is below this for sure; 0 never stops.
            With a bound at most 8 runs are live at once.
        steps: the world ends after so many actions.
        echo: tell the model its own account of the state again every so many turns. window: turns it is told; 0: all.
        tries: how often it is asked for one answer. kept: give equal acts in equal states the answer they had.
        temperature, max_tokens: how it is sampled; the folder's where not given. held: hold each observation to so
            many characters, and the reply to its form, by a grammar (local weights, vLLM); 0: leave it to the model.

    Raises:
        BadInput: what is named is not there, or contradicts itself; see ``Instruction``.
    """

    def __init__(
        self,
        folder: str = "",
        model: str = "",
        tools: str = "",
        demos: str = "",
        world: str = "",
        told: Sequence[str] = (),
        instruction: Mapping[str, Any] | None = None,
        bound: float = 0.0,
        shots: int = 4,
        steps: int = 50,
        echo: int | None = None,
        window: int | None = None,
        tries: int = 2,
        kept: bool = True,
        temperature: float | None = None,
        max_tokens: int | None = None,
        held: int = 0,
    ) -> None:
        if not (folder or tools or demos or world):
            raise BadInput("simulated() is told of no world", remedy=NEEDS)
        counts = {"steps": (steps, 1), "shots": (shots, 0), "tries": (tries, 1)}
        counts |= {"echo": (echo or 0, 0), "window": (window or 0, 0), "held": (held, 0)}
        for name, (count, least) in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < least:
                raise BadInput(f"simulated({name}={count!r})", remedy=f"Give a whole number of at least {least}.")
        wishes = Instruction.of(instruction)
        wishes = replace(wishes, fiction=_whole(wishes.fiction))
        given: dict[str, Any] = {"folder": _whole(folder), "model": _whole(model), "tools": _whole(tools)}
        given |= {"demos": _whole(demos), "world": _whole(world), "instruction": wishes.given or None, "bound": bound}
        self.told = (told,) if isinstance(told, str) else tuple(told)
        given |= {"told": self.told, "shots": shots, "steps": steps, "echo": echo, "window": window, "held": held}
        given |= {"tries": tries, "kept": kept, "temperature": temperature, "max_tokens": max_tokens}
        self.ref = make_ref("simulated", given, Simulated)
        self.card = ModelCard.read(Path(placed(folder))) if folder else None
        base = self.card or ModelCard(max_tokens=1024, rules=prompting.RULES, told_tools=True)
        self.demonstrations = demonstrations_of(demos) if demos else []
        source = world or base.world
        self.real: Taskset | None = build("tasksets", source) if source else None
        self.tasks: Taskset = self.real or RecordedTasks(self.demonstrations)
        self.monitor = Monitor(bound) if bound else None
        if bound:
            self.max_concurrency = LIVE_RUNS
        self._watched: set[str] = set()
        if self.monitor is not None and self.real is None:
            raise BadInput(f"bound={bound} compares with a real world, and none is named", remedy="Add world=...")
        offers = tools_of_file(tools) if tools else tools_of_data(list(base.tools), folder) if base.tools else []
        self._offers: dict[str, Offer] | None = {o.spec.name: o for o in offers} or None
        sampling: dict[str, float | str] = {"temperature": base.temperature if temperature is None else temperature}
        sampling["max_tokens"] = base.max_tokens if max_tokens is None else max_tokens
        if held:
            sampling["grammar"] = prompting.reply_grammar(held)
        self._base, self._shots, self.instruction = base, shots, wishes
        self._manner: dict[str, Any] = {"model": _whole(model or folder), "sampling": sampling, "steps": steps}
        self._manner |= {"echo": base.echo if echo is None else echo, "tries": tries, "kept": kept}
        self._manner |= {"window": base.window if window is None else window, "instruction": wishes}
        self._manner["fiction"] = Fiction(wishes.fiction) if wishes.fiction else None
        self._shared: dict[tuple[str, ...], Manner] = {}

    def __repr__(self) -> str:
        return self.ref

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return self.tasks.sample(n, seed=seed, split=split)

    def find(self, task_id: str) -> Task:
        return self.tasks.find(task_id)

    def open(self, task: Task, asks: Asks | None = None) -> SimulatedWorld:
        first, offers = self._first(task)
        manner = self._manner_of(offers)
        guard = Guard(answer_of(self.find(task.id).secret), task.id)
        return SimulatedWorld(task.id, self._system(task, first, manner), first, manner, guard, asks or Asks())

    def _first(self, task: Task) -> tuple[str, Mapping[str, Offer]]:
        """What the agent sees first, and the tools: the real world's where one is named."""
        world = open_world(self.real, task) if self.real is not None else None
        if world is None:
            return task.prompt, self._offers or {}
        try:
            own = {spec.name: Offer(spec) for spec in world.tools}
            return world.observe().text, own if self._offers is None else self._offers
        finally:
            world.close()

    def _manner_of(self, offers: Mapping[str, Offer]) -> Manner:
        names = tuple(offers)
        if names not in self._shared:
            self._shared[names] = Manner(offers=offers, **self._manner)
        return self._shared[names]

    def _system(self, task: Task, first: str, manner: Manner) -> str:
        if self.card is not None and not (self.demonstrations or self.instruction.text or self.told):
            return self.card.system(task.prompt, first)
        specs = [offer.spec for offer in manner.offers.values()] if self._base.told_tools else []
        lacks = [name for name in self.told if name not in task.data]
        if lacks:
            raise BadInput(f"{task.id} has no data {lacks[0]!r}", remedy=f"It has {', '.join(task.data) or 'none'}.")
        known = [f"{name}: {task.data[name]}" for name in self.told]
        state = "\n".join(([] if first in task.prompt else [first]) + known)
        examples = shown(self.demonstrations, self._shots)
        described = self._base.description or task.prompt
        return prompting.system_text(described, specs, state, examples, self.instruction.text, self._base.rules)

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def acted(self, calls: Iterable[Call]) -> list[Acted]:
        """The acts of a simulated run, with what the model itself answered: before pages, masks and losses."""
        found = []
        for call in calls:
            action = action_of(call)
            if not call.inner:  # code answered
                name = action.name if isinstance(action, ToolCall) else action.partition(" ")[0]
                paged = self.instruction.paginate > 0 and name == NEXT
                real = not paged and call.text != service_faults.REFUSED
                found.append(Acted(action, call.text, played=real, compared=real))
                continue
            said = call.inner[-1].text
            found.append(Acted(action, prompting.extract(said) or "", prompting.extract_done(said)))
        return found

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        """The real world's verdict on the same actions performed there, with ``fidelity``, the share of turns in which
        it answers the same, and ``leaks``, the turns that told of the answer too early.

        Raises:
            Undecided: no real world is named, its actions cannot be undone, or the simulated one was changed by an
                edit. BadInput: fidelity has fallen below the bound.
        """
        acts = world_acts(run)
        real = open_world(self.real, task) if self.real is not None else None
        try:
            if real is not None and real.restores == "none":
                raise Undecided(f"what is done in {short(str(self.real), 60)} cannot be undone: nothing is tried there")
            if any(edit.kind == "world" for edit in run.changes.edits):
                raise Undecided("the simulated world was changed by an edit, which the real one cannot be")
            turns = await played(real, self.acted(acts), task.prompt) if real is not None else []
            seen = run if real is None else cast("Record", _InReal(run, acts, turns))
            verdict: dict[str, float | None] = dict(await self.tasks.judge(task, seen, real))
        finally:
            if real is not None:
                real.close()
        if (fidelity := share(turns)) is not None:
            verdict["fidelity"] = fidelity
        answer = answer_of(self.find(task.id).secret)
        if answer:
            told = leaks(answer, [(action_of(c), c.text) for c in acts], self.instruction.opens, task.prompt)
            verdict["leaks"] = float(len(told))
        if self.monitor is not None and fidelity is not None and run.id not in self._watched:
            self._watched.add(run.id)
            self.monitor.add(fidelity)
            if self.monitor.fallen:
                told_of = f"the simulated world agrees with the real one in {self.monitor}"
                raise BadInput(told_of, remedy="`clew world check RUN` shows where. Fit it anew, or lower the bound.")
        return verdict


class _InReal:
    """A run's record as it would read had it been made in the real world: other answers and states, all else as is."""

    def __init__(self, run: Record, acts: Sequence[Call], turns: Sequence[Compared]) -> None:
        seen = {c.seq: (t.real, t.state) for c, t in zip(acts, turns, strict=True)}
        self._run = run
        self.calls = [_as_real(call, seen) for call in run.calls]

    @property
    def steps(self) -> list[Step]:
        by_seq = {call.seq: call for call in self.calls}
        return [
            step._replace(act=step.act and by_seq[step.act.seq], before=step.before and by_seq[step.before.seq])
            for step in self._run.steps
        ]

    def __getattr__(self, name: str) -> object:
        return getattr(self._run, name)


def _as_real(call: Call, seen: Mapping[int, tuple[Any, bytes]]) -> Call:
    if call.kind != "act" or call.seq not in seen:
        return call
    real, state = seen[call.seq]
    return changed(call, text=real.text, reward=real.reward, terminal=real.done, state=state, inner=(), snapshot=b"")


def _whole(place: str) -> str:
    """A path, or a reference into a Python file, as records keep it; what is no file here stays as it is."""
    if file_of(place):
        return absolute(place)
    path, mark, rest = place.partition("#")
    return os.path.abspath(path) + mark + rest if path and "://" not in path and os.path.exists(placed(path)) else place
