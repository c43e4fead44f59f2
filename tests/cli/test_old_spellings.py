"""Every spelling of earlier versions goes on working: the same help, output and exit code as today's, never listed."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.cli.shared.old_spellings import OLD, today
from clew.cli.shared.verb_table import places
from clew.core.registry import build, register
from clew.harness import Runner
from clew.models.fakes import Echo
from clew.models.local import small
from clew.store import open_store
from clew.worlds.maze import Maze
from clew.worlds.sums import Sums

HELP = [(old.split(), new.split()) for old, new in OLD.items() if old != "train --loss"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two stores and two models of one vocabulary, as a folder to be copied."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    folder = tmp_path_factory.mktemp("lab")
    register("tasksets", "maze", Maze)
    register("tasksets", "sums", Sums)
    maze = build("tasksets", "maze")
    runner = Runner("clew.harness.agents:demonstrator", maze, Echo(), folder / "maze.db", config={"world": "maze"})
    runner.collect(maze.sample(2), n=2)
    runner.store.close()
    taskset = Sums(low=2, high=2)
    for name, seed in (("one", 1), ("two", 2)):
        small(taskset.vocabulary(), 16, 1, 2, 1, context=64, seed=seed).save(folder / name)
    model = small(taskset.vocabulary(), 16, 1, 2, 1, context=64, seed=1, ref="one")
    runner = Runner("clew.harness.agents:player", taskset, model, folder / "sums.db", sampling={"max_tokens": 6})
    runs = runner.collect(taskset.sample(2), n=4).runs
    runner.store.annotate(verdicts(runs))
    for run in runs:
        runner.store.tag(run.id, "kept")
    runner.store.commit()
    runner.store.close()
    model.close()
    return folder


def verdicts(runs):
    from clew.core.records import Annotation

    return [Annotation("run", "reward", float(i % 2), run.id, scope=run.id) for i, run in enumerate(runs)]


def say(folder, words, monkeypatch, code=0):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(verbs, words)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


@pytest.mark.parametrize(("old", "new"), HELP, ids=lambda words: " ".join(words))
def test_the_help_is_the_one_of_today(old, new, monkeypatch, tmp_path):
    asked = say(tmp_path, [*old, "--help"], monkeypatch)
    assert asked == say(tmp_path, [*new, "--help"], monkeypatch)
    assert f"Usage: verbs {new[0]}" in asked[0]


def test_train_with_a_loss_explains_tune(monkeypatch, tmp_path):
    shown, _ = say(tmp_path, ["train", "--loss", "dpo", "--help"], monkeypatch)
    assert "clew tune world=sums --loss cliff-dpo" in shown
    assert "clew tune" in say(tmp_path, ["train", "--help"], monkeypatch)[0]


GRADE = "--policy one --reference two --store sums.db --json"
CLIFFS = "--model one --store sums.db --json"
USES = [
    (f"cliffs RUN --dry {CLIFFS}", f"audit cliffs RUN --dry {CLIFFS}"),
    ("coverage world=maze --store maze.db", "audit coverage world=maze --store maze.db"),
    (f"grade {GRADE}", f"audit grade {GRADE}"),
    ("distil world=maze a.jsonl --store maze.db", "export --sft a.jsonl world=maze --store maze.db"),
    ("distil --erase-loops --all a.jsonl --store maze.db --json",
     "export a.jsonl --sft --erase-loops --all --store maze.db --json"),
    ("tag keep RUN --store sums.db", "store tag keep RUN --store sums.db"),
    ("tag -d kept RUN --store sums.db --json", "store tag -d kept RUN --store sums.db --json"),
    ("merge maze.db --store sums.db --json", "store merge maze.db --store sums.db --json"),
    ("verify --rebuild --store sums.db", "store verify --rebuild --store sums.db"),
    ("redact RUN@1 --yes --store sums.db", "store redact RUN@1 --yes --store sums.db"),
    ("gc --store sums.db --json", "store gc --store sums.db --json"),
    ("--debug verify --store sums.db", "--debug store verify --store sums.db"),
    ("train --name t --loss dpo --model one --lr 1e-3 --world sums --iterations 9 --data RUNS --store sums.db",
     "tune RUNS --name t --loss dpo --model one --lr 1e-3 --store sums.db"),
    ("train --loss=dpo --data=RUNS --name t --model one --store sums.db",
     "tune --loss=dpo RUNS --name t --model one --store sums.db"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), USES, ids=lambda line: line.partition(" --")[0])
def test_the_output_is_the_same(old, new, lab, tmp_path, monkeypatch):
    """Each in a folder of its own, so that neither finds what the other left."""
    with open_store(lab / "sums.db") as store:
        run = store.find()[0]
    said = []
    for name, line in (("old", old), ("new", new)):
        folder = tmp_path / name
        shutil.copytree(lab, folder)
        words = [word.replace("RUNS", "world=sums").replace("RUN", run) for word in line.split()]
        said.append(say(folder, words, monkeypatch)[0].replace(str(folder), "FOLDER"))
    assert said[0] == said[1] != ""
    texts = [file.read_text() for name in ("old", "new") for file in (tmp_path / name).glob("*.jsonl")]
    assert len(texts) in (0, 2)
    assert texts[:1] == texts[1:]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cliffs world=maze --store maze.db", "audit cliffs world=maze --store maze.db", "clew: "),
        ("verify --store absent.db", "store verify --store absent.db", "there is no store"),
        ("distil world=maze out.txt --store maze.db", "export --sft world=maze out.txt --store maze.db", ".jsonl"),
        ("train --name t --loss dpo --store maze.db", "tune --name t --loss dpo --store maze.db", "RUNS"),
        ("train --name t --loss dpo --data x --draft lookup", "tune x --name t --loss dpo --draft lookup", "--draft"),
        ("grade --policy one", "audit grade --policy one", "--reference"),
    ],
)
def test_what_is_refused_is_refused_alike(old, new, why, lab, monkeypatch):
    both = [say(lab, line.split(), monkeypatch, code=2) for line in (old, new)]
    assert both[0] == both[1]
    assert why in both[0][1]


def test_an_altered_store_fails_the_check_alike(lab, tmp_path, monkeypatch):
    import sqlite3

    shutil.copy(lab / "maze.db", tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("UPDATE call SET text = 'all is well' WHERE at = (SELECT max(at) FROM call WHERE kind = 2)")
    db.close()
    both = [
        say(tmp_path, [*words, "--store", "s.db"], monkeypatch, code=1) for words in (["verify"], ["store", "verify"])
    ]
    assert both[0] == both[1]


def test_old_spellings_are_not_listed():
    assert not {old for old in OLD if " " not in old} & places().keys()
    assert all(today(new.split()) == new.split() for new in OLD.values())
