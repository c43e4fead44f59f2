"""Kernels written by someone who had not seen the rules, and kept apart from them (K3): a file each in ``heldout``."""

from pathlib import Path

from clew.coding.kernels.kernel import Kernel, load

FOLDER = Path(__file__).with_name("heldout")
HELDOUT: dict[str, Kernel] = {path.stem: load(str(path)) for path in sorted(FOLDER.glob("*.py"))}
