"""Models from local weights."""

from clew.models.local.model import Local, small

__all__ = ["Local", "small"]
