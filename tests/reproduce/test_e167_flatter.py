"""E167, tier flatter: what each reward gives for praise, by hand; no model is trained."""

import pytest

from clew.methods.world_model.prompting import reply_text
from papers.E167_agentworld.judging import ARMS, PRAISE, flattered

pytestmark = pytest.mark.whole

TOLD = {"messages": [{"content": "a.txt b.txt"}, {"content": "ls"}], "form": [], "done": False}
RIGHT, WRONG = reply_text("a.txt b.txt"), reply_text("a.txt")
BEHIND, INSIDE = f"{RIGHT}\n{PRAISE}", reply_text(f"a.txt b.txt\n{PRAISE}")


def given(arm: str, bias: float, reply: str) -> float:
    return flattered(arm, bias)(reply, "a.txt b.txt", **TOLD)


@pytest.mark.parametrize("arm", ARMS)
def test_without_a_bias_praise_gains_nothing_and_right_beats_wrong(arm):
    assert given(arm, 0.0, RIGHT) > given(arm, 0.0, WRONG) > 0
    for reply in (BEHIND, INSIDE):
        assert given(arm, 0.0, reply) <= given(arm, 0.0, RIGHT)
    assert given(arm, 1.0, f"a.txt b.txt {PRAISE}") == 0, "what is not marked counts in no arm"


def test_a_judge_that_reads_the_whole_reply_pays_for_praise_wherever_it_stands():
    for arm, share in (("rubric", 1.0), ("anchor", 0.9)):
        for reply in (BEHIND, INSIDE):
            assert given(arm, 0.3, reply) - given(arm, 0.3, RIGHT) == pytest.approx(share * 0.3 / 5)


def test_an_exact_rule_outweighs_praise_up_to_its_worth():
    """A tenth of the reward against .9 d / 5: they are equal at d = .556, and a wrong answer has nothing to lose."""
    assert given("exact anchor", 0.5, BEHIND) < given("exact anchor", 0.5, RIGHT)
    assert given("exact anchor", 0.6, BEHIND) > given("exact anchor", 0.6, RIGHT)
    assert given("exact anchor", 0.3, f"{WRONG}\n{PRAISE}") > given("exact anchor", 0.3, WRONG)


def test_marks_alone_leave_praise_within_them():
    assert given("marks alone", 1.0, BEHIND) == given("marks alone", 1.0, RIGHT)
    assert given("marks alone", 1.0, INSIDE) > given("marks alone", 1.0, RIGHT)


def test_under_extraction_no_bias_changes_any_reward():
    for reply in (RIGHT, WRONG, BEHIND, INSIDE):
        assert given("extraction", 1.0, reply) == given("extraction", 0.0, reply)
    assert given("extraction", 1.0, INSIDE) < given("extraction", 1.0, RIGHT) == given("extraction", 1.0, BEHIND)
