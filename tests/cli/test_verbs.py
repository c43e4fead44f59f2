"""Every verb explains itself, and those that look at a store print what they should, as text and as JSON."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from clew.cli import verbs
from clew.cli.contract import check_command
from clew.cli.shared import common
from clew.cli.shared.verb_table import CORE, SECTIONS, entries, places
from clew.core import registry
from clew.store import open_store
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from tests.docs.pages import lines, parse


def ids(path):
    store = open_store(path)
    try:
        return store.find()
    finally:
        store.close()


def leaves(command):
    """The verb itself, or the verbs of a group."""
    context = click.Context(command)
    inner = command.list_commands(context) if isinstance(command, click.Group) else ()
    return [command.get_command(context, name) for name in inner] or [command]


@pytest.mark.parametrize("verb", places())
def test_help_of_every_verb_has_an_example_and_explains_every_option(clew, verb):
    assert f"  clew {verb}" in clew(verb, "--help").output
    command = verbs.get_command(click.Context(verbs), verb)
    for leaf in (command, *leaves(command)):
        assert leaf.short_help
        assert len(leaf.short_help) <= 66, "it fits into one line of 80 columns beside the verb's name"
        assert [p.name for p in leaf.params if isinstance(p, click.Option) and not p.help] == []


@pytest.mark.parametrize("line", [("--all",), ("--help", "--all"), ("--all", "-h")])
def test_all_lists_every_verb_once(clew, line):
    text = clew(*line).output
    for section, title in SECTIONS.items():
        listed = [verb for verb, at in places().items() if at.section == section]
        assert (f"\n{title}:\n" in text) == bool(listed)
        assert [text.count(f"\n  {verb} ") for verb in listed] == [1] * len(listed)
    assert not re.search(r"^ {6,}", text, re.MULTILINE), "each fits into one line of 80 columns"
    assert "does not load" not in text


def test_the_first_screen_lists_what_a_newcomer_needs_each_in_one_line(clew):
    text = clew("--help").output
    listed = re.findall(r"^  ([a-z]+)  +\S", text, re.MULTILINE)
    assert listed == [verb for verb, at in places().items() if not at.later]
    assert len(listed) <= 20
    assert len(places()) > len(listed)
    assert "clew --all" in text
    assert clew("--version", "--all").output.startswith("clew ")


def test_all_of_a_verb_is_its_own(clew, store):
    assert "--sft" in clew("export", "out.jsonl", "--all", "--store", store, code=2).output


@pytest.mark.parametrize("verb", places())
def test_examples_in_help_texts_parse(verb):
    command = verbs.get_command(click.Context(verbs), verb)
    examples = [line for leaf in (command, *leaves(command)) for line in lines(leaf.help)]
    assert examples
    for line in examples:
        parse(line)


def test_help_needs_no_torch():
    probe = (
        "import sys; from clew.cli import verbs\n"
        "try: verbs(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'torch', 'transformers', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=60).returncode == 0


def test_unknown_verb_names_a_near_one(clew):
    assert "Did you mean show?" in clew("shwo", code=2).output


def test_log_as_text_and_json(clew, store):
    rows = json.loads(clew("log", "--store", store, "--json").output)
    assert len(rows) == 6
    assert {row["stop"] for row in rows} == {"done"}
    assert [row["run"] for row in rows] == ids(store)
    text = clew("log", "--store", store).output
    assert all(row["run"] in text for row in rows)


def test_log_filters_by_query_and_limit(clew, store):
    assert json.loads(clew("log", "world=household", "steps>100", "--store", store, "--json").output) == []
    assert len(json.loads(clew("log", "world=household", "-n", 2, "--store", store, "--json").output)) == 2


def test_store_from_the_environment(clew, store, monkeypatch):
    monkeypatch.setenv("CLEW_STORE", str(store))
    assert len(json.loads(clew("log", "--json").output)) == 6


def test_show_draws_every_step(clew, store):
    run = ids(store)[0]
    text = clew("show", run[:6], "--store", store).output
    assert text.startswith(f"run {run}")
    data = json.loads(clew("show", run, "--store", store, "--json").output)
    kinds = [call["kind"] for call in data[0]["calls"]]
    assert kinds == ["open", *["ask", "act"] * kinds.count("act"), "end"]
    assert text.count("  > ") == kinds.count("act") > 0
    assert data[0]["calls"][1]["reply"]["text"] in text


def test_diff_names_the_call_where_runs_part(clew, store):
    a, b = ids(store)[:2]
    one = json.loads(clew("diff", a, b, "--store", store, "--json").output)
    assert isinstance(one["parts_at"], int)
    assert "calls are the same" in clew("diff", a, a, "--store", store).output


def test_credit_files_values_that_show_and_compares(clew, store):
    data = json.loads(clew("credit", "grpo+bellman(lam=0.5)", "--store", store, "--json").output)
    assert [row["method"] for row in data["methods"]] == ["grpo", "bellman(lam=0.5)"]
    assert len(data["pairs"]) == 1


def test_credit_says_what_a_method_chose_by_itself_and_takes_another_key(clew, store):
    auto, text = 'bellman(lam="auto")', 'g2po(key="text")'
    data = json.loads(clew("credit", f"{auto}+{text}", "--store", store, "--json", "--dry").output)
    assert data["notes"][0].startswith("bellman took grpo instead. Whether the states are Markov was not tested:")
    assert data["notes"][0] in clew("credit", auto, "--store", store, "--dry").output
    assert [m["method"] for m in data["methods"]] == [auto, text]
    assert "key='words' is not known" in clew("credit", 'g2po(key="words")', "--store", store, code=2).output


def test_tag_find_and_untag(clew, store):
    a, b = ids(store)[:2]
    clew("store", "tag", "keep", a, b, "--store", store)
    assert len(json.loads(clew("log", "tag:keep", "--store", store, "--json").output)) == 2
    assert len(json.loads(clew("log", "keep", "--store", store, "--json").output)) == 2
    clew("store", "tag", "-d", "keep", a, "--store", store)
    assert json.loads(clew("store", "tag", "--store", store, "--json").output) == {"keep": [b]}


def test_replay_proves_every_run(clew, store):
    rows = json.loads(clew("replay", "world=household", "--store", store, "--json").output)
    assert len(rows) == 6
    assert [row["error"] for row in rows] == [None] * 6


def test_verify_is_clean_and_finds_what_was_altered(clew, store):
    import sqlite3

    assert "no faults" in clew("store", "verify", "--store", store).output
    with sqlite3.connect(store) as db:
        db.execute("UPDATE call SET text = 'all is well' WHERE at = (SELECT max(at) FROM call WHERE kind = 2)")
    db.close()
    assert json.loads(clew("store", "verify", "--store", store, "--json", code=1).output)["faults"]


def test_merge_unites_and_is_idempotent(clew, store, tmp_path):
    other = tmp_path / "other.db"
    taken = json.loads(clew("store", "merge", store, "--store", other, "--json").output)
    assert taken[str(store)]["runs"] == 6
    assert ids(other) == ids(store)
    assert set(json.loads(clew("store", "merge", store, "--store", other, "--json").output)[str(store)].values()) == {0}


def test_gc_keeps_groups_and_says_so(clew, store):
    assert json.loads(clew("store", "gc", "--store", store, "--json").output)["runs"] == []


def test_redact_erases_and_the_rest_verifies(clew, store):
    run = ids(store)[0]
    data = json.loads(clew("show", run, "--store", store, "--json").output)
    assert json.loads(clew("store", "redact", f"{run}@1", "--yes", "--store", store, "--json").output)
    after = json.loads(clew("show", run, "--store", store, "--json").output)
    assert data[0]["calls"][1]["reply"]["text"]
    assert after[0]["calls"][1]["reply"]["text"] == "(redacted)"
    assert after[0]["calls"][1]["key"] == data[0]["calls"][1]["key"]
    clew("store", "verify", "--store", store)


def test_worlds_models_doctor(clew):
    names = {row["name"] for row in json.loads(clew("worlds", "--json").output)}
    assert {"household", "house"} <= names
    tasks = json.loads(clew("worlds", "household", "-n", 2, "--json").output)
    assert len(tasks) == 2
    assert all(task["legal"] for task in tasks)
    assert "echo" in {row["name"] for row in json.loads(clew("models", "--json").output)}
    found = {row["what"]: row for row in json.loads(clew("doctor", "--json").output)}
    assert found["python"]["ok"]
    assert all(row["ok"] or row["remedy"] for row in found.values())


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A function that installs a package with entry points and a module ``mine``."""

    def install(points: str, module: str) -> None:
        told = tmp_path / "mine-1.dist-info"
        told.mkdir()
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        (told / "entry_points.txt").write_text(f"[clew.commands]\n{points}")
        (tmp_path / "mine.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
        entries.cache_clear()

    yield install
    sys.modules.pop("mine", None)
    entries.cache_clear()


GREET = """
import click
@click.command(short_help="Say hello.")
@click.option("--name", default="you", help="Whom.")
def greet(name):
    click.echo(f"hello {name}")
"""


def test_verbs_from_another_package_stand_where_its_entry_points_say(clew, outside):
    points = ("greet = mine:greet [start, 35]", "later = mine:greet [code, later]", "other = mine:greet")
    outside("\n".join((*points, "audit greet = mine:greet [25]", "audit why = mine:greet", "run = mine:greet")), GREET)
    assert clew("greet", "--name", "Ann").output == "hello Ann\n"
    assert clew("audit", "greet").output == "hello you\n"
    text, every = clew("--help").output, clew("--all").output
    assert re.search(r"\n  init .*\n  greet +Say hello\.\n  doctor ", text)
    assert "\nFrom other packages:\n  other " in text
    assert "\n  later " not in text
    assert "\n  later " in every
    assert re.search(r"\n  coverage .*\n  greet +Say hello\.\n  grade ", clew("audit", "--help").output)
    assert "Whom." not in clew("audit", "why", "--help").output, "no package takes the name of a verb of Clew"
    assert "Whom." not in clew("run", "--help").output
    for name in ("greet", "audit greet"):
        check_command(name)


def test_a_verb_of_another_package_that_does_not_load_is_named_with_the_remedy(clew, outside):
    outside("gone = absent.module:it [start]\nlost = mine:nothing\nwrong = mine:VALUE\n", "VALUE = 1\n")
    assert "the verb 'gone' of package mine does not load" in (said := clew("gone", code=2).output)
    assert "Install mine again, or remove it." in said
    assert "the verb 'lost' of package mine does not load" in clew("lost", code=2).output
    assert "'wrong' is not a click command: got int" in clew("wrong", code=2).output
    assert "(does not load: " in clew("--help").output, "the others are listed all the same"


def test_a_verb_registered_by_hand(clew, monkeypatch):
    monkeypatch.setattr(registry, "_local", {})
    silent = click.Command("wave", callback=lambda: click.echo("waves"), short_help="Wave.")
    registry.register("commands", "wave", silent)
    registry.register("commands", "audit wave", silent)
    assert clew("wave").output == clew("audit", "wave").output == "waves\n"
    assert "  wave " in clew("--help").output
    check_command("wave")
    registry.register("commands", "mute", click.Command("mute"))
    with pytest.raises(AssertionError, match="no help line"):
        check_command("mute")


def test_every_verb_of_clew_keeps_the_contract_of_commands():
    """In a process that has not loaded torch."""
    names = [*CORE, *entries()]
    assert len(names) > 60
    probe = "import sys; from clew.cli.contract import check_command\nfor name in sys.argv[1:]: check_command(name)"
    done = subprocess.run([sys.executable, "-c", probe, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_reproduce_lists_papers_with_title_time_and_needs(clew):
    root = Path(__file__).resolve().parents[2]
    rows = json.loads(clew("reproduce", "--root", root, "--json").output)
    assert [row["paper"] for row in rows] == sorted(path.parent.name for path in root.glob("papers/E*/__init__.py"))
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = clew("reproduce", "--root", root).output
    for row in rows:
        module = importlib.import_module(f"papers.{row['paper']}")
        assert row["tiers"] == list(module.TIERS)
        assert len(row["title"].split()) >= 2
        assert row["needs"] == module.NEEDS
        assert row["cpu_seconds"] > 0
        assert any(
            {row["paper"], *row["title"].split(), *row["needs"].split()} <= set(x.split()) for x in text.split("\n")
        )
        sources = "".join(path.read_text() for path in (root / "papers" / row["paper"]).glob("*.py"))
        assert ("local (" in row["needs"]) == ("import torch" in sources or "clew.models.local" in sources), row[
            "paper"
        ]
    named = {word for row in rows for word in re.findall(r"\b(local|stats|kernels)\b", row["needs"])}
    assert named <= set(extras)


def test_a_large_store_says_how_far_it_is_counted_and_searched(clew, tmp_path, monkeypatch):
    with SQLiteStore(tmp_path / "large.db") as store:
        for number in range(12):
            Script(store, f"run{number:02}", created=float(number)).play(2, float(number % 2))
    shutil.copy("large.db", "again.db")
    plain = clew("log", "text:view", "--store", "large.db", "--json")
    monkeypatch.setattr(common, "SLICE", 0.0)
    told = clew("log", "text:view", "--store", "again.db", "--json", env={"TTY_COMPATIBLE": "1", "COLUMNS": "100"})
    assert len(json.loads(told.stdout)) == 12
    assert told.stdout == plain.stdout
    assert "the messages are searched" in told.stderr
