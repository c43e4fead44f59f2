"""From stored runs to items of a memory: reflection, the screen, and what it all cost."""

from clew.methods.memory.lessons.end_state import EndState
from clew.methods.memory.lessons.learn import learn
from clew.methods.memory.lessons.lesson import Lesson, Reflection, Ruling
from clew.methods.memory.lessons.run_view import RunView
from clew.methods.memory.lessons.screens import RuleScreen
from clew.methods.memory.lessons.spent import Cost, Spent

__all__ = ["Cost", "EndState", "Lesson", "Reflection", "RuleScreen", "Ruling", "RunView", "Spent", "learn"]
