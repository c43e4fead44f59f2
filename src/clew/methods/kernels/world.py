"""Kernel tuning as runs: a world whose steps are tries of a build, and the agent that searches.

``clew kernels tune`` starts it. A search is recorded, replays without a compiler, and forks at any try, with another
search or a model from there on. Stored runs name the agent as ``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput, MissingExtra, WorldError
from clew.core.keys import state_key
from clew.core.protocols import Restores, World
from clew.core.reading import Record
from clew.core.records import Call
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.harness.run.live import LiveRun
from clew.methods.kernels.catalogue import CATALOGUE, load
from clew.methods.kernels.cpu import Built, Cpu, Speed
from clew.methods.kernels.kernel import STRONG, Candidate, Kernel, Space
from clew.methods.kernels.program import Driven, Program
from clew.methods.kernels.rules import advice, diagnose
from clew.methods.kernels.runs import Boxed, Direct, Run
from clew.methods.kernels.search import SEARCHES, Outcome, Tries

FENCE = re.compile(r"```(?:c|C)?\s*\n(.*?)```", re.DOTALL)


class Best(NamedTuple):
    candidate: Candidate
    speed: float  # over the plain build


class KernelWorld:
    """Takes candidates as JSON, answers with what became of them; ``{"final": true}`` compares the best with the plain
    build and with the compiler's own best flags, and ends."""

    restores: Restores = "exact"
    tools: Sequence[ToolSpec] = ()

    def __init__(
        self,
        kernel: Kernel | Program,
        run: Run,
        profile: bool,
        on_try: Callable[[], None] | None = None,
        driver: str = "",
        flags: str = "",
    ) -> None:
        self._cpu: Cpu | Driven = (
            Driven(kernel, driver, flags, run) if isinstance(kernel, Program) else Cpu(kernel, run)
        )
        self._profile, self._run, self._on_try = profile, run, on_try
        self._told: list[dict[str, Any]] = []
        self._best = Best(self._cpu.space.start(), 1.0)
        self._done = self._closed = False
        self._begin = self._diagnosed(self._cpu.plain, None)

    @property
    def state_key(self) -> bytes:
        return state_key(self._cpu.kernel.name, json.dumps(self._told, sort_keys=True))

    def observe(self) -> Observation:
        told = self._told[-1] if self._told else {"speed": 1.0, **self._begin}
        return Observation(json.dumps(told), None, self._done)

    def step(self, action: str | ToolCall) -> Observation:
        """Try ``{"choice": {option: index}, "source": "..."}``: options left out stay as in the plain build.

        Raises:
            WorldError: after the end. What is wrong with a candidate is its answer, not an error.
        """
        if self._closed or self._done:
            raise WorldError("a step after the end", remedy="Open a fresh world.")
        text = action.arguments if isinstance(action, ToolCall) else str(action)
        try:
            asked = json.loads(text)
            told = self._final() if asked.get("final") else self._try(self._candidate(asked))
        except (ValueError, AttributeError, BadInput) as error:
            told = {"speed": 0.0, "why": f"not a candidate: {error}"}
        self._told.append(told)
        if self._on_try:
            self._on_try()
        seen = self.observe()._replace(reward=told.get("speed"))
        return seen._replace(call_id=action.id) if isinstance(action, ToolCall) else seen

    def snapshot(self) -> bytes:
        return json.dumps([self._cpu.kernel.name, self._told, self._best, self._done]).encode()

    def restore(self, snapshot: bytes) -> None:
        try:
            name, told, (candidate, speed), done = json.loads(snapshot)
        except (ValueError, TypeError) as error:
            raise WorldError(f"not a snapshot of a kernel: {snapshot[:40]!r}") from error
        if name != self._cpu.kernel.name:
            raise WorldError(
                f"a snapshot of {name}, not of {self._cpu.kernel.name}", remedy="Open that kernel's world."
            )
        choice = tuple((option, index) for option, index in candidate[0])
        self._told, self._best, self._done = told, Best(Candidate(choice, candidate[1]), speed), done

    def close(self) -> None:
        self._closed = True

    def _candidate(self, asked: Mapping[str, Any]) -> Candidate:
        candidate, space = self._cpu.space.start(), self._cpu.space
        for option, index in dict(asked.get("choice", {})).items():
            if option not in space.values or index not in range(len(space.values[option])):
                raise BadInput(f"{option}={index!r}", remedy=f"Options: {', '.join(space.values)}.")
            candidate = candidate.changed(option, index)
        source = str(asked.get("source", ""))
        if source and isinstance(self._run, Direct):
            raise BadInput("new source outside of the sandbox", remedy="Take kernels(sandbox='bubblewrap').")
        return candidate._replace(source=source)

    def _try(self, candidate: Candidate) -> dict[str, Any]:
        """Build, check, time against the best so far, diagnose."""
        told: dict[str, Any] = {"build": self._cpu.space.told(candidate), "speed": 0.0}
        built = self._cpu.build(candidate)
        if built.path is None:
            return {**told, "why": f"does not compile: {built.why}"}
        wrong = self._cpu.check(built)
        measured = wrong or self._cpu.time(self._cpu.build(self._best.candidate), built)
        if not isinstance(measured, Speed):
            return {**told, "why": f"wrong on case {measured.case}: {measured.why}"}
        told["speed"] = round(self._best.speed * measured.ratio, 4)
        told["against_best"] = [round(x, 4) for x in measured[:3]]
        told["seconds"] = measured.b
        told |= self._diagnosed(built, measured.b)
        if measured.gain:
            self._best = Best(candidate, told["speed"])
            told["gain"] = True
        return told

    def _final(self) -> dict[str, Any]:
        best, cpu = self._cpu.build(self._best.candidate), self._cpu
        strong = cpu.space.start()
        for option, flag in STRONG.items():
            strong = strong.changed(option, cpu.space.values[option].index(flag))
        told: dict[str, Any] = {"build": cpu.space.told(best.candidate), "speed": self._best.speed}
        for name, other in (("plain", cpu.plain), ("compiler", cpu.build(strong))):
            found = cpu.time(other, best)
            told[f"over_{name}"] = [round(x, 4) for x in found[:3]] if isinstance(found, Speed) else found.why
        self._done = True
        return told

    def _diagnosed(self, built: Built, seconds: float | None) -> dict[str, Any]:
        metrics = self._cpu.metrics(built, seconds, self._profile)
        bound, agreed = self._cpu.bound(metrics)
        findings = diagnose(metrics, "cpu", bound)
        told = {"bound": bound, "agreed": agreed, "advice": advice(findings), "findings": [f.line() for f in findings]}
        return told | {"metrics": {k: round(v, 5) for k, v in metrics.items()}}


class Kernels:
    """Kernels to tune: the bundled ones, Python files that define one, or C files.

    Args:
        sandbox: ``bubblewrap``, the weaker ``rlimits``, or empty: the compiler and the builds run as this user, which
            is for sources of one's own; new source is then refused.
        profile: count cache misses with cachegrind, where valgrind is installed; not of C files.
        driver: of a C file without ``main``: the C file that has it.
        flags: of a C file: what the compiler needs for every build.
    """

    def __init__(self, sandbox: str = "bubblewrap", profile: bool = True, driver: str = "", flags: str = "") -> None:
        given = {"sandbox": sandbox, "profile": profile, "driver": driver, "flags": flags}
        self.ref = make_ref("kernels", given, Kernels)
        self.sandbox, self.profile, self._needs = sandbox, profile, (driver, flags)
        self.on_try: Callable[[], None] | None = None  # called after every step of its worlds

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        names = list(CATALOGUE)
        random.Random(f"{seed} {split}").shuffle(names)
        if n > len(names):
            raise BadInput(f"{n} kernels of {len(names)}", remedy="Ask for fewer, or name files with --task.")
        return [self.find(name) for name in names[:n]]

    def find(self, task_id: str) -> Task:
        kernel = load(task_id)
        space = Space(kernel)
        options = "\n".join(f"  {name}: {', '.join(map(repr, values))}" for name, values in space.values.items())
        return Task(
            task_id,
            f"Make this C function faster; its results may not change.\n\n```c\n{kernel.source.strip()}\n```\n\n"
            f"It is built with options of these values, by index:\n{options}",
        )

    def open(self, task: Task) -> World:
        folder = tempfile.TemporaryDirectory(prefix="clew-kernel-")
        try:
            run: Run = Boxed(Path(folder.name), isolation=self.sandbox) if self.sandbox else Direct(Path(folder.name))
            return _Temporary(folder, load(task.id), run, self.profile, self.on_try, *self._needs)
        except (BadInput, MissingExtra) as error:
            raise WorldError(error.message, remedy=error.remedy) from error

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """Reward: the best speed-up over the plain build that the run found, 1 where none."""
        found = [told["speed"] for _, told in tries_of(run)]
        return {"reward": max([1.0, *found]), "tries": float(len(found))}


class _Temporary(KernelWorld):
    def __init__(self, folder: tempfile.TemporaryDirectory[str], *given: Any) -> None:
        self._folder = folder
        try:
            super().__init__(*given)
        except BaseException:
            folder.cleanup()
            raise

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def tries_of(run: Record) -> list[tuple[Call, dict[str, Any]]]:
    """The tries of a recorded run in order: (Call, answer); what closes the run is not one."""
    found = []
    for call in run.calls:
        if call.kind == "act" and call.done >= 0 and not call.error and call.state:
            told = json.loads(call.text)
            if "over_plain" not in told:
                found.append((call, told))
    return found


# ---- the agent ------------------------------------------------------------------------------------------------------


class Writer:
    """A coder that asks the run's model for new source, with the diagnosis of the present one."""

    def __init__(self, run: LiveRun, space: Space, count: int = 2) -> None:
        self._run, self._space, self._count, self._notes = run, space, count, list[str]()

    async def propose(self, candidate: Candidate, outcome: Outcome, tried: Sequence[Candidate]) -> list[Candidate]:
        """Replies hold one fenced block of C each; one without is no proposal. Built with the strong flags."""
        source = candidate.source or self._run.task.prompt.partition("```c\n")[2].partition("```")[0]
        failed = f"\nIt does not work: {outcome.why}" if outcome.why else ""
        said = ", ".join(outcome.advice) or "nothing"
        chat = self._run.chat()
        chat.say(
            "user",
            f"{self._run.task.prompt}\n\nThe present source, {outcome.speed:.2f} times as fast as the first:\n"
            f"```c\n{source.strip()}\n```{failed}\nWhat the measurements say: {said}.\n"
            f"What was tried:\n{chr(10).join(self._notes[-5:]) or 'nothing yet'}\n\n"
            "Answer with the whole new source in one ```c block.",
        )
        found = []
        for _ in range(self._count):
            reply = await chat.ask()
            if block := FENCE.search(reply.text):
                strong = candidate
                for option, flag in STRONG.items():
                    strong = strong.changed(option, self._space.values[option].index(flag))
                found.append(strong._replace(source=block[1]))
            chat.say("user", "Another, different way:")
        return found

    def remember(self, candidate: Candidate, outcome: Outcome) -> None:
        self._notes.append(f"- {outcome.why or f'speed {outcome.speed:.2f}'}: {candidate.source[:200]!r}")


async def tuner(run: LiveRun, search: str = "guided", budget: int = 24, coder: str = "catalogue") -> None:
    """Searches for a faster build of the task's kernel and compares the best at the end.

    Args:
        search: strong, random, greedy, guided (as in runs stored without a word of it) or mcts. budget: tries.
        coder: ``catalogue`` changes flags and macros; ``model`` asks the run's model for source.

    Raises:
        BadInput: no such search or coder.
    """
    if search not in SEARCHES or coder not in ("catalogue", "model"):
        raise BadInput(
            f"search {search!r}, coder {coder!r}", remedy=f"Searches: {', '.join(SEARCHES)}; coders: catalogue, model."
        )
    space, rng = Space(load(run.task.id)), random.Random(await run.draw("search"))
    writer = Writer(run, space) if coder == "model" else None

    async def evaluate(candidate: Candidate) -> Outcome:
        action = {"choice": dict(candidate.choice), **({"source": candidate.source} if candidate.source else {})}
        seen = await run.act(json.dumps(action))
        told = json.loads(seen.text)
        outcome = Outcome(told["speed"], tuple(told.get("advice", ())), told.get("why", ""))
        if writer:
            writer.remember(candidate, outcome)
        return outcome

    first = json.loads(run.view.text)
    begin, tries = Outcome(1.0, tuple(first["advice"])), Tries(evaluate, budget)
    how: dict[str, Any] = {"coder": writer} if writer and search != "random" else {}
    await SEARCHES[search](tries, space, rng, begin, **how)  # type: ignore[operator]
    await run.act(json.dumps({"final": True}))
