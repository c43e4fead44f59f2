"""Running agents: runner, replay, fork, groups, bundled agents."""

from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.nodes import Reply
from clew.harness.runner import Replay, Runner
from clew.harness.tools import Tool, tool

__all__ = ["Conversation", "LiveRun", "Replay", "Reply", "Runner", "Tool", "tool"]
