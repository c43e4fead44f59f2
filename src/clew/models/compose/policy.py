"""Which workers of a pool may be asked at all: judged before any connection, and what is unknown is refused.

``clew.models.compose.routed`` judges by it. An operator states a policy with a router, a caller states one with a
request, and both hold: a request can only narrow what the operator allows. A label that a worker does not carry never
counts as a good one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clew.core.errors import BadInput, UnknownName
from clew.core.keys import encode
from clew.core.records import Request
from clew.core.values import Usage
from clew.models.compose.router import CLASS, CROWD, Worker

LISTS, NUMBERS = ("allow", "deny", "regions", "data_class"), ("retention", "max_cost", "max_latency")
FLOWS = ("", "refuse", "remove")
UNKNOWN = "unknown"  # the class of a message of which nobody knows who wrote it
BYTES = 2  # of text for each token of a prompt, on the careful side: the cost must be bounded before it is known


@dataclass(frozen=True)
class Policy:
    """What a worker must be to be asked. None and empty bound nothing.

    Args:
        allow, deny: names of workers.
        regions: in one of which the worker must compute.
        retention: days for which it may keep what it is sent.
        data_class: classes of data that the request holds, and for which the worker must be cleared.
        max_cost: US dollars of this request, by the worker's prices and the longest reply asked for.
        max_latency: seconds of a reply, as the worker's were measured.
        flow: what becomes of a message that a worker wrote which another one is not cleared for: ``refuse`` the other
            worker (the same where empty), or ``remove`` the message from what it is sent.

    Raises:
        BadInput: one of them is no such thing.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    regions: tuple[str, ...] | None = None
    retention: float | None = None
    data_class: tuple[str, ...] = ()
    max_cost: float | None = None
    max_latency: float | None = None
    flow: str = ""

    def __post_init__(self) -> None:
        for name in LISTS:
            value = getattr(self, name)
            texts = isinstance(value, tuple) and all(isinstance(one, str) and 0 < len(one) <= 64 for one in value)
            if not (texts and len(value) <= CROWD) and not (value is None and name in ("allow", "regions")):
                raise BadInput(f"policy: {name} is no list of up to {CROWD} short texts", remedy="List the names.")
        for name in NUMBERS:
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not (number and value >= 0):
                raise BadInput(f"policy: {name} is {value!r:.40}", remedy="Give a number from 0 on.")
        if wrong := [one for one in self.data_class if not CLASS.fullmatch(one)]:
            raise BadInput(
                f"policy: {wrong[0]!r} is no class of data", remedy="Use lower-case letters, digits, _ and -."
            )
        if self.flow not in FLOWS:
            raise BadInput(f"policy: flow is {self.flow!r:.40}", remedy="Use refuse or remove.")

    @classmethod
    def read(cls, said: object) -> Policy:
        """A policy from a JSON object, whose lists may be single texts.

        Raises:
            BadInput: it is none, or has a field that no policy has: what is not understood may forbid something.
        """
        if not isinstance(said, Mapping):
            raise BadInput("a policy is no JSON object", remedy='Write it as {"regions": ["eu"], "retention": 0}.')
        known = [one.name for one in fields(cls)]
        if unknown := [name for name in said if name not in known]:
            raise BadInput(f"policy: there is no {unknown[0]!r:.60}", remedy=f"Known: {', '.join(known)}.")
        given = {name: value for name, value in said.items() if value is not None}
        for name in LISTS:
            value = given.get(name)
            if isinstance(value, (str, list)):
                given[name] = (value,) if isinstance(value, str) else tuple(value)
        if not isinstance(given.get("flow", ""), str):
            raise BadInput("policy: flow is no text", remedy="Use refuse or remove.")
        return cls(**given)

    @classmethod
    def parse(cls, query: str) -> Policy:
        """A policy as references have it: ``deny=large&regions=eu,us&retention=0``.

        Raises:
            BadInput: it is none.
        """
        said: dict[str, Any] = {}
        for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=20):
            if name in said:
                raise BadInput(f"policy: {name!r:.60} is given twice", remedy="Write one, its values with commas.")
            try:
                said[name] = [one for one in value.split(",") if one] if name in LISTS else value
                said[name] = float(value) if name in NUMBERS else said[name]
            except ValueError:
                raise BadInput(f"policy: {name} is {value!r:.40}", remedy="Give a number from 0 on.") from None
        return cls.read(said)

    def __str__(self) -> str:
        """As ``parse`` reads it; empty where it bounds nothing."""
        said = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        said = {n: ",".join(v) if n in LISTS else repr(float(v)) if n in NUMBERS else v for n, v in said.items()}
        return urlencode({n: v for n, v in said.items() if v or n in ("allow", "regions")}, safe=",")

    def narrowed(self, other: Policy) -> Policy:
        """What both allow."""

        def least(a: float | None, b: float | None) -> float | None:
            return b if a is None else a if b is None else min(a, b)

        def common(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return b if a is None else a if b is None else tuple(one for one in a if one in b)

        return Policy(
            common(self.allow, other.allow),
            tuple(dict.fromkeys((*self.deny, *other.deny))),
            common(self.regions, other.regions),
            least(self.retention, other.retention),
            tuple(dict.fromkeys((*self.data_class, *other.data_class))),
            least(self.max_cost, other.max_cost),
            least(self.max_latency, other.max_latency),
            other.flow or self.flow,
        )

    def known(self, names: Sequence[str]) -> Policy:
        """The policy, where the workers it names are there.

        Raises:
            UnknownName: one is not: a misspelt ``deny`` must not let its worker be asked.
        """
        for name in (*(self.allow or ()), *self.deny):
            if name not in names:
                raise UnknownName(f"policy: no worker is called {name!r}", remedy=f"Known: {', '.join(names)}.")
        return self

    def refusal(self, worker: Worker, most: Usage) -> str:
        """Why a worker may not be asked for a request of at most so many tokens; empty where it may."""
        if self.allow is not None and worker.name not in self.allow:
            return "not among those that are allowed"
        if worker.name in self.deny:
            return "denied"
        if self.regions is not None and worker.region not in self.regions:
            return f"computes in {worker.region}" if worker.region else "its region is unknown"
        if self.retention is not None and not _within(worker.retention_days, self.retention):
            days = worker.retention_days
            return "how long it keeps data is unknown" if days is None else f"keeps data for {days:g} days"
        if lacking := [one for one in self.data_class if one not in worker.clearance]:
            return f"not cleared for {lacking[0]}"
        if self.max_cost is not None and not _within(price := cost_of(worker, most), self.max_cost):
            return "its price is unknown" if price is None else f"could cost ${price:.4f}"
        if self.max_latency is not None and not _within(worker.seconds, self.max_latency):
            seconds = worker.seconds
            return "how long it takes is unknown" if seconds is None else f"takes {seconds:g} s"
        return ""


def _within(value: float | None, most: float) -> bool:
    return value is not None and value <= most


def flow_of(worker: Worker, each: Sequence[frozenset[str]], flow: str) -> tuple[str, frozenset[int]]:
    """Why a worker may not see the messages with these classes, or the places of those that are kept from it."""
    cleared = {*worker.clearance, worker.data_class}
    hidden = frozenset(place for place, classes in enumerate(each) if not classes <= cleared)
    if not hidden:
        return "", hidden
    lacking = min(one for place in hidden for one in each[place] - cleared)
    if flow != "remove":
        return f"not cleared for {lacking}, which the conversation holds", hidden
    last = len(each) - 1 in hidden
    return (f"not cleared for {lacking}, which the last message is" if last else ""), hidden


def cost_of(worker: Worker, usage: Usage) -> float | None:
    """US dollars by the worker's prices; None where one is unknown."""
    if worker.price_in is None or worker.price_out is None:
        return None
    return (usage.prompt * worker.price_in + usage.completion * worker.price_out) / 1e6


def most_of(request: Request) -> Usage:
    """Tokens that a request can use at most, by its bytes: an estimate on the careful side."""
    said = [part for node in request.path for part in (node.message.text, node.message.reasoning, node.message.extra)]
    said += [call.name + call.arguments for node in request.path for call in node.message.calls]
    said += [tool.name + tool.description + json.dumps(tool.schema) for tool in request.tools]
    size = sum(len(encode(text)) for text in said)
    return Usage(size // BYTES + 16 * (len(request.path) + len(request.tools) + 1), request.sampling.max_tokens)
