"""The wheel as a user gets it: built, installed alone into a fresh environment, and used in an empty folder.

python tools/wheel.py                          # with this Python
python tools/wheel.py python3.12 python3.13    # with others

`.ci/run` calls it. Packages come as pip finds them, in the versions of constraints.txt. Nothing in the tree is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES = [  # a user's first ones; each must end with 0
    ["doctor"],
    ["run", "--world", "shop", "--model", "markov", "-n", "2", "--seed", "1"],
    ["log", "-n", "1", "--json"],
    ["show", "RUN"],
    ["fork", "RUN", "--step", "1", "-n", "2"],
    ["replay", "world=shop"],
    ["store", "verify"],
]


def call(words: list[object], folder: Path) -> str:
    """What a command printed.

    Raises:
        SystemExit: it failed; its output is printed.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CLEW", "VIRTUAL_ENV"))}
    done = subprocess.run([*map(str, words)], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def tried(python: str, wheel: Path, place: Path) -> str:
    """Install the wheel into an environment of this Python, and follow the lines in an empty folder."""
    environment, empty = place / "venv", place / "empty"
    empty.mkdir(parents=True)
    call([python, "-m", "venv", environment], place)
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", wheel]
    call([environment / "bin" / "python", *install], place)
    run = ""
    for words in LINES:
        printed = call([environment / "bin" / "clew", *(run if word == "RUN" else word for word in words)], empty)
        if "--json" in words:
            run = json.loads(printed)[0]["run"]
    size = sum(path.lstat().st_size for path in environment.rglob("*") if not path.is_dir())
    version = call([environment / "bin" / "python", "--version"], place).strip()
    return f"{version}: {len(LINES)} lines followed, {size / 1e6:.0f} MB installed, pip among them"


def main(pythons: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="clew-wheel-") as folder:
        place = Path(folder)
        call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place], ROOT)
        (wheel,) = place.glob("*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        for number, python in enumerate(pythons or [sys.executable]):
            print(tried(python, wheel, place / str(number)))


if __name__ == "__main__":
    main(sys.argv[1:])
