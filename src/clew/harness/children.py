"""Child runs: started by a run, and forked through their ancestors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clew.core.errors import UnknownName
from clew.core.keys import REQUEST, canonical, derive, digest
from clew.core.records import Cursor, Edit, Intervention
from clew.core.values import Task
from clew.harness.fork.forks import fork_row
from clew.harness.loading import Agent, agent_ref, load_agent, source_digest
from clew.harness.run.dispatch import Clerk
from clew.harness.run.drive import drive
from clew.store import Run

if TYPE_CHECKING:
    from clew.harness.run.run_state import Effects


class Child:
    """A run started by another run."""

    def __init__(self, parent: Effects, agent: Agent | str, task: Task | str, config: dict[str, Any]) -> None:
        self.parent = parent
        self.task = task if isinstance(task, Task) else Task(f"{parent.task.id}/{parent.seq}", task)
        found = load_agent(agent) if isinstance(agent, str) else agent
        self.spec = replace(
            parent.spec,
            agent=found,
            agent_ref=agent_ref(agent),
            agent_digest=source_digest(found),
            config=config,
            taskset=parent.spec.taskset if isinstance(task, Task) else None,
        )
        self.row = self.spec.row(
            self.task,
            seed=derive(parent.row.seed, parent.seq, "child"),
            order=(*parent.row.order, parent.seq),
            spawned_by=str(Cursor(parent.row.id, parent.seq)),
            origin="spawn",
        )

    async def start(self, clerk: Clerk, seq: int, identity: str, fork: Edit | None) -> Run:
        """Begin the child, or go on with it where its id is already stored, and wait for its end."""
        store = self.spec.store
        try:
            row = store.row(identity)
        except UnknownName:
            row = self.row._replace(id=identity)
            if fork is not None:
                origin = Run(store, fork.value["run"])
                changes = Intervention.from_json(fork.value["changes"])
                forked = fork_row(
                    origin, fork.value["seq"], changes, fork.value["mode"], 0, spawned_by=self.row.spawned_by
                )
                row = forked._replace(id=identity)
            store.put_run(row)
        return await drive(self.spec, clerk, row, self.task, nested=True)


async def spawn(run: Effects, agent: Agent | str, task: Task | str, config: dict[str, Any]) -> Any:
    child = Child(run, agent, task, config)
    what = canonical([child.row.agent, child.task.id, child.task.prompt, json.loads(child.row.config)])
    pending, recorded = run.begin(
        "spawn", digest(REQUEST, b"spawn", what), f"child {child.row.agent}", action=child.row.agent
    )
    if recorded is not None:
        return await run.follow(pending, recorded)
    known = pending.call.child or child.row.id
    pending.call = pending.call._replace(child=known)
    run.open_calls[pending.call.seq] = pending
    run.intend(pending)
    with run.away():
        ended = await child.start(run.clerk, pending.call.seq, known, run.at.get(("child", pending.call.seq)))
    run.late(pending)
    call = run.record(pending, child=ended.id, text=str(ended.stop or ""), reward=ended.reward)
    run.applied(call, None)
    return ended
