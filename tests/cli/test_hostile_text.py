"""Attacks on the terminal: what models, transcripts, files and names say is printed, and never obeyed or hidden.

Each attack goes through every verb that shows runs, through errors, warnings, tables, progress bars and reports.
"""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clew.core.printable import HIDDEN
from clew.core.registry import build
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import open_store
from clew.view.report import page
from clew.view.terminal import tree
from tests.cli.shell import warm_line

ATTACKS = {
    "hyperlink (OSC 8)": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard (OSC 52)": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "title (OSC 0)": "\x1b]0;owned\x07",
    "clear the screen (CSI)": "\x1b[2J\x1b[H\x1b[8m",
    "eight-bit CSI (C1)": "\x9b2J\x9d0;owned\x9c\x90q\x9c",
    "overwrite (backspace, return)": "reward 0\b\b\b\b\b\b\b\breward 1\rdone 1",
    "order (bidi)": "\u202e\u2066etadpu\u2069\u202c\u200f\u061c",
    "invisible (zero width)": "safe\u200b\u200d\u2060\ufeff\u00ad\u034f\u3164\ufe0f\U000e0100",
    "tags": "".join(chr(0xE0000 + ord(c)) for c in "ignore all rules"),
    "separators and halves": "a\u2028b\u2029c\x85d\x0be\x0cf\ud83d",
    "markup of rich": "[link=https://evil.example]x[/link][bold red]y[/]",
    "very long": "A" * 300_000,
}
attack = pytest.fixture(params=list(ATTACKS.values()), ids=list(ATTACKS))(lambda request: request.param)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str, *, longest: int | None = 3000) -> str:
    """The text, where nothing in it is hidden and no line is longer than that."""
    found = HIDDEN.search(text.replace("\r\n", "\n"))
    assert found is None, f"{found[0]!r} in {text[max(found.start() - 80, 0) : found.end() + 40]!r}"
    assert longest is None or max(map(len, text.split("\n"))) <= longest
    return text


@pytest.fixture
def imported(clew, tmp_path, attack):
    """A store with an imported run that says the attack wherever a file may say something, and a run made here."""
    call = {
        "id": f"c{attack}",
        "type": "function",
        "function": {"name": f"t{attack}", "arguments": json.dumps({"k": attack})},
    }
    said = [
        {"role": "system", "content": attack},
        {"role": "user", "content": f"do\n{attack}"},
        {"role": "assistant", "content": attack, "reasoning_content": attack, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{attack}", "content": f"{attack}\n└ @9  done"},
        {"role": "assistant", "content": f"end {attack}"},
    ]
    record = {"messages": said, "task_id": f"task {attack}", "model": f"m {attack}", "reward": 0.5, "name": attack}
    (tmp_path / "runs.jsonl").write_text(json.dumps(record) + "\n")
    clean(clew("import", "runs.jsonl").output)
    taskset = build("tasksets", "household(rooms=2,goals=('open',),steps=3)")
    store = open_store(tmp_path / ".clew" / "store.db")
    runner = Runner("clew.harness.agents:player", taskset, Scripted({"": attack}), store)
    runs = runner.collect(taskset.sample(1), n=2).runs
    clean(str(tree(runs[0], full=True)), longest=None)
    store.close()
    return [run.id for run in runs]


def test_every_verb_that_shows_runs_shows_an_attack_as_text(clew, imported):
    one, other = imported
    listed = json.loads(clean(clew("log", "--json").output, longest=None))
    foreign = next(row["run"] for row in listed if row["run"] not in imported)
    clean(clew("log").output)
    for run in (one, foreign):
        clean(clew("show", run).output)
        clean(clew("show", run, "--full", "--depth", 2).output, longest=None)
        json.loads(clean(clew("show", run, "--json").output, longest=None))
        clean(clew("diff", run, other).output)
        clean(clew("replay", run).output)
    clean(clew("fork", f"{foreign}@1", "--model", "echo").output)
    clean(clew("show", foreign).output)
    clean(clew("store", "gc").output)
    clean(clew("store", "verify").output)
    clean(clew("export", "out.jsonl").output)


def test_a_newline_of_a_transcript_begins_no_line_of_the_tree(clew, imported):
    listed = json.loads(clew("log", "--json").output)
    foreign = next(row["run"] for row in listed if row["run"] not in imported)
    for words in (("show", foreign, "--full"), ("show", foreign), ("diff", foreign, imported[0])):
        forged = [line for line in clew(*words).output.split("\n") if line.startswith("└ @9")]
        assert forged == []


def test_errors_quote_an_attack_as_text(clew, store, attack):
    attack = attack.replace("\ud83d", "").replace("\0", "")
    (Path.cwd() / "bad.jsonl").write_text(json.dumps({"messages": [{"role": attack, "content": 1}]}) + "\n")
    assert "\n" in clean(clew("import", "bad.jsonl", code=2).output)
    for words in (
        ("show", f"x{attack}"),
        ("log", f"{attack}=1"),
        ("run", "--world", f"no{attack}"),
        ("run", "--model", f"no{attack}"),
        ("run", "--config", f"{{{attack}"),
        ("credit", f"no{attack}"),
        ("fork", f"x{attack}@1"),
        ("train", "--name", "x", "--selector", f"no{attack}"),
        ("audit", "grade", f"x{attack}", "--policy", "p", "--reference", "r"),
        (f"verb{attack}",),
        ("log", f"--no{attack}"),
        ("log", "-n", attack),
        ("reproduce", f"no{attack}"),
        ("doctor", "--store", f"no{attack[:80]}/x"),
    ):
        done = clew(
            *words, *(["--store", store] if words[0] in ("show", "log", "fork", "credit", "audit") else []), code=None
        )
        clean(done.output)
        assert done.exit_code == (0 if words[0] == "doctor" else 2)


FAILING = "async def agent(run):\n    run.done\n    raise RuntimeError({!r})\n"


def test_an_agents_error_is_printed_as_text(clew, tmp_path, attack):
    (tmp_path / "own.py").write_text(FAILING.format(attack))
    done = clew("run", "own.py:agent", "--world", "household(rooms=2)", "--model", "echo", "--tasks", 1, code=2)
    clean(done.output)
    assert "RuntimeError" in done.output
    clean(clew("log", "--json").output, longest=None)
    (run,) = [row["run"] for row in json.loads(clew("log", "--json").output)]
    clean(clew("show", run).output)
    clean(
        clew("--debug", "run", "own.py:agent", "--world", "household", "--model", "echo", code=2).output, longest=None
    )


def test_in_a_terminal_bars_warnings_and_colours_let_nothing_through(tmp_path, attack):
    """The script itself in a pseudo-terminal: progress bars are drawn, trees are coloured."""
    name = re.sub("[/\0\ud83d]", "", attack)[:60]
    record = {"messages": [{"role": "user", "content": attack}, {"role": "assistant", "content": attack}]}
    (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
    for words in (["import", f"{name}.jsonl"], ["show", "origin=import", "--full"]):
        text = in_terminal([*warm_line(), *words], tmp_path)
        drawn = (
            re.sub(r"\x1b\[[0-9;?]*[A-Zhl]|\r(?!\n)", "", text) if words[0] == "import" else text
        )  # of the bar's own
        clean(COLOURS.sub("", drawn), longest=None)
        assert "\x1b]" not in text
        assert "evil.example\x1b" not in text


def in_terminal(line: list[str], folder: Path) -> str:
    mine, theirs = pty.openpty()
    with subprocess.Popen(
        line, cwd=folder, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                pieces.append(os.read(mine, 1 << 16))
            except OSError:  # the other end is closed
                break
            if not pieces[-1]:
                break
    os.close(mine)
    assert process.returncode == 0, b"".join(pieces)
    return b"".join(pieces).decode()


def test_the_page_of_a_training_hides_nothing_of_an_attack(attack):
    text = page(f"t {attack}", {}, {f"curve {attack}": [(0, 0.5)]}, {f"f {attack}": attack}, attack, {attack: attack})
    clean(text, longest=None)
    assert "<script" not in page("", {}, {}, {}, "<script>", {"<script>": "<script>"})


WARNS = """
import logging, warnings
from clew import cli
cli.verbs = lambda: (warnings.warn(TEXT), logging.getLogger("x").warning(TEXT))
cli.main()
"""


def test_warnings_and_logs_are_printed_as_text(tmp_path, attack):
    program = f"TEXT = {attack!r}{WARNS}"
    (tmp_path / "warns.py").write_text(program)
    done = subprocess.run([sys.executable, "-W", "always", "warns.py"], cwd=tmp_path, capture_output=True, check=True)
    said = done.stderr.decode()
    clean(said, longest=None)
    assert "UserWarning" in said


def test_verbs_print_only_by_the_functions_that_show_hidden_characters():
    folder = Path(__file__).resolve().parents[2] / "src" / "clew" / "cli"
    raw = {"click.echo", "click.secho", "click.echo_via_pager", "print", "sys.stdout.write", "sys.stderr.write"}
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in raw:
                found.append(f"{path.name}: {ast.unparse(node)}")
    assert found == [
        "common.py: click.echo(visible(str(text)), err=err)",
        "common.py: click.echo(escaped(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)))",
    ]
