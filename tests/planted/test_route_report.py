"""Planted failures of `route report` and `route fit`: pools in which choosing by question gains nothing, or cannot."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.methods.routing import advice, contest
from clew.methods.routing.reward_matrix import from_rows

WORDS = {"law": ["court", "judge", "appeal", "clause"], "code": ["python", "loop", "class", "list"]}
COLUMNS = ("small", "large")


@pytest.fixture(autouse=True)
def _one_partition(request, monkeypatch):
    """Fast, and the harder case for what must not be called a gain."""
    monkeypatch.setattr(contest, "REPEATS", 1)


def rows(chances, n=80, seed=0, family=True):
    """Questions of kinds in turn; chances: kind -> of each worker."""
    luck, kinds = np.random.default_rng(seed), list(chances)
    out = []
    for i in range(n):
        kind = kinds[i % len(kinds)]
        row = {"question": f"{' '.join(luck.choice(WORDS[kind], 6))} {i}"} | ({"subject": kind} if family else {})
        for name, chance in zip(COLUMNS, chances[kind], strict=True):
            row[name] = float(luck.random() < chance)
        out.append(row)
    return out


def told(given):
    return advice.advise(from_rows(enumerate(given, 1), COLUMNS))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rewards_that_are_all_equal_are_not_tested(value):
    given = [row | dict.fromkeys(COLUMNS, value) for row in rows({"law": (1, 1), "code": (1, 1)}, 40)]
    found = told(given)
    assert found.verdict == "not tested"
    assert "every worker earned the same" in found.why
    assert not found.winners


def test_questions_that_differ_but_on_which_workers_do_not_are_not_tested():
    given = rows({"law": (0.5, 0.5), "code": (0.5, 0.5)}, 40)
    found = told([row | {"large": row["small"]} for row in given])
    assert found.compared.could_differ == 0
    assert found.verdict == "not tested"


@pytest.mark.parametrize("chances", [{"law": (0.5, 0.8), "code": (0.4, 0.7)}, {"law": (0.6, 0.6), "code": (0.6, 0.6)}])
@pytest.mark.parametrize("family", [True, False])
def test_one_better_worker_and_two_alike_are_not_routed(chances, family):
    found = told(rows(chances, family=family))
    assert found.verdict == "do not route"
    assert found.compared.tested
    assert ("best of its family did not run" in " ".join(found.notes)) is not family


def test_one_family_says_nothing_and_the_arm_says_that_it_did_not_run():
    found = told(rows({"law": (0.5, 0.5)}))
    assert found.verdict == "do not route"
    assert any("best of its family did not run: the questions are of one family" in note for note in found.notes)
    assert contest.FAMILY not in {arm.name for arm in found.arms}


def test_families_that_are_held_out_cannot_be_chosen_by():
    found = from_rows(enumerate(rows({"law": (0.9, 0.2), "code": (0.2, 0.9)}), 1), COLUMNS)
    held = advice.advise(found, held="families")
    assert held.verdict == "do not route"
    assert any("held-out families were never seen" in note for note in held.notes)


def test_a_gain_too_small_to_count_is_no_gain():
    """Rewards of 0 to 1,000 and a gain of 1 at each question of a kind: beyond chance, and nothing."""
    given = rows({"law": (0.5, 0.5), "code": (0.5, 0.5)}, 80)
    for i, row in enumerate(given):
        base = 1000.0 * (i % 4 < 2)
        row |= {"small": base + (row["subject"] == "law"), "large": base + (row["subject"] == "code")}
    found = told(given)
    assert any(arm.wins for arm in found.arms)
    assert found.verdict == "do not route"


def test_a_pool_that_could_not_differ_writes_no_router(clew, tmp_path):
    given = [row | dict.fromkeys(COLUMNS, 1.0) for row in rows({"law": (1, 1), "code": (1, 1)}, 40)]
    (tmp_path / "r.jsonl").write_text("\n".join(json.dumps(row) for row in given))
    line = ("--from", "r.jsonl", "--workers", "small,large")
    assert "not tested: every worker earned the same" in clew("route", "fit", *line, "-o", "router", code=2).output
    assert not (tmp_path / "router").exists()
    said = clew("route", "report", *line).output
    assert "\nnot tested: every worker earned the same" in said
    assert "0 of 40 held-out questions could differ" in said


# ---- planted truths: still found -----------------------------------------------------------------------------------


def test_a_family_in_which_the_weak_worker_is_better_is_found_though_one_worker_leads():
    """As in subjects of MMLU: an eighth of the questions, which their words tell too."""
    luck = np.random.default_rng(3)
    given = rows({"code": (0.4, 0.8)}, 280) + rows({"law": (0.95, 0.2)}, 40, seed=1)
    found = told([given[i] for i in luck.permutation(len(given))])
    assert found.verdict == "route by question"
    won = {arm.name for arm in found.winners}
    assert {contest.FAMILY, contest.WORDS} <= won
    assert found.arm(contest.FAMILY).gain.low > 0.03


def test_without_families_words_alone_find_it():
    given = rows({"code": (0.4, 0.8)}, 280, family=False) + rows({"law": (0.95, 0.2)}, 40, seed=1, family=False)
    found = told(given)
    assert found.verdict == "route by question"
    assert found.arm(contest.WORDS).wins
