"""Runs compilers and builds: in the sandbox, or directly where all source is the user's own. The CPU backend calls it.
Source that a model wrote must never run outside the sandbox."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from clew.core.errors import BadInput

MIB = 1 << 20


class Done(NamedTuple):
    """How a command ended: exit code, what it wrote, and in words the limit that stopped it, if one did."""

    code: int
    out: str
    err: str
    stopped: str = ""

    @property
    def reason(self) -> str:
        """The first line that says what went wrong."""
        rows = (self.err or self.out).splitlines()
        said = next((row for mark in ("error", ":", "") for row in rows if mark in row), "")
        return (": ".join(filter(None, (self.stopped, said))) or ended(self.code))[:300]


def ended(code: int) -> str:
    """An exit status in words; a shell tells a signal by 128 and its number, Python by a negative one."""
    number = -code if code < 0 else code - 128
    if number in {s.value for s in signal.Signals}:
        return f"ended by {signal.Signals(number).name}"
    return f"exit code {code}"


class Run(Protocol):
    """Runs a command beside files of one folder; what it leaves of ``outputs`` is put there."""

    folder: Path

    def __call__(
        self, command: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], seconds: float
    ) -> Done: ...


class Direct:
    """In the folder itself, with the user's own rights: for sources the user wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def __call__(self, command: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], seconds: float) -> Done:
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return Done(1, "", "", f"more than {seconds:g} s")
        except OSError as error:
            raise BadInput(f"{command[0]} cannot be started: {error.strerror}", remedy="Install it.") from None
        return Done(done.returncode, done.stdout, done.stderr)


class Boxed:
    """In the sandbox: for sources that a model wrote.

    Raises:
        MissingExtra, WorldError: see clew.sandbox.sandbox.Sandbox.
    """

    def __init__(self, folder: Path, **sandbox: Any) -> None:
        from clew.sandbox.sandbox import Limits, Sandbox

        self.folder = folder.resolve()
        limits = Limits(memory=2048 * MIB, file_size=256 * MIB, disk=1024 * MIB)
        self._sandbox = Sandbox(limits, readable=(), **sandbox)

    def __call__(self, command: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], seconds: float) -> Done:
        limits = replace(self._sandbox.limits, wall=4 * seconds, cpu=seconds)
        verdict = self._sandbox.run(command, {n: self.folder / n for n in inputs}, keep=outputs, limits=limits)
        for name, data in verdict.files.items():
            path = self.folder / name
            path.write_bytes(data)
            path.chmod(0o755)
        code = verdict.code if verdict.code is not None else 1
        out, err = verdict.stdout.decode(errors="replace"), verdict.stderr.decode(errors="replace")
        return Done(code, out, err, f"limit {verdict.limit}" if verdict.limit else "")
