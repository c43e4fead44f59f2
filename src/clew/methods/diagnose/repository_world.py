"""A repository as a world whose actions are the four tools, and its own past fixes as tasks with a known answer.
``clew diagnose`` opens it. An observation must never hold what the fix of the task changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clew.coding.repository.past_fixes import fixes
from clew.coding.repository.repository import Index, View
from clew.core.errors import BadInput, UnknownName, WorldError
from clew.core.keys import state_key
from clew.core.protocols import Restores, World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.methods.diagnose.code_tools import Tools

SPLITS = ("train", "eval", "test")


class RepositoryWorld:
    """Answers tool calls from a view; nothing in it changes. Its state is what was shown last: brought back after the
    working tree has changed, it is found to differ."""

    restores: Restores = "reenact"

    def __init__(self, tools: Tools, report: str) -> None:
        self._report, self._tree, self._last = report, tools.repo_tree(), ""
        self._tools = {t.spec.name: t for t in tools.all()}
        self.tools: Sequence[ToolSpec] = tuple(t.spec for t in self._tools.values())

    @property
    def state_key(self) -> bytes:
        return state_key("repository", self._report, self._tree, self._last)

    def observe(self) -> Observation:
        """The report, in its tags, and the filtered tree: what a diagnosis begins with."""
        return Observation(f"<report>\n{self._report}\n</report>\n\n{self._tree}")

    def step(self, action: str | ToolCall) -> Observation:
        if not self._tools:
            raise WorldError(f"the repository is closed: {str(action)[:60]}", remedy="Open the task again.")
        if not isinstance(action, ToolCall) or action.name not in self._tools:
            named = action.name if isinstance(action, ToolCall) else action[:80]
            call_id = action.id if isinstance(action, ToolCall) else None
            return Observation(f"error: there is no tool {named!r}; use {', '.join(self._tools)}", call_id=call_id)
        answer = self._tools[action.name].call(action)
        assert isinstance(answer, Observation)
        self._last = answer.text
        return answer

    def close(self) -> None:
        self._tools = {}


class Diagnosis:
    """Bug reports on a repository. Drawn tasks are its past fixes, newest first, judged by what the fix changed.

    Args:
        repo: folder of a git repository.
        commit: the snapshot that reports without one of their own are about; empty for the working tree.
        index: file of the warm index.
    """

    def __init__(self, repo: str, commit: str = "", index: str | None = None) -> None:
        arguments = {"repo": repo, "commit": commit, "index": index}
        self.ref = make_ref("diagnosis", arguments, {"commit": "", "index": None})
        self.repo, self.commit = repo, commit
        self.index = Index(index)
        self._views: dict[str, Tools] = {}

    def tools(self, commit: str | None = None, progress: Callable[[int, int], None] | None = None) -> Tools:
        """The tools over a snapshot; opened once. ``progress`` as of ``View``."""
        commit = self.commit if commit is None else commit
        if commit not in self._views:
            self._views[commit] = Tools(View(self.repo, commit, self.index, progress))
        return self._views[commit]

    def task(self, report: str) -> Task:
        """A report of one's own.

        Raises:
            BadInput: it is empty.
        """
        if not report.strip():
            raise BadInput("the report is empty", remedy="Describe what happens and what should happen instead.")
        return Task("report", report.strip(), {"commit": self.commit})

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """The newest past fixes of a split. Splits are parted by commit id, so that they share none whatever ``n``."""
        if split not in SPLITS:
            raise UnknownName(f"no split is called {split!r}", remedy=f"Known: {', '.join(SPLITS)}.")
        found = fixes(self.tools().view.git, 6 * n + 12, self.commit or "HEAD") if n else []
        mine = [fix for fix in found if SPLITS[int(fix.commit[:8], 16) % len(SPLITS)] == split]
        return [_task(fix.commit, fix.parent, fix.report, fix.gold) for fix in mine[:n]]

    def find(self, task_id: str) -> Task:
        """A past fix by its commit.

        Raises:
            UnknownName: the commit is none.
        """
        if re.fullmatch(r"[0-9a-f]{40}", task_id):
            for fix in fixes(self.tools().view.git, 1, task_id):
                if fix.commit == task_id:
                    return _task(fix.commit, fix.parent, fix.report, fix.gold)
        raise UnknownName(f"{task_id} is not a bug fix of {self.repo}", remedy="Tasks are commits that fix a bug.")

    def open(self, task: Task) -> World:
        return RepositoryWorld(self.tools(str(task.data.get("commit", self.commit))), task.prompt)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """``reward`` 1 where the first finding is in a file that the fix changed; one's own report has no truth."""
        if not task.secret:
            return {}
        found = [json.loads(c.text)["findings"] for c in run.calls if c.kind == "note" and c.action == "findings"]
        first = found[-1][0]["location"]["file"] if found and found[-1] else ""
        fixed: Any = task.secret  # paths
        return {"reward": float(first in fixed)}


def _task(commit: str, parent: str, report: str, gold: Mapping[str, Any]) -> Task:
    return Task(commit, report, {"commit": parent}, secret={k: list(v) for k, v in gold.items()})
