"""How the viewer listens: its port, its start and its end."""

from __future__ import annotations

from types import FrameType

import uvicorn

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
