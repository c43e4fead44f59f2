"""The model of tier ``programs``: 0.15M weights, taught what a hasty engineer does, who often slips and seldom looks.

Demonstrations are conversations as ``examples/plain_coder.py`` holds them, with what its commands print worked out here
(``Shown``; a test compares that with the commands themselves). The model must see no task of the test split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clew.core.keys import derive, value_digest
from clew.core.values import Message
from papers.E165_g2po.calc_tasks import FILE_NAME, NAMES, SIGNS, VERBS, Calc, calc_of, line_of

if TYPE_CHECKING:
    from clew.models.local import Local

ROOT = Path(__file__).resolve().parents[2]
SYSTEM, DONE = "shell", "done"
TURNS = 12
LOOK = re.compile(r"grep -n ' (\w) ' calc\.py")
EDIT = re.compile(r"sed -i '(\d)s, \[-\+\*/\] , ([-+*/]) ,' calc\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the engineer of the demonstrations works, and how the model is taught; the digest names cached weights.

    slip: chance that an edit hits another line or writes another sign. notices: chance that a slip is seen and mended.
    leaves: chance, before each function, of calling it done.
    """

    slip: float = 0.32
    notices: float = 0.3
    leaves: float = 0.05
    episodes: int = 6000
    steps: int = 1000
    batch: int = 16
    width: int = 64
    layers: int = 2
    heads: int = 4
    seed: int = 0

    @property
    def digest(self) -> str:
        return value_digest(asdict(self)).hex()[:12]


def look_of(name: str) -> str:
    """The command that shows the line of a function, with its number."""
    return f"grep -n ' {name} ' {FILE_NAME}"


def edit_of(line: int, sign: str) -> str:
    """The command that writes a sign into a line, counted from 1."""
    return f"sed -i '{line}s, [-+*/] , {sign} ,' {FILE_NAME}"


class Shown:
    """The file of a task, and what the program tells the model of a command."""

    def __init__(self, calc: Calc) -> None:
        self.calc, self.signs = calc, list(calc.signs)

    def told(self, command: str) -> str:
        """What comes back of one of the commands that demonstrations hold."""
        if looked := LOOK.fullmatch(command):
            rows = enumerate(zip(self.calc.names, self.signs, strict=True), 1)
            found = "".join(f"{i}:{line_of(name, sign)}" for i, (name, sign) in rows if name == looked[1])
            return f"{found}exit {int(not found)}"
        edited = EDIT.fullmatch(command)
        assert edited is not None
        if (line := int(edited[1])) <= len(self.signs):
            self.signs[line - 1] = edited[2]
        return "exit 0"

    @property
    def solved(self) -> bool:
        return self.signs == [self.calc.right()[name] for name in self.calc.names]


def demonstration(calc: Calc, habits: Habits, seed: int) -> tuple[list[Message], bool]:
    """A conversation as the program holds it, and whether it ends in the right file."""
    rng, shown, right = random.Random(seed), Shown(calc), calc.right()
    talk = [Message("system", SYSTEM), Message("user", calc.prompt())]

    def act(command: str) -> None:
        talk.append(Message("assistant", command))
        if command != DONE:
            talk.append(Message("user", shown.told(command)))

    left = [calc.names.index(name) for name, _ in calc.asked]
    rng.shuffle(left)
    while left and len(talk) < 2 * TURNS - 3 and rng.random() >= habits.leaves:
        at = left.pop(0)
        act(look_of(calc.names[at]))
        line, sign = at, right[calc.names[at]]
        slipped = rng.random() < habits.slip
        if slipped and rng.random() < 0.5:
            line = rng.choice([i for i in range(3) if i != at])
        elif slipped:
            sign = rng.choice([one for one in SIGNS if one != sign])
        act(edit_of(line + 1, sign))
        if slipped and rng.random() < habits.notices:
            left = [i for i, name in enumerate(calc.names) if shown.signs[i] != right[name]]
            rng.shuffle(left)
    act(DONE)
    return talk, shown.solved


def demonstrations(habits: Habits, n: int) -> list[tuple[list[Message], bool]]:
    """``n`` of them, each of another task of the train split."""
    from clew.worlds.seeds import draw_numbers

    numbers = draw_numbers(n, derive(habits.seed, "calc"), "train", calc_of)
    return [demonstration(calc_of(x), habits, derive(habits.seed, "shown", i)) for i, x in enumerate(numbers)]


def vocabulary() -> list[str]:
    """Every word of prompts, commands and what they print; whatever else a command prints is unknown."""
    texts = [SYSTEM, DONE, "should and exit 0 1 2", *map(look_of, NAMES), *VERBS.values()]
    texts += [edit_of(line, sign) for line in (1, 2, 3) for sign in SIGNS]
    texts += [f"{i}:{line_of(name, sign)}" for i in (1, 2, 3) for name in NAMES for sign in SIGNS]
    return list(dict.fromkeys(word for text in texts for word in text.split()))


def made(habits: Habits, told: Callable[[int, float], None] = lambda step, loss: None) -> Local:
    """The model, taught from nothing; ``told`` hears of each step and its loss in nats."""
    import numpy as np

    from clew.fit.trainer import Trainer
    from clew.models.local.model import small
    from clew.train.rows import sft_rows

    sizes = (habits.width, habits.layers, habits.heads, habits.heads // 2)
    model = small(vocabulary(), *sizes, seed=habits.seed, ref="calc-sft", steady=True)
    talks = [talk for talk, _ in demonstrations(habits, habits.episodes)]
    rows = sft_rows(talks, model.renderer, observation_weight=0.05)
    trainer = Trainer(model, lr=3e-3, optimizer="muon", muon_lr=0.02, steady=True)
    rng = np.random.default_rng(derive(habits.seed, "taught"))
    for step in range(habits.steps):
        chosen = rng.choice(len(rows), habits.batch, replace=False)
        report = trainer.step([rows[i] for i in chosen], min(1.0, 2 * (habits.steps - step) / habits.steps))
        told(step + 1, report.loss["sft"])
    return model


def kept(habits: Habits) -> Path:
    """The folder of the model's weights, made where they are not there yet."""
    from clew.fit import checkpoint
    from clew.fit.adapters import quiet

    folder = ROOT / ".clew" / "models" / f"calc-sft-{habits.digest}"
    if not checkpoint.exists(folder):
        model = made(habits)
        with quiet():
            checkpoint.replace(folder, model.save)
        model.close()
    return Path(checkpoint.locate(folder))
