"""Kernels written by someone who had not seen the rules, kept apart from them (K3): a file each, its C source beside.

Those in ``heldout`` were measured first, with advice followed one change at a time; those in ``fresh`` were written
after that, and for them the coder that follows all advice at once was settled before any of them was built.
"""

from pathlib import Path

from clew.methods.kernels.catalogue import load
from clew.methods.kernels.kernel import Kernel

HERE = Path(__file__).parent
HELDOUT: dict[str, Kernel] = {path.stem: load(str(path)) for path in sorted((HERE / "heldout").glob("*.py"))}
FRESH: dict[str, Kernel] = {path.stem: load(str(path)) for path in sorted((HERE / "fresh").glob("*.py"))}
