"""Why an agent did something: rewind its run, change what it was told, sample again, compare (specs/E174)."""

from clew.methods.why.question import why

__all__ = ["why"]
