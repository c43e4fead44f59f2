"""Tasks in Harbor's folders: what their Dockerfiles come to, what is named, and verdicts by their own tests."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.coding.repairs import Repairs
from clew.coding.repairs.container_files import SYSTEM, Command, Copy, read_build
from clew.core.errors import BadInput, Undecided
from clew.sandbox.sandbox import Sandbox
from clew.worlds.contract import perform
from clew.worlds.workspace import Scan, restore
from tests.coding import ledger

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
DOCKER = """# syntax=docker/dockerfile:1
FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1
WORKDIR /store/shop
COPY --chown=root src/ \\
     ./
RUN mkdir -p out && \\
    echo 3 > out/start
COPY ["price.txt", "/store/price.txt"]
"""
TASK = "[agent]\ntimeout_sec = 90.0\n[verifier]\ntimeout_sec = 60\n[environment]\ncpus = 1\nallow_internet = true\n"
TESTS = """from pathlib import Path

def test_sum():
    assert Path("/store/shop/sum.txt").read_text().strip() == "7"

def test_start_stays():
    assert Path("out/start").read_text() == "3\\n"
"""
SOLVE = "#!/bin/bash\nset -e\necho $(( $(cat out/start) + $(cat /store/price.txt) )) > sum.txt\n"
VERIFY = """#!/bin/bash
into=/logs/verifier/reward.txt
if [ "$(cat sum.txt)" = 7 ]; then echo 1 > $into; elif [ -e sum.txt ]; then echo 0.25 > $into; else echo 0 > $into; fi
"""
AWAY = """#!/bin/bash
curl -LsSf http://x/install.sh | sh
uvx own-check && R=1 || R=0
echo $R > /logs/verifier/reward.txt
"""


def folder(place: Path, docker: str = DOCKER, settings: str = TASK, tests: dict[str, str] | None = None) -> Path:
    files = {"instruction.md": "Write the sum to sum.txt.\n", "task.toml": settings, "environment/Dockerfile": docker}
    files |= {"environment/src/a.py": "x = 1\n", "environment/price.txt": "4\n", "solution/solve.sh": SOLVE}
    for name, text in (files | {f"tests/{k}": v for k, v in (tests or {"test_sum.py": TESTS}).items()}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def taskset(place: Path, **how) -> Repairs:
    shelf = place.parent / f"{place.name}-files"
    return Repairs(str(place), **({"command": ledger.COMMAND, "readable": ledger.SEEN} | how), shelf=str(shelf))


def after(world: Repairs, change: Callable[[Path], object], place: Path) -> dict[str, float]:
    """The verdict on the beginning, changed."""
    (task,) = world.sample(1)
    restore(world.shelf, world.begins(task), place)
    change(place)
    return dict(asyncio.run(world.judged(task, Scan(place, world.shelf).snapshot().tree)))


def wrote(text: str) -> Callable[[Path], object]:
    return lambda box: (box / "shop" / "sum.txt").write_text(text)


def test_a_dockerfile_is_read():
    build = read_build(DOCKER)
    assert (build.root, build.place, build.lost, build.brought) == ("/store", "/store/shop", (), ())
    first, second, third = build.steps
    assert first == Copy(("src",), "/store/shop/")
    assert isinstance(second, Command)
    assert " ".join(second.text.split()) == "mkdir -p out && echo 3 > out/start"
    assert third == Copy(("price.txt",), "/store/price.txt")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("HEALTHCHECK CMD curl x", "HEALTHCHECK"),
        ("ENTRYPOINT /start", "ENTRYPOINT /start"),
        ("CMD redis-server", "CMD redis-server"),
        ("COPY --from=build /a /store/a", "COPY --from=build"),
        ("ADD http://x/y /store/y", "ADD http"),
        ("COPY a /etc/a", "files in /etc/a"),
        ("WORKDIR /etc", "work in /etc"),
        ("WORKDIR /", "work in /"),
        ("FROM debian", "several stages"),
        ("RUN cat <<EOF", "RUN cat <<EOF"),
    ],
)
def test_what_needs_a_container_is_named(line, named):
    assert named in " | ".join(read_build(f"{DOCKER}{line}\n").lost)


@pytest.mark.parametrize(
    "line", ["RUN apt-get update && apt-get install -y tmux", "RUN pip install x", "ENV KEY=1", "USER app", "ARG X=1"]
)
def test_what_an_image_brings_is_named_apart(line):
    build = read_build(f"{DOCKER}{line}\n")
    assert (build.brought, build.lost) == ((line,), ())
    assert read_build("FROM own/image:3\nWORKDIR /app\n").brought == ("the image own/image:3",)


def test_a_task_begins_with_what_is_copied_and_is_judged_by_its_tests(tmp_path):
    world = taskset(folder(tmp_path / "sums"))
    (task,) = world.sample(3)
    assert task.id == "sums"
    assert task.limits.seconds == 90
    assert task.prompt.startswith("Write the sum to sum.txt.")
    assert "/store, which is also /box" in task.prompt
    opened = world.open(task)
    said = perform(
        opened, "find . -type f | sort; cat /store/price.txt; cat /tests/test_sum.py /solution/solve.sh; ls /logs/"
    ).text
    assert said.startswith("./price.txt\n./shop/a.py\n./shop/out/start\n4\n")
    assert said.count("No such file") == 3
    perform(opened, "cd shop && echo 7 > sum.txt")
    tree = opened.tree
    opened.close()
    assert asyncio.run(world.judged(task, tree)) == {"reward": 1.0, "fail_to_pass": 1.0}
    assert after(world, lambda box: None, tmp_path / "none") == {"reward": 0.0, "fail_to_pass": 0.5}
    assert after(world, wrote("8"), tmp_path / "wrong")["reward"] == 0.0


def test_planted_tests_and_settings_are_passed_over(tmp_path):
    world = taskset(folder(tmp_path / "sums"))

    def planted(box: Path) -> None:
        for place in (box, box / "shop"):
            (place / "conftest.py").write_text("raise SystemExit(0)\n")
            (place / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
            (place / "pathlib.py").write_text("raise SystemExit(0)\n")
        (box / ".clew-tests").mkdir()
        (box / ".clew-tests" / "test_sum.py").write_text("def test_sum(): pass\n")
        (box / ".clew-tests" / "conftest.py").write_text("raise SystemExit(0)\n")

    assert after(world, planted, tmp_path / "box") == {"reward": 0.0, "fail_to_pass": 0.5}


def test_a_script_writes_the_reward(tmp_path):
    world = taskset(folder(tmp_path / "sums", tests={"test.sh": VERIFY}))
    assert after(world, wrote("7"), tmp_path / "right") == {"reward": 1.0}
    assert after(world, wrote("8"), tmp_path / "part") == {"reward": 0.25}
    assert after(world, lambda box: None, tmp_path / "none") == {"reward": 0.0}

    def forged(box: Path) -> None:
        (box / ".clew-logs" / "verifier").mkdir(parents=True)
        (box / ".clew-logs" / "verifier" / "reward.txt").write_text("1")

    assert after(world, forged, tmp_path / "forged") == {"reward": 0.0}


def test_a_script_that_cannot_run_here_decides_nothing(tmp_path):
    world = taskset(folder(tmp_path / "sums", tests={"test.sh": AWAY}))
    with pytest.raises(Undecided, match="reference solution does not pass"):
        after(world, wrote("7"), tmp_path / "right")
    (tmp_path / "sums" / "solution" / "solve.sh").write_text("exit 3\n")
    world = taskset(tmp_path / "sums")
    with pytest.raises(Undecided, match="reference solution cannot be had"):
        after(world, wrote("7"), tmp_path / "again")


def test_folders_that_cannot_be_done_are_left_out_with_the_reason(tmp_path):
    place = tmp_path / "tasks"
    folder(place / "good")
    folder(place / "brought", docker=f"{DOCKER}RUN pip install numpy\n")
    folder(place / "gpu", settings=f"{TASK}gpus = 1\n")
    folder(place / "compose")
    (place / "compose" / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    (place / "first").mkdir()
    (place / "first" / "task.yaml").write_text("instruction: x\n")
    taken = f"/{Path(ledger.SEEN[0]).parts[1]}"  # the first folder on the way to this interpreter
    folder(place / "taken", docker=DOCKER.replace("/store", taken))
    folder(place / "no-tests")
    shutil.rmtree(place / "no-tests" / "tests")
    world = taskset(place)
    assert [task.id for task in world.sample(9)] == ["good"]
    assert "7 repairs, 6 of them left out" in world.about
    for name, told in (
        ("brought", r"its image brings .*RUN pip install numpy.*provided=True"),
        ("gpu", "needs a container for a GPU"),
        ("compose", "docker-compose.yaml"),
        ("taken", "is where what is readable lies" if taken[1:] not in SYSTEM else "work in"),
        ("first", "Terminal-Bench's first tasks"),
        ("no-tests", "neither tests/test_"),
    ):
        with pytest.raises(BadInput, match=told):
            world.find(name)
    assert {task.id for task in taskset(place, provided=True).sample(9)} == {"good", "brought"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no task"):
        taskset(tmp_path / "empty")
    (place / "good" / "task.toml").write_text("[agent\n")
    with pytest.raises(BadInput, match=r"good/task.toml"):
        taskset(place)


def test_links_of_a_task_folder_lead_nowhere(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    place = folder(tmp_path / "sums")
    (place / "environment" / "src" / "away").symlink_to(tmp_path / "mine.txt")
    world = taskset(place)
    restore(world.shelf, world.begins(world.find("sums")), tmp_path / "box")
    assert (tmp_path / "box" / "shop" / "away").is_symlink()
    (place / "instruction.md").unlink()
    (place / "instruction.md").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(BadInput, match="is no text"):
        _ = taskset(place).sample(1)[0]


def test_swe_bench_in_harbors_layout_is_done_over_the_clone(tmp_path):
    clone = ledger.make(tmp_path / "clones" / "own__ledger")
    place = folder(
        tmp_path / "swe", docker="FROM swebench/sweb.eval.x86_64.own_1776_ledger-7:latest\nWORKDIR /testbed\n"
    )
    (place / "tests" / "config.json").write_text(json.dumps(ledger.row(clone)))
    world = taskset(place, clones=str(tmp_path / "clones"))
    (task,) = world.sample(1)
    assert (task.id, task.prompt) == ("own__ledger-7", "The mean of no amounts divides by zero.")
    case = world._case(task.id)
    assert asyncio.run(world.judged(task, case.solved()))["reward"] == 1.0
    assert asyncio.run(world.judged(task, case.begin))["reward"] == 0.0


def test_a_sandbox_has_its_folder_at_further_paths():
    box = Sandbox(links={"/app": "/box", "/tests": "/box/inner"})
    done = box.run("echo 1 > /app/x; mkdir inner; echo 2 > /tests/y; cat x inner/y; touch /new")
    assert done.stdout == b"1\n2\n"
    assert done.code != 0
    for path in ("/usr", "/", "app", "/a/b", "/tmp"):
        with pytest.raises(BadInput, match="cannot be a link"):
            Sandbox(links={path: "/box"})
