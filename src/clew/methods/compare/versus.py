"""Which of several arms does better from one recorded state: branches in pairs, judged, until it is decided.

``clew compare`` is this from the command line. An arm is a change that ``Runner.fork`` would take: another model,
another temperature, another prompt. All arms start at one Call of one run and share the Calls below it; the branches of
one number have one seed in all arms, and their verdicts are a pair. After each batch ``sequential`` says whether the
difference to the first arm is known, at an error that all looks and all arms have together. Branches lie in the store
under a name that says where they begin, what was changed and their seed, so that the same comparison goes on with them.
A comparison must never ask a model for what is recorded below the place, nor change the run that it starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from clew.core.aio import run_sync
from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput, ModelError, WorldError
from clew.core.keys import derive, value_digest
from clew.core.records import Call, Cursor, GroupRow, Intervention, Report, RunRow
from clew.core.values import StopReason
from clew.harness import Runner
from clew.harness.blame import agent_failed
from clew.harness.collecting import named
from clew.harness.executors import Prepared, driven
from clew.harness.fork.edits import fork_row, plan
from clew.harness.run.lifecycle import FAILED
from clew.harness.run.restore import world_at
from clew.harness.run.spec import OnRun
from clew.methods.compare.sequential import Limits, Outcome, limits_of_difference, limits_of_mean, pairs_that_decide
from clew.store import Keeper, Run, new_id
from clew.store.protocol import undecided

Verdict = Callable[[Run], float | None]
"""What a branch is worth, in [0, 1]; None where it has no verdict, as where its model was not to be reached."""
RIGHT = 0.5  # a reward above it is a success, as in Groups.success
CAVEAT = "one state of one task: the difference is that of branches from there, not of other states"


class Arm(NamedTuple):
    """A name, and what is changed at the place: arguments of ``Runner.fork``; none continues as recorded."""

    name: str
    changes: Mapping[str, Any] = {}


class Branches(NamedTuple):
    """An arm's branches by number, and what each is worth."""

    runs: dict[int, Run]
    worth: dict[int, float]

    @property
    def success(self) -> Limits:
        """The mean verdict, with limits of its own that hold at all looks."""
        return limits_of_mean(list(self.worth.values()))


@dataclass(frozen=True, slots=True)
class Finding:
    """An arm against the first one.

    ``decides``: about how many pairs would decide a difference as large as the one seen; None where too many or none
    would, and where it is decided. ``left``: pairs in which a verdict is missing. ``comparisons``: what it rests on.
    """

    arm: str
    reference: str
    limits: Limits
    outcome: Outcome
    left: int
    level: float
    decides: int | None
    runs: tuple[str, ...]
    comparisons: Comparisons

    def report(self) -> Report:
        """The finding as a claim of the store."""
        missing = (f"{self.left} pairs have no verdict and are left out",) if self.left else ()
        mean, low, high, n = self.limits
        return Report(
            claim=f"success of {self.arm} less that of {self.reference}, from one state",
            estimate=mean,
            low=low,
            high=high,
            n=n,
            design=f"{n} pairs of branches by seed; confidence sequence by betting, which holds at all looks",
            level=self.level,
            runs=self.runs,
            caveats=(CAVEAT, *missing),
        )


def filed(store: Keeper, it: Finding) -> str:
    """Keep a finding as a claim of the store, once; its id."""
    report = it.report()
    return store.put_report(report, f"compare-{value_digest([report.estimate, report.level, *report.runs]).hex()[:12]}")


def success(run: Run) -> float | None:
    """The usual verdict: whether the run's reward is above one half; None where it has no reward."""
    reward = run.reward
    return None if reward is None else float(reward > RIGHT)


class Versus:
    """One comparison: the first arm is the one that all others are compared with.

    Args:
        at: a place in the run; None where an edited message says it. Arms that edit an earlier message move it to the
            first request that the message reaches, for all arms.
        n: the most branches of an arm. batch: branches of an arm between two looks.
        margin: a difference within it on both sides of 0 is decided as equal; 0: never.
        verdict: what a branch is worth; by default whether it succeeds, by its world's reward.

    Raises:
        BadInput: fewer than two arms, equal ones, or a place and a change that do not fit.
    """

    def __init__(
        self,
        runner: Runner,
        run: Run,
        at: Cursor | int | None,
        arms: Sequence[Arm],
        *,
        n: int = 16,
        batch: int = 4,
        seed: int = 0,
        level: float = 0.95,
        margin: float = 0.0,
        verdict: Verdict = success,
    ) -> None:
        if run.row.spawned_by:
            told = f"run {run.id} was spawned by another run, and its branches would be that run's"
            raise BadInput(told, remedy=f"Compare from that run: {run.row.spawned_by}.")
        if runner.taskset is None and verdict is success:
            raise BadInput(f"run {run.id} has no world that judges it", remedy="Compare from a run that has a reward.")
        self.runner, self.run, self.arms = runner, run, list(arms)
        self.n, self.batch, self.margin, self.verdict = n, batch, margin, verdict
        self.level = 1 - (1 - level) / max(len(arms) - 1, 1)  # Bonferroni's share of the error for each difference
        self.seq, self.changes = self._planned(at)
        if len(arms) < 2 or len(set(map(str, (it.to_json() for it in self.changes)))) < len(arms):
            names = ", ".join(arm.name for arm in arms)
            raise BadInput(f"two different arms are compared, not {names!r}", remedy="Name two that differ.")
        self.seed = derive(run.row.seed, "compare", self.seq, seed)
        self.found = [Branches({}, {}) for _ in arms]
        self._open = list(range(1, len(arms)))

    @property
    def at(self) -> str:
        """Where all branches begin, as a cursor."""
        token = next((len(e.value) for e in self.changes[0].edits if (e.kind, e.seq) == ("prefix", self.seq)), 0)
        return str(Cursor(self.run.id, self.seq, token))

    def _planned(self, at: Cursor | int | None) -> tuple[int, list[Intervention]]:
        """The Call at which all arms go live, and what each changes there."""
        asked = [dict(arm.changes) for arm in self.arms]
        for changes in asked:
            model = changes.get("model")
            if model is not None and not isinstance(model, str):
                changes["model"] = self.runner.models.add(model)
        first = min(plan(self.run, at, **changes)[0] for changes in asked if at is not None or "rewrite" in changes)
        given = at.seq if isinstance(at, Cursor) else at
        place = at if first == given else first
        return first, [plan(self.run, place, **changes)[1] for changes in asked]

    # ---- the comparison ----------------------------------------------------------------------------------------------

    def compare(self, on_run: OnRun | None = None) -> list[Finding]:
        """Make branches until every difference is decided or has ``n`` pairs; what is recorded of them is used.

        Raises:
            ModelError, WorldError, AgentFailed: all branches of an arm ended so. BadInput: no branch of an arm has a
            verdict. CannotRestore: the world cannot be brought back at the place; nothing is stored then.
        """
        shared = self.runner.store.calls(self.run.id, 0, self.seq)
        self._restorable(shared)
        keys = [self._key(changes) for changes in self.changes]
        recorded = [self._recorded(key) for key in keys]
        made = 0
        while self._open and made < self.n:
            members = range(made, min(made + self.batch, self.n))
            work = [self._branches(arm, keys[arm], members, recorded[arm], shared) for arm in (0, *self._open)]
            self._drive([it for its in work for it in its], on_run)
            made = members.stop
            self._open = [arm for arm in self._open if self._outcome(arm) == "open"]
        return [self._finding(arm) for arm in range(1, len(self.arms))]

    def _restorable(self, shared: list[Call]) -> None:
        spec = self.runner.spec
        if spec.taskset is not None and self.seq > 0:
            probe = run_sync(world_at(spec, spec.task_of(self.run.row), shared, self.changes[0]))
            if probe is not None:
                probe.close()

    def _key(self, changes: Intervention) -> str:
        """The name of an arm's branches; those of one name may be taken for one another."""
        return f"compare {value_digest([self.run.id, self.seq, changes.to_json(), self.seed]).hex()[:16]}"

    def _recorded(self, key: str) -> dict[int, RunRow]:
        """The branches of that name by number. One that an error ended says nothing of its arm, and is made again."""
        store = self.runner.store
        rows = [store.row(run) for group in named(store, key).values() for run in group.runs]
        return {row.order[-1]: row for row in rows if Run(store, row).stop not in FAILED}

    def _branches(
        self, arm: int, key: str, members: Iterable[int], recorded: Mapping[int, RunRow], shared: list[Call]
    ) -> list[Prepared]:
        """The branches of an arm with these numbers: those recorded, and new ones, which are stored as a group."""
        store, task, group = self.runner.store, self.runner.task_of(self.run.row), new_id()
        old = {member: recorded[member] for member in members if member in recorded}
        new = {
            member: fork_row(self.run, self.seq, self.changes[arm], self.seed, member, group=group)
            for member in members
            if member not in old
        }
        if new:
            names = tuple(row.id for row in new.values())
            store.put_group(GroupRow(group, "tree", self.run.task_id, names, f"{key}/{min(new)}/{group}"))
        for row in new.values():
            store.put_run(row)
        self.found[arm].runs.update({member: Run(store, row) for member, row in (old | new).items()})
        return [*(Prepared(row, task) for row in old.values()), *(Prepared(row, task, shared) for row in new.values())]

    def _drive(self, work: Sequence[Prepared], on_run: OnRun | None) -> None:
        """Bring the branches of all arms to their ends, all at once, and ask for their verdicts."""
        spec = self.runner.spec
        spec.store.commit()

        async def ends() -> set[str]:
            async with aclosing(driven(self.runner.executor, spec, work, on_run)) as runs:
                return {run.id async for run in runs}

        done = run_sync(ends())
        for arm, branches in zip(self.arms, self.found, strict=True):
            for member, run in branches.runs.items():
                if run.id in done:
                    fresh = branches.runs[member] = Run(spec.store, run.id)
                    worth = self.verdict(fresh)
                    if worth is not None:
                        branches.worth[member] = worth
            self._refuse_failure(arm.name, branches)

    def _refuse_failure(self, arm: str, branches: Branches) -> None:
        """Say it as an error where no branch of an arm has a verdict: nothing would be decided by more of them."""
        if branches.worth:
            return
        runs = list(branches.runs.values())
        stops, told = {run.stop for run in runs}, f"all {len(runs)} branches of {arm}"
        for reason, kind in ((StopReason.MODEL_ERROR, ModelError), (StopReason.WORLD_ERROR, WorldError)):
            if stops == {reason}:
                remedy = f"Mend what the error names and run the line again; `clew show {runs[0].id}` shows the record."
                raise kind(f"{told} ended in {reason}: {runs[0].calls[-1].error}", remedy=remedy)
        if stops == {StopReason.AGENT_ERROR}:
            raise agent_failed(runs, told)
        why = undecided(self.runner.store, [run.id for run in runs]) or f"they ended by {', '.join(map(str, stops))}"
        raise BadInput(f"{told} have no verdict: {why}", remedy=f"`clew show {runs[0].id}` shows the first.")

    # ---- what is known -----------------------------------------------------------------------------------------------

    def _differences(self, arm: int) -> list[float]:
        """The arm less the first one, of each pair that has both verdicts."""
        first, other = self.found[0].worth, self.found[arm].worth
        return [other[member] - first[member] for member in sorted(first.keys() & other.keys())]

    def _limits(self, arm: int) -> Limits:
        return limits_of_difference(self._differences(arm), self.level)

    def _comparisons(self, arm: int) -> Comparisons:
        """The pairs of an arm. Where every branch of both arms has one verdict, as where the task cannot be solved from
        there, they could not have told the arms apart, and "equal" is not said."""
        first, other = self.found[0].worth, self.found[arm].worth
        both = first.keys() & other.keys()
        values = {worth[member] for worth in (first, other) for member in both}
        why = f"all {2 * len(both)} branches have the verdict {min(values, default=0):g}, whichever arm they are of"
        what = f"pairs of branches of {self.arms[arm].name} and {self.arms[0].name}"
        could = len(both) if len(values) > 1 else 0
        return Comparisons(what, len(both), could, self.margin or None, "of success", why if both else "")

    def _outcome(self, arm: int) -> Outcome:
        outcome = self._limits(arm).outcome(self.margin)
        return outcome if outcome != "equal" or self._comparisons(arm).tested else "open"

    def _finding(self, arm: int) -> Finding:
        first, other, pairs = self.found[0], self.found[arm], self._differences(arm)
        limits, outcome, made = self._limits(arm), self._outcome(arm), self._comparisons(arm)
        return Finding(
            arm=self.arms[arm].name,
            reference=self.arms[0].name,
            limits=limits,
            outcome=outcome,
            left=len(other.runs) - len(pairs),
            level=self.level,
            decides=pairs_that_decide(pairs, self.level, self.margin) if outcome == "open" and made.tested else None,
            runs=tuple(side.runs[member].id for member in sorted(other.runs) for side in (first, other)),
            comparisons=made,
        )
