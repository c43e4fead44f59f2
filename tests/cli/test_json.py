"""Every verb speaks JSON: one document on standard output and nothing else, for other programs to read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from clew.cli import verbs
from clew.store import open_store

SERVERS = {
    ("gateway",): "runs another program, whose output is its own",
    ("serve",): "serves until it is stopped",
    ("view",): "serves until it is stopped",
    ("store", "mcp"): "its standard output is the protocol",
    ("memory", "mcp"): "its standard output is the protocol",
}


def walked(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, by the words that name it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (inner := command.get_command(context, name)) is not None:
            yield from walked(inner, (*path, name))


COMMANDS = dict(walked(verbs))


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def test_every_verb_takes_json_but_for_servers():
    assert len(COMMANDS) > 40
    without = {path for path, command in COMMANDS.items() if "--json" not in options(command)}
    assert without == SERVERS.keys()


def test_json_is_a_flag_with_one_help():
    flags = [p for command in COMMANDS.values() for p in command.params if "--json" in p.opts]
    assert all(isinstance(flag, click.Option) and flag.is_flag for flag in flags)
    assert {flag.help for flag in flags if isinstance(flag, click.Option)} == {"Print JSON instead of text."}


@pytest.mark.parametrize(
    "line",
    [
        "log",
        "log return>0.5",
        "log --zero-variance",
        "show {run}",
        "diff {run} {other}",
        "export out.jsonl",
        "export spans.otlp.jsonl {run}",
        "export --otel spans.json {run}",
        "export --sft demos.jsonl return>0",
        "import {file}",
        "store tag",
        "store tag keep {run}",
        "store verify",
        "store verify --rebuild",
        "store gc",
        "store redact {run}@1 --yes",
        "store merge {store}",
        "credit grpo",
        "fork {run}@1 --reply go --model echo",
        "replay {run}",
        "audit coverage",
        "run --world counter --model echo --tasks 1",
        "eval echo --world counter --tasks 1",
        "models",
        "worlds",
        "worlds counter -n 1",
        "doctor",
        "stop",
    ],
)
def test_standard_output_is_one_document_of_json(clew, store, tmp_path, line):
    run, other, *_ = open_store(store).find("")
    talk = {"messages": [{"role": "user", "content": "a\x1b[2J"}, {"role": "assistant", "content": "‮b"}]}
    (tmp_path / "talk.jsonl").write_text(json.dumps(talk))
    words = line.format(run=run, other=other, store=store, file=tmp_path / "talk.jsonl").split()
    place = [] if words[0] in ("models", "worlds") else ["--store", str(store)]
    done = clew(*words, *place, "--json", code=None)
    assert done.exit_code in (0, 1), done.output
    document = json.loads(done.stdout)
    assert isinstance(document, (dict, list))
    assert "\x1b" not in done.stdout
    assert "‮" not in done.stdout


@pytest.mark.parametrize(
    "line", ["show nobody", "log steps>", "export out.xyz", "import nowhere.jsonl", "fork nobody@1"]
)
def test_an_error_leaves_standard_output_empty(clew, store, line):
    done = clew(*line.split(), "--store", store, "--json", code=None)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "clew: " in done.stderr or "Error: " in done.stderr
