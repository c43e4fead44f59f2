"""What a table of the commonest answers reaches: the rule without a model that a model of a world has to beat.

`clew world fit` and the experiments call it. Where most actions are answered alike whatever the state, such a table is
as exact as a model that knows the actions and no state, and only the answers that it misses tell the two apart. The
table must never see the runs that it is measured on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.rewarding import canonical
from clew.methods.world_model.prompting import turn_text


def commonest(learnt: Sequence[Episode], asked: Sequence[Episode]) -> list[bool]:
    """For each answer of the episodes asked, in order: whether it is the commonest one to the same action among the
    episodes learnt from. An action that is new there has the commonest answer to actions of its first word."""
    known: dict[str, Counter[str]] = defaultdict(Counter)
    for one in learnt:
        for turn in one.turns:
            action, said = turn_text(turn.action), canonical(turn.observation)
            known[action][said] += 1
            known[first_word(action)][said] += 1
    hits = []
    for one in asked:
        for turn in one.turns:
            action = turn_text(turn.action)
            found = (known.get(action) or known.get(first_word(action), Counter())).most_common(1)
            hits.append(bool(found) and found[0][0] == canonical(turn.observation))
    return hits


def first_word(action: str) -> str:
    """The first word of an action; "" of an empty one."""
    return (action.split() or [""])[0]
