"""Whom a direction is tried on: prompts of recorded runs, answered by model A or B with something written inside.

Outcomes are 1 where the behaviour is shown and 0 where not. They are packed into the store by the name of the arm, so
that the same question finds them again (DESIGN.md, rule 10). All arms answer a prompt with the same seed, so that they
are paired. A subject must never change the runs that the prompts come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.aio import run_sync
from clew.core.errors import BadInput, UnknownName
from clew.core.keys import derive, value_digest
from clew.core.protocols import Model, Renderer
from clew.core.records import Cursor, Node, Request
from clew.core.values import F32, Completion, Message, Sampling, ToolSpec
from clew.harness.fork.continuations import Continuations, Start
from clew.harness.run.nodes import make_node
from clew.models.taps import Tap
from clew.models.taps.forms import form_of
from clew.store import Keeper, Run

I64 = npt.NDArray[np.int64]
Taps = Sequence[Tap]
Shows = Callable[[Message], bool]
METHOD = "audit-diff"
AT_ONCE = 512  # requests handed to a model together


class Prompt(NamedTuple):
    """A place where a model was asked: what it received, the Call, and the tools it was told of."""

    path: tuple[Node, ...]
    head: tuple[int, ...]
    at: Cursor
    tools: tuple[ToolSpec, ...] = ()

    @property
    def ids(self) -> list[int]:
        return [*(i for node in self.path for i in node.ids or ()), *self.head]

    @property
    def text(self) -> str:
        return "\n".join(node.message.text for node in self.path)

    def told(self, sentence: str, renderer: Renderer) -> Prompt:
        """The same prompt, its system message saying a sentence besides; one is put in where none is. What comes after
        the first message keeps its tokens.

        Raises:
            BadInput: the renderer has no token for a system message.
        """
        first = self.path[0].message
        if first.role == "system":
            fresh = [first._replace(text=f"{first.text}\n\n{sentence}")]
        else:
            fresh = [Message("system", sentence), first]
        path = list[Node]()
        for message in fresh:
            tip = path[-1] if path else None
            path.append(make_node(tip, message, renderer.delta(tip, True, message, self.tools), renderer.ref))
        for node in self.path[1:]:
            path.append(make_node(path[-1], node.message, node.ids, node.tokenizer))
        return self._replace(path=tuple(path))


def prompts_of(runs: Sequence[Run], *, firsts: bool = False) -> list[Prompt]:
    """The prompts of the runs' model calls, each once, or with ``firsts`` the first of each run.

    Raises:
        BadInput: a run was recorded without token ids.
    """
    found: dict[tuple[int, ...], Prompt] = {}
    for run in runs:
        for call in run.calls:
            if call.kind != "ask" or not call.node_out:
                continue
            path, reply = tuple(run.store.thread(call.node_in)), run.store.node(call.node_out)
            if reply.ids is None or any(node.ids is None for node in path):
                raise BadInput(
                    f"the model call {run.id}@{call.seq} has no token ids",
                    remedy="Choose runs of local weights: record some with `clew run --model FOLDER`.",
                )
            tools = call.setup.tools if call.setup is not None else ()
            made = Prompt(path, reply.ids[: call.head], Cursor(run.id, call.seq), tools)
            found.setdefault(tuple(made.ids), made)
            if firsts:
                break
    return list(found.values())


class Subject(Protocol):
    """Answers prompts as model "A" or "B"; ``single`` says that each prompt is one reply, so that what is written may
    differ by prompt."""

    prompts: Sequence[Prompt]
    models: Mapping[str, Model]
    single: bool

    def outcomes(self, who: str, stage: str, which: I64, taps: Taps | Sequence[Taps] = ()) -> F32: ...


class Replies:
    """The behaviour is shown by the reply to a prompt.

    Args:
        shows: whether a reply shows it. name: of the behaviour, for the packed outcomes.
        store: where outcomes are packed; None: nowhere.
        advance: told how many replies came.
    """

    single = True

    def __init__(
        self,
        models: Mapping[str, Model],
        prompts: Sequence[Prompt],
        shows: Shows,
        sampling: Sampling,
        *,
        name: str = "",
        seed: int = 0,
        store: Keeper | None = None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.models, self.prompts, self.shows, self.sampling = models, prompts, shows, sampling
        self.name, self.seed, self.store, self.advance = name, seed, store, advance
        self._digests = {who: _weights(model) for who, model in models.items()}

    def outcomes(self, who: str, stage: str, which: I64, taps: Taps | Sequence[Taps] = ()) -> F32:
        """Outcomes float32 [prompts named by ``which``]; NaN where the model failed.

        Args:
            stage: names the seeds: arms that are compared have one stage.
            taps: what is written, for all prompts, or one sequence of taps for each.
        """
        each: list[Taps] = (
            [tuple(t) for t in taps]  # type: ignore[arg-type]
            if len(taps) and not isinstance(taps[0], Tap)
            else [tuple(taps)] * len(which)  # type: ignore[arg-type]
        )
        forms = [[form_of(tap) for tap in one] for one in dict.fromkeys(each)]
        places = [str(self.prompts[i].at) for i in which]
        asked = [self.name, self._digests[who], stage, self.seed, list(self.sampling), places, forms]
        method = f"{METHOD}/{value_digest(asked).hex()}"
        if (known := self._known(method, places[0])) is not None and len(known) == len(which):
            self.advance(len(which))
            return known
        seeds = [derive(self.seed, METHOD, stage, places[n]) for n in range(len(which))]
        out = np.empty(len(which), np.float32)
        for start in range(0, len(which), AT_ONCE):
            part = range(start, min(start + AT_ONCE, len(which)))
            out[start : part.stop] = run_sync(self._answers(who, [(int(which[n]), seeds[n], each[n]) for n in part]))
            self.advance(len(part))
        if self.store is not None:
            self.store.put_outcomes(method, places[0], seeds, out.tolist(), [0.0] * len(out))
            self.store.commit()
        return out

    async def _answers(self, who: str, asked: Sequence[tuple[int, int, Taps]]) -> list[float]:
        requests = []
        for order, (i, seed, taps) in enumerate(asked):
            prompt = self.prompts[i]
            how = {"sampling": self.sampling, "seed": seed, "head": prompt.head, "order": (order,)}
            requests.append(Request(prompt.path, taps=tuple(taps), **how))  # type: ignore[arg-type]
        made: list[Completion] = list(await asyncio.gather(*map(self.models[who].complete, requests)))
        return [float(self.shows(done.message)) for done in made]

    def _known(self, method: str, place: str) -> F32 | None:
        if self.store is None:
            return None
        try:
            return np.asarray(self.store.outcomes(method, place).outcomes, np.float32)
        except UnknownName:
            return None


class Whole:
    """The behaviour is that the run succeeds: it is forked at the prompt and run to its end, and its judge decides.

    Args:
        hands: gives the continuations of model "A" or "B" with some taps in force.
        advance: told how many runs ended.
    """

    single = False

    def __init__(
        self,
        models: Mapping[str, Model],
        prompts: Sequence[Prompt],
        hands: Callable[[str, Taps], Continuations],
        *,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.models, self.prompts, self.hands, self.advance = models, prompts, hands, advance

    def outcomes(self, who: str, stage: str, which: I64, taps: Taps | Sequence[Taps] = ()) -> F32:
        """As ``Replies.outcomes``; the taps are one sequence for all."""
        if len(taps) and not isinstance(taps[0], Tap):
            raise BadInput("a whole run is asked many times, so taps cannot differ by prompt")
        starts = [Start(self.prompts[i].at.run, self.prompts[i].at.seq) for i in which]
        made = self.hands(who, tuple(taps)).sample(f"{METHOD} {stage}", starts, 1, self.advance)  # type: ignore[arg-type]
        found = np.array([made[start].outcomes[0] for start in starts], np.float32)
        return np.where(np.isnan(found), np.nan, found > 0.5).astype(np.float32)


def _weights(model: Model) -> str:
    digest = getattr(model, "digest", None)
    return digest() if callable(digest) else model.ref
