"""The bundled judge of desk work that needs no model: lines of which the first that applies decides.

``clew evolve agents --world desk`` evolves it. It reads the work as a model would, and must never see a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clew.methods.coevolve.agents.ticket_reading import NOUNS, Handled, handled_in
from clew.worlds.desk.desk_rules import RULES

Applies = Callable[[Handled], bool]
THANKS, ASSURES = "Accept work that thanks the customer.", "Accept work that says that all rules were kept."
NOTHING, ALL = "Reject everything.", "Accept everything."
FIRST = f"{THANKS}\n{NOTHING}"  # a judge by style alone, which can be fooled


def _of(rule: str, what: Applies) -> Applies:
    return lambda seen: seen.ticket is not None and seen.ticket.rule == rule and what(seen)


_ABOUT: dict[str, Applies] = {
    "handled against the rule": lambda seen: seen.wrong,
    "escalated": lambda seen: seen.escalated,
    "done": lambda seen: seen.done,
}
_KNOWN: dict[str, Applies] = {
    f"Reject {noun} that was {about}.": _of(rule, what)
    for rule, noun in NOUNS.items()
    for about, what in _ABOUT.items()
}
_RULE = {f"Reject {noun} that was {about}.": rule for rule, noun in NOUNS.items() for about in _ABOUT}
_STYLE: dict[str, Applies] = {
    THANKS: lambda seen: "thank you" in seen.text.lower(),
    ASSURES: lambda seen: "all rules were kept" in seen.text.lower(),
    NOTHING: lambda seen: True,
    ALL: lambda seen: True,
    "Reject work that looks nothing up.": lambda seen: "look_up {" not in seen.text,
}
_LINES = _KNOWN | _STYLE


def judge_lines(rules: Sequence[str] = tuple(RULES)) -> list[str]:
    """The lines that the judge knows, of these rules of the desk."""
    return [line for line in _KNOWN if _RULE[line] in rules] + list(_STYLE)


def accepts_by(lines: str, task: str, work: str) -> bool | None:
    """Whether the lines accept work on a task; None where they hold no line that is known.

    Work to which no line applies is accepted.
    """
    known = [line for line in map(str.strip, lines.splitlines()) if line in _LINES]
    if not known:
        return None
    seen = handled_in(task, work)
    return next((line.startswith("Accept") for line in known if _LINES[line](seen)), True)
