"""The ways through Clew, file by file, as a small program really takes them.

python tools/architecture.py            # prints the tables
python tools/architecture.py --write    # into docs/architecture.md, which a test compares with the code

Two programs run under Python's profiler: one collects runs of a tiny model, gives them credit and trains a step; one
sends a chat completion to the server. Each row is a file of ``src/clew`` in the order of its first call: the function
that was called first, and the file that called it. A new file on the way, or one that is no longer met, changes a row.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "clew"
PAGE = ROOT / "docs" / "architecture.md"
Step = tuple[str, str, str]  # file, function, calling file


@contextmanager
def followed(steps: list[Step]) -> Iterator[None]:
    """Collect each file's first call, in every thread that is started inside."""
    seen: set[str] = set()
    start = f"{SOURCE}/"

    def place(frame: FrameType | None) -> str:
        while frame is not None and not frame.f_code.co_filename.startswith(start):
            frame = frame.f_back
        return frame.f_code.co_filename[len(start) :] if frame is not None else ""

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(start) or code.co_name.startswith("<"):
            return
        file = code.co_filename[len(start) :]
        if file not in seen and not file.endswith("__init__.py") and _real(frame):
            seen.add(file)
            steps.append((file, code.co_qualname, place(frame.f_back)))

    def _real(frame: FrameType) -> bool:
        """Not the making of a class, nor what runs while a module is imported."""
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(start):
                return False
            above = above.f_back
        return frame.f_code.co_flags & 2 != 0  # CO_NEWLOCALS: a function

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def training(steps: list[Step]) -> None:
    """From tasks to a weight update."""
    import clew
    import clew.credit
    from clew.models.local import small
    from clew.worlds.household import Household

    class Lenient(Household):
        """Household whose verdicts differ, whatever an untrained model does: without that nothing is learnt."""

        async def judge(self, task: object, run: clew.Run, world: object) -> dict[str, float]:
            return {"reward": float(run.row.order[-1] % 2)}

    house = Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    with tempfile.TemporaryDirectory() as folder, followed(steps):
        model = small(house.vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256, ref="tiny")
        runner = clew.Runner("player", house, model, store=f"{folder}/runs.db", sampling={"max_tokens": 4})
        trainer = clew.Trainer(model)
        groups = runner.collect(house.sample(2), n=2)
        clew.credit.grpo(groups)
        trainer.step(clew.rows(groups, "grpo"))
        model.close()


def request(steps: list[Step]) -> None:
    """A chat completion of the server."""
    import asyncio

    import httpx

    import clew
    from clew.models.local import small
    from clew.serve.openai.server import Server

    async def ask(server: Server) -> int:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "kitchen"}], "max_tokens": 4}
        transport = httpx.ASGITransport(server.application())
        async with server.running(), httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return (await client.post("/v1/chat/completions", json=body)).status_code

    house = clew.taskset("household")
    with followed(steps):
        model = small(house.vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256, ref="tiny")
        assert asyncio.run(ask(Server(model, names=("tiny",)))) == 200
        model.close()


def says(file: str) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse((SOURCE / file).read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text)[0].rstrip(".").replace("|", "\\|")


def table(program: Callable[[list[Step]], None]) -> str:
    steps: list[Step] = []
    program(steps)
    rows = [
        f"| {k} | `{file}` | `{name}` | {f'`{caller}`' if caller else 'you'} | {says(file)} |"
        for k, (file, name, caller) in enumerate((s for s in steps if not s[0].startswith("core/")), 1)
    ]
    return "\n".join(["| | file | first called by | from | what it is |", "|---|---|---|---|---|", *rows])


def main() -> None:
    text = PAGE.read_text() if PAGE.exists() else ""
    for program in (training, request):
        found = table(program)
        begin, end = f"<!-- {program.__name__} -->\n", f"\n<!-- /{program.__name__} -->"
        if begin in text:
            text = text[: text.index(begin) + len(begin)] + found + text[text.index(end) :]
        if "--write" not in sys.argv:
            sys.stdout.write(found + "\n\n")
    if "--write" in sys.argv:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
