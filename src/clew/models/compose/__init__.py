"""Models over other models."""

from clew.models.compose.forwarding import Forwarding, combined

__all__ = ["Forwarding", "combined"]
