"""The doors of the core: what a package outside it may hang on, a Protocol of at most 15 lines each.

A package registers what it brings by an entry point of the group ``clew.<kind>`` (see ``clew.core.registry``). The core
looks names up and imports no such package itself.
"""

from __future__ import annotations
