"""Worlds that a model makes up: how it is asked, what keeps its answers honest, and whether they are the real ones."""

from clew.methods.world_model.simulated import Simulated

__all__ = ["Simulated"]
