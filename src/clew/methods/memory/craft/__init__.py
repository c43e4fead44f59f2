"""From a plan in text to a tool, when a pattern has paid for it, and back to text when the tool no longer earns it."""

from clew.methods.memory.craft.demotion import demoted
from clew.methods.memory.craft.drafting import Codifier, Draft
from clew.methods.memory.craft.thresholds import Due, Fixed, Recurrence, SkiRental, Threshold, due

__all__ = ["Codifier", "Draft", "Due", "Fixed", "Recurrence", "SkiRental", "Threshold", "demoted", "due"]
