"""A real shell in an empty folder, with `clew` on the path as another process: for tests of what users type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from clew.cli import VERBS

PRINTED = re.compile(rf"`(clew (?:{'|'.join(VERBS)})\b[^`]*)`|(?:^\s*|[:;] )(clew (?:{'|'.join(VERBS)})\b.*)$", re.M)
"""A line that a verb prints for going on: between backticks, or to the end of its own line."""
ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """Runs lines in a folder. ``clew`` is this checkout's, started as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder.with_name(f"{folder.name}-bin")
        self.bin.mkdir(exist_ok=True)
        for name, start in (("clew", "-m clew.cli"), ("python", "")):
            shim = self.bin / name
            shim.write_text(f'#!/bin/sh\nexec {sys.executable} -P {start} "$@"\n')
            shim.chmod(0o755)
        gone = ("CLEW_STORE", "CLEW_API_KEY", "OPENAI_API_KEY")
        self.environment = {name: value for name, value in os.environ.items() if name not in gone} | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "XDG_CACHE_HOME": f"{self.bin}/cache",
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
