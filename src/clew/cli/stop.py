"""clew stop: interrupt the processes that are making runs."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import LeaseHeld, StoreError

if TYPE_CHECKING:
    from clew.store import Keeper


AGAIN = 3.0  # seconds after which a process that still makes its runs is interrupted once more


@click.command(short_help="Interrupt the processes that are making runs.")
@click.argument("runs", nargs=-1)
@option("--wait", default=15.0, help="Seconds to wait until the processes have released their runs.")
@common.output_options
def command(runs: tuple[str, ...], wait: float, as_json: bool, store_path: str) -> None:
    """Interrupt the processes that make the chosen runs (all running ones if none is chosen), as Ctrl-C does.

    A process makes many runs at once and stops as a whole. What is recorded stays; `clew resume` continues later.

    \b
    clew stop
    clew stop 4fzk2w
    """
    store = common.open_store(store_path)
    chosen = {run.id for run in common.choose(store, runs)}
    held = {run: holder(store, run) for run in store.leased() if run in chosen}
    processes = sorted({process for process in held.values() if process})
    began, sent = time.monotonic(), 0
    while (left := [run for run in store.leased() if run in held]) and processes:
        if sent <= (time.monotonic() - began) // AGAIN:
            sent += 1
            for process in [p for p in processes if p in {held[run] for run in left}]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGINT)
        if time.monotonic() - began >= wait:
            break
        time.sleep(0.1)
    if as_json:
        common.print_json({"processes": processes, "stopped": sorted(set(held) - set(left)), "held": left})
    elif not held:
        common.echo(f"nobody is making these runs; unfinished ones are continued by: {command_line('resume')}")
    else:
        ended = {held[run] for run in held if run not in left}
        if ended or not left:
            made = len(held) - len(left)
            told = f"interrupted {len(ended)} process(es) that made {made} runs"
            common.echo(f"{told}; continue with: {command_line('resume')}")
        for run in left:
            common.echo(f"not interrupted: process {held[run]} still makes run {run} after {wait:g} s")


def holder(store: Keeper, run: str) -> int | None:
    """The id of the process that makes a run; None where the process has ended.

    Raises:
        StoreError: it runs on another machine.
    """
    from clew.store.owners import owner_name

    try:
        store.lease(run, "clew-stop", 0.0)
        store.release(run, "clew-stop")
        store.commit()
    except LeaseHeld as error:
        match = re.search(r"by (\S+):(\d+):\w+", error.message)
        if match is None or match[1] != owner_name().split(":")[0]:
            raise StoreError(error.message, remedy="Stop it on the machine where it was started.") from error
        return int(match[2])
    return None
