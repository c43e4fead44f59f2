"""One model in front of a pool: each request goes to the worker that a fitted head names, of those a policy allows.

``route:FOLDER`` loads one; a Runner, a server or a gateway asks it like any Model. A turn is routed anew each time, the
whole request goes on, tools included, and what answers is streamed back. If a worker fails, the next best of those
allowed is asked. A worker that is not allowed must never be contacted, nor be sent what it is not cleared for.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from clew.core.errors import BadInput, Busy, ClewError, ContextOverflow, ModelError, Refused, UnknownName, Unreachable
from clew.core.keys import node_keys
from clew.core.protocols import Model, Renderer, Streams
from clew.core.records import Node, Request
from clew.core.values import F32, Attempt, Completion, Piece, Usage
from clew.models.compose.breaker import Breaker
from clew.models.compose.decision import SCHEME, SHORT, Decision
from clew.models.compose.forwarding import combined
from clew.models.compose.ledger import Ledger
from clew.models.compose.origins import Origins
from clew.models.compose.policy import Policy, cost_of, flow_of, most_of
from clew.models.compose.router import Router, ranking
from clew.models.images import unnamed

FAULTS = frozenset({400, 413, 415, 422})  # statuses that tell of the request, not of the worker
FORCED = "another worker is named by the reference"
SEES = "Allow a worker that sees images."
Items = AsyncGenerator[str | Completion, None]


class Parts(NamedTuple):
    """A reference taken apart: ``route:FOLDER?POLICY#WORKER``."""

    folder: str
    policy: Policy
    worker: str

    @classmethod
    def of(cls, ref: str) -> Parts:
        """Raises BadInput where the policy is none."""
        place, _, worker = ref.removeprefix(SCHEME).partition("#")
        folder, _, query = place.partition("?")
        return cls(folder, Policy.parse(query), worker)

    def __str__(self) -> str:
        query = str(self.policy)
        return f"{SCHEME}{self.folder}" + (f"?{query}" if query else "") + (f"#{self.worker}" if self.worker else "")


class Plan(NamedTuple):
    """What was decided for one request: workers in the order in which they are asked, and the rest of a Decision."""

    policy: Policy
    order: list[int]
    scores: dict[str, float]
    refused: dict[str, str]
    hidden: dict[int, frozenset[int]]  # by worker: places in the path that it is not sent
    classes: frozenset[str]  # of all that the request holds, by the places that are sent
    each: list[frozenset[str]]
    seconds: float


class Routed:
    """A Model over a pool of Models; a Model that ``Streams``.

    Args:
        router: workers, features and head.
        models: that answer for the workers, in their order.
        folder: of the router, by which a record names it.
        worker: ask this one and no other; it still has to be allowed.
        policy: what the operator allows; a request's own policy narrows it.
        ledger: signed lines of whom was asked; with it, the classes of replies outlive the process.
        failures, window, pause, clock: of each worker's Breaker.

    Raises:
        BadInput: there is not one model for each worker, or names are unknown.
    """

    renderer: Renderer | None = None
    version = 0

    def __init__(
        self,
        router: Router,
        models: Sequence[Model],
        *,
        folder: str = "",
        worker: str = "",
        policy: Policy | None = None,
        ledger: Ledger | None = None,
        failures: int = 3,
        window: float = 60.0,
        pause: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(models) != len(router.workers):
            raise BadInput(
                f"{len(models)} models for {len(router.workers)} workers", remedy="Give one for each, in their order."
            )
        if worker and worker not in router.names:
            raise UnknownName(f"no worker is called {worker!r:.80}", remedy=f"Known: {', '.join(router.names)}.")
        self.router, self.models, self.ledger = router, tuple(models), ledger
        self.parts = Parts(folder or router.digest, (policy or Policy()).known(router.names), worker)
        self.ref = str(self.parts)
        self.breakers = tuple(Breaker(failures, window, pause, clock) for _ in router.workers)
        told = ledger.entries if ledger is not None else []
        self.origins = Origins((str(one.get("message")), one.get("classes", ())) for one in told)

    @property
    def policy(self) -> Policy:
        return self.parts.policy

    @property
    def weights_name(self) -> str:
        """By what decides, not by where the folder lies."""
        said = "\0".join((self.router.digest, str(self.parts._replace(folder=""))))
        return f"router-{hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}"

    def under(self, policy: Policy) -> Routed:
        """The same pool with its breakers, ledger and memory of origins, under a narrower policy.

        Raises:
            BadInput: it names workers that are not there.
        """
        made = copy.copy(self)
        made.parts = self.parts._replace(policy=self.policy.narrowed(policy.known(self.router.names)))
        made.ref = str(made.parts)
        return made

    def by(self, router: Router) -> Routed:
        """The same pool, policy, breakers and ledger, decided by another head; named by what decides.

        Raises:
            BadInput: the router's workers are others.
        """
        if router.workers != self.router.workers:
            raise BadInput("another head needs the same workers", remedy="Give a router of this pool.")
        made = copy.copy(self)
        made.router, made.parts = router, self.parts._replace(folder=router.digest)
        made.ref = str(made.parts)
        return made

    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            Refused: no worker is allowed to answer. Busy: all that are allowed rest after failures. What the worker
            raised, where one alone was asked; Unreachable, ContextOverflow or Refused where several were.
        """
        async with aclosing(self._answer(request, False)) as items:
            return [item async for item in items if isinstance(item, Completion)][-1]

    async def stream(self, request: Request) -> AsyncIterator[str | Completion]:
        """Pieces of the reply as the worker sends them, then the Completion. Raises what ``complete`` raises."""
        async with aclosing(self._answer(request, True)) as items:
            async for item in items:
                yield item

    # ---- deciding --------------------------------------------------------------------------------------------------

    def plan(self, request: Request, numbers: F32 | None = None, spent: float = 0.0) -> Plan:
        """Who may answer, best first. Nothing is contacted.

        Args:
            numbers: the head's scores of this request, where they are known, and the seconds ``spent`` on them.

        Raises:
            BadInput: the request's policy is none. Refused: it allows nobody.
        """
        began, names = time.perf_counter() - spent, self.router.names
        policy = self.policy
        if (stated := _stated(request)) is not None:
            policy = policy.narrowed(Policy.read(stated).known(names))
        messages = [node.message for node in request.path]
        numbers = self.router.scores(messages) if numbers is None else numbers
        each = self.origins.classes(messages)
        labelled = bool(policy.data_class) or any(worker.data_class for worker in self.router.workers)
        most = most_of(request) if policy.max_cost is not None else Usage()
        refused, hidden = dict[str, str](), dict[int, frozenset[int]]()
        for index, worker in enumerate(self.router.workers):
            forced = FORCED if self.parts.worker not in ("", worker.name) else ""
            why = forced or policy.refusal(worker, most)
            if labelled and not why:
                why, hidden[index] = flow_of(worker, each, policy.flow)
            if why:
                refused[worker.name] = why
        order = ranking(numbers, [name not in refused for name in names])
        scores = {name: float(score) for name, score in zip(names, numbers, strict=True)}
        classes = frozenset(policy.data_class)
        plan = Plan(policy, order, scores, refused, hidden, classes, each, time.perf_counter() - began)
        if not order:
            self._sign("refused", request, plan, {})
            told = "; ".join(f"{name}: {why}" for name, why in list(refused.items())[:8])
            raise Refused(
                f"no worker may answer this request ({told})", remedy="Widen the policy, or add a worker it allows."
            )
        return plan

    async def _planned(self, request: Request) -> Plan:
        """The plan; where a model reads the request, it does so beside the event loop, which others wait for."""
        if not self.router.features.slow:
            return self.plan(request)
        began = time.perf_counter()
        numbers = await asyncio.to_thread(self.router.scores, [node.message for node in request.path])
        return self.plan(request, numbers, time.perf_counter() - began)

    def _sign(self, kind: str, request: Request, plan: Plan, more: dict[str, object]) -> None:
        if self.ledger is not None:
            said = {"request": request.path[-1].key.hex() if request.path else "", "run": request.run}
            about = {"policy": str(plan.policy), "refused": plan.refused, "scores": plan.scores}
            self.ledger.write(kind, **said, **about, **more)

    # ---- asking ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: Request, streaming: bool) -> Items:
        began, plan = time.monotonic(), await self._planned(request)
        failed, errors = dict[str, str](), list[Exception]()
        for index in plan.order:
            worker, breaker = self.router.workers[index], self.breakers[index]
            if not breaker.enter():
                failed[worker.name] = "rests after failures"
                continue
            said, begun, verdict = None, False, breaker.released
            try:
                self._sign("asked", request, plan, {"worker": worker.name, "failed": dict(failed)})
                asked = _shown(request, self.models[index], plan.hidden.get(index, frozenset()))
                again = f"{request.idempotency}-{worker.name}" if request.idempotency else ""  # two may share a server
                asked = asked._replace(deadline=_left(request, began), policy=None, idempotency=again)
                async with aclosing(_items(self.models[index], asked, streaming)) as items:
                    async for item in items:
                        if isinstance(item, Completion):
                            said = item
                        else:
                            begun = True
                            yield item
                if said is None:
                    raise ModelError(f"{worker.name} ended without an answer")
                verdict = breaker.failed if _broke(said, request) else breaker.succeeded
            except Exception as error:
                verdict = breaker.failed if _at_fault(error) else breaker.released
                if begun:
                    raise
                errors.append(error)
                failed[worker.name] = _short(error)
            finally:
                verdict()
            if said is not None:
                first = self.router.names[plan.order[0]]
                decision = Decision(worker.name, first, plan.scores, plan.refused, failed)
                tried = (*(one for error in errors for one in getattr(error, "attempts", ())), *said.attempts)
                answer = self._answered(index, request, plan, decision, said)
                yield answer._replace(attempts=tried, seconds=time.monotonic() - began)
                return
        raise self._given_up(plan, failed, errors)

    def _answered(self, index: int, request: Request, plan: Plan, decision: Decision, said: Completion) -> Completion:
        """The worker's answer as the router's own, with the decision and the price in its record."""
        worker, model = self.router.workers[index], self.models[index]
        cost = cost_of(worker, said.usage)
        priced = said if cost is None else said._replace(cost=cost)
        hidden = plan.hidden.get(index, frozenset())
        shown = (own for place, own in enumerate(plan.each) if place not in hidden)
        classes = plan.classes.union(*shown, {worker.data_class} - {""})
        name = self.origins.said(said.message, classes)
        self._sign("said", request, plan, {"worker": worker.name, "message": name, "classes": sorted(classes)})
        plain = priced._replace(tokens=None, logprobs=None, entropies=None, plain=None, tops=None, prompt=None)
        found = combined(plain._replace(model=worker.name, version=self.version), [(model, priced)])
        return found._replace(inner=(decision.entry(self.ref, plan.seconds), *found.inner))

    def _given_up(self, plan: Plan, failed: dict[str, str], errors: Sequence[Exception]) -> Exception:
        """What is raised where nobody answered."""
        if not errors:
            busy = Busy(
                f"all workers that may answer rest after failures: {', '.join(failed)}",
                remedy="Ask again later, or allow another worker.",
            )
            busy.wait = min(self.breakers[index].wait() for index in plan.order)
            return busy
        if len(errors) == 1:
            return errors[0]
        told = "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:8])
        kinds: tuple[type[ModelError], ...] = (ContextOverflow, Refused)
        kind = next((one for one in kinds if all(isinstance(error, one) for error in errors)), Unreachable)
        found = kind(f"no worker that may answer did ({told})", remedy="See to the workers, or allow others.")
        tried: list[Attempt] = [one for error in errors for one in getattr(error, "attempts", ())]
        found.attempts = tuple(tried)  # type: ignore[attr-defined]
        return found


def _stated(request: Request) -> object:
    """The policy that the caller states; of a program behind the gateway, in the body that it sent."""
    if request.policy is None and request.wire is not None:
        return request.wire.body.get("policy")
    return request.policy


def _shown(request: Request, model: Model, hidden: frozenset[int]) -> Request:
    """The request as a worker is sent it: without what it may not see, in tokens where it takes tokens.

    Raises:
        BadInput: its template takes no such messages, images or tools.
    """
    renderer, wire = model.renderer, request.wire
    if wire is not None and "policy" in wire.body:  # it is said to the router, and no worker knows the field
        body = {name: value for name, value in wire.body.items() if name != "policy"}
        request = request._replace(wire=wire._replace(body=body))
    if renderer is None and not hidden:
        return request
    nodes = list[Node]()
    for place, old in enumerate(request.path):
        if place in hidden:
            continue
        if renderer is not None and old.message.extra and unnamed(old.message):
            raise BadInput(f"{model.ref} reads text alone, and a message holds an image", remedy=SEES)
        prev = nodes[-1] if nodes else None
        ids = renderer.delta(prev, True, old.message, request.tools) if renderer is not None else None
        tokenizer = renderer.ref if renderer is not None else ""
        parent, text = (prev.key, prev.text_key) if prev is not None else (b"", b"")
        key, text = node_keys(parent, text, old.message, ids, tokenizer)
        nodes.append(Node(key, parent, old.message, ids, tokenizer, text))
    changed = request._replace(path=tuple(nodes), wire=None)  # the body as it came would tell what is hidden
    if renderer is None:
        return changed
    forced = renderer.encode(request.forced_text) if request.forced_text else ()
    return changed._replace(head=renderer.head(), forced=forced, forced_text="")


def _left(request: Request, began: float) -> float | None:
    return None if request.deadline is None else max(0.001, request.deadline - (time.monotonic() - began))


async def _items(model: Model, request: Request, streaming: bool) -> Items:
    """What a worker answers: as it comes where it streams, else at once; without token ids, which are its own."""
    if not (streaming and isinstance(model, Streams)):
        done = await model.complete(request)
        if streaming and (done.message.text or done.message.reasoning):
            yield Piece(done.message.text, reasoning=done.message.reasoning)
        yield done
        return
    async with aclosing(cast(AsyncGenerator[Any, None], model.stream(request))) as items:
        async for item in items:
            if not isinstance(item, Piece):
                yield item
            elif item or item.reasoning or item.before is not None:
                yield Piece(str(item), reasoning=item.reasoning, before=item.before, part=item.part)


def _at_fault(error: Exception) -> bool:
    """Whether an error tells of the worker. If not, a client could shut a worker out for all with a bad request."""
    if isinstance(error, (BadInput, ContextOverflow)):
        return False
    tried = getattr(error, "attempts", ())
    return not isinstance(error, Refused) or bool(tried and tried[-1].status not in FAULTS)


def _broke(said: Completion, request: Request) -> bool:
    """Whether the worker's stream broke off on its own account: the request's deadline cuts as well."""
    late = request.deadline is not None
    return said.finish == "cut" and not late and bool(said.attempts and said.attempts[-1].error)


def _short(error: Exception) -> str:
    told = error.message if isinstance(error, ClewError) else f"{type(error).__name__}: {error}"
    return " ".join(told.split())[:SHORT]
