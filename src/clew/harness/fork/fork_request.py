"""A request for forks, whoever makes it: the command line, the viewer's page or a tool that an agent calls.

It is checked, written as the command line that does the same, and carried out by the runner that ``runner_for`` makes.
What comes over the network is read by ``ForkRequest.from_json``, which refuses unknown fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from clew.core.errors import BadInput, UnknownName
from clew.core.printable import quoted
from clew.core.protocols import Model, weights_of
from clew.core.records import Cursor
from clew.harness.fork.edits import said_at
from clew.harness.runner import Runner
from clew.models.compose.decision import SCHEME
from clew.store import Keeper, Run

T = TypeVar("T")
MOST = 256  # forks of one request that comes over the network
_TEXTS = ("reply", "prefix", "result", "model", "seed")
_SAMPLING = ("temperature", "max_tokens", "top_p")


@dataclass(frozen=True)
class ForkRequest:
    """Where to fork a run, what to change there, how often. What is empty or None stays as it was."""

    run: str
    seq: int | None = None  # Call; None where an edited message says it
    token: int = 0
    n: int = 1
    reply: str | None = None
    prefix: str | None = None
    prefix_ids: tuple[int, ...] = ()
    result: str | None = None
    # "I" or "CHAT.I" of a message of the agent -> its new text; None drops it
    say: Mapping[str, str | None] = field(default_factory=dict)
    act: tuple[str, ...] = ()
    model: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: str = ""  # same, fresh or a number; empty: same if something is changed, else fresh
    keep: bool = False

    @classmethod
    def from_options(cls, run: Run, at: Cursor | None, options: Mapping[str, Any]) -> ForkRequest:
        """A request from the options of a command line, by their names there; those that it lacks change nothing."""
        given = {one.name: options[one.name] for one in fields(cls) if options.get(one.name) is not None}
        given |= {"run": run.id, "seq": at.seq if at else None, "token": at.token if at else 0}
        return cls(**given | {"model": model_named(run, options.get("model") or "")})

    @classmethod
    def from_json(cls, store: Keeper, data: object) -> ForkRequest:
        """A request from JSON that came over the network. A message may also be named by the key of its node.

        Raises:
            BadInput: a field is unknown or of another kind, or the run has no such place.
            UnknownName: no such run.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("run"), str):
            raise BadInput("a fork is an object that names a run", remedy='Send {"run": "...", "seq": 3}.')
        given = {name: value for name, value in data.items() if value not in (None, "", [], {})}
        known = [one.name for one in fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise BadInput(f"a fork has no field {unknown[0]!r}", remedy=f"Known: {', '.join(known)}.")
        run = store.run(given["run"])
        read: dict[str, Any] = {"run": run.id, "keep": bool(given.get("keep"))}
        for name in _TEXTS:
            if name in given:
                read[name] = _checked(name, str(given[name]) if name == "seed" else given[name], str)
        for name in ("seq", "token", "n", "max_tokens"):
            if name in given:
                read[name] = _checked(name, given[name], int)
        for name in ("temperature", "top_p"):
            if name in given:
                read[name] = float(_checked(name, given[name], int, float))
        for name, kind in (("prefix_ids", int), ("act", str)):
            if name in given:
                read[name] = tuple(_checked(name, item, kind) for item in _checked(name, given[name], list))
        said = _checked("say", given.get("say", {}), dict)
        texts = {name: _checked("say", text, str) if text else None for name, text in said.items()}
        read["say"] = {_place(run, name): text for name, text in texts.items()}
        if not 1 <= read.get("n", 1) <= MOST:
            raise BadInput(f"{read['n']} forks", remedy=f"Ask for 1 to {MOST}.")
        made = cls(**read | {"model": model_named(run, read.get("model", ""))})
        made.arguments()
        return made

    @property
    def at(self) -> Cursor | None:
        return None if self.seq is None else Cursor(self.run, self.seq, self.token)

    @property
    def sampling(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _SAMPLING}
        return {name: value for name, value in given.items() if value is not None}

    def arguments(self) -> dict[str, Any]:
        """What ``Runner.fork`` is called with.

        Raises:
            BadInput: no place, or a message or seed that is not written as it must be.
        """
        if self.at is None and not self.say:
            raise BadInput(f"{self.run!r} names no place in the run", remedy="Write run@call, or edit a message.")
        if self.seed not in ("", "same", "fresh") and not re.fullmatch(r"-?\d+", self.seed):
            raise BadInput(f"seed {self.seed!r} is not a number", remedy='Give a number, "same" or "fresh".')
        asked: dict[str, Any] = {name: getattr(self, name) for name in ("at", "n", "reply", "result", "keep")}
        asked |= {"model": self.model or None, "sampling": self.sampling or None, "world": list(self.act) or None}
        asked |= {"prefix": list(self.prefix_ids) or self.prefix}
        asked |= {"rewrite": {message(name): text for name, text in self.say.items()} or None}
        return asked | {"seed": (int(self.seed) if self.seed.lstrip("-").isdigit() else self.seed) or None}

    def command(self, store: str = "") -> str:
        """The line that does the same. ``store``: its path, where it is not the usual one."""
        words = ["clew", "fork", str(self.at or self.run)]
        if self.n != 1:
            words += ["-n", str(self.n)]
        options = {name: getattr(self, name) for name in ("reply", "prefix", "result")}
        options |= {"prefix-ids": ",".join(map(str, self.prefix_ids)) or None}
        options |= {name.replace("_", "-"): f"{value:g}" for name, value in self.sampling.items()}
        options |= {"model": self.model or None, "seed": self.seed or None}
        pairs = [(name, value) for name, value in options.items() if value is not None]
        pairs += [("say", f"{place}={text or ''}") for place, text in self.say.items()]
        pairs += [("act", text) for text in self.act]
        for name, value in [*pairs, *([("store", store)] if store else [])]:
            words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
        return " ".join(map(quoted, [*words, *(["--keep"] if self.keep else [])]))


def message(place: str) -> int | tuple[int, int]:
    """Which message ``I`` or ``CHAT.I`` means.

    Raises:
        BadInput: neither is written.
    """
    numbers = place.split(".")
    if not all(re.fullmatch(r"\d{1,9}", number) for number in numbers) or len(numbers) > 2:
        raise BadInput(f"{place!r} names no message", remedy="Write the message's index, or conversation.index.")
    return int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


def _checked(name: str, value: object, *kinds: type[T]) -> T:
    if not isinstance(value, kinds) or isinstance(value, bool) or not _positive(value):
        raise BadInput(f"{name}={value!r} is not {' or '.join(kind.__name__ for kind in kinds)}, at least 0")
    return value


def _positive(value: object) -> bool:
    return not isinstance(value, int | float) or 0 <= value < math.inf


def _place(run: Run, name: str) -> str:
    """A message as the command line names it."""
    if not re.fullmatch(r"[0-9a-f]{32,}", name):
        message(name)
        return name
    conversation, index = said_at(run, bytes.fromhex(name))
    return str(index) if conversation == 0 else f"{conversation}.{index}"


def model_named(run: Run, model: str) -> str:
    """The reference that ``#WORKER`` means: that worker of the router that the run was made with.

    Raises:
        BadInput: the run was made with no router.
    """
    if not model.startswith("#"):
        return model
    if not run.model.startswith(SCHEME):
        raise BadInput(f"{model!r} names a worker, and {run.model!r} is no router", remedy="Name a whole model.")
    return run.model.partition("#")[0] + model


def runner_for(store: Keeper, request: ForkRequest, load: Callable[[str], Model], also: Sequence[str] = ()) -> Runner:
    """The runner that carries a request out: ``runner.fork(request.run, **request.arguments())``.

    Where the request names another model, the recorded one is not even built.

    Args:
        also: models that other requests name, where one runner carries out several.

    Raises:
        BadInput: the run's agent, world or model is not to be had here.
    """

    def resolve(ref: str) -> Model:
        if request.model and ref not in (request.model, *also):
            raise UnknownName(f"{ref} is not needed")
        return load(ref)

    runner = Runner.of(store, request.run, resolve_model=resolve)
    lend(runner, load)
    for model in filter(None, (request.model, *also)):
        runner.model_of(model)  # now: a fork that cannot be sampled leaves no run behind
    if not request.model and runner.models.missing is not None and request.reply is None:
        raise runner.models.missing
    return runner


def lend(runner: Runner, load: Callable[[str], Model]) -> None:
    """Let a taskset whose judge asks models load them as the caller does, by the caller's credentials and bounds."""
    taskset = runner.taskset
    if taskset is not None and hasattr(taskset, "load_model"):
        taskset.load_model = load


def other_weights(run: Run, at: Cursor | None, runner: Runner) -> str:
    """What to say where the loaded weights are not those that made the run, as training has changed them since; empty
    where they are, or where nothing tells them apart."""
    setups = [call.setup for call in run.calls[at.seq if at else 0 :] if call.setup is not None]
    made, model = {setup.version for setup in setups}, runner.model
    if model is None or not made:
        return ""
    mine, theirs = weights_of(model), {setup.weights for setup in setups if setup.model == run.model and setup.weights}
    if mine and theirs and mine not in theirs:
        return (
            f"the weights in {run.model} are not those that sampled this run; where they lie now, name it as the model"
        )
    if model.version in made:
        return ""
    return (
        f"version {max(made)} of {run.model} sampled this run, version {model.version} is loaded;"
        " to fork with other weights, name a checkpoint as the model"
    )
