"""A replay that is watched: what a program asked against what its record has, as a regression test reads it.

``clew.integrations`` uses it. ``exact`` holds each request to the record, as every replay does. ``loose`` holds the
model's turns alone: the requests may say anything, and are answered in the recorded order; what became of the calls of
tools is compared. It must never ask a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from clew.core.errors import ReplayDiverged
from clew.core.printable import short
from clew.models.dialects import Asked
from clew.serve.gateway.matching import Expected, replies
from clew.serve.gateway.session import Session
from clew.serve.gateway.verbatim import Sent
from clew.serve.history import Arrival
from clew.serve.sameness import difference, question

WIDTH = 160  # characters of a call in a sentence
Json = Mapping[str, Any]


class Asking(NamedTuple):
    """A request of the program beside the recorded one that it stands for. number: which of the record's, from 1."""

    number: int
    recorded: Json
    asked: Json


class Watched(Session):
    """As ``Session``, frozen; takes ``loose`` besides. ``refused``: the first request that got no answer."""

    def __init__(self, *args: Any, loose: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loose, self.answered, self.refused = loose, list[Asking](), ""

    def _recorded(self, asked: Asked, it: Arrival, sent: Sent | None) -> Expected | None:
        waiting = [e for e in self.expected if not e.used]
        said = asked._replace(model=it.model)
        asks = {
            whole: question(said, (sent.body.get("tools") or []) if whole and sent else None) for whole in (False, True)
        }
        if not self.loose:
            try:
                found = super()._recorded(asked, it, sent)
            except ReplayDiverged:
                near = next((e for e in waiting if e.exchange.thread == it.thread), next(iter(waiting), None))
                self._refuse(
                    f"a request that the record does not have, after all {len(self.expected)} that it has"
                    if near is None
                    else f"request {self._number(near)} {_differs(near.asks, asks[near.verbatim])}"
                )
                raise
        else:
            found = next((e for e in waiting if replies(e.asks) == replies(asks[False])), next(iter(waiting), None))
            if found is None:
                self._refuse(f"a request after all {len(self.expected)} that the record has: it goes on where it ended")
                raise ReplayDiverged(f"run {self.run}: {self.refused}", remedy="The record holds no answer to it.")
        if found is not None:
            self.answered.append(Asking(self._number(found), found.asks, asks[found.verbatim]))
        return found

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def _number(self, one: Expected) -> int:
        return self.expected.index(one) + 1

    def verdict(self) -> str:
        """What differs from the record, as a sentence; empty where nothing does. To be asked once the program ended."""
        if self.loose:
            for asking in self.answered:
                if why := _tools_differ(asking):
                    return why
        if self.refused:
            return self.refused
        left = [self._number(e) for e in self.expected if not e.used]
        return f"request {left[0]} of the {len(self.expected)} recorded was never made" if left else ""


def _differs(recorded: Json, asked: Json) -> str:
    """Where a request differs first: the message by number and role, and both texts where they begin to differ."""
    before, now = recorded["messages"], asked["messages"]
    for i in range(max(len(before), len(now))):
        if i >= len(now):
            return f"lacks message {i} ({before[i]['role']}): {_one(before[i])}"
        if i >= len(before):
            return f"has a further message {i} ({now[i]['role']}): {_one(now[i])}"
        if why := difference(before[i], now[i]):
            return f"differs at message {i} ({now[i]['role']}): {why}"
    was, is_ = ({k: v for k, v in one.items() if k != "messages"} for one in (recorded, asked))
    return f"differs at {difference(was, is_) or 'its spelling'}"


def _one(message: Json) -> str:
    return short(str(message["text"]) or str(message.get("calls", "")), WIDTH)


def _tools_differ(asking: Asking) -> str:
    """What differs in the tools that are offered, in the calls of them, or in which of these are answered."""
    if why := difference(dict(_offered(asking.recorded["tools"])), dict(_offered(asking.asked["tools"]))):
        return f"request {asking.number} offers other tools: {why}"
    events = [list(_events(asks["messages"])) for asks in (asking.recorded, asking.asked)]
    for i in range(max(map(len, events))):
        was, now = (one[i] if i < len(one) else "nothing more" for one in events)
        if was != now:
            return f"at request {asking.number} the tools were used differently: {now}, where the record has: {was}"
    return ""


def _offered(tools: Any) -> Iterator[tuple[str, object]]:
    """Tools by name with their parameters; their descriptions are part of the prompt."""
    for tool in tools:
        if isinstance(tool, (list, tuple)):
            yield str(tool[0]), _undescribed(tool[2])
        else:
            inner = tool.get("function", tool)
            yield (
                str(inner.get("name", inner.get("type"))),
                _undescribed(inner.get("parameters", inner.get("input_schema"))),
            )


def _undescribed(schema: Any) -> object:
    if isinstance(schema, Mapping):
        return {k: _undescribed(v) for k, v in schema.items() if k != "description" or not isinstance(v, str)}
    return [_undescribed(v) for v in schema] if isinstance(schema, (list, tuple)) else schema


def _events(messages: Any) -> Iterator[str]:
    """The calls of tools in a conversation and their answers, in order, without what the answers say."""
    names: dict[str, str] = {}
    for message in messages:
        for id_, name, arguments in message.get("calls", ()):
            names[id_] = name
            yield short(f"a call {name}({arguments})", WIDTH)
        if "call_id" in message:
            yield f"the result of {names.get(message['call_id'], 'a call that was never made')}"
