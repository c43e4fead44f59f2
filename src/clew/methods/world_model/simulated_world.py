"""A world whose answers a model makes up, one action at a time, kept to what code can check and repeat.

``simulated(...)`` opens it. Code answers what needs no model: calls that no schema allows, injected faults, further
pages of a list. All else is asked of the model through ``Asks``, so that each answer is part of the act's record. An
answer that is none ends the episode with an error that says so; a world never goes on from nonsense, and it must hold
nothing that only a judge may know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clew.core.errors import BadInput, ContextOverflow, WorldError
from clew.core.keys import derive, digest, encode, state_key
from clew.core.printable import short
from clew.core.values import Message, Observation, ToolCall, ToolSpec
from clew.methods.world_model import prompting, service_faults
from clew.methods.world_model.answer_cache import AnswerCache
from clew.methods.world_model.fiction import Fiction
from clew.methods.world_model.instruction import Instruction
from clew.methods.world_model.leaks import Guard, opening
from clew.methods.world_model.prompting import Turn
from clew.methods.world_model.tool_files import Offer
from clew.worlds.bases import Exact, alive, foreign, load
from clew.worlds.schemas import check_arguments, read_arguments, tool_spec
from clew.worlds.world_asks import Asks

LONGEST = 100_000  # characters of an observation
CHAIN = b"clew.simul.1"
NEXT = "next_page"
NEXT_PAGE = tool_spec(NEXT, "The next page of a list that was cut, by its next_cursor.", cursor="string")
AGAIN = "That is no answer of the environment: {}. Answer the same action again, in the form that you were told."


@dataclass(frozen=True)
class Manner:
    """What the worlds of one taskset share: who answers, and how.

    Args:
        model: reference of the model; "": that of the run itself.
        sampling: fields of Sampling.
        offers: the tools by name; empty: actions are text.
        steps: the world ends after so many actions.
        echo: the state is told again every so many turns; 0: never. window: turns that the model is told; 0: all.
        tries: how often the model is asked for one answer.
        kept: whether answers are cached.
    """

    model: str = ""
    sampling: Mapping[str, float | str] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    instruction: Instruction = field(default_factory=Instruction)
    fiction: Fiction | None = None
    steps: int = 50
    echo: int = 0
    window: int = 0
    tries: int = 2
    kept: bool = True
    cache: AnswerCache = field(default_factory=AnswerCache)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as an agent is offered them."""
        own = (NEXT_PAGE,) if self.instruction.paginate and self.offers else ()
        return tuple(offer.spec for offer in self.offers.values()) + own


class SimulatedWorld(Exact):
    """One episode. ``turns`` is what the model was told and said; ``shown`` what the agent saw last."""

    def __init__(self, name: str, system: str, first: str, manner: Manner, guard: Guard, asks: Asks) -> None:
        self.tools: Sequence[ToolSpec] = manner.tools
        self.turns: list[Turn] = []
        self._name, self._system, self._manner, self._guard, self._asks = name, system, manner, guard, asks
        self._chain = digest(CHAIN, encode(name), encode(system), encode(first))
        self._told = self._chain.hex()
        self._pages: dict[str, str] = {}
        self._shown, self._left, self._done, self._closed = first, manner.steps, False, False
        self._opened = False

    @property
    def state_key(self) -> bytes:
        return state_key(self._chain.hex(), str(self._left), str(self._done))

    def observe(self) -> Observation:
        return Observation(self._shown, None, self._done)

    async def step(self, action: str | ToolCall) -> Observation:
        """What the world answers.

        Raises:
            WorldError: the episode is over; or the model gives no answer that can be one, which ends it.
        """
        alive(self._done or self._closed, action)
        instruction = self._manner.instruction
        seed = 0
        if instruction.fail_rate or instruction.partial or instruction.latency:
            seed = derive(self._asks.luck(), self._name, self._manner.steps - self._left)
        fate = service_faults.fate(instruction, seed)
        if self._asks.live and fate.seconds:
            await asyncio.sleep(fate.seconds)
        said = self._by_code(action)
        turn: Turn | None = None
        if said is None and fate.refused:
            said = service_faults.REFUSED
        if said is None:
            turn = await self._asked(action)
            said = turn.observation
            if instruction.leak == "none" or (instruction.leak == "tease" and not self._may_tell(action)):
                said = self._guard.masked(said)
            said = self._cut(service_faults.in_part(said, seed) if fate.partial else said)
        self._went(action, said, turn)
        return self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)

    def _may_tell(self, action: str | ToolCall) -> bool:
        return self._opened or opening(action, self._manner.instruction.opens)

    def _went(self, action: str | ToolCall, said: str, turn: Turn | None) -> None:
        """Take on the state after an action: nothing before this has changed it."""
        told = prompting.reply_text(turn.observation, turn.state, turn.done) if turn else ""
        self._chain = digest(CHAIN, self._chain, *map(encode, (prompting.turn_text(action), told, said)))
        self._shown, self._left = said, self._left - 1
        self._opened = self._opened or opening(action, self._manner.instruction.opens)
        if turn is not None:
            self.turns.append(turn)
        self._done = self._left <= 0 or (turn is not None and turn.done)

    # ---- what code answers ------------------------------------------------------------------------------------------

    def _by_code(self, action: str | ToolCall) -> str | None:
        """The answer to an action that needs no model; None where one has to be asked."""
        offers = self._manner.offers
        if isinstance(action, str):
            if offers:
                return f"error: call one of the tools: {short(', '.join(offers), 400)}"
            name, _, cursor = action.strip().partition(" ")
            return self._next_page(cursor.strip()) if name == NEXT and self._manner.instruction.paginate else None
        spec = NEXT_PAGE if action.name == NEXT and NEXT_PAGE in self.tools else None
        if spec is None and action.name not in offers:
            told = f"the tools are {short(', '.join(offers), 400)}" if offers else "actions are text here"
            return f"error: there is no tool {short(action.name, 80)!r}; {told}"
        try:
            given = read_arguments(spec or offers[action.name].spec, action.arguments)
        except BadInput as error:
            return f"error: {action.name}: {error.message}"
        return self._next_page(str(given["cursor"])) if spec else None

    def _next_page(self, cursor: str) -> str:
        kept, _, number = cursor.partition(".")
        if kept not in self._pages or not (number.isascii() and number.isdigit() and len(number) < 6):
            return f"error: there is no page {short(cursor, 40)!r}"
        page, size = int(number), self._manner.instruction.paginate
        return service_faults.page(self._pages[kept], size, page, f"{kept}.{page + 1}")[0]

    def _cut(self, said: str) -> str:
        """The first page of an answer that is a list too long; the rest is kept for ``next_page``."""
        place = str(self._manner.steps - self._left)
        first, more = service_faults.page(said, self._manner.instruction.paginate, 0, f"{place}.1")
        if more:
            self._pages[place] = said
        return first

    # ---- what the model answers -------------------------------------------------------------------------------------

    async def _asked(self, action: str | ToolCall) -> Turn:
        """The model's answer, from the cache where this state had this action before."""
        cache, key = self._manner.cache, digest(CHAIN, self._chain, encode(prompting.turn_text(action)))
        if not self._manner.kept or not self._asks.live:
            return (await self._answer(action))[1]
        async with cache.alone(key):
            known = cache.get(key)
            if known is not None:
                turn, _ = self._read(self._asks.take(known, self._manner.model), action)
                assert turn is not None
                return turn
            reply, turn = await self._answer(action)
            cache.put(key, reply)
            return turn

    async def _answer(self, action: str | ToolCall) -> tuple[str, Turn]:
        """Ask until an answer can be one; gives it whole and as it was read.

        Raises:
            WorldError: none of them can.
        """
        manner, why = self._manner, ""
        messages = self._messages(action)
        for _ in range(manner.tries):
            try:
                reply = await self._asks.ask(messages, manner.model, **manner.sampling)
            except ContextOverflow as error:  # of the world's model, which says nothing of the agent
                why = f"{why + '; then ' if why else ''}its context is full ({error.message})"
                break
            turn, why = self._read(reply, action)
            if turn is not None:
                return reply, turn
            messages = [*messages, Message("assistant", reply[:LONGEST]), Message("user", AGAIN.format(why))]
        said = short(prompting.turn_text(action), 80)
        told = f"the model of the world gave no answer to {said!r} in {manner.tries} tries: {why}"
        remedy = "Give it examples (demos=), more max_tokens, a window of turns (window=), or another model."
        raise WorldError(told, remedy=remedy)

    def _messages(self, action: str | ToolCall) -> list[Message]:
        manner, turns = self._manner, self.turns
        told = turns[-manner.window :] if manner.window else turns
        facts = manner.fiction.about(prompting.turn_text(action)) if manner.fiction else []
        if manner.echo and turns and len(turns) % manner.echo == 0:
            facts = [next((turn.state for turn in reversed(turns) if turn.state), ""), *facts]
        return prompting.conversation(self._system, told, action, "\n".join(fact for fact in facts if fact))

    def _read(self, reply: str, action: str | ToolCall) -> tuple[Turn | None, str]:
        """A reply as a turn, or why it can be none."""
        said = prompting.extract(reply)
        if said is None:
            return None, f"it has no <{prompting.OBSERVATION}> block"
        if len(said) > LONGEST:
            return None, f"it is longer than {LONGEST:,} characters"
        offer = self._manner.offers.get(action.name) if isinstance(action, ToolCall) else None
        if offer is not None and offer.answers is not None and (fault := misfit(offer.answers, said)):
            return None, fault
        return Turn(action, said, prompting.extract_state(reply), prompting.extract_done(reply)), ""

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        turns = [[list(t.action) if isinstance(t.action, ToolCall) else t.action, *t[1:]] for t in self.turns]
        now = [
            self._name,
            self._told,
            self._chain.hex(),
            turns,
            self._pages,
            self._shown,
            self._left,
            self._done,
            self._opened,
        ]
        return json.dumps(now).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is of another task or cut short, or what the model is told differs."""
        _, told, chain, turns, pages, shown, left, done, opened = load(snapshot, self._name, 9)
        if told != self._told:
            remedy = "Its tools, examples or instruction have changed since; run the task anew."
            raise WorldError(f"the model of the world is told something else of {self._name} now", remedy=remedy)
        try:
            self._chain = bytes.fromhex(chain)
            self.turns = [Turn(ToolCall(*t[0]) if isinstance(t[0], list) else t[0], *t[1:]) for t in turns]
        except (TypeError, ValueError, IndexError) as error:
            raise foreign() from error
        self._pages, self._shown, self._left, self._done, self._opened = dict(pages), shown, left, done, opened


def misfit(schema: Mapping[str, object], text: str) -> str:
    """Why an answer does not fit the schema of a tool's answers; "" where it does, or where it tells of an error."""
    if text.lstrip().lower().startswith("error"):
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "it is no JSON, as the tool's answers are"
    if isinstance(value, dict) and "error" in value:
        return ""
    whole = {"type": "object", "properties": {"answer": schema}, "required": ["answer"]}
    return "; ".join(check_arguments(whole, {"answer": value}))
