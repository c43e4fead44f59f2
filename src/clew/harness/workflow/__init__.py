"""Workflows: a plan that one model writes for others, and the agent that performs it."""

from clew.harness.workflow.orchestrator import orchestrator
from clew.harness.workflow.workplan import Part, parse, written

__all__ = ["Part", "orchestrator", "parse", "written"]
