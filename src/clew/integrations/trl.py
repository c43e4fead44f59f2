"""``ClewGRPOTrainer``: TRL's GRPO over a Clew world, with any Clew estimator giving each token its advantage.

A user of TRL makes one in place of ``GRPOTrainer``. TRL keeps its optimiser, schedule, loss and logging; the runs are
collected by a ``Runner`` with the weights that TRL is training, and filed in a store like all others. Written for TRL
1.16. It must never sample by itself: what trains is what the record says was sampled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from clew.core.errors import BadInput, need
from clew.core.protocols import Taskset
from clew.core.records import LossRow
from clew.core.registry import bound, build
from clew.core.values import F32
from clew.harness import Runner
from clew.harness.executors import IN_LOOP, Executor
from clew.models.local import Local
from clew.store import Groups
from clew.store.base import Keeper
from clew.train.rows import Annotated, rows

need("datasets", "trl")
trl: Any = need("trl", "trl")
ONE_CALL = "Let the agent keep one conversation that only grows (no compaction, no sub-agents), or use `clew train`."


class Rollout(TypedDict):
    """What TRL asks of a ``rollout_func``, one entry a run; ``reward`` goes on to the reward function."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    env_mask: list[list[int]]
    reward: list[float | None]


class ClewGRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc]  # TRL has no types here
    """TRL's ``GRPOTrainer`` whose rollouts are runs of an agent in a world.

    Args:
        model: folder or hub name of a causal LM, or a ``Local``.
        taskset: the world, or its reference, as ``household(rooms=3)``.
        args: a ``trl.GRPOConfig``. ``num_generations`` runs of each task are compared; ``temperature`` is the
            sampler's; ``top_p`` and ``top_k`` must not truncate.
        credit: estimator with settings, as ``g2po(gamma=1.0)``; None leaves TRL its own advantages of whole runs.
        agent: as ``Runner`` takes it.
        store: where the runs are kept: a path, ``:memory:`` or an open store.
        tasks: how many tasks of the split ``train`` make up the training set.
        name: of the collection; a training that is begun again under its name uses the runs that the store has.
        sampling: fields of ``Sampling`` beside the temperature; ``max_tokens`` bounds each reply.
        executor: where the runs are driven, as ``Runner`` takes it.
        others: further arguments of ``GRPOTrainer``, as ``callbacks`` or ``peft_config``.

    Raises:
        BadInput: settings under which the trainer could not recompute what was sampled, or more than one process.
        MissingExtra: TRL is not installed.
    """

    def __init__(
        self,
        model: str | Path | Local,
        taskset: Taskset | str,
        args: Any,
        *,
        credit: str | None = "g2po",
        agent: str | Callable[..., Any] = "player",
        store: str | Path | Keeper = ":memory:",
        tasks: int = 256,
        name: str = "trl",
        sampling: Mapping[str, Any] | None = None,
        executor: Executor = IN_LOOP,
        **others: Any,
    ) -> None:
        if args.top_p != 1.0 or args.top_k:
            told = f"top_p={args.top_p:g}, top_k={args.top_k}"
            raise BadInput(f"{told}: a truncated distribution", remedy="Leave top_p at 1 and top_k at 0 in GRPOConfig.")
        local = model if isinstance(model, Local) else Local(model)
        world: Taskset = build("tasksets", taskset) if isinstance(taskset, str) else taskset
        ours = {**(sampling or {}), "temperature": args.temperature}
        self.policy, self.credit = local, None if credit is None else bound("credits", credit)
        self.runner = Runner(agent, world, local, store, sampling=ours, executor=executor)
        self.collection, self._token_advantages = name, list[F32]()
        self._served = -1
        drawn = world.sample(tasks, args.seed, "train")
        dataset = need("datasets", "trl").Dataset.from_list([{"prompt": task.id} for task in drawn])
        words: Any = local.tokenizer or getattr(local.renderer, "tokenizer", lambda: None)()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*rollout_func.*")  # TRL calls it experimental
            super().__init__(
                model=local.module,
                reward_funcs=[_given],
                args=args,
                train_dataset=dataset,
                processing_class=words,
                rollout_func=_rolled_out,
                **others,
            )
        if self.accelerator.num_processes > 1:
            told = f"{self.accelerator.num_processes} processes"
            raise BadInput(told, remedy="Run it in one process; executor= lets workers drive the runs.")

    def rollout(self, prompts: Sequence[str]) -> Rollout:
        """Collect the runs that TRL asks for, ``num_generations`` of each task, and give their tokens.

        Raises:
            BadInput: a run is no single conversation that only grows.
        """
        step, n = self.state.global_step, len(prompts) // len(set(prompts))
        if step != self._served:
            self.policy.publish()
            self._served = step
        groups = self._collected(list(dict.fromkeys(prompts)), n, step)
        values = self.credit(groups) if self.credit is not None else None
        found = _rows(groups, values)
        out: Rollout = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "reward": []}
        self._token_advantages = []
        for run in groups.runs:
            row = found.get(run.id)
            first, stop = _extent(row, run.id)
            ids = [] if row is None else row.ids.tolist()
            chosen = np.zeros(stop - first, bool) if row is None else row.sampled[first:stop]
            old = np.zeros(stop - first, np.float32) if row is None else np.nan_to_num(row.old[first:stop])
            out["prompt_ids"].append(ids[:first] or [0])
            out["completion_ids"].append(ids[first:stop] or [0])
            out["logprobs"].append(old.tolist() or [0.0])
            out["env_mask"].append(chosen.astype(int).tolist() or [0])
            out["reward"].append(run.reward)
            self._token_advantages.append(np.zeros(1, np.float32) if row is None else row.weights["pg"][first:stop])
        if not any(map(any, out["env_mask"])):  # every group was rewarded alike: TRL divides by the tokens it counts
            out["env_mask"] = [[1] * len(mask) for mask in out["env_mask"]]
        return out

    def _collected(self, tasks: Sequence[str], n: int, step: int) -> Groups:
        found = [self.runner.spec.taskset.find(task) for task in tasks]  # type: ignore[union-attr]
        return self.runner.collect(found, n, self.args.seed, name=self.collection, iteration=step)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """As TRL's, with an advantage for each token: (B, T) in place of (B,), which its loss takes too."""
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.credit is not None:
            whole = out["completion_ids"]
            per_token = torch.zeros(whole.shape, dtype=torch.float32, device=whole.device)
            for i, values in enumerate(self._token_advantages):
                per_token[i, : len(values)] = torch.from_numpy(values.copy())
            out["advantages"] = per_token
        return out


def _rolled_out(prompts: list[str], trainer: ClewGRPOTrainer) -> Rollout:
    return trainer.rollout(prompts)


def _given(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward of each run, which its world's judge has given."""
    return list(reward)


def _rows(groups: Groups, values: Annotated | None) -> dict[str, LossRow]:
    """The row of each run. Without values every sampled token counts, and TRL weighs it."""
    credit: Any = values
    if values is None:
        credit = {(call.run, call.seq): 1.0 for run in groups.runs for call in run.calls if call.kind == "ask"}
    out: dict[str, LossRow] = {}
    for run in groups.runs:
        made = rows([run], credit)
        if len(made) > 1:
            raise BadInput(
                f"run {run.id} has {len(made)} conversations or branches, and TRL takes one", remedy=ONE_CALL
            )
        if made:
            out[run.id] = made[0]
    return out


def _extent(row: LossRow | None, run: str) -> tuple[int, int]:
    """Where a row's first sampled token stands, and what follows its last; what comes before is TRL's prompt."""
    if row is None:
        return 0, 0
    at = np.flatnonzero(row.sampled)
    if not len(at):
        return len(row.ids) - 1, len(row.ids)
    if at[0] == 0:
        raise BadInput(f"run {run} begins with a sampled token, and TRL needs a prompt", remedy=ONE_CALL)
    return int(at[0]), int(at[-1]) + 1
