"""What a Dockerfile puts into one folder, so far as it can be had without a container; what cannot is named.

``task_folders`` asks it of each task. Nothing is ever built or fetched: copies become files of the task's folder, plain
commands are run there in the sandbox, and a feature that needs a container is named, never passed over.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import NamedTuple

from clew.sandbox.namespace import TAKEN

INSTALLS = re.compile(
    r"\b(?:apt|apt-get|apk|dnf|yum|pip[\d.]*|uv|uvx|pipx|poetry|conda|mamba|npm|npx|yarn|pnpm|cargo|gem|curl|wget|go "
    r"(?:get|install)|git clone|useradd|adduser|locale-gen|update-alternatives)\b"
)
PLAIN = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:python|ubuntu|debian)(?::\S+)?|ghcr\.io/laude-institute/t-bench/\S+"
)
HARMLESS = re.compile(
    r"(?:DEBIAN_FRONTEND|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE)|PIP_\w+|UV_\w+|LANG|LC_ALL|TEST_DIR|TZ)="
)
IDLE = re.compile(r"bash|/bin/bash|sh|/bin/sh|sleep\b.*|tail\b.*")
SYSTEM = TAKEN | {"var", "sys", "boot", "tests", "logs", "solution"}
SILENT = frozenset(("LABEL", "MAINTAINER", "EXPOSE", "STOPSIGNAL"))


class Copy(NamedTuple):
    """Files of the build's context that go to a path of the container."""

    sources: tuple[str, ...]
    target: str


class Command(NamedTuple):
    """A line of the shell, and the folder of the container that it runs in."""

    text: str
    place: str


class Build(NamedTuple):
    """root: the folder of the container that holds the task's files. place: its WORKDIR, below the root or the root.
    steps: what fills it, in order. lost: what cannot be had here. brought: what may be had by the user's doing."""

    root: str
    place: str
    steps: tuple[Copy | Command, ...]
    lost: tuple[str, ...]
    brought: tuple[str, ...]


def read_build(text: str) -> Build:
    """What a Dockerfile says."""
    place, images = "/", 0
    steps, lost, brought = list[Copy | Command](), list[str](), list[str]()
    for word, rest in _instructions(text):
        short = f"{word} {rest}"[:70]
        if word == "FROM":
            images += 1
            if images == 2:
                lost.append("a build of several stages")
            if not PLAIN.fullmatch(rest.split()[0] if rest else ""):
                brought.append(f"the image {rest[:60]}")
        elif word == "WORKDIR":
            place = posixpath.normpath(posixpath.join(place, rest.strip('"')))
        elif word in ("COPY", "ADD"):
            found = _copy(rest, place)
            (lost.append(short) if found is None else steps.append(found))
        elif word == "RUN":
            if "<<" in rest or rest.startswith("--"):
                lost.append(short)
            elif INSTALLS.search(rest):
                brought.append(short)
            else:
                steps.append(Command(_line(rest), place))
        elif word in ("ENV", "ARG"):
            if not HARMLESS.match(re.sub(r"^(\w+)\s+", r"\1=", rest)):
                brought.append(short)
        elif word == "CMD":
            if not IDLE.fullmatch(_line(rest)):
                lost.append(short)
        elif word == "USER":
            if rest not in ("root", "0"):
                brought.append(short)
        elif word not in SILENT:
            lost.append(short)
    root = f"/{place.split('/')[1]}"
    if root == "/" or root[1:] in SYSTEM:
        lost.append(f"work in {place}")
    targets = [one.target for one in steps if isinstance(one, Copy)]
    lost += [f"files in {one}" for one in targets if not f"{one}/".startswith(f"{root}/")]
    return Build(root, place, tuple(steps), tuple(lost), tuple(brought))


def _instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction with what follows it, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    found = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [
        (word.upper(), " ".join(rest.split()) if word.upper() != "RUN" else rest.strip()) for word, _, rest in found
    ]


def _line(rest: str) -> str:
    """The line of the shell that RUN or CMD says, as text or as a JSON list."""
    if rest.startswith("["):
        return " ".join(shlex.quote(word) for word in re.findall(r'"([^"]*)"', rest))
    return rest


def _copy(rest: str, place: str) -> Copy | None:
    """Sources and target of COPY or ADD; None where it takes them from elsewhere than the context."""
    try:
        words = re.findall(r'"([^"]*)"', rest) if rest.startswith("[") else shlex.split(rest)
    except ValueError:
        return None
    words = [word for word in words if not word.startswith("--chown=")]
    if len(words) < 2 or any(word.startswith(("--", "http:", "https:", "git@")) or "$" in word for word in words):
        return None
    *sources, target = words
    whole = posixpath.normpath(posixpath.join(place, target))
    return Copy(tuple(posixpath.normpath(one).lstrip("/") for one in sources), whole + "/" * target.endswith("/"))
