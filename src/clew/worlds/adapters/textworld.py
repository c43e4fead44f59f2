"""TextWorld (1806.11532): text adventures made offline from a seed, restored by re-enactment.

The registry makes it as ``textworld(...)``; it needs the extra ``clew[textworld]``. A game takes one to three seconds
to make and is then kept in a folder. A kept game must never be used for other parameters than those it was made with.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from clew.core.errors import BadInput, WorldError, need
from clew.core.keys import state_key, value_digest
from clew.core.protocols import Restores
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.worlds.bases import Numbered, alive

STATUS_LINE = re.compile(r"\n>[ ]*(-= .* =-[-\d/]*)?\s*$")
META = {"save", "restore", "restart", "undo", "quit", "q", "script", "unscript", "transcript", "notify"}


class TextWorldGame:
    """One play of a generated game; reenact. The state key names the facts that hold in the game, and the score."""

    restores: Restores = "reenact"
    tools: Sequence[ToolSpec] = ()

    def __init__(self, name: str, path: Path, steps: int, seed: int) -> None:
        textworld = need("textworld", "textworld")
        asked = ("admissible_commands", "description", "facts", "won", "lost", "score", "max_score", "objective")
        with warnings.catch_warnings():  # the emulator warns that it knows no game by this name
            warnings.filterwarnings("ignore", message="Game .* is not fully supported")
            self._env = textworld.start(str(path), textworld.EnvInfos(**dict.fromkeys(asked, True)))
        self._env.seed(seed)
        self._name, self._left, self._closed, self._over = name, steps, False, False
        self._state = self._env.reset()
        self._text = f"{self._state.objective}\n\n{self._state.description}"
        self._name_state()

    def _name_state(self) -> None:
        facts = sorted(map(str, self._state.facts))
        self._key = state_key(self._name, *facts, f"score {self._state.score} over {self._done}")

    @property
    def _done(self) -> bool:
        return self._over or self._left <= 0

    @property
    def state_key(self) -> bytes:
        return self._key

    @property
    def success(self) -> bool:
        return bool(self._state.won)

    @property
    def score(self) -> float:
        """Share of the points that can be made."""
        return float(self._state.score) / max(1, int(self._state.max_score))

    def observe(self) -> Observation:
        legal = () if self._done else tuple(sorted(self._state.admissible_commands))
        return Observation(self._text, None, self._done, legal)

    def step(self, action: str | ToolCall) -> Observation:
        """Type one line. Commands to the game program itself (save, undo, quit, ...) are not passed on.

        Raises:
            WorldError: the game is over.
        """
        alive(self._done or self._closed, action)
        self._left -= 1
        called = action.id if isinstance(action, ToolCall) else None
        line = "" if isinstance(action, ToolCall) else " ".join(action.split())
        before = self.score
        if not line or line.split()[0].lower() in META:
            self._text = "That is not something you can do here."
        else:
            self._state, _, self._over = self._env.step(line)
            self._text = STATUS_LINE.sub("", self._state.feedback.rstrip()).strip()
        self._name_state()
        return self.observe()._replace(reward=self.score - before, call_id=called)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()


class TextWorld(Numbered[TextWorldGame]):
    """Taskset of generated TextWorld games; a task id ``textworld-NUMBER`` is the seed of its game.

    Args:
        rooms, objects, quest: size of the game and length of its quest in commands.
        steps: the world ends after so many commands. folder: where games are kept.

    The judge gives reward 1 for a won game, and ``score``, the share of the points made. The secret is the walkthrough.

    Raises:
        MissingExtra: textworld is not installed. BadInput: a parameter out of range.
    """

    prefix, plays = "textworld", TextWorldGame

    def __init__(
        self, rooms: int = 2, objects: int = 4, quest: int = 3, steps: int = 30, folder: str = ".clew/textworld"
    ) -> None:
        given = {"rooms": rooms, "objects": objects, "quest": quest, "steps": steps, "folder": folder}
        if min(rooms, objects, quest, steps) < 1:
            raise BadInput(f"textworld({given})", remedy="Every number is at least 1.")
        need("textworld", "textworld")
        self.ref = make_ref("textworld", given, TextWorld)
        self.rooms, self.objects, self.quest, self.steps = rooms, objects, quest, steps
        self.folder = Path(folder)

    def game(self, number: int) -> Path:
        """The compiled game of a task number, made if it is not there; its ``.json`` lies beside it.

        Raises:
            WorldError: the game could not be generated.
        """
        textworld = need("textworld", "textworld")
        made_from = [textworld.__version__, self.rooms, self.objects, self.quest, number]
        path = self.folder / f"{number}-{value_digest(made_from).hex()[:12]}.z8"
        if path.exists():
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = self.rooms, self.objects, self.quest
        options.seeds, options.force_recompile = number, True
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:  # others must not see half a game
            options.path = str(Path(scratch) / path.name)
            try:
                textworld.make(options)
            except Exception as error:
                raise WorldError(f"textworld could not make game {number}: {error!r}") from error
            for suffix in (".json", ".z8"):
                os.replace(Path(scratch) / path.with_suffix(suffix).name, path.with_suffix(suffix))
        return path

    def find(self, task_id: str) -> Task:
        path = self.game(self.number(task_id))
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return Task(task_id, about["objective"], secret={"walkthrough": tuple(about["metadata"]["walkthrough"])})

    def open(self, task: Task) -> TextWorldGame:
        number = self.number(task.id)
        return TextWorldGame(task.id, self.game(number), self.steps, number)

    def verdict(self, task: Task, last: TextWorldGame) -> dict[str, float]:
        """Reward 1 for a won game."""
        return {"reward": float(last.success), "score": last.score}
