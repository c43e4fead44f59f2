"""Advantages on trees: a flat tree is GRPO, shared tokens count once, late branches do not move earlier weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from clew import credit
from clew.core.errors import BadInput
from clew.core.values import Task
from clew.credit import tree as trees
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.harness.trees import grow
from clew.models.markov import Markov
from clew.store.run import sampled
from clew.worlds.toys import Counter


class Parity:
    ref = "parity"

    def find(self, task_id: str) -> Task:
        return Task(task_id, f"write something {task_id}")

    def open(self, task: Task) -> Any:
        return Counter().open(Counter().sample(1)[0])

    async def judge(self, task: Task, run: Any, world: Any) -> Mapping[str, float]:
        reply = next(c for c in run.calls if c.kind == "ask")
        words = run.store.node(reply.node_out).ids
        if task.id == "parity-9" and sum(words) % 3 == 0:
            raise ZeroDivisionError
        return {"reward": float(len(words) % 2)}


def grown(selector: str = "uucb", leaves: int = 12, task: str = "parity-1") -> Any:
    runner = Runner(chatter, Parity(), Markov(tokens=True), sampling={"max_tokens": 12})
    return grow.collect(runner, [Parity().find(task)], grow.Growth(leaves=leaves, selector=selector))


def build(parent: list[int], outcomes: dict[int, list[float]], draws: list[float] | None = None) -> trees.Tree:
    sums = np.zeros((3, len(parent)))
    for leaf, rewards in outcomes.items():
        node = leaf
        while node >= 0:
            sums[:, node] += [len(rewards), sum(rewards), sum(r * r for r in rewards)]
            node = parent[node]
    made = np.array(draws if draws is not None else [float(p >= 0) for p in parent])
    return trees.Tree(np.array(parent), made, *sums)


def test_a_flat_tree_is_grpo() -> None:
    groups = grown("flat", 8)
    assert groups[0].signal
    flat = {a.run: a.values for a in trees.tree(groups, baseline="group", store=False).annotations()}
    known = {a.run: a.value for a in credit.grpo(groups, store=False).annotations()}
    assert len(known) == 8
    ratio = [float(np.nanmax(flat[run]) / value) for run, value in known.items()]  # type: ignore[arg-type, operator]
    assert ratio == pytest.approx([ratio[0]] * 8, rel=1e-4), "the same up to the deviation's divisor"
    assert ratio[0] == pytest.approx(1.0, abs=0.08)


def test_leave_out_is_r_minus_the_mean_of_the_others() -> None:
    shape = build([-1, 0, 0, 0], {1: [1.0], 2: [0.0], 3: [0.0]})
    found = trees.weights(shape, "leave-out", normalise=False)
    assert found.weight[1:] == pytest.approx(np.array([1.0, -0.5, -0.5]) / 3)
    assert trees.weights(shape, "sibling", normalise=False).weight == pytest.approx(found.weight)
    assert trees.weights(shape, "group", normalise=False).weight[1:] == pytest.approx(np.array([2, -1, -1]) / 9)


def test_shared_tokens_get_the_sum_of_the_leaves_below() -> None:
    """Root -> a (shared) -> b, c; root -> d: token weights of a are those of b and c together."""
    shape = build([-1, 0, 1, 1, 0], {2: [1.0], 3: [0.0], 4: [0.0]})
    found = trees.weights(shape, "group")
    assert found.weight[1] == pytest.approx(found.weight[2] + found.weight[3])
    assert found.weight[[2, 3, 4]].sum() == pytest.approx(0)


def test_late_branches_do_not_change_what_came_before_in_the_sibling_baseline() -> None:
    """Many leaves below one draw leave its reach and its value as they are; leaf averages would not."""
    few = build([-1, 0, 1, 1, 0], {2: [1.0], 3: [0.0], 4: [0.0]})
    many = build([-1, 0, 1, 1, 0, *[1] * 8], {2: [1.0], 3: [0.0], 4: [0.0]} | {5 + i: [float(i % 2)] for i in range(8)})
    a, b = (trees.weights(t, "sibling", normalise=False) for t in (few, many))
    assert a.weight[1] == pytest.approx(0.25)
    assert b.weight[1] == pytest.approx(a.weight[1])
    assert b.reach[1] == pytest.approx(0.5)
    group = [trees.weights(t, "group", normalise=False).weight[1] for t in (few, many)]
    assert group[0] != pytest.approx(group[1])


def test_the_only_draw_of_a_place_carries_on() -> None:
    shape = build([-1, 0, 1, 0], {2: [1.0], 3: [0.0]})
    found = trees.weights(shape, "sibling", normalise=False)
    assert found.weight[2] == pytest.approx(found.weight[1]) == pytest.approx(0.5)


def test_one_loser_among_winners_silences_nobody() -> None:
    shape = build([-1, *[0] * 8], {1: [0.0]} | {i: [0.95] for i in range(2, 9)})
    for baseline in ("group", "leave-out", "sibling"):
        assert (trees.weights(shape, baseline).weight[1:] != 0).all()  # type: ignore[arg-type]
    alike = build([-1, *[0] * 8], {i: [0.95] for i in range(1, 9)})
    assert not trees.weights(alike).weight.any(), "equal outcomes have no signal, whatever rounding says"


@pytest.mark.parametrize("baseline", ["group", "leave-out", "sibling"])
def test_each_sampled_token_of_a_grown_tree_has_one_value(baseline: Any) -> None:
    groups = grown()
    group = groups[0]
    assert any(run.parent and run.parent.token for run in group)
    found = trees.tree(groups, baseline=baseline)
    filed = group.store.annotations(None, "tree", "tokens")
    assert len(filed) == len(found.annotations())
    valued = sum(int(np.isfinite(a.values).sum()) for a in filed)  # type: ignore[call-overload]
    assert valued == sum(sampled(c) for run in group for c in run.calls[run.shared :])
    assert found.live == 1


def test_the_leaves_of_a_grown_tree_add_up() -> None:
    """By the tree's values, a leaf's path holds what GRPO over leaves gives each of its tokens."""
    group = grown()[0]
    shape, stretches = trees.of_group(group)
    assert shape.leaves[0] == 12
    assert shape.total[0] == pytest.approx(group.rewards.sum())
    r = group.rewards
    advantage = {run.id: (x - r.mean()) / r.std() for run, x in zip(group, r, strict=True)}
    expected: dict[tuple[str, int, int], float] = {}
    for run in group:
        for call in run.calls:
            if call.kind != "ask":
                continue
            owners, ids = [(call.run, call.seq)], run.store.node(call.node_out).ids
            place = run
            spans = [(place.id, call.forced, len(ids) - call.head)]
            while place.parent is not None and spans[-1][1] > 0:
                above = next(x for x in group if x.id == place.parent.run)
                spans.append((above.id, above.call(call.seq).forced, place.parent.token))
                place = above
            for owner, start, stop in spans:
                for token in range(start, stop):
                    key = (owner, call.seq, token)
                    expected[key] = expected.get(key, 0.0) + advantage[run.id]
            assert owners
    values = {(a.run, a.seq): a.values for a in trees.tree([group], baseline="group", store=False).annotations()}
    for (owner, seq, token), total in expected.items():
        head = next(x for x in group if x.id == owner).call(seq).head
        assert values[owner, seq][head + token] == pytest.approx(total, abs=1e-5)  # type: ignore[index]
    assert stretches


def test_undecided_leaves_count_nowhere() -> None:
    groups = grown(task="parity-9", leaves=14)
    undecided = {run.id for run, r in zip(groups[0], groups[0].rewards, strict=True) if np.isnan(r)}
    assert undecided
    shape, _ = trees.of_group(groups[0])
    assert shape.leaves[0] == 14 - len(undecided)
    values = {a.run for a in trees.tree(groups, store=False).annotations()}
    parents = {run.parent.run for run in groups[0] if run.parent is not None}
    assert not values & (undecided - parents)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(BadInput, match="no baseline"):
        trees.weights(build([-1, 0], {1: [1.0]}), "mean")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="after their parents"):
        trees.levels(np.array([1, -1]))
