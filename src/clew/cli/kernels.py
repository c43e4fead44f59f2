"""clew kernels: diagnose a kernel, and search for a faster build of it."""

from clew.cli.shared.common import Lazy

command = Lazy(
    "kernels",
    {"tune": "Search for a faster build of a C kernel, led by what the measurements say.",
     "explain": "Say what a compiled kernel or a recorded profile suffers from."},
    help="""Find out why a kernel is slow, and search for a faster one.

    \b
    clew kernels explain libfast.so --symbol softmax
    clew kernels tune softmax
    """,
    short_help="Say why a kernel is slow, and search for a faster build of it.",
)  # fmt: skip
