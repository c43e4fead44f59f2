"""Lease holders: the name of this process, whether the process of a name is gone, and the error of a held run."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from clew.core.errors import LeaseHeld
from clew.store.names import new_id


def owner_name() -> str:
    """Names this process as the holder of leases: host, process id, and a random part."""
    return f"{_host()}:{os.getpid()}:{new_id()}"


def _host() -> str:
    """This machine, and where its process ids hold: containers that share a file may share a host name."""
    space = Path("/proc/self/ns/pid")
    return socket.gethostname() + (f"/{space.stat().st_ino}" if space.exists() else "")


def gone(owner: str) -> bool:
    """Whether a lease's owner is a process of this host that no longer lives."""
    host, _, rest = owner.partition(":")
    process = rest.partition(":")[0]
    if host != _host() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def held(run: str, holder: str, until: float) -> LeaseHeld:
    """The error of a run that somebody else may write."""
    left = until - time.time()
    when = f"Its lease ends in {left:.0f} s; wait" if left > 0 else "Take the lease again"
    return LeaseHeld(f"run {run} is being written by {holder}", remedy=f"{when}, or stop that process.")
