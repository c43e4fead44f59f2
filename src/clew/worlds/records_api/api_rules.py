"""The rules of the records world: a small web service that keeps items, asked by HTTP lines or by tools.

The world calls ``Service.answer``, and the taskset ``read`` to tell what an action asks for. Items have ids that the
service gives out; a list comes in pages; create and update answer with the whole item. Nothing here may raise, whatever
an agent sends, nor know what a task asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.values import ToolCall, ToolSpec
from clew.worlds.schemas import check_arguments, read_arguments, tool_spec
from clew.worlds.seeds import Dice

NAMES = (
    "lamp",
    "chair",
    "rope",
    "kettle",
    "rug",
    "mug",
    "shelf",
    "clock",
    "vase",
    "stool",
    "tray",
    "bell",
    "jar",
    "fan",
)
COLOURS = ("red", "blue", "green", "black", "white")
MOST, PAGE, BODY = 40, 5, 400  # items that the service keeps; of one page; characters of a request
PHRASES = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"} | {
    409: "Conflict",
    422: "Unprocessable Entity",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}
_FIELDS: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "minLength": 1, "maxLength": 20},
    "colour": {"enum": list(COLOURS)},
    "count": {"type": "integer", "minimum": 0, "maximum": 999},
}


def _schema(required: tuple[str, ...], **more: Mapping[str, Any]) -> dict[str, Any]:
    properties = {**more, **_FIELDS}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


CREATE, UPDATE = _schema(tuple(_FIELDS)), _schema(()) | {"minProperties": 1}
TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "list_items",
        f"One page of the items, {PAGE} a page, in the order of their creation; the first page is 1.",
        {"type": "object", "properties": {"page": {"type": "integer"}}, "additionalProperties": False},
    ),
    tool_spec("get_item", "One item.", id="string"),
    ToolSpec("create_item", "Make an item; the service gives it an id and answers with it.", CREATE),
    ToolSpec(
        "update_item",
        "Change fields of an item; the service answers with the whole item.",
        _schema(("id",), id={"type": "string"}),
    ),
    tool_spec("delete_item", "Delete an item.", id="string"),
    tool_spec("done", "End the task."),
)
VERBS = {"get_item": "GET", "create_item": "POST", "update_item": "PATCH", "delete_item": "DELETE"}
USAGE = "GET /items?page=1, GET /items/ID, POST /items JSON, PATCH /items/ID JSON, DELETE /items/ID, or done"


class Request(NamedTuple):
    """One request. ``body``: text as it was sent, or the fields of a tool call."""

    method: str
    path: str
    body: str | Mapping[str, Any] = ""


class Answer(NamedTuple):
    """A status and a JSON body, as text in ``str``."""

    status: int
    body: Mapping[str, Any]

    def __str__(self) -> str:
        return f"HTTP {self.status} {PHRASES[self.status]}\n{json.dumps(self.body)}"


def failed(status: int, message: str) -> Answer:
    return Answer(status, {"error": {"status": status, "message": message}})


def read(action: str | ToolCall) -> Request | Answer:
    """What an action asks of the service; an Answer that refuses it where it is no request."""
    if isinstance(action, ToolCall):
        return _called(action)
    words = action[:BODY].split(None, 2)
    if words[:1] == ["done"]:
        return Request("DONE", "")
    if len(words) < 2 or not words[1].startswith("/"):
        return failed(400, f"not a request; send {USAGE}")
    return Request(words[0], words[1], words[2] if len(words) > 2 else "")


def _called(call: ToolCall) -> Request | Answer:
    spec = next((tool for tool in TOOLS if tool.name == call.name), None)
    if spec is None:
        return failed(404, f"there is no tool {call.name[:40]!r}; the tools are {', '.join(t.name for t in TOOLS)}")
    if len(call.arguments) > BODY:
        return failed(400, f"a request has at most {BODY} characters")
    try:
        given = read_arguments(spec, call.arguments)
    except BadInput as error:
        return failed(400 if "not JSON" in error.message else 422, error.message)
    if call.name == "done":
        return Request("DONE", "")
    if call.name == "list_items":
        return Request("GET", f"/items?page={given.get('page', 1)}")
    at = f"/items/{given.pop('id')}" if "id" in given else "/items"
    return Request(VERBS[call.name], at, given)


class Service:
    """The items, id -> fields, in the order of their creation, and how many ids were given out."""

    def __init__(self, number: int, items: dict[str, dict[str, Any]], given: int) -> None:
        self.number, self.items, self.given = number, items, given

    def answer(self, asked: Request) -> Answer:
        """Do what is asked, and say so."""
        place, _, query = asked.path.partition("?")
        if place == "/items":
            if asked.method == "GET":
                return self._page(query)
            return self._create(asked.body) if asked.method == "POST" else _refused(asked.method, "GET, POST")
        match = re.fullmatch(r"/items/([A-Za-z0-9_-]{1,20})", place)
        if not match:
            return failed(404, f"no route {place[:40]}")
        if match[1] not in self.items:
            return failed(404, f"no item {match[1]}")
        if asked.method == "GET":
            return Answer(200, self._shown(match[1]))
        if asked.method == "DELETE":
            del self.items[match[1]]
            return Answer(200, {"deleted": match[1]})
        return (
            self._update(match[1], asked.body)
            if asked.method == "PATCH"
            else _refused(asked.method, "GET, PATCH, DELETE")
        )

    def _shown(self, name: str) -> dict[str, Any]:
        return {"id": name, **self.items[name]}

    def _page(self, query: str) -> Answer:
        match = re.fullmatch(r"(?:page=([0-9]{1,6}))?", query)
        if not match or match[1] == "0":
            return failed(400, "page must be a whole number of at least 1")
        page, ids = int(match[1] or 1), list(self.items)
        last = max(1, -(-len(ids) // PAGE))
        if page > last:
            return failed(404, f"no page {page}; there are {last}")
        shown = [self._shown(one) for one in ids[(page - 1) * PAGE : page * PAGE]]
        return Answer(200, {"items": shown, "page": page, "pages": last, "total": len(ids)})

    def _fields(self, body: str | Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any] | Answer:
        if isinstance(body, str):
            try:
                given = json.loads(body)
            except (ValueError, RecursionError):
                return failed(400, "the body is not JSON")
        else:
            given = dict(body)
        faults = check_arguments(schema, given)
        return failed(422, "; ".join(faults)) if faults else dict(given)

    def _create(self, body: str | Mapping[str, Any]) -> Answer:
        fields = self._fields(body, CREATE)
        if isinstance(fields, Answer):
            return fields
        if self._holder(fields["name"]):
            return failed(409, f"an item is already called {fields['name']}")
        if len(self.items) >= MOST:
            return failed(507, f"at most {MOST} items are kept")
        name = self._fresh()
        self.items[name] = {key: fields[key] for key in _FIELDS}
        return Answer(201, self._shown(name))

    def _update(self, name: str, body: str | Mapping[str, Any]) -> Answer:
        fields = self._fields(body, UPDATE)
        if isinstance(fields, Answer):
            return fields
        if "name" in fields and self._holder(fields["name"]) not in (None, name):
            return failed(409, f"an item is already called {fields['name']}")
        self.items[name] = self.items[name] | fields
        return Answer(200, self._shown(name))

    def _holder(self, called: str) -> str | None:
        return next((one for one, fields in self.items.items() if fields["name"] == called), None)

    def _fresh(self) -> str:
        """A new id, which nobody can foresee who does not know the service."""
        while True:
            found = f"it_{1000 + Dice(self.number, f'records id {self.given}').below(9000)}"
            self.given += 1
            if found not in self.items:
                return found


def _refused(method: str, allowed: str) -> Answer:
    return failed(405, f"method {method[:10]} is not allowed here; allowed: {allowed}")
