"""Gymnasium environments whose observations can be read as text, as tasks: one task for each seed.

The registry makes it as ``gymnasium(...)``; the extra ``clew[gymnasium]`` holds gymnasium. A state is restored by seed,
actions and the luck recorded with each of them, so that an environment must never draw from anything but its
``np_random``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from clew.core.errors import BadInput, WorldError, need
from clew.core.keys import STATE, canonical, digest
from clew.core.protocols import Restores
from clew.core.registry import absolute, make_ref
from clew.core.sources import file_of, gone, load_file, load_named
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.worlds.bases import Numbered, alive
from clew.worlds.world_asks import Asks

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Env(Protocol):
    """What is used of a ``gymnasium.Env``."""

    action_space: Any
    render_mode: str | None

    @property
    def unwrapped(self) -> Any: ...
    def reset(self, *, seed: int) -> tuple[object, dict[str, Any]]: ...
    def step(self, action: object) -> tuple[object, Any, bool, bool, dict[str, Any]]: ...
    def render(self) -> object: ...
    def close(self) -> None: ...


class GymWorld:
    """One episode of a Gymnasium environment; reenact.

    Every run of a task starts in the same state, which the task's seed fixes. What chance decides after that is drawn
    anew for each action of each run, from the seed in its record. Outside a run the task's seed fixes it too.

    The state key digests what can be asked of any environment: observation, whether it is over, and
    ``info["state_key"]`` where the environment gives one. Where these do not say all, two states share a key. The
    reward so far is no part of it: ways of different cost to one state lead to one state.
    """

    restores: Restores = "reenact"
    tools: Sequence[ToolSpec] = ()

    def __init__(self, env: Env, seed: int, steps: int, actions: tuple[str, ...], asks: Asks | None = None) -> None:
        self._env, self._left, self._actions, self._closed = env, steps, actions, False
        self._asks = asks or Asks()
        self.total, self._done = 0.0, False
        observation, info = env.reset(seed=seed)
        self._take(observation, info)

    def _take(self, observation: object, info: Mapping[str, Any]) -> None:
        self._text = self._read(observation)
        self._known = _plain(info.get("state_key", b""))
        listed = info.get("legal", info.get("admissible_commands"))
        if listed is None and "action_mask" in info and self._actions:
            listed = [name for name, allowed in zip(self._actions, info["action_mask"], strict=True) if allowed]
        self._legal = () if self._done else tuple(map(str, self._actions if listed is None else listed))

    def _read(self, observation: object) -> str:
        """Text as it is; else the environment's ansi picture; else the observation as JSON."""
        if isinstance(observation, str):
            return observation
        if self._env.render_mode == "ansi":
            return ANSI.sub("", str(self._env.render())).strip("\n")
        return json.dumps(_plain(observation))

    @property
    def state_key(self) -> bytes:
        return digest(STATE, canonical([self._text, self._done, self._known]))

    def observe(self) -> Observation:
        return Observation(self._text, None, self._done, self._legal)

    def step(self, action: str | ToolCall) -> Observation:
        """Perform an action: its text where the environment takes text, else one of the named actions or its number.

        An action that names nothing changes nothing but counts as a step.

        Raises:
            WorldError: the episode is over, or the environment failed.
        """
        alive(self._done or self._closed, action)
        self._left -= 1
        called = action.id if isinstance(action, ToolCall) else None
        known, chosen = self._parse(action)
        if not known:
            self._done = self._left <= 0
            self._legal = () if self._done else self._legal
            return Observation(f"unknown action: {action}", 0.0, self._done, self._legal, called)
        try:
            if luck := self._asks.luck():
                self._env.unwrapped.np_random = np.random.default_rng(luck % 2**64)
            observation, reward, ended, cut, info = self._env.step(chosen)
        except Exception as error:
            raise WorldError(f"the environment failed at {action!r}: {error!r}") from error
        self.total += float(reward)
        self._done = bool(ended or cut or self._left <= 0)
        self._take(observation, info)
        return Observation(self._text, float(reward), self._done, self._legal, called)

    def _parse(self, action: str | ToolCall) -> tuple[bool, Any]:
        space = self._env.action_space
        if isinstance(action, ToolCall):
            return False, None
        if not hasattr(space, "n"):
            return space.contains(action), action
        if action.strip() in self._actions:
            return True, int(space.start) + self._actions.index(action.strip())
        number = int(action) if re.fullmatch(r"\s*-?\d{1,9}\s*", action) else None
        return number is not None and space.contains(number), number

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()


class GymTasks(Numbered[GymWorld]):
    """One task per seed of a Gymnasium environment.

    Args:
        env: an id of Gymnasium's registry; ``path/file.py:NAME`` or ``module:NAME`` of a class or a function that makes
            one; or that class or function itself.
        actions: names of the numbers of a Discrete action space, in order.
        steps: the world ends after so many actions. prompt: of every task. options: keyword arguments of the maker.

    The judge gives the sum of rewards. Observations that are not text are shown by the environment's ansi rendering
    (``options={"render_mode": "ansi"}``) or as JSON.

    Raises:
        MissingExtra: gymnasium is not installed. BadInput: the environment cannot be made or takes no text.
    """

    prefix, plays = "gym", GymWorld

    def __init__(
        self,
        env: str | Callable[..., Any],
        actions: Sequence[str] = (),
        steps: int = 100,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        need("gymnasium", "gymnasium")
        name = absolute(env) if isinstance(env, str) else f"{env.__module__}:{env.__qualname__}"
        if "<" in name or steps < 1:
            raise BadInput(f"{name!r} cannot be made again elsewhere", remedy="Pass a function at the top of a module.")
        self.env, self.actions, self.steps, self.prompt = name, tuple(actions), steps, prompt
        self.options = dict(options or {})
        given = {"env": name, "actions": self.actions, "steps": steps, "prompt": prompt, "options": self.options}
        self.ref = make_ref("gymnasium", given, {"actions": (), "steps": 100, "prompt": "", "options": {}})
        made = self._make()
        space = made.action_space
        made.close()
        if hasattr(space, "n") and actions and len(actions) != space.n:
            raise BadInput(f"{len(actions)} names for {space.n} actions of {name}", remedy="Name each action once.")
        if not hasattr(space, "n") and type(space).__name__ != "Text":
            remedy = "Only Text and Discrete action spaces can be written as text."
            raise BadInput(f"{name} takes {space}", remedy=remedy)

    def _make(self) -> Env:
        gymnasium = need("gymnasium", "gymnasium")
        try:
            if ":" in self.env and self.env not in gymnasium.registry:
                module, _, name = self.env.rpartition(":")
                maker: Any = load_file(module) if file_of(self.env) else load_named(module)
                for part in name.split("."):
                    maker = getattr(maker, part)
                made: Env = maker(**self.options)
            else:
                made = gymnasium.make(self.env, **self.options)
            return made
        except Exception as error:  # also what a file of the user's raises
            remedy = gone(file_of(self.env)) if file_of(self.env) else "See gymnasium.registry."
            remedy = remedy or "Mend what the error names."
            raise BadInput(f"cannot make the environment {self.env!r}: {error}", remedy=remedy) from error

    def find(self, task_id: str) -> Task:
        return Task(task_id, self.prompt, {"env": self.env, "seed": self.number(task_id)})

    def open(self, task: Task, asks: Asks | None = None) -> GymWorld:
        return GymWorld(self._make(), self.number(task.id), self.steps, self.actions, asks)

    def verdict(self, task: Task, last: GymWorld) -> dict[str, float]:
        """Sum of the environment's rewards."""
        return {"reward": last.total}


def _plain(value: object) -> object:
    """Arrays, numpy numbers and tuples as JSON values; whatever else as its repr."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, bytes, int, float, bool, type(None))) else repr(value)
