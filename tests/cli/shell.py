"""A real shell in an empty folder, with `clew` on the path as another process: for tests of what users type."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from clew.cli.shared.verb_table import places

PRINTED = re.compile(
    rf"`(clew (?:{'|'.join(places())})\b[^`]*)`|(?:^\s*|[:;] )(clew (?:{'|'.join(places())})\b.*)$", re.M
)
"""A line that a verb prints for going on: between backticks, or to the end of its own line."""
ROOT = Path(__file__).resolve().parents[2]
WARM = Path(__file__).with_name("warm.py")


@cache
def warm() -> str:
    """Where the process listens that forks for each `clew`, with the libraries loaded; started once, ends with us."""
    place = f"{tempfile.mkdtemp(prefix='clew-warm-')}/socket"
    command = [sys.executable, "-P", WARM, "serve", place]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # it ends with the pipe
    assert process.stdin is not None
    assert process.stdout is not None
    atexit.register(lambda pipe: (pipe.close(), process.wait()), process.stdin)
    with process.stdout as said:
        assert said.readline() == b"ready\n"
    return place


def warm_line() -> list[str]:
    """The words before the arguments of a `clew` that starts warm, in a process of its own."""
    return [sys.executable, "-I", "-S", str(WARM), "ask", warm()]


def script(path: Path, *words: str) -> None:
    """A program at ``path`` that runs these words with its own arguments after them."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


class Shell:
    """Runs lines in a folder. ``clew`` is this checkout's, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder.with_name(f"{folder.name}-bin")
        script(self.bin / "clew", *warm_line())
        script(self.bin / "python", sys.executable, "-P")
        gone = ("CLEW_STORE", "CLEW_API_KEY", "OPENAI_API_KEY")
        self.environment = {name: value for name, value in os.environ.items() if name not in gone} | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "XDG_CACHE_HOME": f"{self.bin}/cache",
            "XDG_STATE_HOME": f"{self.bin}/state",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    def __call__(self, line: str, *, code: int = 0, within: str = ".", seconds: float = 120) -> str:
        """What a line prints on both streams; it must end with this exit code."""
        done = subprocess.run(
            line, shell=True, cwd=self.folder / within, env=self.environment, text=True, check=False, timeout=seconds,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == code, f"{line}\n{done.stdout}"
        return done.stdout

    def write(self, **files: str) -> None:
        """Files by name, ``_py`` standing for ``.py`` and so on."""
        for name, text in files.items():
            stem, _, ending = name.rpartition("_")
            (self.folder / f"{stem}.{ending}").write_text(text)


def printed(text: str) -> list[str]:
    """The lines for going on in what a verb printed, in their order."""
    return ["".join(found).strip() for found in PRINTED.findall(text)]
