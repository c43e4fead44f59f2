"""Agent stacks whose compaction is audited, each as installed: messages go in, the model's next request comes out.

The structural audit calls it. A stack is opened with a budget of tokens and a summariser. It is fed messages as an
agent's loop would feed it, and after each feed gives the messages of its next request. The frameworks run unmodified:
only their model is ours, which answers every request for a summary with ``summary(text of the request)``. Tokens are
estimated as the framework estimates them. No stack may ever reach the network.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from clew.core.values import Message
from clew.harness.context import frameworks
from clew.harness.context.compaction import STRATEGIES, compacted, size
from clew.harness.context.pins import MESSAGES, Form, Pins

Summary = Callable[[str], str]


class Session(Protocol):
    """One conversation in a stack. ``form`` reads what ``feed`` gives."""

    form: Form[Any]

    def feed(self, messages: Sequence[Message]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Stack:
    """A way to compact. package: the distribution it comes in, whose version is reported. settings: what of it is not
    the framework's default. saves: the stack without that line, where this setting is meant to mend it."""

    name: str
    package: str
    open: Callable[[int, Summary, Pins | None], Session]
    settings: str = ""
    saves: str = ""

    @property
    def version(self) -> str:
        """The installed version; empty where the package is not installed, or the stack is a user's own."""
        try:
            return importlib.metadata.version(self.package) if self.package else ""
        except importlib.metadata.PackageNotFoundError:
            return ""


# ---- Clew ------------------------------------------------------------------------------------------------------------


class Own:
    """Clew's compaction, where the history has outgrown its budget."""

    form = MESSAGES

    def __init__(self, how: str, budget: int, summary: Summary, pins: Pins | None) -> None:
        self.how, self.budget, self.pins, self.held = how, budget, pins, list[Message]()
        self.summary = summary

    async def _summarise(self, messages: Sequence[Message], words: int) -> str:
        return self.summary("\n".join(m.text for m in messages))

    def feed(self, messages: Sequence[Message]) -> list[Message]:
        self.held += messages
        if size(self.held) > self.budget:
            self.held = asyncio.run(compacted(self.held, self.how, self.budget, self._summarise, self.pins))[0]
        return self.held if self.pins is None else self.pins.apply(self.held)


# ---- LangChain, LangGraph, LangMem -----------------------------------------------------------------------------------


def to_langchain(messages: Sequence[Message], first: int) -> list[Any]:
    """Messages of LangChain with ids m<first>, ..."""
    made = frameworks.need("langchain_core.messages")
    out = []
    for i, m in enumerate(messages, first):
        more: dict[str, Any] = {"id": f"m{i}"}
        if m.role == "assistant":
            more["tool_calls"] = [{"name": c.name, "args": json.loads(c.arguments), "id": c.id} for c in m.calls]
        if m.role == "tool":
            more["tool_call_id"] = m.call_id
        kind = {"user": "Human", "assistant": "AI", "tool": "Tool", "system": "System"}[m.role]
        out.append(getattr(made, f"{kind}Message")(content=m.text, **more))
    return out


def chat_model(summary: Summary) -> Any:
    """A chat model of LangChain that answers with ``summary`` of everything it is sent."""
    models, messages = frameworks.need("langchain_core.language_models"), frameworks.need("langchain_core.messages")
    outputs = frameworks.need("langchain_core.outputs")

    class Summariser(models.BaseChatModel):  # type: ignore[misc,name-defined]
        @property
        def _llm_type(self) -> str:
            return "summariser"

        def _generate(self, asked: list[Any], stop: object = None, run_manager: object = None, **more: Any) -> object:
            said = summary("\n".join(str(m.content) for m in asked))
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=messages.AIMessage(said))])

    return Summariser()


class LangMem:
    """LangMem's SummarizationNode before every model call; the running summary is its state."""

    def __init__(self, budget: int, summary: Summary, pins: Pins | None, **settings: Any) -> None:
        node = frameworks.need("langmem.short_term").SummarizationNode(
            model=chat_model(summary), max_tokens=budget, **settings
        )
        self.node = node if pins is None else frameworks.langmem_node(node, pins)
        self.form, self.state = frameworks.langchain_form(), dict[str, Any](messages=[], context={})

    def feed(self, messages: Sequence[Message]) -> list[Any]:
        self.state["messages"] += to_langchain(messages, len(self.state["messages"]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # its trim found nothing and it goes on with everything
            update = self.node.invoke(self.state)
        self.state["context"] = update.get("context", self.state["context"])
        return list(update["summarized_messages"])


class LangChain:
    """LangChain's SummarizationMiddleware, whose state keeps only what it left."""

    def __init__(self, budget: int, summary: Summary, pins: Pins | None, **settings: Any) -> None:
        self.middleware = frameworks.need("langchain.agents.middleware")
        self.model, self.form = chat_model(summary), frameworks.langchain_form()
        self.summariser = self.middleware.SummarizationMiddleware(self.model, trigger=("tokens", budget), **settings)
        self.pinned = None if pins is None else frameworks.langchain_middleware(pins)
        self.held, self.count = list[Any](), 0

    def feed(self, messages: Sequence[Message]) -> list[Any]:
        self.held += to_langchain(messages, self.count)
        self.count += len(messages)
        update = self.summariser.before_model({"messages": self.held}, None)
        if update is not None:
            self.held = update["messages"][1:]  # the first removes everything
        if self.pinned is None:
            return list(self.held)
        request = self.middleware.ModelRequest(model=self.model, messages=self.held, state={}, runtime=None)
        sent: list[Any] = self.pinned.wrap_model_call(request, lambda asked: asked.messages)
        return sent


class LangGraph:
    """The summary node of LangGraph's guide: past the budget all but the last messages become a summary, which is put
    before the rest as a system message."""

    KEEP = 2

    def __init__(self, budget: int, summary: Summary, pins: Pins | None) -> None:
        graph, messages = frameworks.need("langgraph.graph"), frameworks.need("langchain_core.messages")
        count = frameworks.need("langchain_core.messages.utils").count_tokens_approximately
        model, self.made = chat_model(summary), messages

        class State(graph.MessagesState):  # type: ignore[misc,name-defined]
            summary: str

        def summarise(state: Any) -> dict[str, Any]:
            every = state["messages"]
            if count(every) <= budget:
                return {}
            old = state.get("summary", "")
            asked = f"Extend this summary: {old}" if old else "Create a summary of the conversation above."
            said = model.invoke([*every, messages.HumanMessage(asked)]).content
            return {"summary": said, "messages": [messages.RemoveMessage(id=m.id) for m in every[: -self.KEEP]]}

        made = graph.StateGraph(State)
        made.add_node("summarise", summarise)
        made.add_edge(graph.START, "summarise")
        made.add_edge("summarise", graph.END)
        self.graph, self.form, self.pins = made.compile(), frameworks.langchain_form(), pins
        self.state, self.count = dict[str, Any](messages=[], summary=""), 0

    def feed(self, messages: Sequence[Message]) -> list[Any]:
        added = to_langchain(messages, self.count)
        self.count += len(messages)
        self.state = self.graph.invoke({**self.state, "messages": [*self.state["messages"], *added]})
        told = self.state.get("summary")
        head = [self.made.SystemMessage(f"Summary of conversation earlier: {told}")] if told else []
        sent = [*head, *self.state["messages"]]
        hook = None if self.pins is None else frameworks.langgraph_hook(self.pins)
        return sent if hook is None else list(hook({"messages": sent})["llm_input_messages"])


# ---- AutoGen ---------------------------------------------------------------------------------------------------------


def to_autogen(messages: Sequence[Message]) -> list[Any]:
    """Messages of AutoGen; tool results that follow one another are one message, as its agents make them."""
    made, core = frameworks.need("autogen_core.models"), frameworks.need("autogen_core")
    out: list[Any] = []
    for m in messages:
        if m.role == "system":
            out.append(made.SystemMessage(content=m.text))
        elif m.role == "user":
            out.append(made.UserMessage(content=m.text, source="user"))
        elif m.role == "assistant":
            calls = [core.FunctionCall(id=c.id, name=c.name, arguments=c.arguments) for c in m.calls]
            out.append(made.AssistantMessage(content=calls or m.text, source="agent"))
        else:
            result = made.FunctionExecutionResult(content=m.text, name="tool", call_id=m.call_id, is_error=False)
            if out and out[-1].type == "FunctionExecutionResultMessage":
                out[-1].content.append(result)
            else:
                out.append(made.FunctionExecutionResultMessage(content=[result]))
    return out


class AutoGen:
    """A model context of AutoGen; leading system messages are the agent's own and stand before it."""

    def __init__(self, kind: str, budget: int, pins: Pins | None, **settings: Any) -> None:
        contexts = frameworks.need("autogen_core.model_context")
        if kind == "TokenLimited":
            settings = {"model_client": _counter(), "token_limit": budget}
        inner = getattr(contexts, f"{kind}ChatCompletionContext")(**settings)
        self.context = inner if pins is None else frameworks.autogen_context(inner, pins)
        self.form, self.head, self.started = frameworks.autogen_form(), list[Any](), False

    def feed(self, messages: Sequence[Message]) -> list[Any]:
        async def fed() -> list[Any]:
            for message in to_autogen(messages):
                if not self.started and message.type == "SystemMessage":
                    self.head.append(message)
                    continue
                self.started = True
                await self.context.add_message(message)
            return [*self.head, *await self.context.get_messages()]

        return asyncio.run(fed())


def _counter() -> object:
    """AutoGen's replay client, counting tokens as a quarter of the characters: its own counts words."""
    client = frameworks.need("autogen_ext.models.replay").ReplayChatCompletionClient

    class Counter(client):  # type: ignore[misc,valid-type]
        def count_tokens(self, messages: Sequence[Any], *, tools: object = ()) -> int:
            return sum(len(str(m.content)) for m in messages) // 4

    return Counter([""])


# ---- Inspect ---------------------------------------------------------------------------------------------------------


def to_inspect(messages: Sequence[Message]) -> list[Any]:
    made, tools = frameworks.need("inspect_ai.model"), frameworks.need("inspect_ai.tool")
    out: list[Any] = []
    for m in messages:
        if m.role == "tool":
            out.append(made.ChatMessageTool(content=m.text, tool_call_id=m.call_id, function="tool"))
        elif m.role == "assistant":
            calls = [tools.ToolCall(id=c.id, function=c.name, arguments=json.loads(c.arguments)) for c in m.calls]
            out.append(made.ChatMessageAssistant(content=m.text, tool_calls=calls or None))
        else:
            out.append((made.ChatMessageSystem if m.role == "system" else made.ChatMessageUser)(content=m.text))
    return out


@lru_cache(maxsize=1)
def _inspect_api() -> str:
    """Register a model provider of Inspect that answers with the function ``summary``; give its name."""
    made = frameworks.need("inspect_ai.model")

    class Api(made.ModelAPI):  # type: ignore[misc,name-defined]
        def __init__(self, model_name: str, summary: Summary, **more: Any) -> None:
            super().__init__(model_name, config=more.get("config", made.GenerateConfig()))
            self.summary = summary

        async def generate(self, input: list[Any], tools: object, tool_choice: object, config: object) -> object:
            return made.ModelOutput.from_content("summariser", self.summary("\n".join(m.text for m in input)))

        async def count_text_tokens(self, text: str) -> int:
            return len(text) // 4  # its own tokenizer comes over the network

    made.modelapi(name="clew-summariser")(Api)
    return "clew-summariser/summary"


class Inspect:
    """A compaction strategy of Inspect, in the handler that its agents use."""

    def __init__(self, kind: str, budget: int, summary: Summary, pins: Pins | None) -> None:
        made = frameworks.need("inspect_ai.model")
        model = made.get_model(_inspect_api(), memoize=False, summary=summary)
        inner = made.compaction(getattr(made, f"Compaction{kind}")(threshold=budget), prefix=[], model=model)
        self.compact = inner if pins is None else frameworks.inspect_compact(inner, pins)
        self.form, self.held = frameworks.inspect_form(), list[Any]()

    def feed(self, messages: Sequence[Message]) -> list[Any]:
        self.held += to_inspect(messages)
        given, said = asyncio.run(self.compact.compact_input(self.held))
        if said is not None:
            self.held.append(said)
        return list(given)


def _own(how: str) -> Callable[[int, Summary, Pins | None], Session]:
    return lambda budget, summary, pins: Own(how, budget, summary, pins)


def _autogen(kind: str, **settings: Any) -> Callable[[int, Summary, Pins | None], Session]:
    return lambda budget, summary, pins: AutoGen(kind, budget, pins, **settings)


def _inspect(kind: str) -> Callable[[int, Summary, Pins | None], Session]:
    return lambda budget, summary, pins: Inspect(kind, budget, summary, pins)


def _langmem_half(budget: int, summary: Summary, pins: Pins | None) -> LangMem:
    return LangMem(budget, summary, pins, max_tokens_before_summary=budget // 2)


def _untrimmed(budget: int, summary: Summary, pins: Pins | None) -> LangChain:
    return LangChain(budget, summary, pins, trim_tokens_to_summarize=None)


ENDS = {"head_size": 1, "tail_size": 11}
ENDS_TOLD = "HeadAndTailChatCompletionContext(head_size=1, tail_size=11)"
STACKS: dict[str, Stack] = {
    stack.name: stack
    for stack in (
        *(Stack(f"clew-{how}", "clew", _own(how)) for how in STRATEGIES),
        Stack("langmem", "langmem", LangMem),
        Stack("langmem-half", "langmem", _langmem_half, "max_tokens_before_summary=max_tokens // 2", "langmem"),
        Stack("langchain", "langchain", LangChain),
        Stack("langchain-untrimmed", "langchain", _untrimmed, "trim_tokens_to_summarize=None", "langchain"),
        Stack("langgraph-node", "langgraph", LangGraph),
        Stack("autogen-buffered", "autogen-core", _autogen("Buffered", buffer_size=12), "buffer_size=12"),
        Stack("autogen-head-and-tail", "autogen-core", _autogen("HeadAndTail", **ENDS), ENDS_TOLD, "autogen-buffered"),
        Stack("autogen-token-limited", "autogen-core", _autogen("TokenLimited")),
        Stack("inspect-edit", "inspect-ai", _inspect("Edit")),
        Stack("inspect-trim", "inspect-ai", _inspect("Trim")),
        Stack("inspect-summary", "inspect-ai", _inspect("Summary")),
    )
}
