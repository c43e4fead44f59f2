"""Each line that a verb prints for going on works as printed: in a shell, with another store, world and agent."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from clew.cli.shared import common, next_lines
from clew.cli.shared.verb_table import places
from clew.store import open_store
from tests.cli.shell import printed, script, warm_line

WORLD, STORE = "household(goals=('open',), rooms=2, steps=4)", "runs/my store.db"
SERVES = ("clew view", "clew serve")  # they end when they are interrupted
AGENT = """
import asyncio
async def agent(run, pause=0.0, luck=0.2):
    chat = run.chat(max_tokens=4)
    while not run.done:
        reply, goal = await chat.ask(run.view), run.view.text.split(" ; ")[0]
        await run.act(goal if await run.draw("luck") < luck else reply)
        await asyncio.sleep(pause)
"""
CONFIG = {"luck": 0.3}
HOW = ("--world", WORLD, "--config", json.dumps(CONFIG), "--model", "tiny one")


@pytest.fixture
def at(clew, tmp_path, monkeypatch):
    """A folder with weights and an agent whose names need quoting, and `clew` on the path."""
    pytest.importorskip("transformers", reason="did not run: transformers is not installed")
    from clew.models.local import small
    from clew.worlds.household import Household

    shape = {"d": 16, "layers": 2, "heads": 2, "kv_heads": 1, "context": 256, "seed": 1}
    small(Household(rooms=2).vocabulary(), **shape).save(tmp_path / "tiny one")
    (tmp_path / "my agent.py").write_text(AGENT)
    script(tmp_path / "bin" / "clew", *warm_line())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path


@pytest.fixture
def say(clew, at):
    """Call a verb on a store that is not the usual one; what it printed."""
    return lambda *words, code=0: clew(*words, "--store", STORE, code=code).output


def works(lines: list[str], folder: Path, *, wanted: int) -> list[str]:
    """Run each line as it stands; what each said."""
    assert len(lines) == wanted, lines
    return [in_shell(line, folder) for line in lines]


def in_shell(line: str, folder: Path) -> str:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(line, shell=True, cwd=folder, start_new_session=True, **pipes) as process:
        if line.startswith(SERVES):
            said = process.stdout.readline()
            assert "http://" in said
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
            return said
        said = process.communicate(timeout=240)[0]
        assert process.returncode == 0, f"{line}\n{said}"
        return said


def test_run_credit_and_grade(say, at):
    told = say("run", "my agent.py:agent", *HOW, "--tasks", 6, "-n", 4)
    listed, shown = works(printed(told), at, wanted=2)
    assert len(listed.splitlines()) == 25
    run = printed(told)[1].split()[2]
    assert f"run {run}" in shown
    shown, forked = works(printed(say("credit", "grpo+g2po", run)), at, wanted=2)
    assert "grpo" in shown
    assert forked.count(" @") + forked.count("@") >= 5
    page, forked = works(
        printed(say("audit", "grade", run, "--policy", "tiny one", "--reference", "tiny one")), at, wanted=2
    )
    assert shlex.split(STORE)[0] in page
    assert "(recorded)" in forked
    works(printed(say("log", "tag:nothing")), at, wanted=1)
    works(printed(say("store", "gc")), at, wanted=1)


@pytest.mark.whole
@pytest.mark.parametrize("more", [(), ("--temperature", 0.5)], ids=["plain", "sampling"])
def test_train_and_tune(say, at, more):
    line = (
        "train",
        "--name",
        "t",
        *HOW,
        "--agent",
        "my agent.py:agent",
        "--iterations",
        1,
        "--tasks",
        4,
        "-n",
        4,
        *more,
    )
    lines = printed(say(*line))
    said = works(lines, at, wanted=len(lines))
    assert "success" in said[0]
    store = open_store(at / STORE)
    for run in store.runs():
        assert (run.taskset, run.config) == (WORLD, CONFIG)
        assert run.agent == f"{at / 'my agent.py'}:agent"
    assert len(store.runs()) >= 16 + 256
    asked = {call.setup.asked.temperature for run in store.runs() for call in run.calls if call.setup is not None}
    assert asked == ({0.5} if more else {1.0})
    if store.find("return>0.5"):
        told = say("tune", "world=household", "--loss", "dpo", "--name", "d", "--model", "tiny one")
        works(printed(told), at, wanted=1)
    store.close()


@pytest.mark.whole
def test_import_and_a_run_that_failed(say, at):
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    (at / "runs.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    (shown,) = works(printed(say("import", "runs.jsonl")), at, wanted=1)
    assert "“yes”" in shown
    refused = ("--model", "http://127.0.0.1:9/v1#x", "--model-options", '{"attempts": 1, "retries": 0}')
    told = say("run", "--world", WORLD, *refused[:2], "--tasks", 1, code=2)
    (shown,) = works([line for line in printed(told) if " show " in line], at, wanted=1)
    assert "error" in shown


@pytest.mark.whole
def test_interrupted_stopped_and_unfinished(say, at):
    """The line of an interrupt goes on in the store that was named; so do those of stop and of an unfinished run."""
    line = ["clew", "run", "my agent.py:agent", "--world", "household(rooms=2,steps=40)", "--model", "echo"]
    line += ["--tasks", "2", "--config", '{"pause": 0.2}', "--store", STORE]
    with subprocess.Popen(line, cwd=at, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not acting(at / STORE):
            time.sleep(0.1)
        stopped = printed(say("stop"))
        told = process.communicate(timeout=60)[1]
        assert process.returncode == 130, told
        interrupted = printed(told)
    assert stopped == interrupted == [f"clew resume --store {shlex.quote(STORE)}"]
    assert printed(say("stop")) == stopped
    store = open_store(at / STORE)
    one, other = store.find("stop=open")
    store.close()
    ((shown),) = printed(say("show", one))
    assert one in shown
    assert one in in_shell(shown, at)
    assert other in in_shell(interrupted[0], at)
    assert "no run is unfinished" in in_shell(interrupted[0], at)


def acting(path: Path) -> bool:
    if not path.exists():
        return False
    store = open_store(path)
    try:
        return any(len(run.calls) > 2 for run in store.runs())
    finally:
        store.close()


def test_a_remedy_names_the_store_where_its_verb_takes_one():
    named = next_lines.with_store
    assert named("`clew log` lists all.", "a b.db") == "`clew log --store 'a b.db'` lists all."
    assert named("Run `clew store verify`.", "x.db") == "Run `clew store verify --store x.db`."
    assert named("`clew audit cliffs RUN`", "x.db") == "`clew audit cliffs RUN --store x.db`"
    for text in ("`clew doctor --help`", "`clew models` lists", "`clew nothing`", "no verb"):
        assert named(text, "x.db") == text
    assert named("`clew log`", ".clew/store.db") == named("`clew log`", None) == "`clew log`"


def test_an_error_names_the_store_in_its_remedy(say, at):
    say("run", *HOW[:2], "--model", "echo", "--tasks", 1)
    (line,) = printed(say("show", "nothing-like-it", code=2))
    assert in_shell(line, at).count("\n") == 2


def test_options_with_their_defaults_are_left_out_and_words_are_quoted():
    line = next_lines.command_line
    assert (
        line("fork", "a@3", n=1, reply="-x 'y'", keep=True, model=None)
        == """clew fork a@3 '--reply=-x '"'"'y'"'"'' --keep"""
    )
    assert line("eval", "m", world="household", agent="player", config="{}") == "clew eval m"
    assert line("eval", "\x1b[2J").isprintable()
    with pytest.raises(KeyError):
        line("eval", "m", nothing=1)


def test_no_verb_prints_a_line_that_is_written_by_hand():
    """What is printed for going on is built from the verbs' own options, so that it cannot lack the store."""
    folder = Path(__file__).resolve().parents[2] / "src" / "clew" / "cli"
    written = re.compile(rf"(?<![`\w])clew ({'|'.join(places())})\b")
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("common.echo", "common.say", "echo", "say"):
                found += [f"{path.name}: {match[0]}" for match in written.finditer(ast.unparse(node))]
    assert found == []


def test_a_training_without_any_signal_says_that_nothing_was_learnt(say, at):
    line = ("train", "--name", "t", *HOW[:2], *HOW[4:], "--iterations", 1, "--tasks", 2, "-n", 2, "--agent", "player")
    told = say(*line[:-2], "--world", "household(rooms=2,steps=1)", *line[-2:])
    assert "Nothing was learnt" in told
    lines = printed(told)
    (said,) = works([line for line in lines if "log" in line], at, wanted=1)
    assert "100% of 2 groups gave no signal" in said
    assert not any(" eval " in line for line in lines)
    again = say(*line[:-2], "--world", "household(rooms=2,steps=1)", *line[-2:], "--json")  # the forecast, and JSON
    again = json.loads(again[again.index("{") :])
    assert again["learnt"] is False


# ---- every line that the source names --------------------------------------------------------------------------------

SOURCE = Path(next_lines.__file__).parents[2]
MENTION = re.compile(r"`clew ([a-z][^`]+)`")


def lines_named() -> Iterator[tuple[str, list[str]]]:
    """Each line of `clew` that a text of the source names between backticks: remedies, help, errors, pages."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(it.value) if isinstance(it, ast.Constant) else "7" for it in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
            for found in MENTION.findall(text):
                yield f"{path.name}:{getattr(node, 'lineno', 0)}", shlex.split(found)


def fault_of(words: list[str]) -> str:
    """What is wrong with a line: a verb or an option that is not there, or an option that does nothing; "" for a line
    that only breaks off, as one that names an option without its value."""
    if words[0] not in places() or words[1:2] == ["..."]:
        return f"no verb {words[0]}" if words[0] not in places() else ""
    command, rest = common.load_verb(words[0]), words[1:]
    if isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), rest[0]) if rest and rest[0][0] != "-" else None
        if inner is None:
            return ""  # the group, or its usual verb with an argument
        command, rest = inner, rest[1:]
    context = click.Context(command)
    try:
        typed = [word for word in rest if word not in ("...", "--help", "-h")]
        said = command.make_parser(context).parse_args(typed)[0]
    except click.BadOptionUsage as error:
        return "" if "requires" in error.message else error.message
    except click.UsageError as error:
        return error.message
    return lost(command, said)


def lost(command: click.Command, said: dict[str, object]) -> str:
    context = click.Context(command)
    options = [it for it in command.params if isinstance(it, common.FromProject) and it.name in said]
    return "; ".join(f"{it.opts[0]} {told[0]}" for it in options if (told := it.lost(context, said)))


def literal(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else "X"


@pytest.mark.whole
def test_each_line_that_a_text_names_is_one_that_its_verb_takes():
    named = list(lines_named())
    assert len(named) > 400
    assert [f"{place}: {words}: {fault}" for place, words in named if (fault := fault_of(words))] == []


@pytest.mark.whole
def test_each_line_that_is_built_is_one_that_its_verb_takes():
    built = 0
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("command_line"):
                continue
            built += 1
            if not isinstance(node.args[0], ast.Constant):
                continue  # `clew init` names verbs without options
            command = next_lines.command_of(str(node.args[0].value))
            names = {it.name for it in command.params}
            said = {it.arg: literal(it.value) for it in node.keywords if it.arg}
            assert {*said} <= names, f"{path.name}:{node.lineno}"
            arguments = [it.name for it in command.params if isinstance(it, click.Argument)]
            said |= dict.fromkeys(arguments[: len(node.args) - 1], "X")
            if all(it.arg for it in node.keywords):
                assert lost(command, said) == "", f"{path.name}:{node.lineno}"
    assert built > 100


def test_a_line_with_an_option_that_is_not_there_or_does_nothing_is_found():
    assert fault_of(["show", "RUN", "--no-such"])
    assert fault_of(["nothing"]) == "no verb nothing"
    assert fault_of(["show", "RUN", "--files", "--full"]) == "--full with --files"
    assert fault_of(["fork", "RUN", "--reply"]) == fault_of(["memory", "show", "shop", "7"]) == ""
