"""clew view: browse a store on a local web page."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import click

from clew.cli.shared import common, option, run_options
from clew.core.errors import BadInput, UnknownName

PORT_HELP = "Port to serve at; 0 takes a free one.  [default: 8420, or a free one]"
PAGE_HELP = (
    "Page to open, as it stands in an address after #/: runs, runs?q=tag%3Akeep, run/4fzk2w@12, features/3b0c55d1."
)
PAGE = re.compile(r"[\w.@+-]+(/[\w.@+,-]+){0,3}(\?q=[\w.@+,%*-]+)?", re.ASCII)
TOKEN_HELP = "Secret that a browser must send (or set CLEW_VIEW_TOKEN)."


@click.command(short_help="Browse runs on a local web page, live, and fork them there.")
@click.argument("path", metavar="[STORE]", required=False)
@common.host_option
@option("--port", type=click.IntRange(0, 65535), help=PORT_HELP)
@option("--token", envvar="CLEW_VIEW_TOKEN", default="", help=TOKEN_HELP)
@option("--page", default="", metavar="PAGE", help=PAGE_HELP)
@option("--read-only", is_flag=True, help="Do not write to the store: no forks and no labels from the page.")
@option("--no-open", is_flag=True, help="Do not open a browser.")
@common.verdicts_option
@common.store_of(not_with="PATH")
def command(
    path: str | None,
    host: str,
    port: int | None,
    token: str,
    page: str,
    read_only: bool,
    no_open: bool,
    verdicts: str,
    store_path: str,
) -> None:
    """Serve a web page that shows a store, also while runs are being made, and that can fork and label runs.

    \b
    clew view
    clew view other.db --read-only
    CLEW_VIEW_TOKEN=$(openssl rand -hex 16) clew view --host 0.0.0.0
    """
    from clew.core.net import listen
    from clew.store.address import place_of
    from clew.store.labels import verdict_set
    from clew.view.serving import PORT, Server
    from clew.view.web import Viewer

    common.refuse_open_host(host, token, "is no token", "CLEW_VIEW_TOKEN")
    if page and (len(page) > 200 or not PAGE.fullmatch(page)):
        told = "Give what stands after #/ in an address of the page, as run/4fzk2w or reports."
        raise BadInput(f"{page[:200]!r} names no page", remedy=told)
    place = place_of(path or store_path)
    common.open_store(place).close()  # says how to make one
    own = {"host": host, "token": token, "readonly": read_only}
    known = verdict_set(verdicts)
    viewer = Viewer(place, load=run_options.load_model, papers=papers(), verdicts=known, **own)  # type: ignore[arg-type]
    listener = listen(host, port, PORT)
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/"
    if token:
        address += f"?token={quote(token, safe='')}"
    if page:
        address += f"#/{page}"
    common.echo(f"{place} at {address}  (Ctrl-C ends)")
    if not no_open and has_display():
        threading.Timer(0.3, open_browser, (address,)).start()
    Server(viewer).run(sockets=[listener])


def papers() -> Path | None:
    """The folder of the papers, where the process runs in a checkout."""
    from clew.cli.reproduce import checkout

    try:
        return checkout(None) / "papers"
    except UnknownName:
        return None


def has_display() -> bool:
    """Whether a browser could show itself."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(address: str) -> None:
    import webbrowser

    webbrowser.open(address)
