"""coder: a bundled agent that works in a folder by a shell alone, as a baseline for agents that write code.

``clew run coder --world workspace --task '...'`` runs it; tools that the line gives besides (``--tools``) are offered
beside the shell. It is one linear conversation: the task, commands, what they printed. Nothing is summarised, retried
or hidden, so that each step of its run can be forked. It must never perform anything itself: commands go to the world,
which runs them in the sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from clew.core.errors import BadInput
from clew.core.values import ToolCall, ToolSpec
from clew.harness.run.live import LiveRun

SYSTEM = """You are an engineer who works in the folder of a software project by running commands in a shell.

Each command begins in that folder in a fresh shell, without network. First look: list files, read the code and the
tests that matter, and reproduce the problem. Then change as little as solves it, with programs that need no keyboard
(sed, python3 - <<'EOF', cat > FILE <<'EOF'). Run the tests again before you finish. Do not change tests unless the task
asks for it. When the task is done, reply without a command and say in one sentence what you changed."""
BY_TEXT = """

Write one command in each reply, as

```bash
COMMAND
```"""
OR_CALL = """

Or call a tool in its place, by its name and its arguments as JSON:

```NAME
{"ARGUMENT": "VALUE"}
```

The tools:"""
LOST = "No command was found, and nothing was said. Run a command, or say in one sentence what you changed."


async def coder(run: LiveRun, system: str = SYSTEM, max_turns: int = 50, by_text: bool = False) -> str:
    """Works in a workspace by the tool ``bash`` until the model replies without a command; that reply is given back.

    Args:
        system: first message.
        max_turns: replies after which it gives up.
        by_text: the model is shown no tool and writes its command in a fenced block, or the arguments of a tool in one
            with the tool's name, for models that call no tools.

    Raises:
        BadInput: the world offers no tool ``bash``.
    """
    shell = [tool for tool in run.tools if tool.name == "bash"]
    if not shell:
        raise BadInput("the agent coder found no tool bash", remedy="Give it a workspace: --world workspace.")
    beside = run.tools_beside
    system += BY_TEXT + listed(beside) if by_text else ""
    chat = run.chat(system, tools=() if by_text else [*shell, *beside])
    chat.say("user", run.task.prompt or run.view.text)
    for _ in range(max_turns):
        reply = await chat.ask()
        calls = written(reply.text, beside) if by_text else reply.calls
        if not calls:
            if reply.text.strip():
                run.note("answer", text=reply.text)
                return reply.text
            chat.say("user", LOST)
            continue
        if by_text:
            seen = await run.act(calls[0])
            chat.say("user", seen.text)
        else:
            for observation in await run.act(reply):
                chat.say("tool", observation)
        if run.done:
            break
    return ""


def listed(tools: Sequence[ToolSpec]) -> str:
    """The tools beside the shell, for a model that is shown none."""
    told = [f"- {tool.name}: {tool.description} Arguments: {json.dumps(dict(tool.schema))}" for tool in tools]
    return "\n".join([OR_CALL, *told]) if told else ""


def written(text: str, tools: Sequence[ToolSpec]) -> list[str | ToolCall]:
    """The first command or tool call in a reply, if any: what follows was written before its result was known."""
    known = {tool.name: tool for tool in tools}
    names = "|".join(map(re.escape, ("bash", "sh", *known)))
    found = re.search(rf"```({names})[ \t]*\n(.*?)\n?```", text, re.DOTALL)
    if found is None:
        return []
    tool = known.get(found[1])
    return [found[2] if tool is None else ToolCall("by_text", tool.name, arguments(found[2], tool))]


def arguments(text: str, tool: ToolSpec) -> str:
    """A tool's arguments as JSON; a text that is none is the value of the one argument that the tool must have."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    needed = list(tool.schema.get("required", ()))
    return json.dumps({needed[0]: text}) if len(needed) == 1 else text
