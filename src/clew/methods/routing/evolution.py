"""Stage 2 of the fast router: its head evolved on whole episodes by sep-CMA-ES, from the head of stage 1.

Section 3.2 of the Fugu report (arXiv 2606.21228); the strategy is that of Ros and Hansen (2008), by the library
``cma``. Whoever has episodes calls it: a simulation, a world, runs of Clew. It knows nothing of them, so that it must
never ask a worker itself. It keeps no pickle: what is written is the fitness of each candidate, and a search that goes
on tells them again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, BadRecord, need
from clew.core.keys import derive
from clew.methods.routing.reward_matrix import F64

Score = Callable[[F64], F64]  # heads float64 [C, W, d] to float64 [C]
Seeds = npt.NDArray[np.uint64]
Masks = npt.NDArray[np.bool_]
STATE, FORMAT, VERSION = "evolution.jsonl", "clew-evolution", 1
LONGEST = 1 << 26  # bytes of the state


class Episodes(Protocol):
    """Whole tasks performed with each head."""

    def __call__(self, heads: F64, seeds: Seeds, masks: Masks) -> F64:
        """Terminal rewards, float64 [C, n]; NaN where an episode could not be held, which is never scored 0.

        Args:
            heads: float64 [C, W, d]. seeds: uint64 [n], one a task: it says which task it is and all of its luck, and
                is the same for every head. masks: bool [n, W], who may be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Search:
    """What a search is to do.

    Args:
        iterations: of the strategy. replications: episodes of each candidate in one iteration; 16 are too few
            (pilot of the spec). sigma: first step size, in units of a head's weights.
        replay: weight of the single-step term; without it the head forgets single steps. entropy: first weight of the
            entropy term, which falls to 0 linearly. masked: share of the tasks whose pool is a random subset.
        every: iterations between two looks at the validation set. population: candidates of an iteration;
            0 for ``4 + floor(3 ln(W d))``. seed: of everything drawn here.

    Raises:
        BadInput: a number without a meaning.
    """

    iterations: int = 60
    replications: int = 48
    sigma: float = 0.1
    replay: float = 1.0
    entropy: float = 0.05
    masked: float = 0.5
    every: int = 5
    population: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "replications", "every"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy="Give a whole number from 1 on.")
        for name, top in (("sigma", math.inf), ("replay", math.inf), ("entropy", math.inf), ("masked", 1.0)):
            value = getattr(self, name)
            if not 0 <= value <= top or not math.isfinite(value) or (name == "sigma" and not value):
                raise BadInput(f"{name} is {value}", remedy="Give a finite number, a share from 0 to 1, sigma above 0.")
        if self.population and self.population < 2:
            raise BadInput("a population of 1", remedy="Give 2 candidates or more, or 0 for the usual number.")

    def candidates(self, weights: int) -> int:
        """Candidates of an iteration for a head of so many weights."""
        return self.population or 4 + math.floor(3 * math.log(weights))

    def looks(self) -> int:
        """Times the validation set is asked: the start, every few iterations, and the end."""
        return 1 + math.ceil(self.iterations / self.every)


class Cost(NamedTuple):
    """What a search costs: episodes of training, and times that the validation set is performed; told first.

    An episode has as many calls of workers as it has turns. done: episodes that the folder has already.
    """

    episodes: int
    looks: int
    done: int = 0


class Step(NamedTuple):
    """An iteration that ended. fitness: of the candidates, mean. validation: None where the set was not asked."""

    iteration: int
    fitness: float
    sigma: float
    validation: float | None


class Evolved(NamedTuple):
    """The best mean, float64 [W, d]: of iteration ``at`` (0: the start), with its score on the validation set.

    curve: the validation scores by iteration.
    """

    head: F64
    at: int
    validation: float
    curve: tuple[tuple[int, float], ...]


class Replay(NamedTuple):
    """The cached matrix of stage 1, by which single-step routing is rehearsed without a call.

    x: questions as the head reads them, float64 [Q, d]. means: mean rewards, float64 [Q, W].
    """

    x: F64
    means: F64

    def shares(self, head: F64) -> F64:
        """The head's chances for each question, float64 [Q, W]."""
        scores = self.x @ head.T
        raised = np.exp(scores - scores.max(1, keepdims=True))
        shares: F64 = raised / raised.sum(1, keepdims=True)
        return shares

    def single(self, heads: F64) -> F64:
        """Expected reward of one call, float64 [C] of heads float64 [C, W, d]."""
        return np.array([(self.shares(head) * self.means).sum(1).mean() for head in heads])

    def entropy(self, heads: F64) -> F64:
        """Mean entropy of the choice in nats, float64 [C]."""
        return np.array([-(p * np.log(p + 1e-300)).sum(1).mean() for p in map(self.shares, heads)])


def subsets(n: int, workers: int, share: float, seed: int) -> Masks:
    """Who may be asked in each of ``n`` tasks, bool [n, W].

    The first ``share`` of them have k workers by chance, k even from 2 to W - 1; the others have all. A pool of two has
    no such subset.
    """
    rng = np.random.default_rng(seed)
    rank = rng.random((n, workers)).argsort(1).argsort(1)
    if workers < 3:
        return np.ones((n, workers), bool)
    k = np.where(np.arange(n) < round(share * n), rng.integers(2, workers, n), workers)
    masks: Masks = rank < k[:, None]
    return masks


def evolve(
    start: F64,
    episodes: Episodes,
    validate: Callable[[F64], float],
    *,
    search: Search | None = None,
    single: Score | None = None,
    entropy: Score | None = None,
    folder: Path | None = None,
    told: Callable[[Cost], None] = lambda cost: None,
    progress: Callable[[Step], None] = lambda step: None,
) -> Evolved:
    """Evolve a head; all candidates of an iteration have the same tasks, luck and masks (common random numbers).

    The fitness of a candidate is its mean reward over episodes, plus ``replay`` times ``single``, plus the entropy
    term. What is kept is the mean of the distribution, never a candidate: the best of those is best by luck too.

    Args:
        start: head of stage 1, float64 [W, d], finite. validate: score of one head [W, d] on a fixed set of tasks,
            greedily. folder: where the search is kept; a search that is there goes on. told: called once, before the
            first episode. progress: called after each iteration, not for those that the folder has.

    Raises:
        BadInput: the head is none; the folder holds another search; no episode of a candidate could be held.
        BadRecord: what the folder holds is damaged, or was made by another version of numpy or cma.
        MissingExtra: cma is not installed.
    """
    search = search or Search()
    start = np.asarray(start, np.float64)
    if start.ndim != 2 or min(start.shape) < 1 or not np.isfinite(start).all() or start.size < 2:
        raise BadInput(f"a head of shape {list(start.shape)}", remedy="Give finite numbers [workers, width].")
    strategy, size = _strategy(start, search), search.candidates(start.size)
    state = _State.of(folder, start, search, size)
    each = size * search.replications
    told(Cost(search.iterations * each, search.looks(), min(len(state.done), search.iterations) * each))
    best = start.copy()
    first = state.first if state.first is not None else state.begin(_score(validate(best)))
    at, curve = 0, [(0, first)]
    for number in range(1, search.iterations + 1):
        asked = strategy.ask()
        heads = np.array(asked).reshape(size, *start.shape)
        old = state.again(number, heads)
        found = old[0] if old else _fitness(heads, number, search, episodes, single, entropy)
        strategy.tell(asked, [-float(one) for one in found])
        mean = np.array(strategy.mean, np.float64).reshape(start.shape)
        looked = number % search.every == 0 or number == search.iterations
        score = old[1] if old else _score(validate(mean)) if looked else None
        if not old:
            state.add(number, heads, found, score)
            progress(Step(number, float(found.mean()), float(strategy.sigma), score))
        if score is not None:
            if score > max(value for _, value in curve):
                best, at = mean, number
            curve.append((number, score))
    return Evolved(best, at, max(value for _, value in curve), tuple(curve))


def _strategy(start: F64, search: Search) -> Any:
    cma = need("cma", "route")
    rng = np.random.default_rng(derive(search.seed, "evolution"))
    own = {  # luck of its own: by default the library seeds that of the whole process
        "seed": math.nan, "randn": lambda *shape: rng.standard_normal(shape),
        "CMA_diagonal": True, "popsize": search.candidates(start.size), "verbose": -9,
    }  # fmt: skip
    return cma.CMAEvolutionStrategy(start.ravel(), search.sigma, own)


def _score(value: float) -> float:
    if not math.isfinite(value):
        raise BadInput(f"the validation set scores {value}", remedy="Let `validate` give a finite number.")
    return float(value)


def _fitness(
    heads: F64, number: int, search: Search, episodes: Episodes, single: Score | None, entropy: Score | None
) -> F64:
    luck = np.random.default_rng(derive(search.seed, "tasks", number))
    seeds = luck.integers(0, 1 << 63, search.replications, dtype=np.uint64)
    masks = subsets(search.replications, heads.shape[1], search.masked, derive(search.seed, "masks", number))
    rewards = np.asarray(episodes(heads, seeds, masks), np.float64)
    if rewards.shape != (len(heads), len(seeds)):
        said = f"episodes gave rewards {list(rewards.shape)}, not {[len(heads), len(seeds)]}"
        raise BadInput(said, remedy="Give a reward for each head and seed, NaN where there is none.")
    held = np.isfinite(rewards)
    if not held.any(1).all():
        raise BadInput("no episode of a candidate could be held", remedy="See why, then run the same line again.")
    out: F64 = np.where(held, rewards, 0.0).sum(1) / held.sum(1)
    if single is not None and search.replay:
        out = out + search.replay * single(heads)
    left = search.entropy * (1 - (number - 1) / search.iterations)
    if entropy is not None and left:
        out = out + left * entropy(heads)
    return out


def _digest(*arrays: F64) -> str:
    made = blake2b(digest_size=16)
    for array in arrays:
        made.update(repr(array.shape).encode() + array.tobytes())
    return made.hexdigest()


@dataclass(slots=True)
class _State:
    """What a folder has of a search: a line that names it, then one for each iteration that ended."""

    path: Path | None
    head: dict[str, Any]
    first: float | None
    done: list[dict[str, Any]]
    size: int

    @classmethod
    def of(cls, folder: Path | None, start: F64, search: Search, size: int) -> _State:
        # More iterations are another search: the entropy term falls to 0 over all of them.
        head = {"format": FORMAT, "version": VERSION, "search": asdict(search), "start": _digest(start)}
        path = folder / STATE if folder is not None else None
        lines = _read(path) if path is not None else []
        if not lines:
            return cls(path, head, None, [], size)
        other = {key: lines[0].get(key) for key in head}
        if other != head:
            differ = ", ".join(key for key in head if other[key] != head[key])
            raise BadInput(f"the folder holds another search: {differ} differ", remedy="Give another folder.")
        first = lines[0].get("validation")
        if not isinstance(first, float) or not math.isfinite(first):
            raise BadRecord(f"{STATE} has no first validation", remedy="Remove the file and begin again.")
        return cls(path, head, first, lines[1:], size)

    def begin(self, first: float) -> float:
        self._write({**self.head, "validation": first})
        return first

    def again(self, number: int, heads: F64) -> tuple[F64, float | None] | None:
        """Fitness and validation of an iteration that the folder has."""
        if number > len(self.done):
            return None
        line = self.done[number - 1]
        if line.get("iteration") == number and line.get("candidates") != _digest(heads):
            remedy = "Go on with the versions of numpy and cma that began it, or begin again in another folder."
            raise BadRecord(f"iteration {number} of {STATE} had other candidates", remedy=remedy)
        found, score = line.get("fitness"), line.get("validation")
        numbers = isinstance(found, list) and all(isinstance(x, float) and math.isfinite(x) for x in found)
        scored = score is None or (isinstance(score, float) and math.isfinite(score))
        if line.get("iteration") != number or not numbers or not scored or len(found or ()) != self.size:
            raise BadRecord(f"{STATE} is damaged at iteration {number}", remedy="Remove the file and begin again.")
        return np.array(found), score

    def add(self, number: int, heads: F64, found: F64, score: float | None) -> None:
        line = {"iteration": number, "candidates": _digest(heads), "fitness": found.tolist(), "validation": score}
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a state; one cut short by a kill is dropped, from the file too."""
    if not path.exists():
        return []
    if path.stat().st_size > LONGEST:
        raise BadRecord(f"{STATE} is longer than {LONGEST:,} bytes", remedy="Remove the file and begin again.")
    whole, _, torn = path.read_text(errors="replace").rpartition("\n")
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
    except (ValueError, RecursionError):
        lines = [None]
    if not all(isinstance(line, dict) for line in lines):
        raise BadRecord(f"{STATE} holds a line that is no JSON object", remedy="Remove the file and begin again.")
    if torn:
        path.write_text(whole + "\n" if whole else "")
    return lines
