"""The fixtures of the command line, for planted failures that are shown there."""

from tests.cli.conftest import clew

__all__ = ["clew"]
