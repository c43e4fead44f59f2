"""Credit: which step earned what. Pure numpy passes over the steps of a group; no torch, no IO but filing annotations.

Each function takes a Group, Groups, or a list of Group, and returns a ``Credit``: one advantage per step, filed as an
annotation on each of the step's asks (``store=False`` files nothing). Values of several methods, and of several
parameter sets of one method under different ``name``s, lie side by side. Steps without an advantage have no annotation.

``key`` names the nodes of the merged graph: the world's state keys, or the text the agent saw (``"text"``, or
``"text+legal"`` with the admissible actions), for worlds whose state key tells states apart that are one to the agent.

``rescale="rms"`` divides by the root mean square over the batch. Summed z-scores have a larger root mean square than
one alone, so a comparison of estimators that leaves it out compares step sizes as well (specs/E165 section 7).

Three warnings; papers/E165_g2po measures the first two. Where the state key hides something, graph methods lose what
they won: ask ``aliasing``. And values discounted by time or distance favour states that occur late in runs, even when
the reward is drawn by lot; with ``gamma=1`` they do not, but learn more slowly.

The third: a state key that tells no more than which turn it is makes node comparisons compare by turn index, and where
the policy decides when a run ends they are biased. A set of M runs that includes the run itself scales what it says by
(M - 1) / M, and fewer runs are left at a later turn: late turns count less, and the summed gradient can point the
wrong way. tests/credit/test_turn_index.py shows it exactly, with the control (runs of fixed length: unbiased).
``grpo`` compares whole runs and is unbiased in both. Terms on node values (``g2po``'s NC and EC, ``bellman``) give such
a key no credit for an action whose worth only a later turn shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from clew.core.reading import Grouped
from clew.credit import presets
from clew.credit.alias import Aliasing, aliasing
from clew.credit.arrays import of_arrays
from clew.credit.family import Diagnostics, Term, advantages
from clew.credit.filing import Credit, Rescale, assign
from clew.credit.presets import Mode
from clew.credit.steps import Key, Move, Path, Steps, from_paths, steps


def grpo(
    groups: Grouped, *, mode: Mode = "std", rescale: Rescale = None, store: bool = True, name: str = "grpo"
) -> Credit:
    """GRPO (arXiv 2402.03300): every step of a run carries its normalised return. Equal rewards give no rows."""
    return assign(groups, name, presets.grpo(mode), {"mode": mode}, rescale=rescale, store=store)


def gigpo(
    groups: Grouped,
    *,
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "gigpo",
) -> Credit:
    """GiGPO (arXiv 2505.10978): GRPO plus the return-to-go compared at the same state; none for states seen once."""
    params = {"w": w, "gamma": gamma, "mode": mode}
    return assign(groups, name, presets.gigpo(w, gamma, mode), params, rescale=rescale, key=key, store=store)


def hgpo(
    groups: Grouped,
    *,
    history: int = 2,
    alpha: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "hgpo",
) -> Credit:
    """HGPO (arXiv 2602.22817): the return-to-go compared at equal histories of 1 to ``history`` + 1 states.

    It has no episode term, so a step whose state was seen once has no row.
    """
    params = {"history": history, "alpha": alpha, "gamma": gamma, "mode": mode}
    spec = presets.hgpo(history, alpha, gamma, mode)
    return assign(groups, name, spec, params, rescale=rescale, key=key, share=True, store=store)


def gagpo(
    groups: Grouped,
    *,
    gamma: float = 0.95,
    trace: float = 0.95,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "gagpo",
) -> Credit:
    """GAGPO (arXiv 2605.13217): GAE(``trace``) on node-mean values, normalised in the group."""
    params = {"gamma": gamma, "trace": trace, "mode": mode}
    return assign(groups, name, presets.gagpo(gamma, trace, mode), params, rescale=rescale, key=key, store=store)


def graphgpo(
    groups: Grouped,
    *,
    w: float = 1.0,
    omega: float = 0.1,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "graphgpo",
) -> Credit:
    """GraphGPO (arXiv 2605.26684): GRPO plus omega to the distance from success; GRPO alone where none succeeds."""
    params = {"w": w, "omega": omega, "mode": mode}
    return assign(groups, name, presets.graphgpo(w, omega, mode), params, rescale=rescale, key=key, store=store)


def g2po(
    groups: Grouped,
    *,
    w: float = 1.0,
    gamma: float = 0.95,
    faithful: bool = False,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "g2po",
) -> Credit:
    """G2PO (arXiv 2606.22995): GRPO plus node and edge comparisons on the merged graph of the group's runs.

    ``faithful`` reproduces the released code with its quirks (rewards must be 10 or 0); see ``presets.g2po``. Groups
    whose rewards are all 0 give no rows; where all succeed, shorter ways still count as better.
    """
    params = {"w": w, "gamma": gamma, "mode": mode, "faithful": faithful}
    return assign(groups, name, presets.g2po(w, gamma, mode, faithful), params, rescale=rescale, key=key, store=store)


def bellman(
    groups: Grouped,
    *,
    lam: float | Literal["auto"] = 1.0,
    gamma: float = 0.95,
    w: float = 0.0,
    mode: Mode = "std",
    key: Key = "state",
    rescale: Rescale = None,
    store: bool = True,
    name: str = "bellman",
) -> Credit:
    """Edge gains on values that solve the Bellman equation of the merged graph (specs/E165 section 8a).

    ``lam`` 1 pools what followed a state over all runs, which needs states that are Markov; 0 is the occurrence mean.
    ``auto`` asks the aliasing detector: ``lam`` 1 where it finds the states Markov, ``grpo`` in place of this estimator
    where it does not, could not test it or cannot tell; ``Credit.notes`` says which, and why, ``Credit.comparisons``
    what was compared. ``w`` adds a GRPO term of that weight.
    """
    columns = steps(groups, key=key)
    params: dict[str, float | str] = {"lam": lam, "gamma": gamma, "mode": mode, "w": w}
    if lam != "auto":
        spec = presets.bellman(lam, gamma, mode, w)
        return assign(groups, name, spec, params, rescale=rescale, key=key, store=store, columns=columns)
    found = aliasing(columns)
    spec = presets.bellman(1.0, gamma, mode, w)
    if found.verdict == "markov":
        params["lam"], note = 1.0, f"{name} took lam=1. {found.why}"
    else:
        spec, note = presets.grpo(mode), f"{name} took grpo instead. {found.why}"
        params["took"] = "grpo"
    credit = assign(groups, name, spec, params, rescale=rescale, key=key, store=store, columns=columns, notes=[note])
    return replace(credit, comparisons=found.comparisons)


__all__ = ["Aliasing", "Credit", "Diagnostics", "Move", "Path", "Steps", "Term", "advantages", "aliasing", "assign"]
__all__ += [
    "bellman",
    "from_paths",
    "g2po",
    "gagpo",
    "gigpo",
    "graphgpo",
    "grpo",
    "hgpo",
    "of_arrays",
    "presets",
    "steps",
]
