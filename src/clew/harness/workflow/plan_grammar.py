"""The language of plans as a regular expression, which models that can be held to a grammar are held to.

``orchestrator(grammar=True)`` asks for it. Whatever matches it, ``workplan.parse`` must read; a reply that ends before
it is whole is no plan all the same.
"""

from __future__ import annotations

from functools import lru_cache

from clew.core.errors import BadInput

LETTERS = 300  # most characters of one subtask
MOST = 12  # parts: the expression grows with their square
SUBTASK = rf'"[^"\\\s\x00-\x1f\x7f][^"\\\x00-\x1f\x7f]{{0,{LETTERS - 1}}}"'


@lru_cache(maxsize=64)
def plan_grammar(workers: int, most: int, or_else: str = "") -> str:
    """A ``Sampling.grammar`` of plans of 1 to ``most`` parts for so many workers, in the form that ``written`` gives.

    Args:
        or_else: a word that a reply may consist of instead.

    Raises:
        BadInput: plans of so many parts make too large an expression.
    """
    if most > MOST:
        raise BadInput(f"a grammar for plans of {most} parts", remedy=f"Let plans have {MOST} parts at most.")
    number = _one_of(workers)
    plans = [_plan(number, parts) for parts in range(1, most + 1)]
    return "regex:" + "|".join([*plans, *([or_else] if or_else else [])])


def _plan(number: str, parts: int) -> str:
    numbers, subtasks = ", ".join([number] * parts), ", ".join([SUBTASK] * parts)
    access = ", ".join(_reads(at) for at in range(parts))
    return rf"model_id: \[{numbers}\]\nsubtasks: \[{subtasks}\]\naccess_list: \[{access}\]"


def _reads(at: int) -> str:
    """What the part ``at`` may read: nothing, or earlier parts; a part that is named twice is read once."""
    if not at:
        return r"\[\]"
    one = _one_of(at)
    return rf"\[(?:{one}(?:, {one}){{0,{at - 1}}})?\]"


def _one_of(count: int) -> str:
    return f"(?:{'|'.join(map(str, range(count)))})"
