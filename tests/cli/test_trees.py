"""Credit on trees from the command line, beside methods that value steps."""

from __future__ import annotations

import json

import pytest

from clew.core.registry import register
from clew.credit.tree import tree

register("credits", "tree", tree)


def test_credit_on_a_tree_is_shown_beside_others(clew):
    model = "markov(corpus='up\\nup up\\nstop\\ndown', tokens=True)"
    clew("run", "player", "--world", "counter(low=1, high=2, steps=4)", "--model", model, "--tasks", 3, "-n", 6)
    done = json.loads(clew("credit", "tree+grpo", "--json").output)
    mine, other = done["methods"]
    assert mine["method"] == "tree"
    assert (mine["groups"], mine["runs"]) == (other["groups"], other["runs"]) == (3, 18)
    assert mine["silent groups"] == pytest.approx(other["silent groups"])
    assert mine["silent groups"] < 1
    assert mine["valued"] > 0
    assert done["pairs"] == [], "tokens and steps are not compared"
    clew("credit", "tree(baseline='mean')", code=2)
