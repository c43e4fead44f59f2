"""How a simulated world is to behave beside what its model would say: typed wishes, as text and as numbers.

``simulated(instruction={...})`` makes one. The text tells the model; ``service_faults`` and ``leaks`` enforce what code
can enforce. An instruction must never hold what only a judge may know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from clew.core.errors import BadInput

Leak = Literal["full", "tease", "none"]
REMEDY = "See `clew worlds` for simulated(instruction=...)."


@dataclass(frozen=True, slots=True)
class Instruction:
    """Typed wishes; the defaults wish for nothing.

    Args:
        leak: where words of the task's answer may stand: anywhere (``full``), only in what an action of ``opens``
            answers, so that a page must be opened (``tease``), or nowhere (``none``).
        opens: first words of actions, or names of tools, that open a page.
        fail_rate: share of actions that the service refuses as not available; such an action has no effect.
        paginate: most items of a list in one answer; the rest is given page by page. 0: whole lists.
        latency: mean seconds that an answer takes; each is drawn from an exponential law, at most ten times the mean.
        partial: share of actions whose answer arrives in part: a list lacks items and says so, anything else is lost
            on its way although the action has had its effect.
        fiction: path of a table (CSV, or JSON lines) of invented facts, which hold in this world in place of the real.

    Raises:
        BadInput: a value without a meaning, or wishes that contradict each other.
    """

    leak: Leak = "full"
    opens: tuple[str, ...] = ()
    fail_rate: float = 0.0
    paginate: int = 0
    latency: float = 0.0
    partial: float = 0.0
    fiction: str = ""

    def __post_init__(self) -> None:
        shares = {"fail_rate": self.fail_rate, "partial": self.partial}
        for name, share in shares.items():
            if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share <= 1:
                raise BadInput(f"{name} is {share!r}", remedy="Give a share from 0 to 1.")
        if self.leak not in ("full", "tease", "none"):
            raise BadInput(f"leak is {self.leak!r}", remedy="Write full, tease or none.")
        if not isinstance(self.paginate, int) or isinstance(self.paginate, bool) or self.paginate < 0:
            raise BadInput(f"paginate is {self.paginate!r}", remedy="Give a number of items, or 0 for whole lists.")
        if not isinstance(self.latency, (int, float)) or not 0 <= self.latency <= 60:
            raise BadInput(f"latency is {self.latency!r}", remedy="Give a mean of 0 to 60 seconds.")
        if self.leak == "tease" and not self.opens:
            raise BadInput("leak='tease' needs a way to the answer", remedy="Say what opens a page: opens=('open',).")
        if self.leak != "tease" and self.opens:
            told = f"opens says what may tell the answer, and leak={self.leak!r} makes no difference by it"
            raise BadInput(told, remedy="Use leak='tease', or leave opens out.")
        if self.fail_rate + self.partial >= 1:
            told = f"fail_rate={self.fail_rate} and partial={self.partial} leave no action that succeeds"
            raise BadInput(told, remedy="Let their sum stay below 1.")

    @classmethod
    def of(cls, given: Mapping[str, Any] | Instruction | None) -> Instruction:
        """An instruction as a reference holds it.

        Raises:
            BadInput: there is no such wish; see the class.
        """
        if isinstance(given, Instruction):
            return given
        if not isinstance(given or {}, Mapping):
            raise BadInput(f"instruction is a {type(given).__name__}", remedy="Write {'fail_rate': 0.1}.")
        known = [field.name for field in fields(cls)]
        if odd := sorted(set(given or {}) - set(known)):
            raise BadInput(f"no instruction is called {odd[0]!r}", remedy=f"Known: {', '.join(known)}.")
        told = dict(given or {})
        if "opens" in told:
            told["opens"] = (told["opens"],) if isinstance(told["opens"], str) else tuple(map(str, told["opens"]))
        return cls(**told)

    @property
    def given(self) -> dict[str, Any]:
        """The wishes that differ from the defaults, as a reference holds them."""
        now, plain = {f.name: getattr(self, f.name) for f in fields(self)}, Instruction()
        return {name: value for name, value in now.items() if value != getattr(plain, name)}

    @property
    def text(self) -> str:
        """What the model is told. What code alone does (failures, pages, waiting) it is told not to do too."""
        said = []
        if self.leak != "full":
            until = f"before the agent opens the page by {' or '.join(self.opens)}" if self.opens else "at any time"
            said.append(f"Never state the answer to the agent's task {until}; snippets may hint at it.")
        if self.paginate:
            said.append("Give lists whole; they are cut into pages after you.")
        if self.fail_rate or self.partial:
            said.append("Do not invent failures of the service; they are added after you.")
        if self.fiction:
            said.append(
                "The facts that come with an action hold here, whatever you know. What they do not say is not so."
            )
        return "\n".join(said)
