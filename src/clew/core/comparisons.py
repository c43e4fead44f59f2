"""The comparisons behind a verdict: "passed" is said only where at least one of them could have gone against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from clew.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What a verdict rests on. A verdict without a comparison that could have failed is "not tested".

    Attributes:
        what: what was compared with what, as a noun phrase: "final answers of the tool and of the text path".
        made: comparisons performed.
        could_differ: those of ``made`` whose two sides could have differed on this input.
        least: the smallest effect that counts, in ``unit``; None where any difference counts.
        unit: of ``least``, as it stands behind the number: "of the reward", "nats a token"; may be empty.
        why_not: why nothing, or too little, could differ: "all runs have equal length"; printed if not tested.

    Raises:
        BadInput: on construction, if a count is negative, or more could differ than were made.
    """

    what: str
    made: int
    could_differ: int
    least: float | None = None
    unit: str = ""
    why_not: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.could_differ <= self.made:
            raise BadInput(
                f"comparisons of {self.what}: {self.could_differ} of {self.made} could differ",
                remedy="Give 0 <= could_differ <= made.",
            )

    @property
    def tested(self) -> bool:
        """Whether a verdict may be given at all."""
        return self.could_differ > 0

    def verdict(self, passed: str) -> str:
        """``passed`` where something could have differed, else "not tested" and why."""
        if self.tested:
            return passed
        why = self.why_not or (f"nothing in {self.what} could differ" if self.made else f"there are no {self.what}")
        return f"not tested: {why}"

    def json(self) -> dict[str, str | int | float | bool | None]:
        """The fields and ``tested``, for a verb's ``--json``."""
        return asdict(self) | {"tested": self.tested}

    def __str__(self) -> str:
        told = f"{self.could_differ} of {self.made} {self.what} could differ"
        if self.least is None:
            return told
        return f"{told}; an effect below {self.least:g}{self.unit and f' {self.unit}'} does not count"
