"""The rates of a generator, its critics and their oracle, estimated from counts.

The controller reads and updates them. A candidate is good (Y = 1) where the oracle passes it. A critic has a true
positive rate P(pass | good) and a false positive rate P(pass | broken). Every rate is a Beta posterior: plans use its
mean, reports show its interval (arXiv 2606.24453, section 3: Beta(1, 1) smoothing; the shrinking to other cells is
ours). A verdict that is undecided must never enter a count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STRENGTH = 8.0  # candidates that the pooled rate of other cells is worth
LINKED, LINK_NEEDS = 0.2, 50  # |phi| from which two critics are one, and the candidates of one label it takes to say so


@dataclass(frozen=True, slots=True)
class Beta:
    """A rate: a pass pseudo-counts ``a``, ``b`` of the other, from ``n`` observations."""

    a: float
    b: float
    n: int = 0

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """The central credible interval."""
        from scipy.stats import beta

        low, high = beta.ppf([(1 - level) / 2, (1 + level) / 2], self.a, self.b)
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}] n={self.n}"


@dataclass(frozen=True, slots=True)
class Rates:
    """What a plan is made with.

    prior: P(good) of a fresh candidate. fix, spoil: P(good after | broken before) and P(broken after | good before) of
    a refinement; where candidates are drawn afresh they are ``prior`` and 1 - ``prior``. passes: critic -> P(pass |
    broken), P(pass | good). joint: for a linked pair (first, second) in the order of ``passes``, P(z1, z2 | Y) as
    [Y][z1][z2].
    """

    prior: float
    fix: float
    spoil: float
    passes: Mapping[str, tuple[float, float]]
    joint: Mapping[tuple[str, str], Sequence[Sequence[Sequence[float]]]] = field(default_factory=dict)

    def partner(self, critic: str) -> str | None:
        """The critic that this one is linked with."""
        return next((b if a == critic else a for a, b in self.joint if critic in (a, b)), None)

    def chance(self, critic: str, seen: Mapping[str, bool]) -> tuple[float, float]:
        """P(pass | broken), P(pass | good), given what the partner said, where it was run."""
        other = self.partner(critic)
        if other is None or other not in seen:
            return self.passes[critic]
        pair = next(p for p in self.joint if critic in p)
        out = []
        for label in (0, 1):
            table = self.joint[pair][label]
            z = int(seen[other])
            both = (table[0][z], table[1][z]) if pair[0] == critic else (table[z][0], table[z][1])
            out.append(both[1] / (both[0] + both[1]))
        return out[0], out[1]

    def updated(self, belief: float, critic: str, passed: bool, seen: Mapping[str, bool]) -> float:
        """Bayes' rule: the belief after a critic's verdict."""
        bad, good = self.chance(critic, seen)
        up, down = (good, bad) if passed else (1 - good, 1 - bad)
        return up * belief / max(up * belief + down * (1 - belief), 1e-12)

    def after(self, belief: float) -> float:
        """The belief in what a refinement makes of a candidate."""
        return belief * (1 - self.spoil) + (1 - belief) * self.fix


class Evidence:
    """Counts by cell (a repository, a kind of task, a generator: any name).

    ``y[good]``, ``pass/CRITIC/good`` and ``fail/CRITIC/good``, ``link/A/B/good/zA/zB``, ``step/before/after`` of
    refinements. Only fresh candidates speak for the prior and the critics: later ones are those that failed before.
    """

    def __init__(self, cells: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self.cells: dict[str, defaultdict[str, float]] = {}
        for name, counts in (cells or {}).items():
            self.cells[name] = defaultdict(float, counts)

    def add(
        self,
        cell: str,
        verdicts: Mapping[str, bool],
        good: bool,
        before: bool | None = None,
        weight: float = 1.0,
        prior: bool = True,
    ) -> None:
        """One candidate with what its critics said and what the oracle found.

        Args:
            before: its predecessor's label, where it was made from one.
            weight: 1 over the chance with which a candidate that ended like this one is looked at: what the oracle
                sees by choice is no fair sample.
            prior: whether it speaks for the prior too; a mutant does not.
        """
        counts, y = self.cells.setdefault(cell, defaultdict(float)), int(good)
        if before is not None:
            keys = [f"step/{int(before)}/{y}"]
        else:
            keys = [
                f"label/{y}",
                *([f"y/{y}"] if prior else []),
                *(f"{'pass' if passed else 'fail'}/{name}/{y}" for name, passed in verdicts.items()),
            ]
            for name, passed in verdicts.items():
                keys += [f"link/{name}/{o}/{y}/{int(passed)}/{int(z)}" for o, z in verdicts.items() if o > name]
        for key in keys:
            counts[key] += weight
            counts[f"n {key}"] += 1
            counts[f"w {key}"] += weight * weight

    def count(self, key: str, cell: str | None = None) -> float:
        """Of one cell, or of all."""
        return sum(c.get(key, 0.0) for name, c in self.cells.items() if cell in (None, name))

    def seen(self, key: str, cell: str | None = None) -> int:
        """How many there were, whatever their weight."""
        return int(self.count(f"n {key}", cell))

    def rate(self, yes: str, no: str, cell: str) -> Beta:
        """A cell's counts on top of what the others say, worth at most ``STRENGTH`` of them (Beta(1, 1) without)."""
        own, fail = self.count(yes, cell), self.count(no, cell)
        more, less = self.count(yes) - own, self.count(no) - fail
        squares = self.count(f"w {yes}", cell) + self.count(f"w {no}", cell)
        worth = (own + fail) / squares if squares else 0.0  # Kish: candidates of unequal weight count for fewer
        weight = min(1.0, STRENGTH / (more + less)) if more + less else 0.0
        n = self.seen(yes, cell) + self.seen(no, cell)
        return Beta(1 + worth * own + weight * more, 1 + worth * fail + weight * less, n)

    def prior(self, cell: str) -> Beta:
        return self.rate("y/1", "y/0", cell)

    def critic(self, name: str, cell: str) -> tuple[Beta, Beta]:
        """P(pass | broken), P(pass | good)."""
        low, high = (self.rate(f"pass/{name}/{y}", f"fail/{name}/{y}", cell) for y in (0, 1))
        return low, high

    def kernel(self, cell: str) -> tuple[Beta, Beta]:
        """P(fixed by a refinement | broken), P(spoilt | good)."""
        return self.rate("step/0/1", "step/0/0", cell), self.rate("step/1/0", "step/1/1", cell)

    def phi(self, first: str, second: str, good: bool, cell: str) -> tuple[float, int]:
        """The correlation of two critics' verdicts on candidates of one label (phi), and how many there were."""
        a, b = sorted((first, second))
        n = [[self.count(f"link/{a}/{b}/{int(good)}/{i}/{j}", cell) for j in (0, 1)] for i in (0, 1)]
        rows, columns = [sum(r) for r in n], [n[0][j] + n[1][j] for j in (0, 1)]
        scale = (rows[0] * rows[1] * columns[0] * columns[1]) ** 0.5
        looked = sum(self.seen(f"link/{a}/{b}/{int(good)}/{i}/{j}", cell) for i in (0, 1) for j in (0, 1))
        return ((n[1][1] * n[0][0] - n[1][0] * n[0][1]) / scale if scale else 0.0), looked

    def linked(self, names: Sequence[str], cell: str) -> list[tuple[str, str]]:
        """Pairs whose verdicts hang together given the label, strongest first, no critic in two."""
        found = []
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                strengths = [abs(phi) for phi, n in (self.phi(a, b, y, cell) for y in (False, True)) if n >= LINK_NEEDS]
                if strengths and max(strengths) > LINKED:
                    found.append((max(strengths), (a, b)))
        pairs: list[tuple[str, str]] = []
        for _, pair in sorted(found, key=lambda f: (-f[0], f[1])):
            if not {*pair} & {name for p in pairs for name in p}:
                pairs.append(pair)
        return pairs

    def _table(self, first: str, second: str, cell: str) -> list[list[list[float]]]:
        """P(z1, z2 | Y) as [Y][z1][z2], one pseudo-count in each of the four rows (Dirichlet)."""
        out = []
        for y in (0, 1):
            rows = [[1.0, 1.0], [1.0, 1.0]]
            for i in (0, 1):
                for j in (0, 1):
                    a, b, za, zb = (first, second, i, j) if first < second else (second, first, j, i)
                    rows[i][j] += self.count(f"link/{a}/{b}/{y}/{za}/{zb}", cell)
            total = sum(map(sum, rows))
            out.append([[value / total for value in row] for row in rows])
        return out

    def rates(self, names: Sequence[str], cell: str, resample: bool = True) -> Rates:
        """The means of everything, with linked pairs as joint tables.

        Args:
            names: the critics.
            resample: candidates are drawn afresh, not made from the one before.
        """
        prior = self.prior(cell).mean
        fix, spoil = (prior, 1 - prior) if resample else (beta.mean for beta in self.kernel(cell))
        passes = {name: tuple(beta.mean for beta in self.critic(name, cell)) for name in names}
        joint = {pair: self._table(*pair, cell) for pair in self.linked(names, cell)}
        for (a, b), table in joint.items():  # alone, each of the two has the margin of their table
            passes[a] = tuple(sum(table[y][1]) for y in (0, 1))
            passes[b] = tuple(table[y][0][1] + table[y][1][1] for y in (0, 1))
        return Rates(prior, fix, spoil, {k: (v[0], v[1]) for k, v in passes.items()}, joint)

    def dumps(self) -> str:
        return json.dumps({name: dict(sorted(c.items())) for name, c in sorted(self.cells.items())})

    @classmethod
    def loads(cls, text: str) -> Evidence:
        data: dict[str, Any] = json.loads(text)
        return cls(data)
