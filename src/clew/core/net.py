"""Addresses of this machine: which are its own, which Host headers name it, and listening sockets."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

from clew.core.errors import BadInput


def loopback(host: str) -> bool:
    """Whether a name or address is this machine's own, out of reach for others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def called_so(host: str, names: Collection[str] = ()) -> bool:
    """Whether a Host header names this machine. An address cannot be made to point elsewhere; a name can."""
    name = re.sub(r":\d+$", "", host.lower())
    own = socket.gethostname().lower()
    if name in ("", "localhost", own, f"{own}.local", *names) or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def listen(host: str, port: int | None, usual: int = 0) -> socket.socket:
    """A listening socket at the port asked for; without one at the usual port, or at a free one where that is taken.

    Raises:
        BadInput: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [usual, 0] if port is None else [port]:
        # named as TCP, or asyncio does not switch off the delay of small packets
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)  # now: whoever reads the address may ask before the server is up
            return listener
        except OSError as error:
            listener.close()
            failed = error
    place = f"{host}:{usual if port is None else port}"
    raise BadInput(f"{place} cannot be served: {failed.strerror or failed}", remedy="Name another --host or --port.")
