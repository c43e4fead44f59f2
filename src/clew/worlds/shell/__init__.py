"""Shell: errands in a small tree of files, by twelve commands with the errors of the real ones (specs/E167)."""

from clew.worlds.shell.shell import Shell, ShellWorld

__all__ = ["Shell", "ShellWorld"]
