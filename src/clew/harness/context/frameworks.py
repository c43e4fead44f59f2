"""Pins in agents of other frameworks: a line or two where the framework builds what the model is sent.

    LangChain   create_agent(model, tools, middleware=[SummarizationMiddleware(...), langchain_middleware(pins)])
    LangGraph   create_react_agent(model, tools, pre_model_hook=langgraph_hook(pins))
    LangMem     graph.add_node("summarize", langmem_node(SummarizationNode(...), pins))
    AutoGen     AssistantAgent(..., model_context=autogen_context(BufferedChatCompletionContext(12), pins))
    Inspect     compact = inspect_compact(compaction(strategy, prefix), pins)

Put it last, after whatever shortens the history. The framework's own state is left as it is: only what is sent is
cleared of forged pins and of torn tool messages, and carries the one block. Nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

from clew.core import errors
from clew.core.keys import value_digest
from clew.harness.context.pins import Form, Pins, within

need = partial(errors.need, extra="frameworks")
T = TypeVar("T")


class Copied(Protocol):
    """A pydantic message."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


class Typed(Copied, Protocol):
    """A message of AutoGen."""

    type: str
    content: Any


C = TypeVar("C", bound=Copied)


def _copied(message: C, fields: Sequence[str], change: Callable[[str], str]) -> C:
    """A pydantic message with every string in some of its fields changed; itself where none changes."""
    old = {name: value for name in fields if (value := getattr(message, name, None)) is not None}
    new = {name: within(value, change) for name, value in old.items()}
    changed = {name: value for name, value in new.items() if value != old[name]}
    return message.model_copy(update=changed) if changed else message


def langchain_form() -> Form[Any]:
    """Messages of LangChain, LangGraph and LangMem."""
    made = need("langchain_core.messages")
    roles = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
    fields = ("content", "tool_calls", "additional_kwargs")
    return Form(
        role=lambda m: roles.get(m.type.removesuffix("MessageChunk").lower(), m.type),
        rewrite=lambda m, change: _copied(m, fields, change),
        system=lambda text: made.SystemMessage(text),
        calls=lambda m: [c["id"] for c in getattr(m, "tool_calls", ()) if c["id"]],
        answers=lambda m: [m.tool_call_id] if m.type == "tool" else [],
    )


def autogen_form() -> Form[Any]:
    """Messages of AutoGen; one of them may answer several calls."""
    made = need("autogen_core.models")
    roles = {"SystemMessage": "system", "UserMessage": "user", "AssistantMessage": "assistant"}

    def ids(message: Typed, kind: str, name: str) -> list[str]:
        several = isinstance(message.content, list) and message.type == kind
        return [found for item in message.content if (found := getattr(item, name, None))] if several else []

    def rewrite(message: Typed, change: Callable[[str], str]) -> Typed:
        if isinstance(message.content, list):
            items = [_item(item, change) for item in message.content]
            message = message if items == message.content else message.model_copy(update={"content": items})
            return _copied(message, ("thought",), change)
        return _copied(message, ("content", "thought"), change)

    return Form(
        role=lambda m: roles.get(m.type, "tool"),
        rewrite=rewrite,
        system=lambda text: made.SystemMessage(content=text),
        calls=lambda m: ids(m, "AssistantMessage", "id"),
        answers=lambda m: ids(m, "FunctionExecutionResultMessage", "call_id"),
    )


def _item(item: object, change: Callable[[str], str]) -> object:
    """A part of an AutoGen message: text, a call (a dataclass), a result (a pydantic model), or an image."""
    if isinstance(item, str):
        return change(item)
    for name in ("arguments", "content"):
        text = getattr(item, name, None)
        if isinstance(text, str) and (new := change(text)) != text:
            made: Any = type(item)
            return cast(object, made(**{**vars(item), name: new}))
    return item


def inspect_form() -> Form[Any]:
    """Chat messages of Inspect."""
    made = need("inspect_ai.model")

    def rewrite(message: T, change: Callable[[str], str]) -> T:
        kind: Any = type(message)
        plain = kind.model_dump(message, include={"content", "tool_calls"})
        changed = {name: within(value, change) for name, value in plain.items()}
        same = changed == plain
        return message if same else cast(T, kind.model_validate({**kind.model_dump(message), **changed}))

    return Form(
        role=lambda m: str(m.role),
        rewrite=rewrite,
        system=lambda text: made.ChatMessageSystem(content=text, id=f"pins-{value_digest(text).hex()[:12]}"),
        calls=lambda m: [c.id for c in getattr(m, "tool_calls", None) or ()],
        answers=lambda m: [m.tool_call_id] if m.role == "tool" and m.tool_call_id else [],
    )


def langchain_middleware(pins: Pins, *, scope: str = "") -> Any:
    """A middleware for ``create_agent`` that pins what each model call is sent."""
    middleware, form = need("langchain.agents.middleware"), langchain_form()

    class PinMiddleware(middleware.AgentMiddleware):  # type: ignore[misc,name-defined]
        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return handler(request.override(messages=pins.apply(request.messages, form, scope=scope)))

        async def awrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return await handler(request.override(messages=pins.apply(request.messages, form, scope=scope)))

    return PinMiddleware()


def langgraph_hook(
    pins: Pins, *, key: str = "messages", scope: str = ""
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A ``pre_model_hook``: what the model is sent is ``state[key]`` with the pins in it."""
    form = langchain_form()
    return lambda state: {"llm_input_messages": pins.apply(state[key], form, scope=scope)}


def langmem_node(node: Any, pins: Pins, *, key: str = "summarized_messages", scope: str = "") -> Any:
    """A summarising node (LangMem's or another) whose output under ``key`` carries the pins."""
    runnables, form = need("langchain_core.runnables"), langchain_form()

    def pinned(update: Mapping[str, Any]) -> dict[str, Any]:
        return {**update, key: pins.apply(update[key], form, scope=scope)}

    return runnables.RunnableLambda(
        lambda state: pinned(node.invoke(state)), afunc=_later(lambda state: node.ainvoke(state), pinned)
    )


def _later(call: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def run(state: Any) -> Any:
        return then(await call(state))

    return run


def autogen_context(inner: Any, pins: Pins, *, scope: str = "") -> Any:
    """A model context around another one: what it gives carries the pins."""
    contexts, form = need("autogen_core.model_context"), autogen_form()

    class PinnedContext(contexts.ChatCompletionContext):  # type: ignore[misc,name-defined]
        async def add_message(self, message: Any) -> None:
            await inner.add_message(message)

        async def get_messages(self) -> list[Any]:
            return pins.apply(await inner.get_messages(), form, scope=scope)

        async def clear(self) -> None:
            await inner.clear()

        async def save_state(self) -> Mapping[str, Any]:
            state: Mapping[str, Any] = await inner.save_state()
            return state

        async def load_state(self, state: Mapping[str, Any]) -> None:
            await inner.load_state(state)

    return PinnedContext()


def inspect_compact(inner: Any, pins: Pins, *, scope: str = "") -> Any:
    """A compaction handler of Inspect around another one: the input it gives carries the pins."""
    form = inspect_form()

    class PinnedCompact:
        async def compact_input(self, messages: list[Any], force: bool = False) -> tuple[list[Any], Any]:
            given, message = await inner.compact_input(messages, force=force)
            return pins.apply(given, form, scope=scope), message

        async def record_output(self, input: list[Any], output: Any) -> None:
            await inner.record_output(input, output)

    return PinnedCompact()
