"""Household: a text world of rooms, receptacles and objects, seen one room at a time."""

from clew.worlds.household.household import Household, HouseholdWorld
from clew.worlds.household.household_expert import admissible, expert

__all__ = ["Household", "HouseholdWorld", "admissible", "expert"]
