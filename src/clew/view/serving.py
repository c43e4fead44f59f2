"""How the viewer listens: its port, its start and its end."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn

from clew.core.errors import BadInput
from clew.view.web import Viewer

PORT = 8420


class Server(uvicorn.Server):
    """Serves a viewer until it is told to end; pages that listen are let go first, since their streams never end."""

    def __init__(self, viewer: Viewer) -> None:
        config = uvicorn.Config(
            viewer.application(),
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        super().__init__(config)
        self._viewer = viewer

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._viewer.feed.end()
        super().handle_exit(sig, frame)


def listen(host: str, port: int | None, usual: int = PORT) -> socket.socket:
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
