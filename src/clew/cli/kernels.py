"""clew kernels: a group of verbs, one file each (``kernels_<verb>.py``), loaded when named."""

from clew.cli.shared.common import Lazy

HELP = """Find out why a kernel is slow, and search for a faster one.

\b
clew kernels explain libfast.so --symbol softmax
clew kernels tune softmax
"""
SHORT = "Find out why a kernel is slow, and search for a faster build."
command = Lazy("kernels", ("tune", "explain"), HELP, SHORT)
