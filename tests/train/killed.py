"""Reads folders, and perhaps a drafter behind each; trains in each in a child process; prints the child's id, then what
it ended with, {} if killed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import clew.credit
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.engine.forwards.weights import weights_digest
from clew.models.local import Local, small
from clew.store import Run, open_store
from clew.train.drafters.refresh import Drafting
from clew.train.loop import Plan, Training
from clew.worlds.household import Household


class Lenient(Household):
    async def judge(self, task, run, world):
        return {"reward": float(run.row.seed % 3 > 0)}


def policy(taskset: Household, **options: Any) -> Local:
    return small(taskset.vocabulary(), 16, 2, 2, 1, context=256, ref="tiny", **options)


def train(folder: Path, drafter: str = "") -> dict[str, str]:
    torch.set_num_threads(1)
    taskset = Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    model = policy(taskset, steady=not drafter)
    draft = Drafting(model, drafter, kept=Path(drafter)) if drafter else None
    store = open_store(folder / "runs.db")
    runner = Runner(player, taskset, model, store, sampling={"max_tokens": 3})
    plan = Plan(name="t", iterations=5, tasks=2, rollouts=3, checkpoint_every=2)
    training = Training(runner, Trainer(model), clew.credit.g2po, plan, draft=draft)
    for _ in training.run():
        pass
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.module.parameters())).hexdigest()
    runs = sorted((Run(store, run) for run in store.find()), key=lambda run: run.row.order)
    said = [[str(run.row.order), *[c.action for c in run.calls if c.kind == "act"]] for run in runs]
    faults = store.verify()
    told = {} if draft is None else {"drafter": weights_digest(draft.module), "made": draft.digest}
    model.close()
    store.close()
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return {"weights": weights, "runs": digest, "orders": str([s[0] for s in said]), "faults": str(faults), **told}


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            status = 1
            try:
                folder, _, drafter = line.strip().partition("\t")
                os.write(writer, json.dumps(train(Path(folder), drafter)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        print(child, flush=True)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            said = json.dumps({"failed": f"exit status {os.WEXITSTATUS(status)}"}).encode()
        print(said.decode() or "{}", flush=True)


if __name__ == "__main__":
    main()
