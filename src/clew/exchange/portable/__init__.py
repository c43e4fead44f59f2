"""Portable runs: one file with runs, what they share, and the snapshots of their files, without credentials.

``clew export bug.clew RUN`` writes one and ``clew import bug.clew`` reads it. It is a zip of a small store and of the
objects of its shelf: unpacked, it is both, and every verb of Clew works on it.
"""

from clew.exchange.portable.credentials import Credentials
from clew.exchange.portable.packing import Packed, pack
from clew.exchange.portable.unpacking import Unpacked, unpack

__all__ = ["SUFFIX", "Credentials", "Packed", "Unpacked", "pack", "unpack"]

SUFFIX = ".clew"
