"""Runs as agents with tools make them: long, with logs, images, Markdown and hostile text; and two sides to compare."""

from __future__ import annotations

import base64
import json
import struct
import zlib

from clew.core.records import Annotation, Call
from clew.core.values import Message, ToolCall, Usage
from clew.store import Keeper
from clew.store.contract.script import SETUP, Script, make_node

LOG = "\n".join(f"line {number}: ok" for number in range(900))
CODE = "def area(r):\n    return 3.14159 * r ** 2\n\n\n# <script>window.hit = 1</script>\nprint(area(2))"
SAYS = "## Plan\n\n1. **Run** the tests\n2. Fix `area`\n\nSee ![chart](https://example.invalid/pixel.png)."
HOSTILE = {
    "script": '<script>window.hit = 2</script><img src="https://example.invalid/x.png" onerror="window.hit = 3">',
    "attribute": f'<a href="javascript:window.hit=4" title="{"A" * 15_000}">x</a>',
    "bidi": "price \u202e00001$ \u2066evil\u2069 \u200b\u0007\x1b[31mred",
    "nested": "<div>" * 3_000 + "deep",
    "brackets": "[" * 15_000,
}
FAILS = "error: FileNotFoundError: no such file 'tests/test_area.py'"


def png(width: int, height: int, colour: tuple[int, int, int] = (40, 120, 200)) -> bytes:
    """A picture of one colour with a stripe."""
    pale = (240, 240, 240)
    rows = b"".join(
        b"\0" + b"".join(bytes(colour if (x // 12 + y // 12) % 2 else pale) for x in range(width))
        for y in range(height)
    )

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def image(body: bytes, kind: str = "image/png") -> dict[str, object]:
    """A part of a message as chat completions write it."""
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(body).decode()}"}}


REMOTE = {"type": "image_url", "image_url": {"url": "https://example.invalid/photo.png"}}
VECTOR = image(b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=5'/>", "image/svg+xml")
LIAR = image(b"<html><script>window.hit=6</script></html>", "image/png")


class Agent(Script):
    """Writes a run of an agent with tools: replies, tool calls and their results, as a Runner records them."""

    def say(
        self, role: str, text: str, call_id: str | None = None, content: list[object] | None = None, extra: str = ""
    ) -> None:
        """A message before the next reply; ``content`` is what the wire said beside its text."""
        if content:
            extra = json.dumps({"chat": {"content": content}}, sort_keys=True, separators=(",", ":"))
        self.tip = make_node(self.tip, role, text, call_id=call_id, extra=extra)
        self.store.put_nodes([self.tip])

    def reply(self, text: str, *calls: ToolCall, seconds: float = 1.5, cost: float = 0.002, **more: object) -> Call:
        asked = self.tip
        assert asked is not None
        message = Message("assistant", text, calls=calls)
        answer = make_node(asked, "assistant", text, calls=message.calls)
        self.store.put_nodes([answer])
        self.tip = answer
        took = {"usage": Usage(1200, 40), "cost": cost, "started": 1e9 + 3.0 * self.seq, "seconds": seconds}
        place = {"conversation": 0, "node_in": asked.key, "node_out": answer.key, "setup": SETUP}
        return self.put("ask", finish="tool_calls" if calls else "stop", **place, **took, **more)

    def use(self, *pairs: tuple[ToolCall, str], seconds: float = 0.2, content: list[object] | None = None) -> None:
        """The results of some tool calls, and their messages."""
        for call, result in pairs:
            action = json.dumps([call.id, call.name, call.arguments])
            self.act(action, result, finish="tool", started=1e9 + 3.0 * self.seq, seconds=seconds)
        for call, result in pairs:
            self.say("tool", result, call.id, content)

    def step(self, text: str, name: str, arguments: object, result: str, **more: object) -> None:
        given = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = ToolCall(f"c{self.seq}", name, given)
        self.reply(text, call)
        self.use((call, result), **more)  # type: ignore[arg-type]


def long_run(store: Keeper, name: str = "longagent") -> Agent:
    """A run of 200 steps and more."""
    run = Agent(store, name, task="fix-area", created=2e9, agent="clew.harness.agents:tool_user", taskset="")
    run.put("open", text="")
    run.say("system", "You fix programs. Use the tools; say what you do in **Markdown**.")
    run.say(
        "user", "Fix the area of a circle, and show me the plot.", content=[image(png(240, 120)), REMOTE, VECTOR, LIAR]
    )
    run.step(
        SAYS, "bash", {"command": "pytest -q", "timeout": 600, "env": {"CI": "1", "SEED": 12345678901234567890}}, LOG
    )
    run.step("", "write_file", {"path": "area.py", "content": CODE, "mode": "0644"}, '{"ok": true, "bytes": 96}')
    three = [
        ToolCall(f"p{i}", "weather", json.dumps({"city": city})) for i, city in enumerate(("Oslo", "Rome", "Lima"))
    ]
    run.reply("Three at once.", *three)
    run.use((three[0], "rain"), (three[1], "error: TimeoutError: no answer in 5 s"), (three[2], LOG))
    run.step("And a picture.", "plot", {"of": "area"}, "plotted", content=[image(png(480, 260, (200, 90, 40)))])
    run.step("", "read_file", {"path": "tests/test_area.py"}, FAILS)
    for kind, text in HOSTILE.items():
        run.step(text, f"tool <b>{kind}</b> \u202e", {kind: text}, text)
    run.step("", "bash", "{not json: at all", "ran")
    number = 0
    while run.seq < 420:
        number += 1
        name = ("bash", "read_file", "search")[number % 3]
        text = f"Step **{number}**." if number % 4 else ""
        result = LOG if number % 20 == 0 else FAILS if number % 33 == 0 else f"found {number}\nand more"
        run.step(text, name, {"path": f"src/part{number}.py", "line": number}, result, seconds=0.05 * (number % 9))
    run.reply("Done: the area is `pi * r ** 2`.")
    run.end()
    store.annotate([Annotation("run", "reward", 1.0, run.run)])
    store.commit()
    return run


def side(store: Keeper, label: str, tasks: int, each: int, *, good: float, prompt: str, model: str) -> None:
    """Runs of one checkpoint: ``each`` on each of some tasks, the share ``good`` of which succeeds, task by task."""
    for task in range(tasks):
        for nth in range(each):
            name = f"{label}{task:03}x{nth}"
            run = Agent(
                store,
                name,
                task=f"task-{task:03}",
                model=model,
                created=1.9e9 + task,
                agent="clew.harness.agents:tool_user",
            )
            run.put("open", text="")
            run.say("system", prompt)
            run.say("user", f"Do task {task}.")
            run.reply(f"Answer {task}", cost=0.001 * (1 + len(label)))
            crashed = (task * 7 + nth) % 41 == 0
            run.end("agent_error" if crashed else "returned")
            won = ((task * 37 + nth * 11) % 100) / 100 < good
            store.annotate([Annotation("run", "reward", float(won and not crashed), name)])
    store.commit()
