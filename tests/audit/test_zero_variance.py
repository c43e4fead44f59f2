"""Zero-variance groups are counted on the judge's raw verdicts, by their cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.core.records import Annotation, GroupRow
from clew.harness import Runner
from clew.harness.agents import player
from clew.methods.compare.zero_variance import zero_variance
from clew.models.fakes import Scripted
from clew.worlds.sums import Sums


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(player, Sums(), Scripted({"": "answer 1"}), tmp_path / "s.db")


def judge(runner: Runner, name: str, verdicts: list[list[dict[str, float]]]) -> None:
    """Runs whose verdicts are as given, [group][run]; {} for a run without one."""
    store: Any = runner.store
    for index, group in enumerate(verdicts):
        rows = [runner.row(Sums().sample(1)[0], group=f"{name}-{index}") for _ in group]
        store.put_group(
            GroupRow(f"{name}-{index}", "iid", rows[0].task_id, tuple(r.id for r in rows), f"{name}/{index}")
        )
        for row, said in zip(rows, group, strict=True):
            store.put_run(row)
            store.annotate([Annotation("run", k, v, run=row.id, scope=row.id) for k, v in said.items()])
    store.commit()


def lines(runner: Runner) -> Any:
    store: Any = runner.store
    return zero_variance(store, [store.group(g) for g in store.groups()])


def test_why_each_group_has_no_variance(runner: Runner) -> None:
    lost, won = {"reward": 0.0, "steps": 0.2}, {"reward": 1.0, "steps": 1.0}
    judge(runner, "t/0", [[lost, lost], [won, won, won], [lost, won], [lost, {}], [lost, {**lost, "steps": 0.6}]])
    [line] = lines(runner)
    assert (line.label, line.groups, line.zero_variance, line.lost, line.won, line.undecided) == ("t/0", 5, 4, 2, 1, 1)
    assert line.informative == {"steps": 1}, "the steps could tell two of the lost runs apart"
    assert line.alike == {"reward": 3, "steps": 2}, "one verdict alone is like no other"
    assert line.share == 0.8


def test_shaped_rewards_do_not_bring_a_group_to_life(runner: Runner) -> None:
    judge(runner, "t/0", [[{"reward": 0.0}, {"reward": 0.0}]])
    store: Any = runner.store
    for i, run in enumerate(store.run_ids()):
        shaped = Annotation("run", "reward", -0.1 * i, run=run, scope=run, version="9", params="length-penalty")
        store.annotate([shaped, Annotation("run", "env", float(i), run=run, scope=run)])
    store.commit()
    [line] = lines(runner)
    assert (line.zero_variance, line.lost) == (1, 1)
    assert line.informative == {}


def test_undecided_runs_are_left_out(runner: Runner) -> None:
    lost = {"reward": 0.0, "steps": 0.2}
    judge(runner, "t/0", [[lost, {}, lost, {}], [{"reward": 0.0}, lost, {}], [{}, {}], [{}, {"reward": 1.0}, lost]])
    [line] = lines(runner)
    assert (line.zero_variance, line.lost, line.won, line.undecided) == (3, 2, 0, 1)
    assert line.alike == {"reward": 2, "steps": 1}, "a component that one run alone has is not the same on all"
    assert not line.informative["steps"]


def test_one_loser_among_winners_is_alive(runner: Runner) -> None:
    judge(runner, "t/0", [[{"reward": 0.0}, *[{"reward": 0.95}] * 7]])
    assert lines(runner)[0].zero_variance == 0


def test_the_command_says_why(runner: Runner) -> None:
    lost, won = {"reward": 0.0, "steps": 0.2}, {"reward": 1.0, "steps": 1.0}
    judge(runner, "t/0", [[lost, lost], [lost, won]])
    judge(runner, "t/1", [[lost, {**lost, "steps": 0.4}], [lost, {}]])
    path = str(runner.store.path)
    runner.store.close()
    done = CliRunner().invoke(verbs, ["log", "--zero-variance", "--store", path])
    assert done.exit_code == 0, done.output
    assert "75% of 4 groups gave no signal: all runs failed in 2" in done.output
    assert "1 had fewer than two verdicts" in done.output
    found = json.loads(CliRunner().invoke(verbs, ["log", "--zero-variance", "--json", "--store", path]).output)
    assert [x["share"] for x in found] == [0.5, 1.0]
    old = CliRunner().invoke(verbs, ["log", "--dead-groups", "--store", path])
    assert old.output == done.output, "the name that the option had"
    none = CliRunner().invoke(verbs, ["log", "--zero-variance", "name=nothing/*", "--store", path])
    assert "no group" in none.output
