"""The gateway: programs that Clew did not write, recorded as runs.

The agent ``clew.serve.relay`` is named in stored runs and reads this folder, so that nothing is loaded here early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clew.serve.gateway.proxy import NAME, Gateway

__all__ = ["NAME", "Gateway"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from clew.serve.gateway import proxy

        return getattr(proxy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
