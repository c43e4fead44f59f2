"""A Model over several inference servers: conversations keep to an endpoint, and a dead one's go on at the others.

``clew train --rollouts`` asks it in place of local weights, and pushes each new version of them through it. Token ids
travel, nothing is rendered or parsed by the servers, and each token keeps the version of the weights that sampled it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clew.core.aio import run_sync
from clew.core.errors import BadInput, ClewError, ModelError, Refused, Unreachable
from clew.core.keys import derive
from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.values import Attempt, Completion
from clew.models.fleet.control import How, Mode, in_short
from clew.models.fleet.member import FIRST_REST, Member
from clew.models.fleet.spans import joined, number_of, told_by, told_under, usable

_log = logging.getLogger("clew.fleet")
REMEMBERED = 1 << 16  # conversations whose endpoint is remembered
PATIENCE = 900.0  # seconds that a paused endpoint is waited for
LOOK = 1.0  # seconds between two looks at it
LAPSES = 3  # times that one request waits for an endpoint to get the weights again that it lost
HANDS = 64  # parts of one reply, at most: each is an update that ended the part before


class Fleet:
    """A Model over endpoints that serve the same weights (vLLM, SGLang, `clew serve`).

    A conversation of a run is asked at one endpoint, the least busy when it began, while that answers: what the server
    has cached of it is used again. Where an endpoint stops answering, its conversations go on at the others, and it is
    tried again later. An endpoint that is paused for new weights is waited for.

    Args:
        urls: of the servers, with or without ``/v1``.
        renderer: turns messages into the tokens of this model; a Local's.
        model: the name that the servers know it by; what each lists first where empty.
        ref: by which the record knows the model; from the URLs where empty. A trainer gives its own model's.
        weights_name: content name of the weights, see ``Local.weights_name``.
        api_key: the credential of all of them. Never recorded or shown.
        version: of the weights that they serve at first.
        training: refuse replies without logprobs, which no trainer could use; and wait for an endpoint where none
            answers, so that an outage does not end the runs. Interrupted meanwhile, they are resumed later.
        note: is told, in a sentence, what happened to an endpoint; a warning in the log where not given.
        patience: seconds that a paused endpoint is waited for, or one that does not answer.
        how: how endpoints take weights, see ``Control.take``; ``lora``: as adapters; by the kind of server where None.
        options: of Remote, for all of them: ``logprobs="processed"``, ``concurrency``, ``timeout``, ...

    Raises:
        BadInput: no URL, one twice, or one that is none.
    """

    def __init__(
        self,
        urls: Sequence[str],
        renderer: Renderer,
        *,
        model: str = "",
        ref: str = "",
        weights_name: str = "",
        api_key: str | Callable[[], str] | None = None,
        version: int = 0,
        training: bool = False,
        note: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
        how: How | None = None,
        **options: Any,
    ) -> None:
        self.members = [Member(url, model, api_key, renderer, options) for url in urls]
        names = [member.where for member in self.members]
        if not names or len(set(names)) < len(names):
            raise BadInput(f"a fleet of {names or 'nothing'}", remedy="Give the URL of each server once.")
        for member in self.members:
            member.kind = how
        self.renderer, self.version, self.training, self.patience = renderer, version, training, patience
        self.ref = ref or f"fleet:{model or '*'}@{','.join(names)}"
        self.weights_name = weights_name
        self.note = note or _log.warning
        self.folder: Path | None = None  # of the weights pushed last
        self._homes = OrderedDict[tuple[str, int], Member]()

    def __repr__(self) -> str:
        return f"Fleet({self.ref!r})"

    # ---- asking ----------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Completion:
        """Answer one request. A reply that an update of the weights ends is gone on with, under the new ones.

        Raises:
            Unreachable: no endpoint answers. Refused: one answers with what cannot be used, or ``training`` needs
                logprobs and there are none. ContextOverflow: it does not fit.
        """
        parts = list[Completion]()
        began, asked = time.monotonic(), request
        while True:
            member, part = await self._asked(asked)
            parts.append(part)
            if not _ended_early(part) or len(parts) == HANDS:
                break
            given = part.tokens or ()
            if request.sampling.grammar:  # a server would begin the grammar anew behind these tokens
                parts[-1], given = part._replace(tokens=(), inner=()), ()
            left = request.deadline
            if left is not None:
                left = max(0.0, left - (time.monotonic() - began))
            fresh = derive(request.seed, "part", len(parts))  # the noise of the tokens that are there is used up
            asked = asked._replace(forced=(*asked.forced, *given), deadline=left, seed=fresh)
        done = joined(parts)
        if self.training and done.tokens:
            usable(done, request.sampling, member.where)
        return done

    async def _asked(self, request: Request) -> tuple[Member, Completion]:
        """One answer, from whichever endpoint gives it."""
        request = request._replace()  # an object of its own: endpoints tell requests under way apart by it
        end, failures, lapses = time.monotonic() + self.patience, list[ModelError](), 0
        while True:
            member = await self._home(request, failures, end if self.training else 0.0)
            member.busy += 1
            version, updates = member.version if member.pushed else self.version, member.updates
            try:
                await member.connect()
                await member.learn(request.sampling)
                part = await member.remote.complete(request)
                name, adapted = member.adapter(request)
                if adapted >= 0:
                    part = told_under(part, name, adapted, member.where)
                elif member.updates != updates and _untold(part, member.mode):
                    continue  # nobody knows which weights sampled it: ask again
                else:
                    part = told_by(part, version, member.pushed and member.kind != "lora", member.where)
            except Unreachable as error:
                if _paused(error) and time.monotonic() < end:
                    await asyncio.sleep(LOOK)
                    continue
                self._lost(member, error)
                failures.append(error)
                continue
            except asyncio.CancelledError:
                await self._gave_up(member, request)
                raise
            except Refused:
                lapses += 1
                if lapses > LAPSES or not await self._lapsed(member):
                    raise
                continue
            finally:
                member.busy -= 1
                member.sent(request)
                member.adapter(request)
            member.answers()
            await member.swap.tidy()
            return member, part

    async def _home(self, request: Request, failures: Sequence[ModelError], end: float) -> Member:
        """The endpoint that a conversation keeps to, or another that answers where it does not.

        Args:
            end: until when endpoints are waited for where none answers.

        Raises:
            Unreachable: none does.
        """
        while not (there := await self._there()) and time.monotonic() < end:
            for member in self.members:
                member.until = min(member.until, time.monotonic() + FIRST_REST)
            await asyncio.sleep(LOOK)
        if not there:
            why = failures[-1].message if failures else "all failed a moment ago"
            raise Unreachable(
                f"none of {len(self.members)} endpoints answers; the last one: {why}",
                remedy="Start the servers again and take the work up: what was sampled is recorded.",
            )
        holder = request.run, request.conversation
        home = self._homes.get(holder) if request.run else None
        if home is None or home.down:
            home = min(there, key=lambda member: member.busy)
            if request.run:
                self._homes[holder] = home
                if len(self._homes) > REMEMBERED:
                    self._homes.popitem(last=False)
        return home

    async def _there(self) -> list[Member]:
        """Endpoints that answer, after those whose rest is over were tried."""
        for member in self.members:
            if member.due():
                await self._retried(member)
        return [member for member in self.members if not member.down]

    def _lost(self, member: Member, error: ModelError) -> None:
        """An endpoint does not answer: leave it alone for a while, and say so once."""
        if not member.down:
            rest = len([other for other in self.members if not other.down and other is not member])
            waits = "its runs wait until it is there again" if self.training else "no other is left"
            then = f"its runs go on at {rest} other endpoints" if rest else waits
            self.note(f"{member.where} is left out: {in_short(error)}; {then}")
        member.failed()

    async def _retried(self, member: Member) -> None:
        """Ask an endpoint that failed whether it is there again; it gets the weights before any request."""
        member.failed()  # so that others do not ask as well
        try:
            async with asyncio.timeout(10):
                await member.control.get("/v1/models")
        except (ModelError, TimeoutError):
            return
        if self.folder is None or await self._given(member, self.folder, self.version, "wait"):
            member.answers()
            self.note(f"{member.where} answers again")

    async def _lapsed(self, member: Member) -> bool:
        """Whether an endpoint had lost the weights of the fleet, as by a restart, and has them again."""
        if not member.pushed or self.folder is None:
            return False
        try:
            if member.kind == "lora":
                if await member.swap.there():
                    return False
            elif number_of(await member.control.version()) is not None:
                return False
        except ModelError:
            return False
        self.note(f"{member.where} serves weights that were not pushed here, as after a restart; it gets them again")
        if not await self._given(member, self.folder, self.version, "wait"):
            member.failed()
        return True

    async def _gave_up(self, member: Member, request: Request) -> None:
        """Nobody waits for an answer any more; a server behind a proxy learns it by the request's id alone."""
        named = member.sent(request)
        if named and member.pushed:
            with suppress(ClewError, TimeoutError):
                async with asyncio.timeout(2):
                    await member.control.abort([named])

    @property
    def answers(self) -> bool:
        """Whether an endpoint answered when it was asked last."""
        return not all(member.down for member in self.members)

    async def aclose(self) -> None:
        """Close the connections of this event loop; they are closed at its end in any case."""
        for member in self.members:
            await member.aclose()

    # ---- weights ---------------------------------------------------------------------------------------------------

    def push(self, folder: str | Path, version: int, mode: Mode = "wait") -> int:
        """Let all endpoints serve the weights of a folder, which they must see under the same path, as this version.

        One that cannot take them is left out, with a note, until it can. Safe while runs are under way. Adapters pause
        nothing, whatever the mode.

        Returns:
            How many endpoints serve them.

        Raises:
            ModelError: none does; what they served before is unchanged, or they stay paused.
        """
        return run_sync(self.apush(folder, version, mode))

    async def apush(self, folder: str | Path, version: int, mode: Mode = "wait") -> int:
        """``push``, from an event loop."""
        path = Path(folder)
        errors = list[ModelError]()
        taken = await asyncio.gather(*[self._given(m, path, version, mode, errors) for m in self.members])
        if not any(taken):
            raise errors[-1]
        self.folder, self.version = path, version
        for member, took in zip(self.members, taken, strict=True):
            if took:
                member.answers()
        return sum(taken)

    async def _given(
        self, member: Member, folder: Path, version: int, mode: Mode, errors: list[ModelError] | None = None
    ) -> bool:
        """Whether an endpoint has taken the weights; one that has not is not asked."""
        try:
            await member.connect()
            how = await member.how()
            if how == "lora":
                await member.swap.load(folder, version)
            else:
                member.updates, member.mode = member.updates + 1, mode
                await member.control.take(folder, str(version), mode, how)
        except ModelError as error:
            if errors is not None:
                errors.append(error)
            self._lost(member, error)
            return False
        member.pushed, member.version = True, version
        return True

    def takes_adapters(self) -> bool:
        """Whether all endpoints that answer load LoRA adapters; then folders that are pushed are adapters from now on.

        Raises:
            Unreachable: none answers.
        """
        return run_sync(self._takes_adapters())

    async def _takes_adapters(self) -> bool:
        found, errors = list[bool](), list[ModelError]()
        for member in self.members:
            try:
                found.append(await member.swap.possible())
            except Unreachable as error:
                errors.append(error)
        if not found:
            raise errors[-1]
        if all(found):
            for member in self.members:
                member.kind = "lora"
        return all(found)


def _ended_early(part: Completion) -> bool:
    """Whether the server ended a reply by itself, as for an update of the weights; a deadline's cut has no tokens."""
    return part.finish == "cut" and part.tokens is not None


def _untold(part: Completion, mode: Mode) -> bool:
    """Whether a reply during which weights were replaced may be of the new ones, and its server does not say."""
    return not part.inner and bool(part.tokens) and (mode == "keep" or len(part.attempts) > 1)


def _paused(error: ModelError) -> bool:
    """Whether the endpoint is there and asks to be asked later."""
    attempts: Sequence[Attempt] = getattr(error, "attempts", ())
    return len(attempts) > 0 and attempts[-1].status == 503
