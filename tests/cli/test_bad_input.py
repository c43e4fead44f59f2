"""Bad input ends in a clear sentence, a remedy and exit code 2; nothing is lost, and no credential is ever recorded."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys

import click
import pytest

from clew.cli.shared.common import load_verb
from clew.cli.shared.verb_table import places
from clew.core.errors import BadInput
from clew.core.registry import build, register
from clew.core.values import Task
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import open_store

SECRET = "sk-planted-0123456789abcdef"


def refused(done, *words):
    """Two sentences at least: what is wrong, and what to do; no traceback."""
    said = done.output
    assert "Traceback" not in said
    assert said.startswith(("clew: ", "Usage: "))
    assert len(said.strip().splitlines()) >= 2, said
    for word in words:
        assert word in said, said


def test_no_store(clew):
    refused(clew("log", code=2), ".clew/store.db", "clew quickstart")


def test_a_store_that_is_none(clew, tmp_path):
    (tmp_path / "x.db").write_text("this is a text file, and long enough to be taken for a database of some kind")
    refused(clew("log", "--store", "x.db", code=2), "x.db")
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t(x)")
    db.close()
    refused(clew("log", "--store", "other.db", code=2), "not a store of Clew")


def test_a_store_of_a_newer_clew(clew, store):
    with sqlite3.connect(store) as db:
        db.execute("INSERT INTO migration VALUES ('999-from-the-future', 0)")
    db.close()
    refused(clew("log", "--store", store, code=2), "999-from-the-future", "upgrade")


def test_a_read_only_store_is_read_and_not_written(clew, store, monkeypatch):
    os.chmod(store, 0o444)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **k: mode != os.W_OK and real(path, mode, **k))
    rows = json.loads(clew("log", "--store", store, "--json").output)
    assert len(rows) == 6
    refused(clew("store", "tag", "keep", rows[0]["run"], "--store", store, code=2), str(store))


def test_an_unknown_run_and_an_ambiguous_one(clew, store):
    refused(clew("show", "zzzzzz", "--store", store, code=2), "zzzzzz", "clew log")


@pytest.mark.parametrize("query", ["colour=red", "steps>many", "world=", "return~1=2", "stop=tired"])
def test_a_query_that_does_not_parse(clew, store, query):
    refused(clew("log", query, "--store", store, code=2), query.split("=")[0].split(">")[0].split("~")[0])


def test_an_unknown_world_names_near_ones(clew):
    refused(clew("run", "--world", "househld", "--model", "echo", code=2), "househld", "household")
    refused(clew("worlds", "household(rooms=99)", code=2), "rooms")


def test_an_unknown_model_and_a_wrong_path(clew):
    refused(clew("run", "--model", "no-such-model", code=2), "no-such-model")
    refused(clew("run", "--model", "./nowhere/weights", code=2), "nowhere")


def test_an_unknown_agent(clew):
    refused(clew("run", "nobody", "--model", "echo", code=2), "nobody", "module:function")
    refused(clew("run", "missing.py:agent", "--model", "echo", code=2), "missing.py")


@pytest.mark.parametrize("config", ['{"a": NaN}', '{"a": Infinity}', '{"a": ', "[1, 2]"])
def test_config_that_is_not_a_json_object(clew, config):
    refused(clew("run", "--model", "echo", "--config", config, code=2), "--config")


@pytest.mark.whole
def test_an_unreachable_endpoint_leaves_a_record_that_says_so(clew, tmp_path, monkeypatch):
    monkeypatch.setenv("CLEW_API_KEY", SECRET)
    done = clew("run", "--model", "http://127.0.0.1:9/v1#nobody", "--tasks", 1, code=2)
    refused(done, "127.0.0.1:9")
    store = open_store(tmp_path / ".clew" / "store.db")
    assert [str(run.stop) for run in store.runs()] == ["model_error"]
    assert store.verify() == []
    store.close()
    assert_absent(tmp_path)


@pytest.mark.whole
def test_a_credential_in_the_url_is_not_recorded(clew, tmp_path):
    clew("run", "--model", f"http://user:{SECRET}@127.0.0.1:9/v1#nobody", "--tasks", 1, code=2)
    assert_absent(tmp_path)


def assert_absent(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_a_place_that_is_not_there(clew, store):
    run = json.loads(clew("log", "--store", store, "--json").output)[0]["run"]
    refused(clew("fork", run, "--store", store, code=2), "--step")
    refused(clew("fork", f"{run}@x", "--store", store, code=2), "cursor")
    refused(clew("fork", run, "--say", "hello", "--store", store, code=2), "--say")
    refused(clew("fork", run, "--low", "g2po", "--store", store, code=2), "clew credit g2po")


def test_an_unknown_method(clew, store):
    refused(clew("credit", "gpro", "--store", store, code=2), "gpro", "grpo")


def test_an_unexpected_error_is_one_line_and_debug_shows_where(clew, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("the roof fell in\nand more")

    monkeypatch.setattr("clew.cli.worlds.describe", broken)
    done = clew("worlds", code=1)
    assert "RuntimeError: the roof fell in" in done.output
    assert "Traceback" not in done.output
    assert "Traceback" in clew("worlds", "--debug", code=1).output


def test_an_interrupt_keeps_everything_and_resume_goes_on(clew, tmp_path):
    (tmp_path / "weary.py").write_text(
        "import os\n"
        "async def agent(run):\n"
        "    chat = run.chat()\n"
        "    while not run.done:\n"
        "        if run.step == 2 and not os.path.exists('rested'):\n"
        "            raise KeyboardInterrupt\n"
        "        await run.act(await chat.ask(run.view))\n"
    )
    world = "household(rooms=2,steps=4)"
    done = clew("run", "weary.py:agent", "--world", world, "--model", "echo", "--tasks", 1, code=130)
    assert "Continue with: clew resume" in done.output
    assert json.loads(clew("log", "--json").output)[0]["stop"] is None
    (tmp_path / "rested").touch()
    clew("resume")
    row = json.loads(clew("log", "--json").output)[0]
    assert (row["stop"], row["steps"]) == ("done", 4)
    clew("store", "verify")


def test_as_a_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "clew.cli", "log"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("clew: there is no store at .clew/store.db\n  ")
    assert not (tmp_path / ".clew").exists()


def test_lone_surrogates_come_in_are_shown_and_go_out(clew, tmp_path):
    messages = [{"role": "user", "content": "half \ud800 a pair"}, {"role": "assistant", "content": "\udfff"}]
    (tmp_path / "odd.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    run = json.loads(clew("import", "odd.jsonl", "--json").output)["runs"]["odd.jsonl"][0]
    assert "half" in clew("show", run).output
    data = json.loads(clew("show", run, "--json").output)[0]
    assert data["conversations"]["0"][0]["message"]["text"] == messages[0]["content"]
    clew("log", "--json")
    clew("diff", run, run)
    clew("export", "again.jsonl", run)
    assert "\\ud800" in (tmp_path / "again.jsonl").read_text()
    clew("store", "verify")


def test_a_prompt_that_does_not_fit_ends_the_run_and_says_why(clew, tmp_path):
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local import small

    small(["put", "go"], d=16, layers=1, heads=2, kv_heads=1, context=8).save(tmp_path / "tiny")
    clew("run", "--model", "./tiny", "--tasks", 1)
    row = json.loads(clew("log", "--json").output)[0]
    assert row["stop"] == "context_full"
    assert "context" in clew("show", row["run"]).output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--budget", "64"), "Add --rollouts tree"),
        (("--rollouts", "tree", "--selector", "best"), "no selector"),
        (("--rollouts", "tree", "--selector", "uct(beta=1)"), "beta"),
        (("--rollouts", "tree", "--spare", "0.5"), "Give tokens="),
        (("--rollouts", "tree", "--budget", "0"), "at least 1"),
    ],
)
def test_trees_that_cannot_grow_are_refused(clew, options, said):
    done = clew("train", "--name", "t", "--model", "nowhere", *options, code=2)
    assert said in done.output


def test_an_agent_of_ones_own_needs_a_world_and_a_bundled_one_has_one(clew, tmp_path):
    (tmp_path / "own.py").write_text("async def agent(run):\n    await run.chat().ask(run.view)\n")
    for line in (
        ("run", "own.py:agent", "--model", "echo"),
        ("eval", "echo", "--agent", "own.py:agent"),
        ("train", "--name", "x", "--agent", "own.py:agent"),
    ):
        refused(clew(*line, code=2), "own.py:agent", "--world", "clew worlds")
        assert not (tmp_path / ".clew").exists()
    clew("run", "own.py:agent", "--model", "echo", "--tasks", 1, "--world", "household")
    clew("run", "player", "--model", "echo", "--tasks", 1, "--max-steps", 1)


def numbers(command, words):
    """Every option of a verb that is a number, with the words that name the verb."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from numbers(command.get_command(context, name), [*words, name])
        return
    for param in command.params:
        if isinstance(param, click.Option) and param.type.name in ("integer", "float", "integer range", "float range"):
            yield words, param


ANY = {"seed", "step", "position"}  # seeds; steps and tokens counted from the end too
NUMBERS = [pytest.param(w, p, id=f"{'-'.join(w)} {p.opts[0]}") for v in places() for w, p in numbers(load_verb(v), [v])]


@pytest.mark.parametrize(("words", "param"), NUMBERS)
def test_every_number_of_the_command_line_has_bounds(words, param):
    if param.name in ANY:
        return
    assert len(NUMBERS) > 100
    for value in ("-1", "nan" if "float" in param.type.name else "-5", "x"):
        with pytest.raises(click.BadParameter):
            param.type.convert(value, param, None)
    if "float" in param.type.name:
        with pytest.raises(click.BadParameter):
            param.type.convert("inf", param, None)
    if param.name in ("n", "tasks", "iterations", "concurrency", "epochs", "top_p", "max_tokens"):
        with pytest.raises(click.BadParameter):
            param.type.convert("0", param, None)


def test_a_number_out_of_bounds_is_refused_with_its_option_and_bounds(clew, tmp_path):
    refused(clew("run", "--model", "echo", "-n", 0, code=2), "-n", "at least 1")
    refused(clew("run", "--model", "echo", "--top-p", 5, code=2), "--top-p", "above 0 and at most 1")
    refused(clew("run", "--model", "echo", "--temperature", -1, code=2), "--temperature", "at least 0")
    refused(clew("train", "--name", "t", "--iterations", 0, code=2), "--iterations", "at least 1")
    assert not (tmp_path / ".clew").exists()


def test_sampling_without_a_meaning_is_refused_before_a_run_is_made(store):
    household = build("tasksets", "household")
    for wrong in ({"top_p": 5}, {"temperature": -1.0}, {"temperature": float("nan")}, {"max_tokens": -1}, {"heat": 1}):
        with pytest.raises(BadInput, match="sampl"):
            Runner("clew.harness.agents:player", household, "echo", sampling=wrong)
    kept = open_store(store)
    run = kept.runs()[0]
    runner = Runner("clew.harness.agents:player", household, Scripted({"": "go kitchen"}), kept)
    before = len(kept.run_ids())
    with pytest.raises(BadInput, match="sampl"):
        runner.fork(run, at=1, n=1, sampling={"top_p": 5})
    assert len(kept.run_ids()) == before
    kept.close()


def test_an_agent_that_is_not_async_is_named_without_a_traceback(clew, tmp_path):
    (tmp_path / "plain.py").write_text("def agent(run):\n    return 'x'\n")
    line = ("run", "plain.py:agent", "--world", "household", "--model", "echo", "--tasks", 1)
    refused(clew(*line, code=2), "plain.py:agent", "async def")


def test_how_an_agent_is_named_hangs_on_what_is_there(clew, tmp_path):
    (tmp_path / "named_here.py").write_text("async def agent(run):\n    pass\n")
    (tmp_path / "breaks_here.py").write_text("import no_such_module\n")
    at = ("--world", "household", "--model", "echo")
    refused(clew("run", "named_here.py", *at, code=2), "named_here.py:FUNCTION")
    refused(clew("run", "named_here.py:nothing", *at, code=2), "named_here.py:FUNCTION", "nothing")
    clew("run", "named_here:agent", *at)
    refused(clew("run", "elsewhere:agent", *at, code=2), "elsewhere", str(tmp_path))
    refused(clew("run", "breaks_here.py:agent", *at, code=2), "no_such_module", "Mend")
    refused(clew("run", "nobody", *at, code=2), "nobody", "tool_user")


def test_arguments_that_a_world_does_not_take_are_answered_by_those_it_takes(clew):
    refused(clew("run", "--world", "counter(colour=1)", "--model", "echo", code=2), "colour", "counter takes low, high")
    refused(clew("worlds", "household(rums=2)", code=2), "rums", "rooms")


class Sums:
    """Sums of two numbers: a taskset without a world, whose judge reads the answer."""

    def __init__(self, path="train.jsonl", *more, **options):
        self.ref = "plain-sums"

    def sample(self, n, seed=0, split="train"):
        return [Task(f"sum-{i}", f"{i} + {i}") for i in range(n)]

    def find(self, name):
        return Task(name, "0 + 0")

    def open(self, task):
        return None

    async def judge(self, task, run, world):
        return {"reward": 0.0}


def test_worlds_shows_a_taskset_that_opens_no_world(clew):
    register("tasksets", "plain-sums", Sums)
    said = clew("worlds", "plain-sums", "-n", 2).output
    assert said == "".join(
        f"sum-{i}: {i} + {i}\n  no world: the agent answers, and the judge reads the answer\n" for i in (0, 1)
    )
    assert json.loads(clew("worlds", "plain-sums", "-n", 1, "--json").output) == [{"task": "sum-0", "prompt": "0 + 0"}]
    (line,) = [line for line in clew("worlds").output.splitlines() if line.startswith("plain-sums ")]
    assert "  path='train.jsonl', *more, **options  " in line


@pytest.mark.whole
def test_a_hub_name_that_is_not_cached_is_refused_at_once_without_a_network(tmp_path):
    """The hub is asked once; its own client would try again for a minute and a half."""
    pytest.importorskip("transformers", reason="did not run: transformers is not installed")
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    line = [sys.executable, "-m", "clew.cli", "run", "--model", "nobody/no-such-model"]
    for more, why in (({}, "127.0.0.1:9 does not answer"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")):
        environment = os.environ | nowhere | more
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 2
        assert done.stderr.startswith("clew: 'nobody/no-such-model' is not on this machine")
        assert why in done.stderr
        assert "Name a folder of weights" in done.stderr


@pytest.mark.whole
def test_a_cached_hub_name_needs_no_network(tmp_path):
    pytest.importorskip("transformers", reason="did not run: transformers is not installed")
    from clew.models.local import small
    from clew.worlds.household import Household

    cache = tmp_path / "hub" / "models--nobody--small"
    small(Household().vocabulary(), d=16, heads=2, kv_heads=1).save(cache / "snapshots" / "0123")
    template = "{% for m in messages %}<|bos|> {{ m.content }} {% endfor %}"
    (cache / "snapshots" / "0123" / "chat_template.jinja").write_text(template)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123")
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    line = [sys.executable, "-m", "clew.cli", "run", "--model", "nobody/small", "--tasks", "1", "--max-steps", "1"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1" not in done.stderr
    store = open_store(tmp_path / ".clew" / "store.db")
    assert [run.model for run in store.runs()] == ["nobody/small"]
    store.close()
