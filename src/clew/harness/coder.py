"""coder: a bundled agent that works in a folder by a shell alone, as a baseline for agents that write code.

``clew run coder --world workspace --task '...'`` runs it. It is one linear conversation: the task, commands, what they
printed. Nothing is summarised, retried or hidden, so that each step of its run can be forked. It must never perform
anything itself: commands go to the world, which runs them in the sandbox.
"""

from __future__ import annotations

import re

from clew.core.errors import BadInput
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
BLOCK = re.compile(r"```(?:bash|sh)[ \t]*\n(.*?)\n?```", re.DOTALL)
LOST = "No command was found, and nothing was said. Run a command, or say in one sentence what you changed."


async def coder(run: LiveRun, system: str = SYSTEM, max_turns: int = 50, by_text: bool = False) -> str:
    """Works in a workspace by the tool ``bash`` until the model replies without a command; that reply is given back.

    Args:
        system: first message.
        max_turns: replies after which it gives up.
        by_text: the model is shown no tool and writes its command in a fenced block, for models that call no tools.

    Raises:
        BadInput: the world offers no tool ``bash``.
    """
    shell = [tool for tool in run.tools if tool.name == "bash"]
    if not shell:
        raise BadInput("the agent coder found no tool bash", remedy="Give it a workspace: --world workspace.")
    chat = run.chat(system + BY_TEXT * by_text, tools=() if by_text else shell)
    chat.say("user", run.task.prompt or run.view.text)
    for _ in range(max_turns):
        reply = await chat.ask()
        # Of a reply in words the first command counts: what follows was written before its result was known.
        calls = BLOCK.findall(reply.text)[:1] if by_text else reply.calls
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
