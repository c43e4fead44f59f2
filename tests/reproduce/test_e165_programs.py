"""E165's tier of programs: demonstrations show what commands print, the judge is not fooled, marks can be missed."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from clew.worlds.seeds import draw_numbers
from clew.worlds.workspace import Scan
from papers.E165_g2po.calc_model import DONE, Habits, Shown, demonstrations, edit_of, look_of, vocabulary
from papers.E165_g2po.calc_tasks import FILE_NAME, NAMES, SIGNS, CalcTasks, calc_of
from papers.E165_g2po.report_programs import report

pytestmark = pytest.mark.whole


def test_commands_print_what_demonstrations_show(tmp_path):
    dice = random.Random(1)
    for number in draw_numbers(4, 1, "train", calc_of):
        calc = calc_of(number)
        shown = Shown(calc)
        (tmp_path / FILE_NAME).write_text(calc.text())
        for _ in range(8):
            command = dice.choice([look_of(dice.choice(NAMES)), edit_of(dice.randrange(1, 4), dice.choice(SIGNS))])
            done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
            told = (done.stdout + done.stderr).strip()
            assert shown.told(command) == f"{told}\nexit {done.returncode}".strip()
        rows = zip(calc.names, shown.signs, strict=True)
        assert (tmp_path / FILE_NAME).read_text() == "".join(f"def {f} (a, b): return a {sign} b\n" for f, sign in rows)


def test_demonstrations_use_known_words_and_tasks_of_the_train_split_alone():
    talks = demonstrations(Habits(), 300)
    known = set(vocabulary())
    assert {word for talk, _ in talks for message in talk for word in message.text.split()} <= known
    assert all(talk[-1].text == DONE for talk, _ in talks)
    assert 0.35 < sum(solved for _, solved in talks) / 300 < 0.7
    right = demonstrations(Habits(slip=0.0, leaves=0.0), 30)
    assert all(solved for _, solved in right)
    taught, held = ({calc_of(x) for x in draw_numbers(1000, 1, split, calc_of)} for split in ("train", "test"))
    assert len(held) > 500
    assert not taught & held


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_the_judge_calls_the_functions_and_believes_nothing_that_they_print(tmp_path):
    tasks = CalcTasks(shelf=str(tmp_path / "files"))
    task = tasks.sample(1, 3, "test")[0]
    calc = tasks.calc(task.id)
    right = "".join(f"def {name}(a, b): return a {sign} b\n" for name, sign in calc.right().items())
    forged = "import sys, json\nprint('[[true]]')\nsys.exit(0)\n"
    for number, (text, reward) in enumerate(
        ((right, 1.0), ("x = 1\n" + right, 1.0), (calc.text(), 0.0), (forged, 0.0), ("def", 0.0))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE_NAME).write_text(text)
        tree = Scan(folder, tasks.shelf).snapshot().tree
        assert asyncio.run(tasks.judged(task, tree)) == {"reward": reward}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert asyncio.run(tasks.judged(task, Scan(empty, tasks.shelf).snapshot().tree)) == {"reward": 0.0}
    assert Path(tasks.shelf.folder).is_dir()


def lines(gain: float, true: int) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for seed in range(1, 5):
        near = 0.01 * (seed % 2)
        made.append({"kind": "start", "variant": "calc", "seed": seed, "success": 0.3 + near, "cpu_s": 1.0})
        for arm in ("g2po", "g2po-tree", "g2po-lot"):
            after = 0.3 + (0.0 if arm == "g2po-lot" else gain) + near * (arm != "g2po-tree")
            cpu = {"sandbox": 1.0, "engine": 0.5, "own": 1.0, "starting": 0.5, "wall": 3.0}
            told = {
                "rows": 10,
                "true_rows": true,
                "replies": 30,
                "mismatch": 1e-5,
                "repeats": 20,
                "matched": 20,
                "anew": 0,
            }
            done = {"after": after, "curve": [0.3, 0.4], "silent_groups": 0.1, "runs": 8, "tokens": 100, "cpu": cpu}
            made.append({"kind": "train", "arm": arm, "variant": "calc", "seed": seed, "cpu_s": 3.0, **done, **told})
    return made


def test_marks_are_met_and_missed_by_what_was_measured():
    told = report(lines(0.2, 10))
    assert "NOT MET" not in told
    assert told.count("- met:") == 8
    told = report(lines(0.0, 9))
    assert "NOT MET: G2PO, independent runs, learns" in told
    assert "NOT MET: G2PO less the control" in told
    assert "NOT MET: rows are token-true" in told
