"""The trainer: turns rows with weight streams and loss functions into new weights, and knows no algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from clew.core import registry
from clew.core.errors import BadInput
from clew.core.protocols import Policy, Tracker
from clew.core.records import LossRow
from clew.fit import adapter_files, adapters, checkpoint, forward, norms, optim, weighing
from clew.fit.collate import Micro, Tokens, blank, check, collate, padded, plan
from clew.fit.forbidden import forbidden
from clew.fit.forward import CHUNK, Scored, Scorer
from clew.fit.prefixes import trie
from clew.fit.prefixes.sharing import Mode, Sharing, laid_out
from clew.fit.seen import Seen
from clew.fit.seen import StepReport as StepReport
from clew.fit.sharding import shard_files, shards
from clew.fit.sharding.ranks import Group, Ranks, rows_digest
from clew.models.engine.forwards.weights import weights_digest

Loss = Callable[[Tokens], tuple[Tensor, Tensor]]
T = TypeVar("T")


class Trainable(Policy, Protocol):
    """A Policy whose weights lie in this process, in a Hugging Face causal LM."""

    module: nn.Module


class Trainer:
    """Turns LossRows into new weights.

    Args:
        model: a Policy with a module, as clew.models.local.model.Local is; the trainer changes its weights in place.
        lr: of AdamW; ``muon_lr`` of Muon's matrices when ``optimizer="muon"``.
        losses: component name -> function (see clew.train.losses) or registered name. A component that is not listed is
            served by the registered loss of its own name.
        weight_by: what counts as one in every loss: "token", "row" or "run" (a run counts once, however many rows its
            forks, compactions and sub-agents make); None leaves it to each loss. See clew.fit.weighing.
        clip: largest gradient norm, None for no limit.
        batch_tokens: tokens of a micro-batch, with its padding where rows are not packed; a step of more is cut, and
            gradients are accumulated.
        lora: settings of peft.LoraConfig, for instance ``{"r": 8}``; only the adapters are then trained.
        adapter: folder of a LoRA adapter of this model, which is trained on, instead of ``lora``.
        precision: "auto" is bfloat16 autocast on a GPU and float32 elsewhere.
        tolerance: largest |sampler - trainer| logprob allowed, nats; None takes 1e-4, or 0.05 under autocast.
        steady: one thread and deterministic kernels, so that a step taken again gives the same bits.
        chunk: logits held at once, in numbers.
        shared_prefixes: whether rows are packed: no padding, and tokens at the beginning of several rows pass the model
            once. "auto" where that pays and the model can, "on" always, "off" never. See clew.fit.prefixes.
        seed: what new adapters begin with, and their dropout; None leaves torch's own state.
        recompute: activation checkpointing (arXiv 1604.06174): less memory, a third more time, the same numbers.
        masters: train a float32 copy, from which served weights of lower precision are rounded after each step.
        ranks: the processes that train one model (clew.fit.sharding), all called alike; rank 0 serves and saves.
    """

    def __init__(
        self,
        model: Trainable,
        lr: float = 7e-4,
        losses: Mapping[str, Loss | str] | None = None,
        *,
        optimizer: Literal["adamw", "muon"] = "adamw",
        muon_lr: float = 0.02,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        weight_by: weighing.By | None = None,
        clip: float | None = 1.0,
        batch_tokens: int = 16_384,
        lora: Mapping[str, Any] | None = None,
        adapter: str | Path | None = None,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
        tolerance: float | None = None,
        steady: bool = True,
        tracker: Tracker | None = None,
        chunk: int = CHUNK,
        shared_prefixes: Mode = "auto",
        seed: int | None = None,
        recompute: bool = False,
        masters: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        if seed is not None:
            torch.manual_seed(seed)
        self.model, self.clip, self.batch_tokens, self.steady, self.tracker = model, clip, batch_tokens, steady, tracker
        weighing.known(weight_by)
        self.weight_by = weight_by
        self.losses: dict[str, Loss | str] = dict(losses or {})
        if lora and adapter is not None:
            raise BadInput(f"lora={dict(lora)!r} beside the adapter {adapter}", remedy="An adapter has its own rank.")
        self.lora = bool(lora) or adapter is not None
        self.base = model.ref
        if lora:
            adapters.attach(model.module, lora)
        if adapter is not None:
            adapter_files.begin(model.module, adapter)
            self.model.publish()  # the weights are not those of version 0 any more
        self.ranks = ranks or Ranks()
        self.serving = shards.Serving(model, self.ranks, masters)
        self.module = self.serving.trained
        if recompute:
            forward.recompute(self.module)
        self.noisy = any(isinstance(part, nn.Dropout) and part.p > 0 for part in self.module.modules())
        self.device = next(self.module.parameters()).device
        gpu = self.device.type == "cuda"
        self.autocast = precision == "bfloat16" or (precision == "auto" and (gpu or masters))
        self.tolerance = tolerance if tolerance is not None else 0.05 if self.autocast else 1e-4
        scorer = Scorer(self.module, chunk)
        self.scorer: Callable[..., Scored] = scorer
        self.vocabulary, self.sharing = scorer.vocabulary, Sharing(shared_prefixes, scorer, self.ranks.world)
        self.norms = [] if self.autocast else norms.find(self.module)
        if isinstance(self.ranks, Group) and self.ranks.world > 1:
            how = {"optimizer": optimizer, "lr": lr, "muon_lr": muon_lr, "betas": betas, "weight_decay": weight_decay}
            self._cut(self.ranks, {**how, "weight_by": weight_by, "clip": clip, "batch_tokens": batch_tokens})
        self.optimizer = optim.build(self.module, optimizer, lr, betas, weight_decay, muon_lr)
        self.steps, self._checked = 0, False

    def _cut(self, ranks: Group, settings: Mapping[str, object]) -> None:
        """Cut the module among ranks that hold the same weights and were given the same settings."""
        losses = {name: getattr(loss, "keywords", loss) for name, loss in self.losses.items()}
        more = {"losses": losses, "tolerance": self.tolerance, "steady": self.steady, "autocast": self.autocast}
        ranks.agree({"weights": weights_digest(self.module), **settings, **more})
        shards.cut(self.module, ranks)
        self.scorer = shards.entered(self.module, self.scorer)

    def step(self, rows: Sequence[LossRow], lr_scale: float = 1.0) -> StepReport:
        """One optimiser step over all rows; afterwards the model serves the new weights.

        Each component's sum over all micro-batches is divided by its own count, then components are added.

        Raises:
            BadInput: rows that cannot be trained on, or, in the first batch, sampler and trainer disagree on logprobs.
        """
        began, cpu = time.perf_counter(), time.process_time()
        check(rows)
        if self.ranks.world > 1:
            self.ranks.agree({"rows": rows_digest(rows), "lr_scale": lr_scale, "step": self.steps})
        losses = {name: self._loss(name) for name in dict.fromkeys(name for row in rows for name in row.weights)}
        if not losses:
            raise BadInput("the rows carry no weight stream", remedy="Build them with clew.rows(groups, method).")
        with self._mode():
            self.optimizer.zero_grad()
            sums, seen = self._backward(rows, losses)
            norm = self._norm()
            self.optimizer.step(lr_scale)
        self.serving.publish()
        self.steps += 1
        report = StepReport(
            step=self.steps,
            version=self.model.version,
            loss=sums,
            grad_norm=norm,
            ratio=seen.ratio(),
            mismatch=seen.mismatch(),
            rows=len(rows),
            tokens=sum(len(row.ids) for row in rows),
            trained=int(self.ranks.total([seen.trained])[0]),
            seconds=time.perf_counter() - began,
            cpu_seconds=time.process_time() - cpu,
        )
        if self.tracker is not None and self.ranks.leads:
            self.tracker.log(report.metrics(), self.steps)
        return report

    def _backward(self, rows: Sequence[LossRow], losses: Mapping[str, Loss]) -> tuple[dict[str, float], Seen]:
        micros = self._micros(rows, losses)
        with self.sharing.attending(micros):
            return self._accumulate(micros, losses)

    def _accumulate(self, micros: Sequence[Micro], losses: Mapping[str, Loss]) -> tuple[dict[str, float], Seen]:
        mine = [sum(float(self._count(m, name, loss)) for m in micros) for name, loss in losses.items()]
        counts = dict(zip(losses, self.ranks.total(mine), strict=True))
        entropy = any(_told(loss, "reads_entropy", False) for loss in losses.values())
        sums = dict.fromkeys(losses, 0.0)
        seen = Seen(self.ranks)
        for micro in micros:
            with self._precision():
                logp, entropies = self._score(micro, entropy)
            seen.add(micro, logp.detach(), agree=not self.noisy)
            if not self._checked:
                if self.noisy:
                    seen.agrees(micro, self._plainly(micro))
                self._compare(seen.mismatch())
            total: Tensor | None = logp.sum() * 0 if self.ranks.world > 1 else None  # every rank goes back as often
            for name, loss in losses.items():
                if name in micro.mask and counts[name]:
                    value = loss(micro.tokens(name, logp, entropies))[0] / counts[name]
                    sums[name] += float(value.detach())
                    total = value if total is None else total + value
            if total is not None:
                torch.autograd.backward(total * self.ranks.world)  # FSDP takes the mean of the ranks' gradients
        self._checked = self._checked or seen.mismatch() is not None
        return dict(zip(sums, self.ranks.total(list(sums.values())), strict=True)), seen

    def _score(self, micro: Micro, entropy: bool) -> tuple[Tensor, Tensor | None]:
        return self.scorer(micro.ids, micro.at, micro.target, micro.temperature, entropy, micro.banned, micro.tree)

    def _micros(self, rows: Sequence[LossRow], losses: Mapping[str, Loss]) -> list[Micro]:
        share = {}
        if self.weight_by is not None:
            by = self.weight_by
            share = {n: weighing.shares(rows, n, by, _told(loss, "measure", "tokens")) for n, loss in losses.items()}
        guide = getattr(self.model, "guide", None)

        parts = plan(rows, self.batch_tokens, at_least=self.ranks.world)
        packed = self.sharing.takes(rows, padded=sum(padded(rows, part) for part in parts))
        if packed:
            parts = trie.plan(rows, self.batch_tokens, at_least=self.ranks.world)

        def micro(part: list[int]) -> Micro:
            mine, shares = [rows[i] for i in part], {n: s[part] for n, s in share.items()}
            banned = forbidden(mine, guide, self.vocabulary)
            made = collate(mine, self.model.version, self.device, shares, banned)
            return laid_out(made, mine) if packed else made

        return [micro(part) if part else blank(self.device) for part in shards.dealt(parts, [], self.ranks)]

    @torch.no_grad()
    def _plainly(self, micro: Micro) -> Tensor:
        """Logprobs without dropout, which the sampler does not have: only they can be compared with its own."""
        self.module.eval()
        try:
            with self._precision():
                return self._score(micro, False)[0]
        finally:
            self.module.train()

    def _count(self, micro: Micro, name: str, loss: Loss) -> Tensor | float:
        if name not in micro.mask:
            return 0.0
        blank = torch.zeros_like(micro.old)
        with torch.no_grad():
            return loss(micro.tokens(name, blank, blank))[1]

    def _compare(self, mismatch: float | None) -> None:
        if mismatch is not None and not mismatch <= self.tolerance:
            raise BadInput(
                f"sampler and trainer disagree: max |difference of logprobs| is {mismatch:.3g} nats, "
                f"{self.tolerance:g} is allowed",
                remedy="Most often the rows hold other tokens than the sampler saw (an end token twice or missing, "
                "text tokenised again, another chat template). Else: the sampler serves other weights than the trainer "
                "holds, or precisions differ (then raise "
                "`tolerance` and use a loss with correction='truncate').",
            )

    def _norm(self) -> float:
        parameters = [p for p in self.module.parameters() if p.grad is not None]
        norm = shards.whole(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        return float(norm)

    def _loss(self, name: str) -> Loss:
        found = self.losses.get(name, name)
        if isinstance(found, str):
            self.losses[name] = found = registry.lookup("losses", found)
        return found

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.autocast else nullcontext()

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """Training mode; in steady mode also one thread and deterministic kernels."""
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        training = self.module.training
        self.module.train()
        if self.steady:
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True)
        try:
            with norms.swapped(self.norms):
                yield
        finally:
            self.module.train(training)
            if self.steady:
                torch.set_num_threads(threads)
                torch.use_deterministic_algorithms(deterministic)

    def save(
        self, path: str | Path, position: Mapping[str, Any] | None = None, also: Callable[[Path], None] | None = None
    ) -> Path:
        """Write weights, optimiser, RNG, step count and ``position`` (plain values: where the data stands).

        The folder appears whole or not at all, the one before it is kept as ``path.previous``, and it is also a model
        folder that ``from_pretrained`` loads: adapters are merged into it, and lie in its folder ``adapter`` as well.
        ``also`` adds files of its own to it, the module's adapters merged.
        """

        if self.ranks.leads:
            checkpoint.replace(path, lambda folder: self.write(folder, position, also))
        else:
            self.write(Path(path))
        self.ranks.wait()
        return Path(path).absolute()

    def write(
        self, folder: Path, position: Mapping[str, Any] | None = None, also: Callable[[Path], None] | None = None
    ) -> None:
        """Write into a folder what ``save`` does, for a caller that makes several trainers' files appear together.

        Of several ranks each writes its rows of the weights into the folder that rank 0 names.
        """
        if self.ranks.world > 1:
            folder = Path(self.ranks.told(str(folder)))
            shard_files.save(folder, self.module, self.optimizer, self.lora)
            if not self.ranks.leads:
                return
        self.write_weights(folder, also)
        served = self.serving.served
        if self.lora:
            adapter_files.write(served, folder / "adapter", self.base)
        alone = self.ranks.world == 1
        state = {
            "optimizer": self.optimizer.state_dict() if alone else None,
            "adapters": adapters.state(self.module if alone else served) if self.lora else None,
            "masters": self.module.state_dict() if alone and self.serving.copied else None,
            "rng": torch.get_rng_state(),
            "gpu_rng": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
            "steps": self.steps,
            "version": self.model.version,
            "position": dict(position or {}),
        }
        torch.save(state, folder / "trainer.pt")

    def write_weights(self, folder: Path, also: Callable[[Path], None] | None = None) -> None:
        """Write the present weights alone as a model folder, adapters merged; ``also`` adds files while they are."""
        with adapters.quiet(), adapters.merged(self.serving.served) if self.lora else nullcontext():
            self.model.save(folder)
            if also is not None:
                also(folder)

    def load(self, path: str | Path) -> dict[str, Any]:
        """Go back to what ``save`` wrote; returns its ``position``.

        Bit for bit where as many ranks saved it as there are now, and within rounding of later steps where not.

        Raises:
            BadInput: no checkpoint there, or one of another model or optimiser.
        """
        folder = checkpoint.locate(path)
        state = torch.load(folder / "trainer.pt", map_location=self.device, weights_only=True)
        if shard_files.exists(folder):
            shard_files.load(folder, self.module, self.optimizer, self.lora)
        else:
            if self.lora:
                adapters.restore(self.module, state["adapters"])
            elif state.get("masters") is not None and self.ranks.world == 1:
                self.module.load_state_dict(state["masters"])
            else:
                adapters.load_weights(self.module, folder)
            self.optimizer.load_state_dict(state["optimizer"], None if self.ranks.world == 1 else shard_files.cut)
        torch.set_rng_state(state["rng"].cpu())
        if state["gpu_rng"]:
            torch.cuda.set_rng_state_all([s.cpu() for s in state["gpu_rng"]])
        self.steps = state["steps"]
        self.serving.publish(state["version"])
        self._checked = False
        return dict(state["position"])


def _told(loss: Loss, name: str, default: T) -> T:
    """What a loss says of itself by an attribute of its function: ``reads_entropy``, ``measure`` (see weighing)."""
    while isinstance(loss, partial):
        loss = loss.func
    found: T = getattr(loss, name, default)
    return found
