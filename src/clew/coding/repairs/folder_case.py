"""Tasks in Harbor's folders: ``instruction.md``, ``task.toml``, ``environment/``, ``tests/`` and ``solution/``.

``Repairs`` asks for them. A folder whose ``tests/config.json`` is a row of SWE-bench's is done over the local clone;
any other begins with what its Dockerfile copies, and is judged by its own tests, which no run begins with. What its
container would bring and this machine has not is named. Neither tests nor solution may come into a task or its files.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from clew.coding.repairs.begin_trees import NANOSECONDS, Leaves, changed, grown, leaves
from clew.coding.repairs.container_files import Build, Copy, read_build
from clew.coding.repairs.laid_over import CACHES
from clew.coding.repairs.named_tests import Command, Outcomes, Wanted, read_command, run_tests
from clew.coding.repairs.repair_rows import FIELDS, row_of
from clew.coding.repairs.row_case import COMMAND, Ground, Judged, RowCase
from clew.core.errors import BadInput
from clew.core.values import Limits as TaskLimits
from clew.sandbox.sandbox import own_folder
from clew.sandbox.scratch import Scratch
from clew.worlds.workspace import Scan, restore
from clew.worlds.workspace.workspace import PINNED

LONGEST = 1 << 20  # bytes of a file that says something
TESTS, LOGS, SOLUTION = ".clew-tests", ".clew-logs", ".clew-solution"  # in the folder while it is judged or solved
LINKS = {"/tests": f"/box/{TESTS}", "/logs": f"/box/{LOGS}", "/solution": f"/box/{SOLUTION}"}
WANTED = {  # what an environment may ask for that only a container has, by its field
    "gpus": "a GPU",
    "mcp_servers": "MCP servers",
    "healthcheck": "a health check of services",
    "skills_dir": "a folder of skills",
    "allowed_hosts": "some hosts of the network",
}


class TaskFolder(NamedTuple):
    """A task's folder as it is read. row: SWE-bench's fields, where it has them. settings: of ``task.toml``. build:
    what its Dockerfile says. odd: why nothing can be made of it."""

    path: Path
    row: Mapping[str, Any] | None
    settings: Mapping[str, Any]
    build: Build
    odd: str = ""

    @property
    def links(self) -> dict[str, str]:
        """Paths of its container, as links into the sandbox's work folder."""
        return {} if self.row is not None or self.odd else {self.build.root: "/box", **LINKS}

    def case(self, ground: Ground, beside: Sequence[Path], provided: bool) -> RowCase | FolderCase:
        """The task over what a taskset's cases share."""
        if self.row is not None:
            return RowCase(row_of(self.row, f"{self.path.name}/tests/config.json"), ground, beside)
        return FolderCase(self, ground, provided)


def folders_in(path: Path) -> list[TaskFolder]:
    """The tasks of a folder, or the one that it is.

    Raises:
        BadInput: it holds none, or a file of one cannot be read.
    """
    named = ("task.toml", "instruction.md", "task.yaml")
    places = [one for one in (path, *sorted(path.iterdir())) if any((one / name).is_file() for name in named)]
    if not places:
        remedy = "Name a folder of tasks with instruction.md and task.toml, or a file of rows."
        raise BadInput(f"{path} holds no task", remedy=remedy)
    return [_read(one) for one in places]


def _read(path: Path) -> TaskFolder:
    nothing = Build("/", "/", (), (), ())
    if not (path / "instruction.md").is_file() or not (path / "task.toml").is_file():
        return TaskFolder(path, None, {}, nothing, "it is laid out as Terminal-Bench's first tasks (task.yaml) were")
    try:
        settings = tomllib.loads(_text(path / "task.toml"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path / 'task.toml'}: {error}", remedy="Mend it.") from None
    if (config := path / "tests" / "config.json").is_file():
        with suppress(ValueError, RecursionError):
            row = json.loads(_text(config, 64 * LONGEST))
            if isinstance(row, dict) and all(name in row for name in FIELDS):
                return TaskFolder(path, row, settings, nothing)
    docker = path / "environment" / "Dockerfile"
    build = (
        read_build(_text(docker)) if docker.is_file() else nothing._replace(lost=("an image that is built already",))
    )
    return TaskFolder(path, None, settings, build)


def _text(path: Path, most: int = LONGEST) -> str:
    """A short file of a task's folder; no link is followed out of it.

    Raises:
        BadInput: it is long, no text, or no file.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(most + 1)
        if len(data) <= most:
            return data.decode()
    except (OSError, UnicodeDecodeError):
        pass
    raise BadInput(f"{path} is no text of up to {most >> 20} MiB", remedy="Name a folder of Harbor's tasks.")


class FolderCase:
    """A task in a folder of its own. Its folder of the container is the run's folder, which stands at both paths."""

    split = ""

    def __init__(self, folder: TaskFolder, ground: Ground, provided: bool) -> None:
        self._folder, self._ground, self._provided = folder, ground, provided
        self.id, self._build = folder.path.name, folder.build
        agent = folder.settings.get("agent", {})
        seconds = agent.get("timeout_sec") if isinstance(agent, dict) else None
        self.limits = TaskLimits(seconds=float(seconds)) if isinstance(seconds, (int, float)) else TaskLimits()

    @cached_property
    def prompt(self) -> str:
        """The instruction, and where its paths are."""
        root, place = self._build.root, self._build.place
        inner = f" The task's own folder is {place}." if place != root else ""
        said = _text(self._folder.path / "instruction.md").strip()
        return f"{said}\n\n(You work in the folder {root}, which is also /box; commands begin there.{inner})"

    @cached_property
    def refused(self) -> str:
        """Why the task cannot be done here; empty where it can."""
        if self._folder.odd:
            return self._folder.odd
        told = self._folder.settings.get("environment", {})
        told = told if isinstance(told, dict) else {}
        lost = [*self._build.lost, *(text for name, text in WANTED.items() if told.get(name))]
        if (self._folder.path / "environment" / "docker-compose.yaml").exists():
            lost.append("several services (docker-compose.yaml)")
        if self._folder.settings.get("steps"):
            lost.append("several steps")
        if lost:
            return f"it needs a container for {', '.join(dict.fromkeys(lost))}"
        if self._build.root not in dict(self._ground.sandbox.links):
            return f"its folder {self._build.root} is where what is readable lies"
        brought = [*self._build.brought, *(["variables of its environment"] if told.get("env") else [])]
        if brought and not self._provided:
            what = ", ".join(dict.fromkeys(brought))
            return f"its image brings what may be missing here ({what}); where it is in readable, say provided=True"
        return "" if self._tests_of() else "it has neither tests/test_*.py nor tests/test.sh"

    def check(self) -> None:
        """Raises BadInput where its folder, in which everything lies that it needs, is gone."""
        if not self._folder.path.is_dir():
            raise BadInput(f"{self._folder.path} is no folder any more", remedy="Put the task's folder back.")

    def _tests_of(self) -> list[str]:
        """Files of pytest's in ``tests/``; else its ``test.sh``, as where that runs no pytest."""
        place = self._folder.path / "tests"
        found = sorted(p.relative_to(place).as_posix() for p in place.rglob("test_*.py")) if place.is_dir() else []
        script = place / "test.sh"
        return ["test.sh"] if script.is_file() and not (found and "pytest" in _text(script)) else found

    def _kept(self, name: str) -> dict[str, Any]:
        """The files of one of the task's folders by path, on the shelf."""
        place, shelf = self._folder.path / name, self._ground.shelf
        if not place.is_dir():
            return {}
        found = leaves(shelf, Scan(place, shelf).snapshot().tree)
        clean = {path: entry for path, entry in found.items() if not CACHES & {*path.split("/")}}
        return {path: entry._replace(mtime=NANOSECONDS) for path, entry in clean.items()}

    @property
    def _inner(self) -> str:
        """WORKDIR, seen from the run's folder."""
        return self._build.place[len(self._build.root) :].strip("/") or "."

    @property
    def begin(self) -> str:
        """The snapshot that a run begins with: what the Dockerfile copies, and its plain commands make of it."""
        shelf, box = self._ground.shelf, self._ground.sandbox
        context, found = self._kept("environment"), dict[str, Any]()
        tree = grown(shelf, {})
        for step in self._build.steps:
            if isinstance(step, Copy):
                found = leaves(shelf, tree) | _copied(step, context, self._build.root)
                tree = grown(shelf, found)
            else:
                place = shlex.quote(step.place[len(self._build.root) :].strip("/") or ".")
                line = f"(mkdir -p {place} && cd {place} && bash -c {shlex.quote(step.text)})"
                tree = changed(shelf, box, tree, "", line)
        return changed(shelf, box, tree, "", f"mkdir -p {shlex.quote(self._inner)}")

    def solved(self) -> str | None:
        """The snapshot that ``solution/solve.sh`` makes of the beginning; None where there is none.

        Raises:
            WorldError: it fails here.
        """
        inside = self._kept("solution")
        if "solve.sh" not in inside:
            return None
        shelf = self._ground.shelf
        tree = grown(shelf, leaves(shelf, self.begin) | {f"{SOLUTION}/{path}": e for path, e in inside.items()})
        line = f"(cd {shlex.quote(self._inner)} && bash /solution/solve.sh) && rm -rf {SOLUTION}"
        return changed(shelf, self._ground.sandbox, tree, "", line)

    async def judged(self, tree: str) -> Judged:
        """What the task's tests say of a snapshot."""
        files = self._tests_of()
        over = await asyncio.to_thread(self._over, tree)
        if files == ["test.sh"]:
            return await self._by_script(over)
        place = f"/box/{TESTS}"
        own = next(
            (one for one in ("pytest.ini", "pyproject.toml") if (self._folder.path / "tests" / one).is_file()), ""
        )
        how = (f"--rootdir={place}", f"--confcutdir={place}", "-c", f"{place}/{own}" if own else "/dev/null")
        wanted = Wanted(over, [f"{place}/{file}" for file in files], (), False, TESTS, how, self._inner)
        command: Command = read_command(self._ground.command or COMMAND)
        ran = await run_tests(self._ground.shelf, self._ground.sandbox, self._ground.limits, command, wanted)
        good = len(ran.good([*ran.each]))
        shares = {"fail_to_pass": good / len(ran.each) if ran.each else 0.0}
        return Judged(float(bool(ran.each) and good == len(ran.each) and not ran.meddled), shares, ran)

    def _over(self, tree: str) -> str:
        """A snapshot with the tests in it, at a path that no run's files are taken from."""
        shelf = self._ground.shelf
        kept = {p: e for p, e in leaves(shelf, tree).items() if p.partition("/")[0] not in (TESTS, LOGS, SOLUTION)}
        return grown(shelf, kept | {f"{TESTS}/{path}": entry for path, entry in self._kept("tests").items()})

    async def _by_script(self, tree: str) -> Judged:
        """What ``tests/test.sh`` writes as its reward."""
        with Scratch("tests") as place:
            folder = place / "box"
            await asyncio.to_thread(restore, self._ground.shelf, tree, folder)
            (folder / LOGS / "verifier").mkdir(parents=True)
            own_folder(folder)
            line = f"cd {shlex.quote(self._inner)} && exec bash /tests/test.sh"
            done = await self._ground.sandbox.arun(line, folder=folder, env=PINNED, limits=self._ground.limits)
            reward = _reward(folder)
        said = done.stderr.decode("utf-8", "replace")[-300:]
        ended = done.limit if done.code is None or reward is None else ""
        ran = Outcomes(ended=ended, said=said, reported=reward is not None, cpu=done.cpu)
        return Judged(reward or 0.0, {}, ran)

    def sound(self, ran: Outcomes) -> bool:
        """Whether what began can be judged here, of a task without a solution: its tests ran at all."""
        return ran.reported and not ran.lacking


def _copied(step: Copy, context: Leaves, root: str) -> dict[str, Any]:
    """The files that a copy puts into the folder of the task."""
    found, into = dict[str, Any](), step.target.endswith("/") or len(step.sources) > 1
    base = step.target.strip("/")[len(root) - 1 :].strip("/")
    for source in step.sources:
        whole = source == "."
        inside = {p[len(source) + 1 :]: e for p, e in context.items() if p.startswith(f"{source}/")}
        inside = dict(context) if whole else inside
        alone = {p: e for p, e in context.items() if fnmatch(p, source) and not whole}
        for path, entry in inside.items():
            found["/".join(filter(None, (base, path)))] = entry
        for path, entry in alone.items():
            name = path.rpartition("/")[2]
            to = "/".join(filter(None, (base, name))) if into or not base or "*" in source else base
            found[to] = entry._replace(name=to.rpartition("/")[2])
    return found


def _reward(folder: Path) -> float | None:
    """The reward that a verifier wrote, between 0 and 1; None where it wrote none. No link is followed."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for part in (LOGS, "verifier"):
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        try:
            for name in ("reward.txt", "reward.json"):
                with suppress(FileNotFoundError):
                    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
                    with os.fdopen(file, "rb") as opened:
                        text = opened.read(4096).decode()
                    value = float(text if name.endswith("txt") else json.loads(text)["reward"])
                    return value if 0 <= value <= 1 else None
        finally:
            os.close(fd)
    return None
