"""People who follow a planted theory, with noise of their own: what the closed loop is tried on before real people are.

The loop sees their choices and must never see the theory.
"""

from __future__ import annotations

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.methods.theories.choice_forms import KNOWN, Form, chances
from clew.methods.theories.choice_trials import Design, Trials


def simulate(form: Form, design: Design, people: int, seed: int, noise: float = 0.0) -> Trials:
    """Choices of so many people, each with one draw of the parameters and an order of the pairs of its own.

    Args:
        noise: share of choices that are drawn evenly instead.
    """
    rng = np.random.default_rng(seed)
    parameters = form.draws(people, int(rng.integers(2**31)))
    m, shown = len(design.a), len(design.a) * design.repeats
    order = np.stack([rng.permutation(np.repeat(np.arange(m), design.repeats)) for _ in range(people)])
    luck, slip = rng.random((people, shown)), rng.random((people, shown)) < noise
    coin = rng.random((people, shown)) < 0.5
    after = [chances(form, parameters, design, prev) for prev in (0.0, -1.0, 1.0)]
    chose, state, who = np.zeros((people, shown), np.int64), np.zeros(people, np.int64), np.arange(people)
    for step in range(shown):
        said = np.choose(state, [one[who, order[:, step]] for one in after])
        chose[:, step] = np.where(slip[:, step], coin[:, step], luck[:, step] < said)
        state = 1 + chose[:, step]
    flat = order.ravel()
    return Trials(design.a[flat], design.b[flat], design.validities, np.repeat(who, shown), chose.ravel())


class SimulatedPeople:
    """A lab of people who follow a theory; the same design is chosen on in the same way.

    Args:
        name: of the theory, one of ``KNOWN``. people: on each design. noise: share of choices that are drawn evenly.

    Raises:
        BadInput: there is no such theory, or a number without a meaning.
    """

    def __init__(self, name: str, people: int = 25, noise: float = 0.0, seed: int = 0) -> None:
        if name not in KNOWN:
            raise BadInput(f"nobody follows {name!r}", remedy=f"Choose from {', '.join(KNOWN)}.")
        if not 0 <= noise <= 1 or people < 4:
            raise BadInput(f"{people} people, noise {noise}", remedy="Give 4 people or more, and noise in [0, 1].")
        self.truth: Form = KNOWN[name]
        self.people, self.noise, self.seed = people, noise, seed

    def cost(self, design: Design) -> str:
        """As ``labs.Lab``."""
        return "It costs nothing: these people are simulated."

    def offers(self) -> None:
        """As ``labs.Lab``."""
        return None  # noqa: RET501  # any design may be asked

    async def collect(self, design: Design) -> Trials:
        """As ``labs.Lab``."""
        return simulate(self.truth, design, self.people, derive(self.seed, "people", design.key), self.noise)
