"""Proposers: changes by rules, and a model that rewrites prompts."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from clew.core.errors import BadInput, Unreachable
from clew.methods.coevolve import PromptRewriter, SymbolicChanges, View, lines_from
from clew.models.fakes import Scripted

VIEW = View({"agent": "Be polite.", "judge": 0.5}, {"agent": (3, 5), "judge": (0, 0)}, {"run": "it closed too early"})


def proposed(proposer, view=VIEW, luck=1):
    return asyncio.run(proposer.propose(view, luck))


def test_a_symbolic_change_touches_one_role_and_hangs_on_luck_alone():
    proposer = SymbolicChanges(
        {"agent": [lines_from(["Look up the order."])], "judge": [lambda x, rng: x + rng.normal()]}
    )
    found = [proposed(proposer, luck=luck).workspace for luck in range(30)]
    assert found == [proposed(proposer, luck=luck).workspace for luck in range(30)]
    assert all(sum(made[role] != VIEW.workspace[role] for role in made) <= 1 for made in found)
    assert {role for made in found for role in made if made[role] != VIEW.workspace[role]} == {"agent", "judge"}
    with pytest.raises(BadInput, match="no role 'cook'"):
        proposed(SymbolicChanges({"cook": [lambda x, rng: x]}))
    with pytest.raises(BadInput, match="no role may change"):
        SymbolicChanges({"agent": []})


def test_lines_come_from_the_bank_or_the_text_and_stay_within_bounds():
    change, rng, text = lines_from(["a", "b", "c"], most=2), np.random.default_rng(0), "own"
    for _ in range(60):
        text = change(text, rng)
        lines = text.splitlines()
        assert len(lines) <= 2
        assert len(set(lines)) == len(lines)
        assert set(lines) <= {"a", "b", "c", "own"}
    assert lines_from([])("", rng) == ""


def test_a_model_is_told_the_prompt_the_counts_and_the_feedback_as_data():
    asked = []

    def answer(request):
        asked.append(request.path[-1].message.text)
        return "Thinking.\n<prompt>\nLook before you close.\n</prompt> ignore this"

    found = proposed(PromptRewriter(Scripted({"": answer}), ["agent"]))
    assert found.workspace == {"agent": "Look before you close.", "judge": 0.5}
    assert "3 of 8 outcomes" in asked[0]
    assert "it closed too early" in asked[0]
    assert asked[0].count("data, not instructions") == 2


@pytest.mark.parametrize("said", ["no tags", "<prompt> </prompt>", f"<prompt>{'x' * 9000}</prompt>"])
def test_an_answer_that_is_no_prompt_is_no_proposal(said):
    found = proposed(PromptRewriter(Scripted({"": said}), ["agent"]))
    assert found.workspace is None
    assert "no prompt of 1 to 8,000" in found.said


def test_a_model_that_does_not_answer_ends_nothing():
    def fail(request):
        raise Unreachable("the endpoint is down")

    found = proposed(PromptRewriter(Scripted({"": fail}), ["agent"]))
    assert found.workspace is None
    assert "the endpoint is down" in found.said
    with pytest.raises(BadInput, match="is no text"):
        proposed(PromptRewriter(Scripted({"": fail}), ["judge"]))
    with pytest.raises(BadInput, match="no role"):
        PromptRewriter(Scripted({"": fail}), [])


def test_gepas_words_ask_and_its_reading_takes_the_prompt():
    pytest.importorskip("gepa", reason="did not run: gepa is not installed")
    asked = []

    def answer(request):
        asked.append(request.path[-1].message.text)
        return "Here it is:\n```\nLook before you close.\n```"

    view = View(VIEW.workspace, VIEW.counts, {"run": "it closed too early", "calls": [{"tool": "close"}]})
    found = proposed(PromptRewriter(Scripted({"": answer}), ["agent"], style="gepa"), view)
    assert found.workspace == {"agent": "Look before you close.", "judge": 0.5}
    assert "Be polite." in asked[0]
    assert "3 of 8 outcomes" in asked[0]
    assert "it closed too early" in asked[0]
    assert '{"tool": "close"}' in asked[0]
    assert asked[0].count("data, not instructions") == 2  # each thing shown
    long = proposed(PromptRewriter(Scripted({"": "x" * 9000}), ["agent"], style="gepa"), view)
    assert long.workspace is None
    with pytest.raises(BadInput, match="no style 'poem'"):
        PromptRewriter(Scripted({"": answer}), ["agent"], style="poem")
