"""Simulates a server under load: requests, drafts and rounds are drawn, their seconds come from the cost table.

Tier `load` calls it. The policies of draft lengths are the engine's own. The simulation
leaves out prefill, growing contexts and the network, so its results must never be reported as measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need
from clew.models.engine.speculation.lengths import policy

if TYPE_CHECKING:
    from clew.models.engine.speculation.costs import Costs
    from clew.models.engine.speculation.proposal import Lengths

F64 = npt.NDArray[np.float64]
POLICIES = ("none", "fixed(k=1)", "fixed(k=3)", "fixed", "threshold(least=0.7)", "scheduler")
WARM = 0.2  # of the rounds, or of the requests, that are not counted


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the requests of a load are like.

    domains: share and mean logit of acceptance of a drafted token; as given they make 5.6, 5.1 and 3.5 tokens a round
    of 7 drafted, DSpark's for mathematics, code and chat (2607.05147, table 1, Qwen3-4B). spread, drift: standard
    deviation (logits) of a request's difficulty about that mean, and how much of it is left in the next round
    (AR(1)). jitter: standard deviation from token to token. tokens: mean length of a reply, geometric.

    The head's confidence of a token accepted with chance p is sigmoid((logit p + noise) * scale), noise normal with
    standard deviation ``noise``; ``blind`` gives every row the confidences of another one.
    """

    domains: tuple[tuple[float, float], ...] = ((1 / 3, 2.45), (1 / 3, 2.13), (1 / 3, 1.02))
    spread: float = 1.0
    drift: float = 0.9
    jitter: float = 0.7
    tokens: int = 200
    scale: float = 1.0
    noise: float = 0.0
    blind: bool = False

    @classmethod
    def like(cls, accepted: Sequence[float], tokens: int = 200) -> Traffic:
        """Traffic in which a drafter does as it did: one domain, fitted to its acceptance by position.

        Args:
            accepted: chance that a token is accepted given that those before it were, first position first.

        Raises:
            BadInput: not chances between 0 and 1.
        """
        wanted = np.asarray(accepted, np.float64)
        if not len(wanted) or not ((wanted > 0) & (wanted < 1)).all():
            raise BadInput(f"{accepted!r} are not chances of acceptance", remedy="Give numbers between 0 and 1.")
        reached, jitter = wanted.cumprod(), cls().jitter
        found = need("scipy.optimize", "stats").minimize(
            lambda x: float(((survival(x[0], abs(x[1]), jitter, len(reached)) - reached) ** 2).sum()),
            (1.5, 1.0), method="Nelder-Mead",
        ).x  # fmt: skip
        return cls(domains=((1.0, float(found[0])),), spread=float(abs(found[1])), tokens=tokens)


class Load(NamedTuple):
    """What a server did. Speeds are tokens per second.

    at: users (closed loop), or requests per second (open). speed: mean over requests of their tokens by their time in
    service; slow: a tenth of the requests were slower. verified: flattened tokens of a round per request, its own last
    token among them. emitted: tokens of a round per request. drafted: share of rounds with a draft. wait: mean seconds
    before service. met: share of requests as fast as was promised, waiting included. rows: mean of requests at once.
    """

    policy: str
    at: float
    seed: int
    throughput: float
    speed: float
    slow: float
    verified: float
    emitted: float
    drafted: float
    wait: float
    met: float
    rows: float


def closed(
    costs: Costs, traffic: Traffic, lengths: Lengths, users: int, seed: int = 0, *, rounds: int = 300, name: str = ""
) -> Load:
    """``users`` requests at all times: whenever one ends the next begins."""
    server = _Server(costs, traffic, lengths, users, np.random.default_rng(seed))
    for i in range(rounds):
        server.admit([server.clock] * int((~server.busy).sum()))
        server.round()
        if i + 1 == int(rounds * WARM):
            server.forget()
    return server.load(name, users, seed)


def poisson(
    costs: Costs,
    traffic: Traffic,
    lengths: Lengths,
    rate: float,
    seed: int = 0,
    *,
    requests: int = 300,
    rows: int = 256,
    promised: float = 0.0,
    name: str = "",
) -> Load:
    """Requests that arrive at random, ``rate`` in a second, wait for one of ``rows`` rows, and are served.

    Args:
        promised: tokens per second from arrival on that a user was promised.
    """
    rng = np.random.default_rng(seed)
    arrivals = rng.exponential(1 / rate, requests).cumsum()
    server, come = _Server(costs, traffic, lengths, rows, rng, promised), 0
    steady: Load | None = None
    while server.done < requests:
        due = arrivals[come : come + int((~server.busy).sum())]
        due = due[due <= server.clock]
        if not len(due) and not server.busy.any():
            server.clock = float(arrivals[come])
            continue
        server.admit(due)
        come += len(due)
        before = server.done
        server.round()
        if before < requests * WARM <= server.done:
            server.forget()
        if come == requests and steady is None and server.done < requests:
            steady = server.load(name, rate, seed)
    end = server.load(name, rate, seed)
    if steady is None:
        return end
    # What concerns the whole server is counted up to the last arrival, what concerns a request up to its end.
    return steady._replace(speed=end.speed, slow=end.slow, wait=end.wait, met=end.met)


def simulate(
    costs: Costs,
    users: Iterable[int],
    *,
    policies: Sequence[str] = POLICIES,
    traffic: Traffic | None = None,
    seeds: int = 5,
    rounds: int = 300,
    advance: Callable[[], object] = lambda: None,
) -> list[Load]:
    """Each policy at each number of users, ``seeds`` times; every policy meets the same traffic.

    Args:
        policies: as ``clew.models.engine.speculation.lengths.policy`` reads them.
        advance: called after each.
    """
    found = []
    for many in users:
        for name in policies:
            for seed in range(seeds):
                lengths = policy(name, costs, costs.block)
                found.append(closed(costs, traffic or Traffic(), lengths, many, seed, rounds=rounds, name=name))
                advance()
    return found


class _Server:
    """Rows, what runs in them, a clock, and what was counted since ``forget``."""

    def __init__(
        self,
        costs: Costs,
        traffic: Traffic,
        lengths: Lengths,
        rows: int,
        rng: np.random.Generator,
        promised: float = 0.0,
    ) -> None:
        self.costs, self.traffic, self.lengths, self.rng, self.promised = costs, traffic, lengths, rng, promised
        self.clock, self.done = 0.0, 0
        self.busy, self.fresh = np.zeros(rows, bool), np.zeros(rows, bool)
        self.mean, self.hard, self.arrived, self.began = np.zeros((4, rows))
        self.left, self.tokens = np.zeros((2, rows), np.int64)
        self.ended: list[tuple[float, float, float]] = []  # tokens, seconds in service, seconds waited
        self.forget()

    def forget(self) -> None:
        """Count from now on; requests that end later count whole."""
        self.since, self.emitted, self.verified, self.rounds, self.drafts, self.row_rounds = self.clock, 0, 0, 0, 0, 0
        self.ended.clear()

    def admit(self, arrivals: Sequence[float] | F64) -> None:
        """Give rows to requests that arrived then; there are as many."""
        n, traffic = len(arrivals), self.traffic
        rows = np.flatnonzero(~self.busy)[:n]
        shares, means = np.array(traffic.domains).T
        self.mean[rows] = means[self.rng.choice(len(means), n, p=shares / shares.sum())]
        self.hard[rows] = self.rng.normal(0, traffic.spread, n)
        self.left[rows] = self.rng.geometric(1 / traffic.tokens, n)
        self.arrived[rows], self.began[rows], self.tokens[rows] = arrivals, self.clock, 0
        self.busy[rows] = self.fresh[rows] = True

    def round(self) -> None:
        """One step of the engine."""
        rows = np.flatnonzero(self.busy)
        n, accepted = len(rows), np.zeros(len(rows), np.int64)
        if self.lengths.draft(rows):
            likely, chance = self._block(rows)
            k = self.lengths.choose(rows, self.fresh[rows], chance)
            self.fresh[rows] = False
            agreed = (self.rng.random(likely.shape) < likely).cumprod(1).sum(1)
            accepted, verified = np.minimum(agreed, k), n + int(k.sum())
            self.clock += float(self.costs.verify_seconds(verified) + self.costs.draft_seconds(n))
            self.drafts += 1
        else:
            verified = n
            self.clock += float(self.costs.plain_seconds(n))
        emitted = np.minimum(accepted + 1, self.left[rows])
        self.left[rows] -= emitted
        self.tokens[rows] += emitted
        drift = self.traffic.drift
        fresh = self.rng.normal(0, self.traffic.spread, n)
        self.hard[rows] = drift * self.hard[rows] + np.sqrt(1 - drift**2) * fresh
        self.rounds, self.row_rounds = self.rounds + 1, self.row_rounds + n
        self.emitted, self.verified = self.emitted + int(emitted.sum()), self.verified + verified
        self._finish(rows[self.left[rows] == 0])

    def _block(self, rows: npt.NDArray[np.int64]) -> tuple[F64, F64]:
        """True chances of acceptance of a drafted block, and the head's, [n, block]."""
        traffic, size = self.traffic, (len(rows), self.costs.block)
        logit = (self.mean + self.hard)[rows, None] + self.rng.normal(0, traffic.jitter, size)
        told = (logit + self.rng.normal(0, traffic.noise, size)) * traffic.scale
        if traffic.blind:
            told = told[self.rng.permutation(len(rows))]
        return _sigmoid(logit), _sigmoid(told)

    def _finish(self, rows: npt.NDArray[np.int64]) -> None:
        self.busy[rows] = False
        self.done += len(rows)
        took, waited = self.clock - self.began[rows], self.began[rows] - self.arrived[rows]
        self.ended += zip(self.tokens[rows].tolist(), took.tolist(), waited.tolist(), strict=True)

    def load(self, name: str, at: float, seed: int) -> Load:
        seconds = self.clock - self.since
        tokens, began, arrived = (x[self.busy] for x in (self.tokens, self.began, self.arrived))
        under_way = list(zip(tokens, self.clock - began, began - arrived, strict=True))
        # Where none has ended those under way are all there is.
        tokens, took, waited = np.array(self.ended or under_way, np.float64).T
        speed = tokens / took
        return Load(
            name or type(self.lengths).__name__.lower(), at, seed, self.emitted / seconds, float(speed.mean()),
            float(np.quantile(speed, 0.1)), self.verified / self.row_rounds, self.emitted / self.row_rounds,
            self.drafts / self.rounds, float(waited.mean()), float((tokens / (took + waited) >= self.promised).mean()),
            self.row_rounds / self.rounds,
        )  # fmt: skip


def survival(mean: float, spread: float, jitter: float, block: int) -> F64:
    """Chance [block] that a drafted token and all before it are accepted in traffic of one domain."""
    x, w = np.polynomial.hermite_e.hermegauss(40)
    w = w / w.sum()
    given = (_sigmoid(mean + spread * x[:, None] + jitter * x) * w).sum(1)  # of a request's difficulty
    found: F64 = (w[:, None] * given[:, None] ** np.arange(1, block + 1)).sum(0)
    return found


def _sigmoid(x: F64) -> F64:
    found: F64 = 1 / (1 + np.exp(-np.clip(x, -60, 60)))
    return found
