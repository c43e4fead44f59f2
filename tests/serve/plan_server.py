"""A process that serves the orchestrator with two scripted workers: python -m tests.serve.plan_server STORE PORT."""

from __future__ import annotations

import sys
from typing import Any

from clew.harness.workflow import Part, written
from clew.models.fakes import Scripted, tool_call
from clew.serve.agent_model import AgentModel
from clew.serve.openai.server import Server
from clew.store import open_store

PLAN = written([Part(0, "the left"), Part(1, "the right"), Part(0, "both", (0, 1))])


def worker(name: str) -> Any:
    """Looks once where its subtask says, and tells what it saw; joins what other parts told."""

    def says(request: Any) -> Any:
        last = request.path[-1].message
        if last.role == "tool":
            return f"{name} saw {last.text}"
        if "Results of other parts" in last.text:
            return "; ".join(sorted(line for line in last.text.splitlines() if " saw " in line))
        return tool_call("look", at="left" if "the left" in last.text else "right")

    return Scripted({"": says})


def served(store: Any) -> tuple[Server, list[Any]]:
    workers = [worker("a"), worker("b")]
    agent = AgentModel(
        "orchestrator", Scripted({"": PLAN}), store=store, config={"workers": ["a", "b"]},
        resolve_model=lambda ref: workers["ab".index(ref)],
    )  # fmt: skip
    return Server(agent, names=("m",)), workers


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(served(open_store(sys.argv[1]))[0].application(), port=int(sys.argv[2]), log_level="error")
