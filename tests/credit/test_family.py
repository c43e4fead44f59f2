"""Each preset against numbers worked out by hand or by a slow twin, and the identities of specs/E165 PF4 and PF5."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput
from clew.credit import Term, advantages, from_paths, presets
from clew.credit.family import normalise

from .toys import random_paths, runs

GRAPH = presets.g2po()
NC, EC = GRAPH[1], GRAPH[2]


def batch(seed: int, **options: int):
    return from_paths(random_paths(np.random.default_rng(seed), **options))


def test_grpo_of_a_group_by_hand() -> None:
    steps = runs(("ab", 1.0), ("a", 0.0), ("abc", 0.0), ("c", 1.0))
    value, diagnostics = advantages(steps, presets.grpo())
    plus = 0.5 / (np.sqrt(1 / 3) + 1e-6)  # rewards 1 0 0 1: mean 1/2, std with ddof 1 is sqrt(1/3)
    assert value == pytest.approx([plus, plus, -plus, -plus, -plus, -plus, plus], abs=1e-12)
    assert diagnostics.present.all()
    centred, _ = advantages(steps, presets.grpo("mean"))
    assert centred.tolist() == [0.5, 0.5, -0.5, -0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1 + 0.2, 1e-9])
def test_equal_rewards_give_grpo_no_rows(reward: float) -> None:
    value, diagnostics = advantages(runs(*[("ab", reward)] * 3), presets.grpo())
    assert not value.any()
    assert not diagnostics.present.any()
    assert diagnostics.silent_groups == 1.0


def test_nearly_equal_rewards_are_a_difference() -> None:
    """Equality is judged on the raw rewards, so a small true difference is not mistaken for none."""
    value, diagnostics = advantages(runs(("a", 1.0), ("a", 1.0 + 1e-6)), presets.grpo())
    assert diagnostics.present.all()
    assert value[0] < 0 < value[1]


def test_gigpo_step_term_by_hand_with_both_normalisers() -> None:
    steps = runs(("ab", 10.0), ("ac", 0.0))
    step = presets.gigpo()[1]
    # at a: returns .95 * 10 and 0; b and c are singletons
    value, diagnostics = advantages(steps, [step])
    half, std = 4.75, 9.5 / np.sqrt(2)
    assert value == pytest.approx([half / (std + 1e-6), 0, -half / (std + 1e-6), 0], abs=1e-12)
    assert diagnostics.present.tolist() == [True, False, True, False]
    assert advantages(steps, [step._replace(norm="mean")])[0] == pytest.approx([half, 0, -half, 0])
    both, _ = advantages(steps, presets.gigpo())
    assert both == pytest.approx(value + advantages(steps, presets.grpo())[0])


def test_hgpo_against_a_slow_twin() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        groups = random_paths(rng, states=3)
        expected = []
        for paths in groups:
            clusters: dict[tuple[int, tuple[object, ...]], list[tuple[int, int]]] = {}
            returns = [[0.95 ** (len(p.moves) - 1 - t) * p.outcome for t in range(len(p.moves))] for p in paths]
            for r, path in enumerate(paths):
                names = [m.state for m in path.moves]
                for t in range(len(names)):
                    for k in range(1, min(3, t + 1) + 1):
                        clusters.setdefault((k, tuple(names[t - k + 1 : t + 1])), []).append((r, t))
            items: dict[tuple[int, int], list[tuple[int, float]]] = {}
            for (k, _), members in clusters.items():
                xs = np.array([returns[r][t] for r, t in members])
                if len(xs) > 1:
                    for member, z in zip(members, (xs - xs.mean()) / (xs.std() + 1e-6), strict=True):
                        items.setdefault(member, []).append((k, z))
            for r, path in enumerate(paths):
                for t in range(len(path.moves)):
                    some = [(k + 1.0, z) for k, z in items.get((r, t), []) if abs(z) > 1e-9]
                    total = sum(weight for weight, _ in some)
                    expected.append(sum(weight * z for weight, z in some) / (total + 1e-6) if some else 0.0)
        value, _ = advantages(from_paths(groups), presets.hgpo(), share=True)
        assert np.abs(value - expected).max() < 1e-6


def test_gagpo_against_a_backward_recursion() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        groups = random_paths(rng)
        expected = []
        for paths in groups:
            visits: dict[object, list[float]] = {}
            for path in paths:
                for t, move in enumerate(path.moves):
                    visits.setdefault(move.state, []).append(0.95 ** (len(path.moves) - 1 - t) * path.outcome)
            value = {state: float(np.mean(seen)) for state, seen in visits.items()}
            rows = []
            for path in paths:
                gae, after, back = 0.0, 0.0, []
                for move in reversed(path.moves):
                    gae = move.reward + 0.95 * after - value[move.state] + 0.95 * 0.9 * gae
                    after = value[move.state]
                    back.append(gae)
                rows += back[::-1]
            xs = np.array(rows)
            expected.append((xs - xs.mean()) / (xs.std(ddof=1) + 1e-6) if np.ptp(xs) > 1e-9 else 0 * xs)
        got, _ = advantages(from_paths(groups), presets.gagpo(trace=0.9))
        assert np.abs(got - np.concatenate(expected)).max() < 1e-9


def test_graphgpo_distances_by_hand() -> None:
    # a-b-c-win; the loser goes a-b-d, so from b the winner's next node is nearer; d never reaches the end
    steps = runs(("abc", 10.0), ("abd", 0.0))
    path = presets.graphgpo()[1]._replace(norm="none")
    value, _ = advantages(steps, [path])
    #             to b (2)  to c (1)  end (0)    to b (2)  to d (far: 3 + 1)  lost (far)
    assert value == pytest.approx([0.1, 1.0, 10.0, 0.1, 10 * 0.1**4, 10 * 0.1**4])
    full, _ = advantages(steps, presets.graphgpo())
    assert full[1] > full[0] > 0, "at b the winner's move is compared with the loser's"


def test_graphgpo_without_success_says_nothing() -> None:
    value, diagnostics = advantages(runs(("ab", 0.0), ("ac", 0.0)), presets.graphgpo())
    assert not value.any()
    assert not diagnostics.present.any()


@given(st.integers(0, 10**6), st.floats(0.1, 1.0))
@settings(max_examples=40, deadline=None)
def test_edge_gains_telescope(seed: int, gamma: float) -> None:
    """PF4: un-normalised EC summed over a run is its outcome minus the value of its first node."""
    steps = batch(seed)
    gain, _ = advantages(steps, [EC._replace(norm="none", gamma=gamma)])
    total = np.bincount(steps.run, gain)
    mean = np.bincount(steps.state, steps.returns(gamma) * gamma) / np.maximum(np.bincount(steps.state), 1)
    first = steps.t == 0
    assert np.abs(total - (steps.outcome[first] - mean[steps.state[first]])).max() < 1e-9


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_g2po_without_its_graph_is_grpo_bit_for_bit(seed: int) -> None:
    """PF5, first half; also for the released form."""
    steps = batch(seed)
    for faithful in (False, True):
        alone, _ = advantages(steps, presets.grpo(faithful=faithful))
        weightless, _ = advantages(steps, presets.g2po(w=0.0, faithful=faithful))
        assert alone.tobytes() == weightless.tobytes()


def test_singletons_leave_only_episode_and_edge_terms() -> None:
    """PF5, second half: with every state seen once, NC is 0."""
    steps = runs(("abc", 10.0), ("def", 0.0), ("gh", 10.0))
    assert advantages(steps, [NC])[1].present.sum() == 0
    full, diagnostics = advantages(steps, GRAPH)
    assert full.tobytes() == advantages(steps, [*presets.grpo(), EC])[0].tobytes()
    assert diagnostics.singleton_steps == diagnostics.singleton_nodes == 1.0
    assert diagnostics.rms["NC"] == 0.0


def test_invalid_actions_cost_a_fixed_amount_when_mended() -> None:
    paths = random_paths(np.random.default_rng(0), groups=1)
    steps = from_paths(paths)
    free, _ = advantages(steps, GRAPH[:3])
    fined, _ = advantages(steps, GRAPH)
    assert np.allclose(free - fined, 0.1 * ~steps.valid)


def test_all_succeed_but_some_sooner_is_a_signal_for_the_graph_only() -> None:
    steps = runs(("abc", 10.0), ("ac", 10.0))
    assert not advantages(steps, presets.grpo())[1].present.any()
    value, diagnostics = advantages(steps, presets.g2po())
    assert diagnostics.present.all()
    assert value[3] > value[0], "from a, going straight to c is worth more than the detour over b"


def test_unit_rms_is_over_present_rows() -> None:
    steps = from_paths(
        [*random_paths(np.random.default_rng(1), groups=2), *[[*random_paths(np.random.default_rng(2))[0]][:1]]]
    )
    value, diagnostics = advantages(steps, presets.gigpo(), rescale="rms")
    assert np.sqrt(np.mean(value[diagnostics.present] ** 2)) == pytest.approx(1.0)
    raw, _ = advantages(steps, presets.gigpo())
    assert np.corrcoef(raw, value)[0, 1] == pytest.approx(1.0)


def test_groups_do_not_see_each_other() -> None:
    groups = random_paths(np.random.default_rng(5), groups=4)
    for spec in (presets.grpo(), presets.gigpo(), presets.graphgpo(), GRAPH, presets.gagpo(), presets.bellman()):
        together, _ = advantages(from_paths(groups), spec)
        apart = np.concatenate([advantages(from_paths([g]), spec)[0] for g in groups])
        assert np.allclose(together, apart, atol=1e-12)


def test_ranks_average_ties_and_are_centred() -> None:
    term = Term("rank", "outcome", "group", "rank")
    x, sets = np.array([3.0, 1.0, 1.0, 5.0, 2.0, 9.0]), np.array([0, 0, 0, 0, 1, 1])
    value, known = normalise(x, sets, term)
    assert known.all()
    assert value == pytest.approx([0.25, -0.5, -0.5, 0.75, -0.5, 0.5])


def test_diagnostics_by_hand() -> None:
    _, d = advantages(runs(("aab", 1.0), ("ac", 0.0)), [*presets.grpo(), EC])
    assert (d.nodes, d.node_size) == (3, 5 / 3)
    assert d.singleton_nodes == pytest.approx(2 / 3)
    assert d.singleton_steps == pytest.approx(2 / 5)
    assert d.silent_groups == 0.0
    assert set(d.rms) == {"EP", "EC"}
    assert -1 <= d.correlation["EP", "EC"] <= 1
    assert d.to_json()["absent_rows"] == 0.0


def test_no_step_at_all() -> None:
    value, d = advantages(from_paths([]), GRAPH)
    assert len(value) == 0
    assert (d.nodes, d.silent_groups, d.zero_rows) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    "spec", [[], [NC, NC], [NC._replace(gamma=1.5)], [NC._replace(lam=-0.1)], [NC._replace(history=0)]]
)
def test_bad_terms_name_what_is_wrong(spec: list[Term]) -> None:
    with pytest.raises(BadInput) as error:
        advantages(batch(0), spec)
    assert error.value.remedy


def test_not_a_number_as_reward_is_refused() -> None:
    with pytest.raises(BadInput, match="nan"):
        runs(("a", float("nan")))


@pytest.mark.parametrize(
    ("term", "told"),
    [
        (Term("episode", "foo", "bar", "baz"), "target='foo' is not known"),  # type: ignore[arg-type]
        (Term("episode", "outcome", "bar"), "scope='bar'"),  # type: ignore[arg-type]
        (Term("episode", "outcome", "group", "stdd"), "norm='stdd'"),  # type: ignore[arg-type]
        (Term("edge", "gain", "group", value="sovle"), "value='sovle'"),  # type: ignore[arg-type]
        (Term("edge", "gain", "group", lam="auto"), "lam='auto'"),  # type: ignore[arg-type]
        (Term("edge", "gain", "group", weight=float("nan")), "weight=nan"),
    ],
)
def test_a_term_with_a_typo_values_nothing(term: Term, told: str) -> None:
    with pytest.raises(BadInput, match=told) as error:
        advantages(batch(0), [term])
    assert error.value.remedy


def test_a_rescaling_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadInput, match="rescale='RMS'"):
        advantages(batch(0), [NC], rescale="RMS")  # type: ignore[arg-type]


def test_all_presets_are_terms_that_are_known() -> None:
    for preset in (presets.grpo, presets.gigpo, presets.hgpo, presets.gagpo, presets.graphgpo, presets.g2po):
        for mode in ("mean", "std"):
            advantages(batch(0), preset(mode=mode))
    with pytest.raises(BadInput, match="norm='sdt'"):
        advantages(batch(0), presets.bellman(mode="sdt"))  # type: ignore[arg-type]
