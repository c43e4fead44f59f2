"""The agent of tier decouple: a small policy that searches, opens pages and answers, and knows no names.

Tier decouple trains it in the finder world and in simulated ones. It says ``search``, ``open 2`` or ``answer
glazier``; the harness puts the person's name and the page's address in their places. Names are no words of its
vocabulary, so that it can know nothing of anybody but what it reads in the run. It must never see the task's answer.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from clew.core.keys import derive
from clew.core.values import Message
from clew.harness.run.live import LiveRun
from clew.worlds.finder import Finder
from clew.worlds.finder.encyclopedia import RELATIONS, TOWNS, TRADES, Snippets, page, people, snippet

if TYPE_CHECKING:
    from clew.models.local import Local

NAME = re.compile(r"(?:was|of) ([A-Z]\w+ [A-Z]\w+)")
ADDRESS = re.compile(r"https?://\S+")
READ = 48  # words of an observation that it is shown
YEARS = tuple(map(str, range(1600, 1900)))
VALUES = {"town": TOWNS, "trade": TRADES, "year": YEARS}
OPENS, NOISE = 0.5, 0.1  # of the demonstrations: chance of opening a page before answering, and of a random action


async def seeker(run: LiveRun) -> None:
    """Plays finder: shows the model each observation in plain words, and performs what it says."""
    asked = run.task.prompt.partition("?")[0]
    found = NAME.search(asked)
    name, seen, hits = found[1] if found else "", plain(asked), list[str]()
    chat = run.chat()
    while not run.done:
        reply = await chat.ask(seen)
        shown = (await run.act(as_action(reply.text, name, hits))).text
        hits = ADDRESS.findall(shown) or hits
        seen = plain(shown)


def plain(text: str) -> str:
    """An observation as the model reads it: words without signs and addresses; no more than it can take."""
    return " ".join(re.findall(r"\w+|…", ADDRESS.sub("", text))[:READ]) or "nothing"


def as_action(said: str, name: str, hits: list[str]) -> str:
    """What the world is told where the model says ``said``; what stands for nothing is told as it is."""
    verb, _, rest = said.strip().partition(" ")
    if verb == "search" and not rest:
        return f"search {name}"
    if verb == "open" and rest.isdecimal() and len(rest) < 3 and 1 <= int(rest) <= len(hits):
        return f"open {hits[int(rest) - 1]}"
    return said.strip() or "nothing"


def vocabulary() -> list[str]:
    """Every word that it reads and says, names left out."""
    everyone = people(0, 10)
    told = [page(everyone, everyone[0]), *(snippet(everyone, everyone[0], kind) for kind in ("rich", "poor"))]
    told += [text.partition("?")[0] for text in RELATIONS.values()]
    told += ["The task is over", "error not understood", "No results for", "404 Not Found", "nothing"]
    names = {word for one in everyone for word in one.name.split()}
    words = {word for text in told for word in plain(text).split()} - names
    return sorted(words | {*TOWNS, *TRADES, *YEARS, "search", "open", "answer", *"12345"})


def demonstrated(kind: Snippets, n: int, rows: int, seed: int) -> list[list[Message]]:
    """Conversations of one without an opinion: after a search a page is opened as often as not, whatever was shown.

    An answer that nothing has shown is a guess of the right kind. The tables are other ones than the training's.
    """
    finder, made = Finder(kind, rows=rows), list[list[Message]]()
    for i, task in enumerate(finder.sample(n, derive(seed, "start", kind))):
        rng = random.Random(derive(seed, "demonstration", kind, i))
        asked = task.prompt.partition("?")[0]
        values = next(VALUES[which] for which, text in RELATIONS.items() if text[:8] == asked[:8])
        name = NAME.search(asked)
        assert name is not None
        world, seen, hits, known, opens = finder.open(task), plain(asked), list[str](), False, rng.random() < OPENS
        talk = list[Message]()
        while not world.observe().done:
            wanted = finder.question(world.number).answer if known else rng.choice(values)
            right = "search" if not hits else "open 1" if opens and not world.opened else f"answer {wanted}"
            said = rng.choice(["search", "open 1", f"answer {wanted}"]) if rng.random() < NOISE else right
            talk += [Message("user", seen), Message("assistant", said)]
            shown = world.step(as_action(said, name[1], hits)).text
            known = known or bool(world.opened) or (kind == "rich" and said == "search")
            hits = ADDRESS.findall(shown) or hits
            seen = plain(shown)
        made.append(talk)
    return made


def begun(rows: int, episodes: int, steps: int, seed: int) -> Local:
    """The policy before RL, a transformer of 0.1M weights that imitates the demonstrations, half of each kind."""
    import numpy as np

    from clew.fit.trainer import Trainer
    from clew.models.local.model import small
    from clew.train.rows import sft_rows

    model = small(vocabulary(), seed=seed, ref="seeker", steady=True)
    kinds: tuple[Snippets, Snippets] = ("rich", "poor")
    talks = [talk for kind in kinds for talk in demonstrated(kind, episodes // 2, rows, seed)]
    made = sft_rows(talks, model.renderer, observation_weight=0.0)
    trainer = Trainer(model, lr=3e-3, optimizer="muon", muon_lr=0.02, steady=True)
    rng = np.random.default_rng(derive(seed, "start"))
    for step in range(steps):
        trainer.step([made[i] for i in rng.choice(len(made), 32, replace=False)], min(1.0, 2 * (steps - step) / steps))
    return model
