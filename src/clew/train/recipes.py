"""Recipes: a published way of training by name, as the settings it consists of. One registry for all verbs.

`clew train` takes an ``Online`` recipe as the defaults of its options and says where each value came from; `clew tune`
does the same with an ``Offline`` one. In Python a recipe makes the estimator, the trainer and the plan. A recipe is
data: nothing here collects, steps or knows a model. docs/train.md lists where they differ from TRL's and why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.fit.trainer import Loss, Trainable, Trainer
from clew.fit.weighing import By
from clew.harness import estimators
from clew.train import rates
from clew.train.loop import Plan

Clip = tuple[float, float]


def _takes(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """Training on runs that the training itself samples.

    credit: estimator, as `clew credit` takes it. normalise: what advantages are divided by, the standard deviation of
    their reference set ("std") or nothing ("mean"); None leaves it to the estimator. loss: a registered loss. clip: how
    far the ratio may fall below 1 and rise above it. ratio: of each token, or of the whole row ("sequence"). kl: weight
    of the k3 penalty towards the weights that the training began with. n: runs of a task. lr: None takes what suits the
    model's size (clew.train.rates). dynamic: rounds of fresh tasks in place of groups without a signal.
    """

    name: str
    about: str
    credit: str = "grpo"
    normalise: Literal["std", "mean"] | None = "std"
    loss: str = "pg"
    clip: Clip = (0.2, 0.2)
    ratio: Literal["token", "sequence"] = "token"
    kl: float = 0.0
    weight_by: By = "token"
    n: int = 8
    lr: float | None = None
    epochs: int = 1
    minibatches: int = 1
    dynamic: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.clip[0] <= 1 and 0 < self.clip[1] < float("inf")):
            raise BadInput(
                f"clip {self.clip[0]:g},{self.clip[1]:g} bounds no ratio",
                remedy="Give one number, or two as LOW,HIGH: above 0, LOW at most 1.",
            )
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise BadInput(f"lr={self.lr:g} is no learning rate", remedy="Give a number above 0, as in 1e-6.")
        if self.ratio == "sequence" and "ratio" not in _takes(self.loss_named()):
            raise BadInput(f"loss {self.loss!r} has no ratio of sequences", remedy="Take the loss pg-sequence.")

    def loss_named(self) -> Loss:
        found: Loss = registry.lookup("losses", self.loss)
        return found

    def losses(self, **more: Any) -> dict[str, Loss]:
        """The loss of the component ``pg`` with this recipe's settings, and ``more`` of its own.

        Raises:
            BadInput: the loss takes none of these.
        """
        found = self.loss_named()
        for name in more:
            self.refuse_unused(name)
        given = {"clip": self.clip, "ratio": self.ratio, **more}
        return {"pg": partial(found, **{k: v for k, v in given.items() if k in _takes(found)})}

    def refuse_unused(self, name: str) -> None:
        """Raises BadInput where the loss has no such argument, so that a setting of it would do nothing."""
        if name not in _takes(self.loss_named()):
            told = f"--{name} does nothing with the loss {self.loss}, which has no argument {name!r}"
            raise BadInput(told, remedy="Leave it out, or choose another loss.")

    def estimator(self) -> Callable[..., Any]:
        """The credit function with its arguments.

        Raises:
            UnknownName: no such estimator. BadInput: it does not normalise, or its reference says otherwise.
        """
        name, arguments = registry.parse_ref(self.credit)
        found = estimators.estimator(self.credit)
        if self.normalise is None:
            return found
        if arguments.get("mode", self.normalise) != self.normalise:
            told = f"{self.credit} and normalise={self.normalise} contradict each other"
            raise BadInput(told, remedy="Leave one of them out.")
        if "mode" not in _takes(found):
            raise BadInput(f"the estimator {name!r} has no normalisation to choose", remedy="Leave --normalise out.")
        return partial(found, mode=self.normalise)

    def rate(self, model: Trainable, adapters: bool = False) -> float:
        """The learning rate: this recipe's, or what suits the model's size."""
        return self.lr if self.lr is not None else rates.suits(rates.size(model.module), adapters).usual

    def trainer(self, model: Trainable, kind: type[Trainer] = Trainer, **settings: Any) -> Trainer:
        """A trainer with this recipe's loss and rate; ``settings`` are further ones of Trainer and go before these."""
        adapters = bool(settings.get("lora")) or settings.get("adapter") is not None
        mine = {"lr": self.rate(model, adapters), "losses": self.losses(), "weight_by": self.weight_by}
        return kind(model, **{**mine, **settings})

    def plan(self, name: str, **settings: Any) -> Plan:
        """A plan with this recipe's fields; ``settings`` are further ones of Plan and go before these."""
        mine = {"rollouts": self.n, "kl": self.kl, "epochs": self.epochs, "minibatches": self.minibatches}
        return Plan(name=name, **{**mine, "dynamic": self.dynamic, **settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Training on rows of runs that the store holds: passes over them with a rate that rises and falls."""

    name: str
    about: str
    loss: str
    least: float = 0.0  # learning rate: what suits the model's size, but no less than this
    epochs: int = 1
    batch: int = 64
    settings: Mapping[str, float] = field(default_factory=dict)  # of the loss

    def rate(self, model: Trainable, adapters: bool = False) -> float:
        """The learning rate that suits the model's size."""
        least = self.least * (rates.ADAPTERS if adapters else 1)
        return max(least, rates.suits(rates.size(model.module), adapters).usual)

    def losses(self, **settings: float) -> dict[str, Loss]:
        """The loss with this recipe's settings; ``settings`` that it knows go before these."""
        found: Loss = registry.lookup("losses", self.loss)
        given = {**self.settings, **settings}
        return {self.loss: partial(found, **{k: v for k, v in given.items() if k in _takes(found)})}


ONLINE = (
    Online(name="g2po", about="G2PO, arXiv 2606.22995: GRPO with comparisons on the graph of states", credit="g2po"),
    Online(
        name="grpo",
        about="GRPO, arXiv 2402.03300: the mean over each run's tokens, then over runs",
        loss="pg",
        weight_by="run",
    ),
    Online(
        name="dapo",
        about="DAPO, arXiv 2503.14476: the mean over all tokens, more room upwards, dynamic sampling",
        clip=(0.2, 0.28),
        dynamic=3,
    ),
    Online(
        name="dr_grpo",
        about="Dr. GRPO, arXiv 2503.20783: no division by the standard deviation or by a run's length",
        normalise="mean",
    ),
    Online(
        name="gspo",
        about="GSPO, arXiv 2507.18071: the ratio of whole sequences, clipped tightly, four minibatches",
        loss="pg-sequence",
        ratio="sequence",
        clip=(3e-4, 4e-4),
        weight_by="run",
        minibatches=4,
    ),
    Online(name="gigpo", about="GiGPO, arXiv 2505.10978: GRPO with comparisons at equal states", credit="gigpo"),
    Online(
        name="tree", about="advantages of the branches of grown trees (--rollouts tree)", credit="tree", normalise=None
    ),
)
OFFLINE = (
    Offline(name="sft", about="cross-entropy on what the runs' model said", loss="sft", least=2e-5),
    Offline(
        name="dpo",
        about="DPO, arXiv 2305.18290: runs of a group that succeeded against runs that failed",
        loss="dpo",
        settings={"beta": 0.1},
    ),
    Offline(
        name="cliff-dpo",
        about="Cliff-DPO, arXiv 2606.25524: pairs of single tokens",
        loss="cliff-dpo",
        settings={"beta": 0.1},
    ),
)
RECIPES: dict[str, Online | Offline] = {recipe.name: recipe for recipe in (*ONLINE, *OFFLINE)}


def online(name: str) -> Online:
    """The recipe of that name for `clew train`.

    Raises:
        UnknownName: there is none. BadInput: it trains on stored runs.
    """
    found = _found(name)
    if isinstance(found, Offline):
        raise BadInput(
            f"{name} trains on runs that the store holds, and samples none",
            remedy=f"Name them: clew tune RUNS --recipe {name} --name NAME",
        )
    return found


def offline(name: str) -> Offline:
    """The recipe of that name for `clew tune`.

    Raises:
        UnknownName: there is none. BadInput: it samples its runs itself.
    """
    found = _found(name)
    if isinstance(found, Online):
        told = f"{name} samples its runs itself, and reads none of the store"
        raise BadInput(told, remedy=f"Name a world: clew train --recipe {name} --world WORLD --name NAME")
    return found


def normalisation(credit: str, wanted: Literal["std", "mean"] | None) -> Literal["std", "mean"] | None:
    """What a recipe may ask of another estimator than its own: nothing where that has no choice or its reference says.

    Raises:
        UnknownName: no such estimator.
    """
    name, arguments = registry.parse_ref(credit)
    return None if "mode" in arguments or "mode" not in _takes(registry.lookup("credits", name)) else wanted


def _found(name: str) -> Online | Offline:
    if name not in RECIPES:
        raise UnknownName(f"no recipe is called {name!r}", remedy=f"Known: {', '.join(RECIPES)}.")
    return RECIPES[name]
