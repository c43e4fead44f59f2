"""Small stored runs of an agent with tools, for tests of what is learnt from them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from clew.core.records import Annotation, action_text
from clew.core.values import ToolCall
from clew.store import Keeper, Run
from clew.store.contract import Script

PROMPT = "How many payments does the bank list for food?"
Steps = Sequence[tuple[str, dict[str, object], str]]
PAGES: Steps = [
    ("fetch", {"app": "bank", "endpoint": "list", "page": 1}, "error: 404 bank has no endpoint 'list'"),
    ("fetch", {"app": "bank", "endpoint": "search", "page": 1}, "error: 401 log in to bank first"),
    ("login", {"app": "bank"}, '{"logged_in": "bank"}'),
    ("fetch", {"app": "bank", "endpoint": "search", "page": 1}, '{"rows": [{"id": 7}], "page": 1, "has_more": true}'),
    ("submit", {"answer": "61"}, '{"submitted": true}'),
]


def played(
    store: Keeper,
    steps: Steps = PAGES,
    reward: float | None = 0.0,
    *,
    prompt: str = PROMPT,
    task: str = "errand-1",
    created: float = 1e9,
    end: bool = True,
    **row: object,
) -> Run:
    """A run whose agent called tools, one a step, from Call 1 on: (tool, arguments, answer)."""
    script = Script(store, task=task, prompt=prompt, **{"created": created, "taskset": "apps", **row})
    script.open(prompt)
    for number, (name, given, answer) in enumerate(steps):
        action = action_text(ToolCall(f"c{number}", name, json.dumps(given)))
        script.act(action, answer, finish="tool", terminal=number == len(steps) - 1)
    if end:
        script.end()
    if reward is not None:
        store.annotate([Annotation("run", "reward", reward, script.run)])
    store.commit()
    return Run(store, script.run)
