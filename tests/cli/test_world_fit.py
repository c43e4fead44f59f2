"""clew world fit and clew world eval: a small model of the shell world, its folder, its measures, and bad input."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clew.core.registry import register
from clew.harness import Runner
from clew.methods.world_model import Simulated
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.commonest import commonest
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.rewarding import observation
from clew.methods.world_model.prompting import Turn, reply_text
from clew.models.fakes import Echo
from clew.worlds.shell import Shell
from clew.worlds.toys import Counter

pytest.importorskip("transformers", reason="did not run: transformers is not installed")
register("tasksets", "simulated", Simulated)  # as the entry points do
register("tasksets", "shell", Shell)
SIZE = ("--width", 16, "--layers", 1, "--context", 700, "--max-tokens", 6)


@pytest.fixture
def at(clew):
    """A store with runs of two worlds."""
    how = {"config": {"world": "shell", "noise": 0.4}}
    runner = Runner("clew.harness.agents:demonstrator", Shell(), Echo(), "s.db", **how)
    runner.collect(Shell().sample(10), n=1)

    async def count(run):
        for action in ("up", "up", "stop"):
            await run.act(action)

    Runner(count, Counter(), None, runner.store).collect(Counter().sample(1), n=1)
    runner.store.close()
    return clew


def fitted(at, *more, out="made", query="world=shell", code=0):
    line = ("world", "fit", query, "--model", "scratch", *SIZE, "-o", out, "--store", "s.db")
    return at(*line, *more, code=code)


def test_a_model_is_fitted_measured_and_asked(at):
    out = fitted(at, "--measure", 1, "--think").output
    assert "class of turn" in out
    assert "held out: 1 runs of other tasks" in out
    assert "a table of the commonest answer to each action, without a model, has: " in out
    card = ModelCard.read(Path("made"))
    assert (card.world, card.max_tokens, card.window) == ("shell", 6, 0)
    assert card.measured["answers"] > 0
    (line,) = [row.partition(": ")[2] for row in out.splitlines() if row.startswith("Next: ")]
    assert shlex.split(line)[:6] == ["clew", "world", "eval", "made", "--against", "shell"]
    told = at(*shlex.split(line)[1:], "--tasks", 3, "--json").stdout
    found = json.loads(told)
    assert found["open_loop"]["failures"] == {"cut at the bound of tokens": found["open_loop"]["answers"]}
    assert found["open_loop"]["fidelity"]["all"]["exact"]["estimate"] == 0
    assert found["closed_loop"]["half_life"] == 1
    assert found["closed_loop"]["failures"] == {"no answer of the model": 3}
    again = fitted(at, "--measure", 0, "--think", "--json").stdout
    assert json.loads(again)["last"] == {}, "the same line finds its work done"
    refused = fitted(at, "--measure", 0, "--keep", "all", code=2).output
    assert "begun with" in refused


def test_recorded_runs_are_measured_by_where_the_world_is_not_at_hand(at):
    fitted(at, "--measure", 0, "--window", 1, "--hold", 0, "--pieces")
    out = at("world", "eval", "made", "--runs", "world=shell", "--tasks", 2, "--store", "s.db").output
    assert "open loop" in out
    assert "closed loop" not in out
    assert "cut at the bound of tokens" in out


def test_a_table_of_commonest_answers_knows_what_it_was_shown_and_first_words_of_what_is_new():
    def episode(run, *turns):
        made = tuple(Turn(action, said) for action, said in turns)
        return Episode(run, run, "w", "", "", (), made, (True,) * len(made))

    learnt = [episode("a", ("ls", "x"), ("ls", "y"), ("ls", "y"), ("cat one", "no file"), ("cat two", "no file"))]
    asked = [episode("b", ("ls", "y"), ("ls", "x")), episode("c", ("cat three", "no  file"), ("rm", ""))]
    assert commonest(learnt, asked) == [True, False, True, False]


WRONG = {
    "of 2 worlds": ("fit", "steps>0", "--model", "scratch", "-o", "x"),
    "gives no account of its state": ("fit", "world=counter", "--model", "scratch", "--think", "-o", "x"),
    "the model reads 40": ("fit", "world=shell", "--model", "scratch", "--context", 40, "-o", "x"),
    "no model of a world": ("eval", "nothing-here", "--against", "shell"),
    "--store does nothing without --runs": ("eval", "nothing-here", "--against", "shell", "--store", "s.db"),
}


@pytest.mark.parametrize("told", WRONG)
def test_bad_input_is_named(at, told):
    store = () if WRONG[told][0] == "eval" else ("--store", "s.db")
    assert told in at("world", *WRONG[told], *store, code=2).output
    assert not Path("x").exists()


def test_turns_are_data_for_single_turn_rl(at):
    """Nothing has a higher reward than the world's own answer, and the printed line trains on the rows."""
    fitted(at, "--measure", 0, "--hold", 0)
    told = at("world", "turns", "world=shell", "--folder", "made", "--store", "s.db")
    rows = [json.loads(line) for line in Path("turns.jsonl").read_text().splitlines()]
    assert len({row["id"].partition("/")[0] for row in rows}) == len(rows) > 5
    assert all(row["messages"][-1]["role"] == "user" for row in rows)
    praise = "Operation completed successfully."
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        own = reply_text(row["answer"], done=row["done"])
        whole = observation(own, row["answer"], row)
        assert whole > 0.8, "words that nobody had seen cost the world's own answer a little"
        assert observation(f"{praise} {own}", row["answer"], row) == whole
        assert observation(reply_text(f"{row['answer']}\n{praise}"), row["answer"], row) <= whole
        assert observation(reply_text(other["answer"]), row["answer"], row) <= whole
        assert observation(praise, row["answer"], row) == 0
    every = at("world", "turns", "world=shell", "--every", "-o", "all.jsonl", "--store", "s.db", "--json").stdout
    assert json.loads(every)["rows"] > 2 * len(rows)
    (line,) = [row.partition(": ")[2] for row in told.output.splitlines() if row.startswith("Next: ")]
    size = ("--iterations", 1, "--tasks", 2, "-n", 2, "--max-tokens", 8)
    trained = at(*shlex.split(line)[1:], *size).output
    assert "warm" in trained
    assert Path(".clew/trainings/warm").is_dir() or Path("trainings/warm").is_dir()
