"""Marks T1 to T5 and a small S and D of specs/E163, each solver against a slower twin, and the committed results."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from rich.console import Console

from clew.worlds.maze import FORK, HALL, Star
from papers.E163_backtrack import chain, report_d, report_n, report_s, report_t, tier_d, tier_n, tier_s, tier_t, walk
from papers.E163_backtrack.chain import A, B, C, D, Graph, expected_steps, golden, gradient
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E163 = Experiment.find("E163")

SMALL = Graph(3, 3, 2)
SMALL_STAR = Star(3, 2, 2)


def rational_golden(graph: Graph) -> Fraction:
    """H of golden-path SFT over every directed edge of the explicit graph, by Gauss in exact fractions.

    A second model of the walk: states are directed edges, all W branches are there, and the policy is written per edge.
    """
    star, target = Star(graph.branches, graph.diamonds, graph.parallel), 0
    edges = [e for node in range(1, star.nodes) for e in star.exits(node) if e.lane == 0 and node != star.leaf(target)]
    number = {e: i for i, e in enumerate(edges)}
    rows = []
    for e in edges:
        row = [Fraction(0)] * (len(edges) + 1)
        row[number[e]], row[-1] = Fraction(1), Fraction(1)
        if e.to != star.leaf(target):
            exits = star.exits(e.to)
            outward = star.depth(e.to) > star.depth(e.node) and len(exits) > 1 and e.to != 1
            allowed = [x for x in exits if star.depth(x.to) > star.depth(e.to)] if outward else exits
            for x in allowed:
                row[number[x._replace(lane=0)]] -= Fraction(1, len(allowed))
        rows.append(row)
    for i in range(len(rows)):
        pivot = next(r for r in range(i, len(rows)) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(len(rows)):
            if r != i and rows[r][i]:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i], strict=True)]
    first = [rows[number[x]][-1] for x in star.exits(1)]
    return 1 + sum(first) / len(first)


@pytest.mark.parametrize("graph", [SMALL, Graph(2, 1, 1), Graph(2, 4, 5)])
def test_solver_against_exact_fractions_of_the_explicit_graph(graph: Graph) -> None:
    assert expected_steps(graph, golden(graph)) == pytest.approx(float(rational_golden(graph)), rel=1e-13)


@pytest.mark.parametrize(
    ("size", "base", "sft", "best"),
    [
        ((3, 3, 2), 276.0, 784.5, 36),
        ((4, 4, 3), 2264 / 3, 10458.962962962963, 64),
        ((5, 5, 3), 1450.0, 74355.73662551440, 100),
        ((10, 5, 5), 4124.0, 741502.04736, 210),
        ((5, 15, 5), 15562.0, 123384235688536.8, 280),
        ((15, 15, 5), 50142.0, 431844824909798.8, 900),
    ],
)
def test_t1_tables(size: tuple[int, int, int], base: float, sft: float, best: int) -> None:
    graph = Graph(*size)
    assert expected_steps(graph, graph.policy()) == pytest.approx(base, rel=1e-10)
    assert expected_steps(graph, golden(graph)) == pytest.approx(sft, rel=1e-10)
    assert graph.best == best == pytest.approx(expected_steps(graph, np.ones((4, graph.diamonds))), rel=1e-12)
    trip = 2 * graph.diamonds + 1
    assert 1 + trip + (graph.branches - 1) * (trip + chain.branch_exit(graph)) == pytest.approx(sft, rel=1e-10)


@pytest.mark.parametrize("many", [2, 3, 5, 10])
def test_t2_growth_is_not_l(many: int) -> None:
    ratios = tier_t._growth(Graph(3, 4, many))["ratios"]
    assert ratios == pytest.approx([(many + 1) ** 2 / many] * len(ratios), rel=0.01)


def test_t3_golden_paths_leave_retreats_alone() -> None:
    found = tier_t._sft(SMALL)
    assert found["drift"] == 0.0
    assert found["loss"] < 1e-3
    full = walk.counts(SMALL, walk.traces(SMALL, SMALL.policy(), 50, 0))
    assert (full.sum(axis=(1, 2)) > 0).all(), "a walk with retreats does reach every family"


def test_t4_sign_ascent() -> None:
    found = tier_t._ascent(Graph(15, 15, 5))
    assert found["h"]["1200"] <= 901
    assert found["lowest"] >= 0.9999
    assert found["all positive"]


def test_t5_gradient() -> None:
    assert max(tier_t._differences(seed)["error"] for seed in range(3)) <= 1e-5


def test_walkers_agree_with_the_solver() -> None:
    policy = SMALL.policy(np.random.default_rng(1).normal(size=(4, 3)))
    exact = expected_steps(SMALL, policy)
    many = walk.walk(SMALL, policy, 20_000, 10**6, np.random.default_rng(0)).length
    assert many.mean() == pytest.approx(exact, abs=4 * many.std() / np.sqrt(len(many)))
    single = np.array([len(path) for path in walk.traces(SMALL, policy, 1000, 0)])
    assert single.mean() == pytest.approx(exact, abs=4 * single.std() / np.sqrt(len(single)))


def test_a_horizon_cuts_walks() -> None:
    found = walk.walk(SMALL, SMALL.policy(), 500, 50, np.random.default_rng(0))
    assert found.length.max() == 50
    assert not found.arrived.all()
    assert (found.length[~found.arrived] == 50).all()


@pytest.mark.parametrize("estimator", ["togo", "togo-state", "trajectory"])
def test_sampled_slope_points_up_and_a_lottery_does_not(estimator: walk.Estimator) -> None:
    """The control's choices are drawn anew after the walk, so that no outcome depends on them."""
    policy, rng = SMALL.policy(), np.random.default_rng(0)
    exact, found = gradient(SMALL, policy)[0], {"walked": [], "lottery": []}
    for _ in range(40):
        walks = walk.walk(SMALL, policy, 500, 4000, rng)
        drawn = rng.random(len(walks.logit)) < policy.ravel()[walks.logit]
        for name, which in (("walked", walks), ("lottery", replace(walks, desired=drawn))):
            found[name].append((walk.slope(SMALL, which, policy, estimator) * exact).sum())
    t = {name: np.mean(x) / np.std(x, ddof=1) * np.sqrt(len(x)) for name, x in found.items()}
    assert t["walked"] > 5
    assert abs(t["lottery"]) < 3


def test_s1_learns() -> None:
    found = walk.learn(SMALL, 0, 260)
    assert min(found.h) <= 1.1 * SMALL.best
    assert found.steps[-1] > 1_000_000


def test_fit_counts_what_was_walked() -> None:
    assert walk.fit(SMALL, []) == pytest.approx(SMALL.policy(), rel=1e-12)
    paths = list(walk.traces(SMALL, SMALL.policy(), 1500, 0))
    assert np.abs(walk.fit(SMALL, paths) - SMALL.policy()).max() < 0.035
    erased = walk.fit(SMALL, map(walk.erased, paths))
    assert (erased[[B, D]] == SMALL.policy()[[B, D]]).all()
    assert erased[[C, A]].min() > 0.99


def test_d1_and_d2() -> None:
    full, erased = tier_d._student(50, 1.0, 0), tier_d._student(500, 0.0, 0)
    assert full["h"] <= 1.1 * full["teacher"]
    assert erased["h"] >= 2.5 * erased["base"]


def test_d4_the_gap_grows_with_l() -> None:
    few, many = (tier_d._search(Graph(5, 5, x), 0) for x in (4, 16))
    assert (many["sft"] / many["rl"] - few["sft"] / few["rl"]) / 12 > 0.15


@pytest.mark.parametrize(
    ("name", "tier", "report"),
    [("T", tier_t, report_t), ("S", tier_s, report_s), ("D", tier_d, report_d), ("N", tier_n, report_n)],
)
def test_committed_results_are_complete(name: str, tier, report) -> None:
    """Every cell has its line, and the summary is what the lines give."""
    lines = load(E163.here / "results" / f"{name}.jsonl")
    keys = [E163.key(cell) for cell in tier.cells(False)]
    assert len(keys) == len(set(keys))
    assert {E163.key(line) for line in lines} == set(keys)
    assert report.report(lines) == (E163.here / "results" / f"summary_{name}.md").read_text()


def test_the_exact_tier_runs_and_resumes(tmp_path) -> None:
    console = Console(quiet=True)
    assert E163.main(quick=True, tier="T", out=tmp_path, console=console) == 0
    path = tmp_path / "T.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:20]) + lines[20][:10])
    assert E163.main(quick=True, tier="T", out=tmp_path, console=console) == 0
    assert path.read_text().splitlines(keepends=True)[:20] == lines[:20]
    assert len(load(path)) == len(lines)


def test_policies_have_the_stated_base_chances() -> None:
    q = Graph(2, 1, 4).policy()[:, 0]
    assert q[[C, A, B, D]] == pytest.approx([4 / 5, 1 / 5, 4 / 5, 1 / 5])


def test_the_network_walks_the_same_maze() -> None:
    """Floor against the symmetric chain, its walker against its solver, and an untrained model's policy is legal."""
    torch = pytest.importorskip("torch")
    from papers.E163_backtrack.neural import Floor, Walker, imitate, policy_of, reinforce, value_head

    floor, graph, rng = Floor.of(SMALL_STAR), Graph(3, 2, 2), np.random.default_rng(0)
    assert floor.expected_steps(floor.uniform) == pytest.approx(expected_steps(graph, graph.policy()), rel=1e-12)
    assert floor.keeps(floor.uniform) == pytest.approx([2 / 3, 1 / 3, 2 / 3, 1 / 3])
    length = floor.walk(floor.uniform, 4000, 10**5, rng)[-1]
    exact = floor.expected_steps(floor.uniform)
    assert length.mean() == pytest.approx(exact, abs=4 * length.std() / np.sqrt(len(length)))
    torch.manual_seed(0)
    model = Walker(SMALL_STAR.nodes, width=16)
    policy = policy_of(model, floor)
    assert policy.sum(axis=1) == pytest.approx(np.ones(len(policy)))
    assert (policy[floor.lanes == 0] == 0).all()
    counts = floor.counts(*floor.walk(floor.uniform, 500, 1000, rng)[:2])
    imitate(model, floor, lambda _: counts, 300, rate=3e-3)
    assert np.abs(floor.keeps(policy_of(model, floor)) - floor.keeps(floor.uniform)).max() < 0.1
    curve, walked = reinforce(model, floor, 10, rng)
    assert len(curve) == 2
    assert walked > 11 * 64 * 6
    hidden = rng.normal(size=(30, 4))
    wanted = hidden @ [1.0, -2.0, 0.5, 3.0] + 7
    assert value_head(hidden, wanted, np.full(30, 1000)) == pytest.approx(wanted, abs=0.01)


def test_traces_of_the_neural_tier() -> None:
    pytest.importorskip("torch")
    from papers.E163_backtrack.neural import Floor

    floor, rng = Floor.of(tier_n.STAR), np.random.default_rng(0)
    full, erased = (tier_n._traces(floor, floor.uniform, erase, rng) for erase in (False, True))
    seen = [[counts[floor.family == family].sum() for family in range(4)] for counts in (full, erased)]
    assert min(seen[0]) > 0
    assert seen[1] == [tier_n.TRACES * 4, tier_n.TRACES * 4, 0, 0]
    assert tier_n._golden(floor, rng, 10).sum() == 10 * 9


def test_a_walker_that_enters_no_branch_twice() -> None:
    """KEPT is H of the policy that, back at the fork, goes on to the next branch."""
    pytest.importorskip("torch")
    from papers.E163_backtrack.neural import Floor

    floor = Floor.of(tier_n.STAR)
    doors = sorted({e.to for e in tier_n.STAR.exits(FORK)} - {HALL})
    policy = floor.lanes * floor.onward
    for state, (before, here) in enumerate(floor.pairs):
        if here == FORK:
            policy[state] = 0.0
            policy[state, doors[(doors.index(before) + 1) % len(doors)] if before in doors else doors[0]] = 1.0
    turn = policy.sum(axis=1) == 0
    policy[turn] = floor.uniform[turn]
    assert floor.expected_steps(policy / policy.sum(axis=1, keepdims=True)) == pytest.approx(tier_n.KEPT)
