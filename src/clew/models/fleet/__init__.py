"""A Model over several inference servers, whose weights a trainer pushes."""

from clew.models.fleet.fleet import Fleet
from clew.models.fleet.spans import spans_of

__all__ = ["Fleet", "spans_of"]
