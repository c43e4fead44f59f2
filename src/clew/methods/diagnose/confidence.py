"""How sure a diagnosis is, without knowing the fix; and whether a repair agent should be told.

The diagnosis calls it. The published filter reads the gold patch (arXiv 2606.24820, section 5); this one must never
read it. The chance that a file is one the fix changes is a logistic function of what is known beforehand, fitted on
past fixes. An agent is told a finding where P(right) gain > P(wrong) loss, with gain and loss of that agent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.methods.diagnose.rank import Ranking

F64 = npt.NDArray[np.float64]
FEATURES = ("margin", "agreement", "score", "matched", "named")
RIDGE = 1.0
SHARE = 0.4  # of findings that a strong agent is told, where nothing is known of it
FEWEST = 20  # past fixes to calibrate on


def features(ranking: Ranking, file: str, start: int = 1, end: int = 1 << 30) -> F64:
    """What speaks for a file, and a span in it: (5,), each about 0 to 1.

    margin: its lead over the best other file, as a share of the best score (negative where it is behind). agreement:
    share of bm25, view and search alone that put it first. score: its score as a share of what the components can
    give. matched: share of the report's words in the span's best chunk. named: share of the report's identifiers,
    of those defined in the repository, that are defined in the span.
    """
    if file not in ranking.paths:
        return np.array([-1.0, 0.0, 0.0, 0.0, 0.0])
    at = ranking.paths.index(file)
    others = np.delete(ranking.scores, at)
    top = max(float(ranking.scores.max(initial=0.0)), 1e-9)
    margin = (ranking.scores[at] - others.max(initial=0.0)) / top
    agreement = sum(ranking.first(name) == file for name in ("bm25", "view", "search")) / 3
    score = sum(float(ranking.parts[name][at]) for name in ("bm25", "view", "search")) / 3
    inside = [p for p in ranking.places.get(file, ()) if p.chunk.start <= end and p.chunk.end >= start]
    matched = max((len(p.matched) for p in inside), default=0) / 8
    defined = [spots for spots in ranking.named.values() if spots]
    here = [spots for spots in defined if any(path == file and start <= line <= end for path, line in spots)]
    return np.array([margin, agreement, score, matched, len(here) / max(len(defined), 1)])


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted confidence. ``cut`` is the confidence that ``SHARE`` of the first findings reach; ``n`` the past fixes
    it was fitted on, ``source`` where they are from."""

    weights: tuple[float, ...]
    bias: float
    cut: float
    n: int
    source: str

    def __call__(self, x: F64) -> float:
        """Chance of being right, of features (5,)."""
        return float(1 / (1 + np.exp(-(np.dot(self.weights, x) + self.bias))))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Read one.

        Raises:
            BadInput: the file is not a calibration.
        """
        try:
            value = json.loads(path.read_text())
            return cls(**{**value, "weights": tuple(map(float, value["weights"]))})
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"{path} is not a calibration: {error}", remedy="Make it anew with `clew diagnose calibrate REPO`."
            ) from None


def fit(x: F64, right: npt.NDArray[np.bool_], source: str) -> Calibration:
    """Logistic regression with a ridge of 1 on the weights, by Newton's method.

    Args:
        x: features (n, 5). right: whether the file was one that the fix changed, (n,).

    Raises:
        BadInput: fewer than 20 past fixes, or all right or all wrong.
    """
    n = len(x)
    if n < FEWEST or right.all() or not right.any():
        raise BadInput(
            f"{n} past fixes, {int(right.sum())} of them found: too few, or all alike, to calibrate on",
            remedy=f"At least {FEWEST} are needed; without them the confidence fitted on other projects is used.",
        )
    design, y = np.column_stack([x, np.ones(n)]), right.astype(np.float64)
    theta, ridge = np.zeros(design.shape[1]), np.diag([RIDGE] * x.shape[1] + [1e-6])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ theta))
        gradient = design.T @ (p - y) + ridge @ theta
        step = np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design + ridge, gradient)
        theta -= step
        if np.abs(step).max() < 1e-10:
            break
    p = 1 / (1 + np.exp(-design @ theta))
    cut = float(np.quantile(p, 1 - SHARE))
    return Calibration(tuple(theta[:-1].tolist()), float(theta[-1]), cut, n, source)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which findings a repair agent is told: those with confidence of ``threshold`` or more; of others the location."""

    threshold: float
    why: str

    def full(self, confidences: Sequence[float | None]) -> list[bool]:
        """Which are told whole; one without a confidence only where no confidence is asked for."""
        return [self.threshold <= 0 if c is None else c >= self.threshold for c in confidences]


def policy(agent: str, calibration: Calibration) -> Policy:
    """The policy for an agent: ``weak`` is told everything, ``strong`` the top 40 %, a JSONL file of logs decides by
    what findings did for the agent before.

    Raises:
        BadInput: neither of the words nor a file, or the logs cannot tell.
    """
    if agent == "weak":
        return Policy(0.0, "a weak agent is told every finding")
    if agent == "strong":
        return Policy(
            calibration.cut, f"a strong agent is told the surest 40 %: confidence {calibration.cut:.2f} or more"
        )
    path = Path(agent)
    if not path.is_file():
        raise BadInput(f"--agent {agent}: no such file", remedy="Give weak, strong, or a JSONL file of past outcomes.")
    return learnt(_lines(path), str(path))


def _lines(path: Path) -> list[Mapping[str, Any]]:
    out: list[Mapping[str, Any]] = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if line.strip():
            try:
                value = json.loads(line)
                injected, resolved = bool(value["injected"]), bool(value["resolved"])
                out.append({"injected": injected, "right": value.get("right"), "resolved": resolved})
            except (ValueError, KeyError, TypeError):
                raise BadInput(
                    f"{path}, line {number}: not an outcome",
                    remedy='Lines are {"injected": true, "right": true, "resolved": false}.',
                ) from None
    return out


def learnt(logs: Sequence[Mapping[str, Any]], source: str) -> Policy:
    """The policy of an agent from its outcomes: gain = resolved with a right finding - without any, loss = without any
    - with a wrong one; told where p gain > (1 - p) loss.

    Raises:
        BadInput: one of the three kinds of outcome is missing.
    """
    kinds = {
        "without a finding": [x["resolved"] for x in logs if not x["injected"]],
        "with a right finding": [x["resolved"] for x in logs if x["injected"] and x["right"] is True],
        "with a wrong finding": [x["resolved"] for x in logs if x["injected"] and x["right"] is False],
    }
    missing = [name for name, outcomes in kinds.items() if not outcomes]
    if missing:
        raise BadInput(f"{source} has no outcome {missing[0]}", remedy="All three kinds are needed to weigh them.")
    base, right, wrong = (float(np.mean(outcomes)) for outcomes in kinds.values())
    gain, loss = right - base, base - wrong
    told = f"gain {gain:+.2f}, loss {loss:+.2f} from {len(logs)} outcomes"
    if gain <= 0:
        return Policy(2.0, f"right findings do not help this agent: {told}")
    if loss <= 0:
        return Policy(0.0, f"wrong findings do not harm this agent: {told}")
    return Policy(loss / (gain + loss), f"told from confidence {loss / (gain + loss):.2f}: {told}")


def matched(edited: Sequence[str], files: Sequence[str]) -> bool:
    """Whether an agent's first edits fell in a file that the findings named; the ``right`` of a log line to come."""
    return any(path in set(files) for path in edited)
