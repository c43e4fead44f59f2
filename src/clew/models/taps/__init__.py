"""Taps: hidden states of recorded runs or given ids, read to disk; and how models without hidden states refuse them."""

from clew.models.taps.no_states import refuse_taps
from clew.models.taps.source import Source, sources_of
from clew.models.taps.states_folder import States
from clew.models.taps.states_reading import read
from clew.models.taps.tap import Tap, Vector

__all__ = ["Source", "States", "Tap", "Vector", "read", "refuse_taps", "sources_of"]
