"""Spans while programs run: sent as runs end (``export --follow``), taken as they come (``import --listen``)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from clew.cli.shared import common
from clew.cli.shared.next_lines import command_line
from clew.core.errors import ClewError, Unreachable, need
from clew.core.printable import visible

if TYPE_CHECKING:
    from clew.exchange.telemetry.inbox import Arrived

PORT = 4318  # at which every exporter of OTLP over HTTP sends, unless told otherwise


def follow(url: str, words: Sequence[str], store_path: str) -> int:
    """Send the chosen runs as they end, until Ctrl-C; gives their number.

    Raises:
        BadInput: the address is none. Unreachable: the receiver does not answer as the command is ended.
    """
    from clew.exchange.telemetry.follow import follow
    from clew.exchange.telemetry.send import endpoint_of

    address, store, lost = endpoint_of(url), common.open_store(store_path, create=True), False

    def told(count: int, error: ClewError | None) -> None:
        nonlocal lost
        if error is not None and not lost:
            common.say(f"{visible(error.message)}; it is tried again until it answers")
        lost = error is not None
        move(completed=count)

    with _ended() as over, common.bar("sending", None) as move:
        common.say(f"runs of {store_path} are sent to {address} as they end  (Ctrl-C ends)")
        try:
            return follow(store, lambda: common.choose(store, words), url, told, over=over.is_set, pause=over.wait)
        except Unreachable as error:
            raise Unreachable(
                error.message, remedy=f"Send them later: {command_line('export', *words, otel=url)}"
            ) from None


@contextmanager
def _ended() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one ends the program as usual."""
    event = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        event.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def listen(host: str, port: int, token: str, store_path: str) -> None:
    """Take spans over HTTP until Ctrl-C, each trace as a run.

    Raises:
        BadInput: another machine could send and no token is asked for, or the address cannot be served.
    """
    uvicorn = need("uvicorn", "serve")
    from clew.core import net
    from clew.exchange.telemetry.inbox import Inbox
    from clew.exchange.telemetry.receiver import application
    from clew.serve.edge import config

    common.refuse_open_host(host, token, "is no token", "CLEW_OTEL_TOKEN")
    store = common.open_store(store_path, create=True)
    inbox = Inbox(store, Path(f"{store_path}.otlp"))
    if inbox:
        common.say(f"{len(inbox)} traces that came before and wait in {inbox.folder} are imported with those to come")
    listener = net.listen(host, port)
    address = f"http://{host}:{listener.getsockname()[1]}"
    common.echo(f"{store_path} records what comes to {address}/v1/traces as runs  (Ctrl-C ends)")
    common.echo(f"  OTEL_EXPORTER_OTLP_ENDPOINT={address} python your_agent.py")
    with suppress(KeyboardInterrupt):  # uvicorn raises it once more, when all has ended
        uvicorn.Server(config(application(inbox, _told, token), lifespan="on", log_level="warning")).run([listener])
    for file in inbox.late():
        common.say(f"spans that came after their trace was imported lie in {file}")


def _told(arrived: Arrived) -> None:
    if arrived.run:
        common.echo(f"trace {arrived.trace}: run {arrived.run}; look at it: {command_line('show', arrived.run)}")
    else:
        common.say(f"trace {arrived.trace} is no run: {visible(arrived.why)} Its spans lie in {arrived.file}.")
