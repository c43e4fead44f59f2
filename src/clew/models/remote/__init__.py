"""Models behind HTTP endpoints."""

from clew.models.remote.client import Remote
from clew.models.remote.prices import Price

__all__ = ["Price", "Remote"]
