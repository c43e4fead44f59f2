"""What several verbs of the command line share."""

from clew.cli.shared.common import option

__all__ = ["option"]
