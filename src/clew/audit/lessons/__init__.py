"""From stored runs to items of a memory: reflection, the screen, and what it all cost."""

from clew.audit.lessons.end_state import EndState
from clew.audit.lessons.learn import learn
from clew.audit.lessons.lesson import Lesson, Reflection, Ruling
from clew.audit.lessons.run_view import RunView
from clew.audit.lessons.screens import RuleScreen
from clew.audit.lessons.spent import Cost, Spent

__all__ = ["Cost", "EndState", "Lesson", "Reflection", "RuleScreen", "Ruling", "RunView", "Spent", "learn"]
