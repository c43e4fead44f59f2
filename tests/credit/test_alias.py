"""The detector finds planted aliasing and stays quiet where there is none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.credit import Move, Path, Steps, advantages, aliasing, from_paths, presets
from clew.credit.alias import ENOUGH, REWARDED, SEEN, Aliasing, Explained
from clew.worlds.household import Household, expert

from .toys import runs


def household(aliased: bool, noise: float, tasks: int = 24, seed: int = 0) -> Steps:
    """Eight runs of each task by the expert with random actions mixed in."""
    house, groups = Household(aliased=aliased), []
    for i, task in enumerate(house.sample(tasks, seed)):
        paths = []
        for r in range(8):
            rng, world, moves = random.Random(f"{seed} {i} {r}"), house.open(task), []
            seen = world.observe()
            while not seen.done:
                action = rng.choice(seen.legal) if rng.random() < noise else expert(world)
                key, legal = world.state_key, frozenset(seen.legal)
                seen = world.step(action)
                moves.append(Move(key, action, 0.0, True, legal))
            paths.append(Path(moves, float(world.success), None if world.success else world.state_key))
        groups.append(paths)
    return from_paths(groups)


@pytest.mark.parametrize("noise", [0.3, 0.6, 1.0])
def test_aliased_household_is_found(noise: float) -> None:
    found = aliasing(household(True, noise))
    assert found.found
    assert found.p <= 0.01
    assert found.lam == 0.0
    assert found.nodes


@pytest.mark.parametrize("noise", [0.3, 0.6])
def test_clean_household_is_not(noise: float) -> None:
    found = aliasing(household(False, noise))
    assert not found.found
    assert (found.ambiguous, found.p, found.lam) == (0, 1.0, 1.0)


def test_by_chance_alone_too_few_succeed_to_test_what_the_reward_hangs_on() -> None:
    """Six of 192 runs put the thing where it belongs, each at a step of its own."""
    found = aliasing(household(False, 1.0))
    assert (found.ambiguous, found.rewarded, found.verdict, found.lam) == (0, 0, "not tested", 0.0)
    assert found.compared > 500


def coin(rng: np.random.Generator, hidden: bool, memory: bool) -> list[Path]:
    """Runs at one node whose action "flip" leads left or right: by chance, or by a bit set at the start.

    ``memory``: the policy itself remembers where it came from and prefers "flip" or "wait" accordingly.
    """
    paths = []
    for _ in range(8):
        bit, at, moves = int(rng.integers(2)), "m", []
        for _ in range(12):
            back = moves[-1].state if moves else "m"
            flip = rng.random() < (0.9 if memory and back == "left" else 0.4)
            moves.append(Move(at, "flip" if flip else "wait", float(at == "left")))
            if at != "m":
                at = "m"
            elif flip:
                at = ("left", "right")[bit if hidden else int(rng.integers(2))]
        paths.append(Path(moves, sum(move.reward for move in moves), at))
    return paths


@pytest.mark.parametrize("memory", [False, True])
def test_chance_is_not_aliasing_even_under_a_policy_with_memory(memory: bool) -> None:
    verdicts = [
        aliasing(from_paths([coin(np.random.default_rng(100 * s + g), False, memory) for g in range(6)]))
        for s in range(12)
    ]
    assert sum(v.found for v in verdicts) <= 1, "the level is .01 and there are 12 batches"
    assert all(v.ambiguous >= 100 for v in verdicts)
    markov = sum(v.verdict == "markov" for v in verdicts)
    assert markov == 0 if memory else markov >= 9, "of 12 one is doubted by chance at .05, and a memory always"
    assert np.mean([v.p for v in verdicts]) > 0.3, "p-values of true nulls are not small"


def errands(hidden: bool, groups: int = 8, noise: float = 0.1) -> Steps:
    """Runs that fetch a parcel at the right end of a corridor and bring it to the left one, by an agent who knows.

    ``hidden``: the key is the place alone. Nobody goes home without the parcel, so that nothing ever contradicts it.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(groups):
        paths = []
        for _ in range(8):
            at, fetched, moves = 6, False, []
            while not (fetched and at == 0) and len(moves) < 60:
                right = (rng.random() < noise) != (not fetched)
                moves.append(Move(at if hidden else (at, fetched), right))
                at = min(at + 1, 8) if right else max(at - 1, 0)
                fetched |= at == 8
            done = fetched and at == 0
            moves[-1] = moves[-1]._replace(reward=float(done))
            paths.append(Path(moves, float(done), "home" if done else None))
        found.append(paths)
    return from_paths(found)


def test_where_the_agent_knows_what_the_key_hides_nothing_can_be_told() -> None:
    blind, clear = aliasing(errands(True)), aliasing(errands(False))
    assert (blind.ambiguous, blind.found) == (0, False), "no outcome ever differed"
    assert (blind.verdict, blind.lam) == ("unknown", 0.0)
    assert "predicts what the agent does" in blind.why
    assert (clear.ambiguous, clear.verdict, clear.lam) == (0, "markov", 1.0)
    assert "look Markov" in clear.why


def taxis(hidden: bool, noise: float = 0.1) -> tuple[Steps, np.ndarray]:
    """Gymnasium's Taxi driven on shortest ways with random actions mixed in, and the true advantage of each step.

    ``hidden``: the key leaves the passenger out.
    """
    gymnasium = pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    env = gymnasium.make("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3").unwrapped
    table = np.array([[env.P[s][a][0][1:] for a in range(6)] for s in range(500)])
    to, pay, ends = table[..., 0].astype(int), table[..., 1], table[..., 2].astype(bool)
    worth = np.zeros(500)
    for _ in range(300):
        worth = (pay + 0.99 * np.where(ends, 0, worth[to])).max(axis=1)
    best = (pay + 0.99 * np.where(ends, 0, worth[to])).argmax(axis=1)
    chance = noise / 6 + (1 - noise) * np.eye(6)[best]
    q = np.zeros((500, 6))
    for _ in range(400):
        q = ends + 0.95 * np.where(ends, 0, (chance * q).sum(axis=1)[to])
    true, groups, rng = q - (chance * q).sum(axis=1)[:, None], [], np.random.default_rng(0)
    along = []
    waiting = [s for s in range(500) if list(env.decode(s))[2] not in (4, list(env.decode(s))[3])]
    for start in rng.choice(waiting, 16):
        paths = []
        for _ in range(8):
            s, moves, done = int(start), [], False
            while not done and len(moves) < 100:
                row, column, passenger, place = env.decode(s)
                a = int(rng.choice(6, p=chance[s]))
                moves.append(Move((row, column, place, None if hidden else passenger), a))
                along.append(true[s, a])
                done, s = bool(ends[s, a]), int(to[s, a])
            moves[-1] = moves[-1]._replace(reward=float(done))
            paths.append(Path(moves, float(done), "there" if done else None))
        groups.append(paths)
    return from_paths(groups), np.array(along)


def test_taxi_with_its_passenger_hidden_takes_the_robust_end() -> None:
    agreement = {}
    for hidden in (True, False):
        columns, true = taxis(hidden)
        told = aliasing(columns)
        for lam in (told.lam, 1.0 - told.lam):
            value, found = advantages(columns, presets.bellman(lam=lam))
            agreement[hidden, lam] = np.corrcoef(value[found.present], true[found.present])[0, 1]
        assert told.verdict == ("unknown" if hidden else "markov")
    assert agreement[True, 0.0] > agreement[True, 1.0], "what was chosen is nearer to the truth"
    assert agreement[False, 1.0] > agreement[False, 0.0]


def test_a_reward_that_differs_at_one_node_shows_a_hidden_state() -> None:
    """The bit that decides what "ask" pays is set in the first step; the nodes visited are the same."""
    rng, groups = np.random.default_rng(0), []
    for _ in range(12):
        paths = []
        for _ in range(8):
            bit = int(rng.integers(2))
            moves = [Move("start", bit), Move("hall", "ask", -1.0 - 9.0 * bit), Move("hall", "go", 0.0)]
            paths.append(Path(moves, float(sum(m.reward for m in moves)), "end"))
        groups.append(paths)
    assert aliasing(from_paths(groups)).verdict == "aliased"
    same = [[Path([m._replace(reward=0.0) for m in p.moves], 0.0, "end") for p in group] for group in groups]
    assert not aliasing(from_paths(same)).found


def cut_off(longest_only: bool = True) -> Steps:
    """Walkers of a ring who are stopped after 12 steps wherever they are; nothing is hidden.

    Not ``longest_only``: every other run is stopped after 6, as no horizon would.
    """
    rng, groups = np.random.default_rng(1), []
    for _ in range(12):
        paths = []
        for r in range(8):
            at, moves = 0, []
            for _ in range(12 if longest_only or r % 2 else 6):
                up = bool(rng.integers(2))
                moves.append(Move(at, up, float(at == 2)))
                at = (at + (1 if up else -1)) % 4
            paths.append(Path(moves, sum(move.reward for move in moves)))
        groups.append(paths)
    return from_paths(groups)


def test_what_the_horizon_ended_is_no_outcome_of_the_action() -> None:
    found = aliasing(cut_off())
    assert (found.ambiguous, found.verdict) == (0, "markov")
    early = aliasing(cut_off(longest_only=False))
    assert early.ambiguous > 0, "a run that ended before the longest one ended by itself"


def test_a_hidden_bit_is_found_behind_the_same_looks() -> None:
    verdict = aliasing(from_paths([coin(np.random.default_rng(g), True, False) for g in range(6)]))
    assert verdict.found
    assert verdict.effect > 0.3


def test_two_admissible_sets_at_one_node_need_no_test() -> None:
    moves = [Move("a", "x", legal=frozenset("xy")), Move("a", "x", legal=frozenset("x"))]
    verdict = aliasing(from_paths([[Path(moves, 1.0)]]))
    assert verdict.found
    assert verdict.conflicts == 1.0
    assert not aliasing(from_paths([[Path(moves[:1] * 2, 1.0)]])).found


def test_too_little_to_tell_falls_back_to_the_robust_end() -> None:
    verdict = aliasing(runs(("abc", 1.0), ("abd", 0.0)))
    assert not verdict.found
    assert verdict.lam == 0.0


def test_few_shuffles_are_refused() -> None:
    with pytest.raises(BadInput, match="shuffles=10"):
        aliasing(runs(("ab", 1.0)), shuffles=10)


def test_the_detector_picks_the_knob_of_the_solve() -> None:
    clean = household(False, 0.3, tasks=8)
    exact, _ = advantages(clean, presets.bellman(lam=aliasing(clean).lam))
    assert exact.tobytes() == advantages(clean, presets.bellman(lam=1.0))[0].tobytes()


@pytest.mark.parametrize(
    ("could", "rewarded", "ambiguous", "policy", "verdict", "why"),
    [
        (0, 0, 0, (ENOUGH, 1.0, 0.0), "not tested", "was not tested: nothing in steps could differ"),
        (SEEN - 1, REWARDED, 0, (ENOUGH, 1.0, 0.0), "unknown", "39 steps can be compared, and 40 are needed"),
        (SEEN, REWARDED, 0, (ENOUGH, 1.0, 0.0), "markov", "40 of 90 steps could differ"),
        (SEEN, REWARDED - 1, 0, (ENOUGH, 1.0, 0.0), "unknown", "9 of these steps were paid unlike most"),
        (SEEN, REWARDED, ENOUGH - 1, (ENOUGH, 1.0, 0.0), "unknown", "99 steps had uncertain outcomes, and 100 are"),
        (SEEN, REWARDED, ENOUGH, (ENOUGH, 1.0, 0.0), "markov", "40 of 90 steps could differ"),
        (SEEN, REWARDED, ENOUGH, (ENOUGH - 1, 1.0, 0.0), "unknown", "99 steps had a choice of actions, and 100 are"),
        (SEEN, REWARDED, 0, (0, 1.0, 0.0), "unknown", "0 steps had a choice of actions, and 100 are needed"),
        (SEEN, REWARDED, ENOUGH, (ENOUGH, 0.05, 0.03), "unknown", "predicts what the agent does (p 0.050)"),
        (SEEN, REWARDED, ENOUGH, (ENOUGH, 0.05, 0.02), "markov", "40 of 90 steps could differ"),
    ],
)
def test_a_verdict_needs_enough_of_each_and_names_what_is_missing(
    could: int, rewarded: int, ambiguous: int, policy: tuple[int, float, float], verdict: str, why: str
) -> None:
    seen = Comparisons("steps", 90, could)
    found = Aliasing(False, 1.0, 0.0, seen, rewarded, ambiguous, 0.0, (), Explained(*policy), Explained(0, 1.0, 0.0))
    assert found.verdict == verdict
    assert why in found.why


def group(*specs: str) -> list[Path]:
    """Runs, each a word of one-letter states; the last letters are cut off by the horizon."""
    return [Path([Move(letter, "x") for letter in word], 0.0) for word in specs]


def words(*specs: str) -> Steps:
    """One group of such runs."""
    return from_paths([group(*specs)])


def test_p_counts_what_chance_does_as_well() -> None:
    """Two steps of two outcomes: every shuffle explains as much; and without a past there is nothing."""
    for told in (words("pabz", "qacz"), words("abz", "acz")):
        found = aliasing(told)
        assert (found.ambiguous, found.p, found.effect) == (2, 1.0, 0.0)
    assert aliasing(words("pabz", "qacz"), shuffles=99).p == 1.0  # the fewest that are taken


def test_the_effect_is_what_the_past_explains_beyond_chance() -> None:
    """Two steps of four go each way, as the past has it. One in three shuffles says so as well, the others nothing."""
    found = aliasing(words("pabz", "pabz", "qacz", "qacz"), shuffles=1999)
    assert (found.p, found.effect) == (pytest.approx(1 / 3, abs=0.05), pytest.approx(2 / 3, abs=0.05))


def test_what_happens_elsewhere_changes_no_p() -> None:
    """Runs that never meet an uncertain step, beside those whose past tells it, are no facts of its past."""
    telling, mute = ["pabz", "qacz"] * 4, ["pabz", "pacz", "qabz", "qacz"] * 3
    alone = aliasing(from_paths([group(*telling), group(*mute)]))
    beside = aliasing(from_paths([group(*telling, "defg", "hijk", "lmno", "rstu"), group(*mute)]))
    assert alone.p < 0.2
    assert (beside.p, beside.effect, beside.ambiguous) == (alone.p, alone.effect, alone.ambiguous)


def test_steps_that_meet_are_counted_and_the_worst_node_comes_first() -> None:
    """``compared``: steps in a cell that another step is in, too, last ones by what they were paid. Nodes: most nats
    first."""
    assert aliasing(words("aby", "acz", "dew")).compared == 2
    assert aliasing(words("abz", "acz", "dez")).compared == 5
    often = [f"{where}k{where}m{where}z" for where in "ab" * 6]  # what follows k and m is where the run came from
    once = [word[:2] + rng for word, rng in zip(often, ["amaz", "bmbz"] * 6, strict=True)]
    found = aliasing(words(*often, *[word + "y" for word in once]))
    nats = [value for _, value in found.nodes]
    assert len(nats) >= 2
    assert nats == sorted(nats, reverse=True)
    assert nats[0] > nats[-1]
