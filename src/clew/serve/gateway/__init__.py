"""The gateway: programs that Clew did not write, recorded as runs."""

from clew.serve.gateway.proxy import NAME, Gateway

__all__ = ["NAME", "Gateway"]
