"""The customer desk: a world worked through tools, under one rule of the house (specs/E164)."""

from clew.worlds.desk.desk import Case, Desk, case_of, natural, record_of

__all__ = ["Case", "Desk", "case_of", "natural", "record_of"]
