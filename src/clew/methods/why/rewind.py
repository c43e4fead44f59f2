"""A recorded run as the subject of a causal audit: every arm is a set of forks of the run.

``clew audit why`` makes one. All arms continue from one place, so that they differ in nothing but what is changed. The
first rollouts of an arm are kept whole, as forks in the store; of the others only (seed, outcome, cost) is packed
(DESIGN.md, rule 10), and a seed restores a rollout if the model is repeatable. It must never write to the run's own
record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clew.core.aio import run_sync
from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.printable import short
from clew.core.protocols import Model
from clew.core.records import Call, Cursor, Node, Request
from clew.core.values import Completion, StopReason
from clew.harness import Runner
from clew.harness.fork import forks
from clew.harness.fork.edits import plan, said
from clew.harness.run.spec import RunSpec
from clew.methods.compare.design import Count
from clew.methods.why.arms import Arm, Rollouts
from clew.store import Group, Run
from clew.store.bundles.chosen import copy_run
from clew.store.memory import MemoryStore
from clew.store.run import brief
from clew.worlds.workspace import TreeShelf
from clew.worlds.workspace.tree_edits import edited, glob, tree_at

ENDED = (StopReason.DONE, StopReason.RETURNED, StopReason.NO_WORLD)  # the last: what it asked for next is known
BROKEN = (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR)
UNDONE = r"; the files are as they were before$"  # how a workspace ends what it tells of a command that it gave up
NEVER = r"(?!)"  # matches nothing
SUSPECT = r"(?i)\btime[d ]*out\b|connection (refused|reset)|internal (server )?error|traceback|command not found"
FILLER = "This line holds no information and is here for its length alone and for nothing else at all"
MOST_FACTORS = 6
REDRAWS = 20  # of one reply whose class is avoided


class Behaviour(NamedTuple):
    """What is to be explained, as a test on a run.

    does: a regular expression that an action or a reply matches. query: the run is selected by it
    (``clew.store.query``). edits: a glob of paths, one of which an act changed in the files of a run in a workspace,
    whatever its command says. Where several are given all must hold. actions_only: a reply that names an action
    without performing it does not match ``does``; ``as_in`` sets it from recorded runs.
    """

    does: str = ""
    query: str = ""
    edits: str = ""
    actions_only: bool = False

    def __str__(self) -> str:
        told = [f"does /{self.does}/{' in an action' * self.actions_only}"] if self.does else []
        told += [f"edits {self.edits}"] if self.edits else []
        return " and ".join([*told, *([self.query] if self.query else [])])

    def check(self) -> None:
        """Raises BadInput where none is given, the expression does not compile, or the glob names no path."""
        if not self.does and not self.query and not self.edits:
            raise BadInput("no behaviour is named", remedy="Say what the run did, with --does, --edits or --where.")
        pattern(self.does)
        if self.edits:
            glob(self.edits)

    def as_in(self, runs: Sequence[Run], since: Sequence[int]) -> Behaviour:
        """The behaviour as recorded runs show it: where an action of one of them matches, only actions count, so that a
        run that merely speaks of the action does not show the behaviour; else replies count too."""
        found = pattern(self.does)
        acted = self.does and any(
            any(map(found.search, deeds(run, at, actions_only=True))) for run, at in zip(runs, since, strict=True)
        )
        return self._replace(actions_only=bool(acted))

    def shown(self, runs: Sequence[Run], since: int, shelf: TreeShelf | None = None) -> list[bool]:
        """Whether each run shows it in its Calls from ``since`` on; ``shelf`` holds their files.

        Raises:
            BadInput: edits are asked for, and nothing holds the files.
        """
        if self.edits and shelf is None:
            raise BadInput(f"whether runs edit {self.edits} is told by their files", remedy="Pass the shelf of them.")
        found, selected = pattern(self.does), set[str]()
        if self.query and runs:
            selected = set(runs[0].store.find(self.query))
        return [
            (not self.query or run.id in selected)
            and (not self.does or any(map(found.search, deeds(run, since, self.actions_only))))
            and (shelf is None or not self.edits or first_edit(run, since, self.edits, shelf) is not None)
            for run in runs
        ]


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of the user's.

    Raises:
        BadInput: it does not compile.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise BadInput(f"{text!r} is no regular expression: {error}") from error


def refuse_unshown(behaviour: Behaviour, run: Run, since: int, shelf: TreeShelf | None) -> None:
    """Nothing can be said of why a run did what it did not do.

    Raises:
        BadInput: the run does not show the behaviour in its Calls from ``since`` on; the message says what it shows.
    """
    if behaviour.shown([run], since, shelf)[0]:
        return
    found, told = deeds(run, since), list[str]()
    if behaviour.does and not any(map(pattern(behaviour.does).search, found)):
        last = f"; the last is {short(found[-1], 80)!r}" if found else ""
        told.append(f"none of its actions and replies matches /{behaviour.does}/{last}")
    if behaviour.edits and shelf is not None and first_edit(run, since, behaviour.edits, shelf) is None:
        told.append(f"no action changed a file that matches {behaviour.edits}")
    if behaviour.query and run.id not in run.store.find(behaviour.query):
        told.append(f"the query {behaviour.query!r} does not select it")
    remedy = f"Name what the run did; `clew show {run.id}` prints it."
    if since and behaviour.shown([run], 0, shelf)[0]:
        remedy = f"The run shows it before call {since} only: give an earlier call with --at."
    raise BadInput(f"run {run.id} does not show the behaviour from call {since} on: {'; '.join(told)}", remedy=remedy)


def deeds(run: Run, since: int, actions_only: bool = False) -> list[str]:
    """The actions of a run from a Call on, and unless ``actions_only`` its replies.

    A tool call that nothing performs, as at the end of a continued transcript, is an action: its name and arguments.
    """
    calls = run.calls[since:]
    acts = [text for c in calls if c.kind == "act" for text in dict.fromkeys((c.action, brief(c)))]
    replies = [run.store.node(c.node_out).message for c in calls if c.kind == "ask" and c.node_out]
    unperformed = not acts or run.stop is StopReason.NO_WORLD
    for m in replies:
        parts = [m.text] if m.text and not actions_only else []
        parts += [f"{c.name} {c.arguments}" for c in m.calls] if unperformed else []
        acts += ["\n".join(parts)] if parts else []
    return acts


def first_edit(run: Run, since: int, edits: str, shelf: TreeShelf) -> Call | None:
    """The first act from a Call on after which a path that matches a glob was changed in the files of a run."""
    before = ""
    for call in run.calls:
        if call.kind not in ("open", "act") or not (tree := tree_at(run, call)):
            continue
        if call.seq >= since and before and edited(shelf, before, tree, edits):
            return call
        before = tree
    return None


class Change(NamedTuple):
    """In message number ``message`` of what the agent said in its first conversation, ``old`` becomes ``new``.

    An empty ``old`` puts ``new`` behind the message. ``{}`` in ``new`` stands for a dose.
    """

    message: int
    old: str
    new: str = ""

    def apply(self, text: str, dose: float | None = None) -> str:
        new = self.new if dose is None else self.new.replace("{}", f"{dose:g}")
        return text.replace(self.old, new, 1) if self.old else f"{text} {new}"


class Rewound:
    """A run that can be rewound, changed and run on.

    Args:
        runner: makes the forks; ``Runner.of(store, run)``.
        behaviour, changes: by the names that arms use; ``dose``: the change whose ``{}`` is swept.
        at: Call that all arms go on from; default: the first ask.
        places: cursors into the run, ``places[i]`` after i units of its trace.
        avoid: class name -> regular expression of the replies that belong to it.
        fault: regular expression of observations that show a failing harness; default: none but, in a workspace, what
            undid a command. Errors of model, world and agent count always. Observations that only read like a failing
            harness (a timeout, a traceback) may be what the task is about: they are counted in ``suspects``.
        keep: rollouts of each arm that are kept whole.

    Raises:
        BadInput: the run asks nothing, a change does not fit its messages, or edits are asked for of a run whose acts
            keep no files.
    """

    def __init__(
        self,
        runner: Runner,
        run: Run,
        behaviour: Behaviour,
        changes: Mapping[str, Change],
        *,
        at: int | None = None,
        dose: Change | None = None,
        places: Sequence[Cursor] = (),
        avoid: Mapping[str, str] | None = None,
        fault: str | None = None,
        keep: int = 3,
        seed: int = 0,
    ) -> None:
        behaviour.check()
        self.shelf = shelf_of(runner, run)
        if behaviour.edits and self.shelf is None:
            remedy = "Audit a run in a workspace, or say by --does what it asked for."
            raise BadInput(f"the acts of run {run.id} keep no files, so that no edit would be seen", remedy=remedy)
        self.runner, self.run, self.changes, self.dose = runner, run, dict(changes), dose
        self.at = first_ask(run) if at is None else at
        self.behaviour = behaviour.as_in([run], [self.at])
        refuse_unshown(self.behaviour, run, self.at, self.shelf)
        self.places, self.keep, self.seed = list(places), keep, seed
        usual = UNDONE if self.shelf is not None else NEVER
        self.fault = pattern(usual if fault is None else fault)
        self.suspects = {True: Count(0, 0), False: Count(0, 0)}
        self._suspicion = pattern(SUSPECT if fault is None and self.shelf is None else NEVER)
        self.avoid = {name: pattern(text) for name, text in (avoid or {}).items()}
        self.redrawn: dict[str, list[int]] = {}
        self._texts = {i: node.message.text for i, (_, node) in enumerate(said(run, 0))}
        for name, change in [*self.changes.items(), *([("the dose", dose)] if dose else [])]:
            if change.message not in self._texts or change.old not in self._texts[change.message]:
                raise BadInput(
                    f"message {change.message} of run {run.id} does not hold {change.old!r}, which {name} changes",
                    remedy=f"`clew show {run.id}` prints its messages; they are counted from 0, replies left out.",
                )
            text = self._texts[change.message]
            if change.apply(text, 1.0) == (change.apply(text, 2.0) if change is dose else text):
                told = f"{name} is the same text at every dose" if change is dose else f"{name} changes no text"
                remedy = "Write {} in it, where the dose goes." if change is dose else "Write NEW unlike OLD."
                raise BadInput(f"{told}: {change.new!r}", remedy=remedy)

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        """Forks ``start`` to ``start + n`` of an arm; those below ``keep`` stay in the store."""
        kept = min(max(self.keep - start, 0), n)
        runs = list(self._fork(self.runner.spec, arm, start, kept)) if kept else []
        if kept < n:
            aside = replace(self.runner.spec, store=MemoryStore())
            copy_run(aside.store, self.run.store, self.run.id)
            runs += self._fork(aside, arm, start + kept, n - kept)
        made = self._read(runs, kept)
        if arm == Arm():
            for run, outcome in zip(runs, made.outcomes.tolist(), strict=True):
                suspect = any(map(self._suspicion.search, _told(run)))
                hits, n = self.suspects[suspect]
                self.suspects[suspect] = Count(hits + (outcome == 1), n + 1)
        return made

    def _fork(self, spec: RunSpec, arm: Arm, start: int, n: int) -> Group:
        texts: dict[Any, str] = {}
        edits: list[tuple[Change, float | None]] = [(self.changes[name], None) for name in arm.changes]
        if self.dose is not None and arm.dose is not None:
            edits.append((self.dose, arm.dose))
        for change, dose in edits:
            texts[change.message] = change.apply(texts.get(change.message, self._texts[change.message]), dose)
        cursor = self.places[arm.place] if arm.place >= 0 else Cursor(self.run.id, self.at)
        model = spec.models.add(self._avoiding(arm.avoid)) if arm.avoid else None
        view = Run(spec.store, self.run.id)
        seq, changes = plan(view, cursor, rewrite=texts or None, model=model)
        return run_sync(forks.fork(spec, view, seq, n, changes, derive(self.seed, "why", repr(arm), start)))

    def _avoiding(self, name: str) -> Model:
        model = self.runner.model
        if model is None:
            raise BadInput(f"run {self.run.id} has no model whose replies could be drawn again")
        return Avoiding(model, self.avoid[name], self.redrawn.setdefault(name, []))

    def _read(self, runs: Sequence[Run], kept: int) -> Rollouts:
        sets = [runs[:kept], runs[kept:]]  # of two stores
        hit = np.array([shown for part in sets for shown in self.behaviour.shown(part, self.at, self.shelf)], bool)
        ended = np.array([run.stop in ENDED for run in runs], bool)
        faults = np.array([self._broke(run) for run in runs], bool)
        outcomes = np.where(hit, 1.0, np.where(ended, 0.0, np.nan)).astype(np.float32)
        costs = np.array([run.cost for run in runs], np.float32)
        return Rollouts(outcomes, faults, [run.seed for run in runs], costs, tuple(run.id for run in runs[:kept]))

    def _broke(self, run: Run) -> bool:
        failed = run.stop in BROKEN or any(c.error for c in run.calls[run.shared :])
        return failed or any(map(self.fault.search, _told(run)))


def _told(run: Run) -> list[str]:
    """What the world answered to the acts of a fork itself."""
    return [call.text for call in run.calls[run.shared :] if call.kind == "act"]


class Avoiding:
    """A Model whose replies of a class are drawn again, up to 20 times each (specs/E174, section 3, step 7)."""

    def __init__(self, model: Model, avoid: re.Pattern[str], redrawn: list[int]) -> None:
        self.model, self.avoid, self.redrawn = model, avoid, redrawn
        self.ref, self.version, self.renderer = (
            f"avoiding({avoid.pattern!r}, {model.ref})",
            model.version,
            model.renderer,
        )

    async def complete(self, request: Request) -> Completion:
        for tried in range(REDRAWS + 1):
            seed = request.seed if not tried else derive(request.seed, "redraw", tried)
            done = await self.model.complete(request._replace(seed=seed))
            if not self.avoid.search(done.message.text):
                break
        self.redrawn.append(tried)
        return done


def shelf_of(runner: Runner, run: Run) -> TreeShelf | None:
    """Where the files are kept that acts of a run leave; None for runs that are in no workspace."""
    shelf = getattr(runner.taskset, "shelf", None)
    return shelf if isinstance(shelf, TreeShelf) and any(tree_at(run, call) for call in run.calls[:1]) else None


# ---- what there is to change and where to rewind ---------------------------------------------------------------------


def first_ask(run: Run) -> int:
    """The first Call that asks a model.

    Raises:
        BadInput: there is none.
    """
    found = next((call.seq for call in run.calls if call.kind == "ask"), None)
    if found is None:
        raise BadInput(f"run {run.id} asks no model, so that nothing can be sampled anew", at=f"{run.id}@0")
    return found


def sentences(text: str) -> list[str]:
    """A text cut behind each sentence, line or " ;"; what is joined again is the text."""
    return [piece for piece in re.split(r"(?<=[.!?])(?=[^\S\n])|(?<=\n)|(?<= ;)(?= )", text) if piece]


def factors(run: Run, at: int, most: int = MOST_FACTORS) -> dict[str, Change]:
    """Taking away each sentence first told to the agent at Call ``at``, neighbours together where they are many: those
    of the longest message first, so that a short task beside long instructions is tested sentence by sentence."""
    told: dict[int, list[str]] = {}
    for index, (seq, node) in enumerate(said(run, 0)):
        if seq == at and (pieces := [piece for piece in sentences(node.message.text) if re.search(r"\w", piece)]):
            told[index] = pieces
    parts = {index: len(pieces) for index, pieces in told.items()}
    while sum(parts.values()) > most and max(parts.values()) > 1:
        parts[max(parts, key=lambda index: parts[index])] -= 1
    blocks: list[Change] = []
    for index, pieces in told.items():
        size = -(-len(pieces) // parts[index])
        blocks += [Change(index, "".join(pieces[i : i + size])) for i in range(0, len(pieces), size)]
    named: dict[str, Change] = {}
    for block in blocks:
        name = f"{block.message}: {_short(block.old)}"
        alike = sum(other == name or other.startswith(f"{name} #") for other in named)
        named[f"{name} #{alike + 1}" if alike else name] = block
    return named


def neutral(changes: Mapping[str, Change]) -> Change:
    """A placebo: as many words as the usual change takes away, saying nothing, put behind the first message."""
    words = sorted(len(change.old.split()) for change in changes.values())
    wanted = words[len(words) // 2] if words else 8
    filler = FILLER.split()
    text = " ".join((filler * (wanted // len(filler) + 1))[: max(wanted, 3)])
    return Change(min((c.message for c in changes.values()), default=0), "", text + ".")


def steps(run: Run, at: int) -> tuple[list[Cursor], list[str]]:
    """Places between the steps from Call ``at`` on, and what each step before the last did."""
    asks = [step.asks[0].seq for step in run.steps if step.asks and step.asks[0].seq >= at]
    told = [step.act.action if step.act else "" for step in run.steps if step.asks and step.asks[0].seq >= at]
    return [Cursor(run.id, seq) for seq in asks], told[: len(asks) - 1]


def spoken(run: Run, seq: int, node: Node | None = None) -> tuple[list[Cursor], list[str]]:
    """Places between the sentences of one reply recorded as text, and the sentences before the last.

    Raises:
        BadInput: the reply is recorded as tokens.
    """
    reply = node or run.reply(seq)
    if reply.ids is not None:
        raise BadInput("this reply is recorded as tokens", remedy="Rewind by steps, or fork at run@call+token.")
    pieces, places, at = sentences(reply.message.text) or [""], [], 0
    for piece in pieces:
        places.append(Cursor(run.id, seq, at))
        at += len(piece)
    return places, pieces[:-1]


def _short(text: str, most: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
