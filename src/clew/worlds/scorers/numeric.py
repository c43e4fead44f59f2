"""The scorer ``numeric``: the last number of a reply against that of the answer, with units, commas and fractions."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from clew.core.errors import BadInput

LONGEST = 100_000  # last characters of a reply that are read
DIGITS = 400  # of one number; a longer one is none
NUMBER = re.compile(
    r"""(?P<sign>(?<![\w.)])[-+\u2212])?\s?
    (?:\$|\u20ac|\u00a3)?
    (?:\\[dt]?frac\{(?P<over>\d+)\}\{(?P<under>\d+)\}
    |(?:(?P<whole>\d+)\s)?(?P<top>\d+)\s?/\s?(?P<bottom>\d+)(?![\d.])
    |(?P<plain>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.\d+|\d+|\.\d+)(?P<power>[eE][-+]?\d{1,3}(?![\d.]))?)
    \s?(?P<percent>\\?%)?""",
    re.VERBOSE | re.ASCII,
)


def numeric(
    reply: str, answer: object, *, tolerance: float = 0.0, relative: float = 1e-9, percent: bool = False
) -> float:
    """1 where the last number of the reply is the last number of the answer, else 0.

    Read are ``-3``, ``1,234.5``, ``2e-3``, ``3/4``, ``1 1/2``, ``\\frac{3}{4}``, each with a currency sign before it or
    a unit behind; a unit is not compared. A reply without a number gets 0.

    Args:
        tolerance: largest difference that counts as equal.
        relative: the same as a share of the answer.
        percent: read ``12 %`` as 0.12; else the sign is a unit.

    Raises:
        BadInput: the answer holds no number.
    """
    wanted = last_number(answer, percent)
    if wanted is None:
        raise BadInput(
            f"the answer {str(answer)[:60]!r} holds no number", remedy="Mend the row, or use another scorer."
        )
    found = last_number(reply, percent)
    if found is None:
        return 0.0
    return float(abs(found - wanted) <= max(Fraction(tolerance), abs(wanted) * Fraction(relative)))


def last_number(value: object, percent: bool = False) -> Fraction | None:
    """The last number of a text, exactly; None where it holds none, or one of more than 400 digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return Fraction(value) if math.isfinite(value) else None
    all_found = list(NUMBER.finditer(str(value)[-LONGEST:]))
    if not all_found or len(all_found[-1][0]) > DIGITS:
        return None
    found = all_found[-1]
    sign = -1 if found["sign"] in ("-", "\u2212") else 1
    share = Fraction(1, 100) if percent and found["percent"] else Fraction(1)
    top, bottom = found["over"] or found["top"], found["under"] or found["bottom"]
    if bottom is None:
        return sign * share * Fraction(found["plain"].replace(",", "") + (found["power"] or ""))
    if int(bottom) == 0:
        return None
    return sign * share * (int(found["whole"] or 0) + Fraction(int(top), int(bottom)))
