"""The published estimators, each a list of terms: weights, scopes and normalisers, no computation.

All share these conventions: standard deviations with ddof 1 and eps 1e-6, gamma .95, comparisons inside one task group.
The mended forms count each run once in episode statistics; ``faithful`` counts rows, as the released code does.
"""

from __future__ import annotations

from typing import Literal

from clew.credit.family import Term

Mode = Literal["mean", "std"]
SUCCESS = 10.0  # the released code's success reward and its penalty for an invalid action
PENALTY = 0.1


def grpo(mode: Mode = "std", faithful: bool = False) -> list[Term]:
    """GRPO, arXiv 2402.03300 eq. 1 (outcome supervision): (R - mean) / std over the runs of a task."""
    if faithful:
        return [Term("EP", "outcome", "group", mode, penalty=PENALTY, guard=False)]
    return [Term("EP", "outcome", "group", mode, once=True)]


def gigpo(w: float = 1.0, gamma: float = 0.95, mode: Mode = "std") -> list[Term]:
    """GiGPO, arXiv 2505.10978 eq. 3, 7, 8: GRPO plus the return-to-go compared at the same state."""
    return [*grpo(mode), Term("step", "return", "node", mode, weight=w, gamma=gamma)]


def hgpo(history: int = 2, alpha: float = 1.0, gamma: float = 0.95, mode: Mode = "std") -> list[Term]:
    """HGPO, arXiv 2602.22817 (released recipe): the return-to-go compared at the same last k states, k = 1..K+1.

    Weights (k+1)^alpha, shared over a row's non-zero terms (``advantages(..., share=True)``); population std; no
    episode term, as by default in the release.
    """
    return [
        Term(f"k={k}", "return", "history", mode, weight=(k + 1.0) ** alpha, gamma=gamma, history=k, ddof=0)
        for k in range(1, history + 2)
    ]


def gagpo(gamma: float = 0.95, trace: float = 0.95, mode: Mode = "std") -> list[Term]:
    """GAGPO, arXiv 2605.13217: GAE(lambda) on node-mean values, normalised in the group; no episode term.

    The paper's lambda and gamma are not known (specs/E165 section 10). Its sequence-level importance ratio is a matter
    of the loss (``pg-sequence``), not of credit.
    """
    return [Term("GAE", "gae", "group", mode, gamma=gamma, trace=trace)]


def graphgpo(w: float = 1.0, omega: float = 0.1, mode: Mode = "std") -> list[Term]:
    """GraphGPO, arXiv 2605.26684 eq. 4 as released: GRPO plus omega^(moves to success), compared at the same state."""
    return [*grpo(mode), Term("path", "path", "node", mode, weight=w, omega=omega)]


def g2po(w: float = 1.0, gamma: float = 0.95, mode: Mode = "std", faithful: bool = False) -> list[Term]:
    """G2PO, arXiv 2606.22995: A = A_EP + w (A_NC + A_EC).

    EP: GRPO. NC: value of the next node, compared at the same node. EC: gain in value along the edge, compared over
    the whole graph. Node values are occurrence means of the discounted return.

    The default form mends what specs/E165 section 3c lists: the terminal value is the reward itself (Q1), the penalty
    for an invalid action enters after standardisation (Q2), sets of one or of equal values give 0 (Q3), statistics run
    over unique rows (Q4), episode statistics count each run once. ``faithful`` is the release as it stands, which
    needs rewards of 10 and 0.
    """
    if faithful:
        released = {"gamma": gamma, "success": SUCCESS, "guard": False}
        nc = Term("NC", "next", "node", mode, weight=w, penalty=PENALTY, **released)  # type: ignore[arg-type]
        ec = Term("EC", "gain", "group", mode, weight=w, min_size=1, **released)  # type: ignore[arg-type]
        return [*grpo(mode, faithful=True), nc, ec]
    return [
        *grpo(mode),
        Term("NC", "next", "node", mode, weight=w, gamma=gamma),
        Term("EC", "gain", "group", mode, weight=w, gamma=gamma),
        Term("invalid", "invalid", "group", "none", weight=w * PENALTY),
    ]


def bellman(lam: float = 1.0, gamma: float = 0.95, mode: Mode = "std", w: float = 0.0) -> list[Term]:
    """EC on Bellman-solved node values (specs/E165 section 8a): the TD error of the merged graph's own solution.

    ``lam`` between occurrence mean (0, robust where states are aliased) and Bellman solve (1). ``w`` adds a GRPO term.
    """
    edge = Term("EC", "gain", "group", mode, value="solve", lam=lam, gamma=gamma)
    return [edge] if w == 0 else [*(t._replace(weight=w) for t in grpo(mode)), edge]


def graded(w: float = 1.0, mode: Mode = "std") -> list[Term]:
    """GRPO plus a step's progress advantage under a frozen pair of models, compared in the group (specs/E173, 7)."""
    return [*grpo(mode), Term("grade", "given", "group", mode, weight=w)]
