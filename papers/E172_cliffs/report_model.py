"""Tables, marks and figure of the tier in a real model, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E172_cliffs.tier_model import LEARNERS, N
from papers.stats import Line, Mark, Results, by_seed, document, mark, markdown, minutes, over, pooled, show, table

EOS = ("cliff-dpo, eos", "cliff-dpo")
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#E69F00", "#999999")
OPEN = ("uncertain", "sampled-off")
FEW = 10  # flags, below which a share of them tells nothing


class Lines(Results):
    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(lines)
        self.detect, self.effect = self.of(kind="detect"), self.of(kind="effect")

    def learn(self, arm: str, budget: str, field: str) -> np.ndarray:
        return self.get(field, kind="learn", arm=arm, budget=budget)

    def base(self, field: str) -> np.ndarray:
        return self.get(field, kind="base")

    def gain(self, arm: str, budget: str) -> np.ndarray:
        return self.learn(arm, budget, "sampled") - self.base("sampled")

    def flags(self, *kinds: str) -> np.ndarray:
        """(drop, whether it fired again) of the published detector's flags of these kinds, [n, 2]."""
        found = [f for x in self.detect for kind in kinds for f in x["flags"].get(kind, [])]
        return np.array(found, float).reshape(-1, 2)

    def again(self, *kinds: str) -> Any:
        """Share of flags of these kinds that fire again on fresh continuations."""
        return pooled(self.flags(*kinds)[:, 1].sum(), len(self.flags(*kinds)))

    def arm(self, name: str, field: str) -> np.ndarray:
        return np.concatenate([np.array(x[field][name], float) for x in self.effect])


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Lines(lines)
    return document(
        "# E172 in a real model: `sums`",
        f"{len(lines)} cells, {len(t.base('sampled'))} seeds, each a transformer of 0.1M parameters of its own with "
        f"its tasks and sampling; {minutes(t.all):.1f} CPU-minutes. 95 % t intervals over seeds, paired with the base "
        "model; shares pooled with Wilson's.",
        marks(t),
        "## What the published detector flags, and whether it fires again on fresh continuations (E1)",
        *_replication(t),
        "## A grader that fails in bursts (E4)",
        _bursts(t),
        "## Delete or keep the first cliff of a wrong solution",
        *_effect(t),
        "## Learning from them (E2, E3)",
        *_learning(t),
        "Equal CPU-seconds are those of Cliff-DPO with its search; equal rollouts count every continuation as one, "
        "though it decodes a part of a solution only.",
    )


def marks(t: Lines) -> list[Mark]:
    spent = sum(x["rollouts"][1] for x in t.detect) / sum(x["rollouts"][0] for x in t.detect)
    invented, kept = (sum(x["bursts"][k] for x in t.detect) for k in ("hallucinated", "kept"))
    fewer = pooled(invented - kept, invented) if invented else "none invented"
    gain, error = t.gain("cliff-dpo", "own"), _error(t.gain("cliff-dpo", "own"))
    tokens = t.learn("cliff-dpo", "own", "loss_tokens").sum() / t.learn("sequence dpo", "cpu", "loss_tokens").sum()
    ends = [by_seed(t.learn(a, "own", "end after") - t.learn(a, "own", "end before")) for a in EOS]
    won = f"{show(by_seed(gain))}, s.e. {error:.3f}"
    own = t.learn("cliff-dpo", "own", "sampled")
    cpu = [show(by_seed(own - t.learn(arm, "cpu", "sampled"))) for arm in ("sequence dpo", "reinforce")]
    rise = "rise of the chance to end after a chosen token, with the end token"
    return [
        _again(t, "deterministic flags fire again in at most .1", ("deterministic",), most=0.1),
        _again(t, "uncertain and sampled-off in at least .6", OPEN, least=0.6),
        Mark("7d", "continuations of the mended form over the published's", f"{spent:.3f}", None),
        Mark("E4", "A invents cliffs in bursts, C rejects them", fewer, invented > 0 and kept <= 0.1 * invented),
        Mark("E2", "Cliff-DPO beats base by 2 s.e.", won, bool(gain.mean() >= 2 * error)),
        Mark("E2", "with at most .05 of full-sequence DPO's loss tokens", f"{tokens:.4f}", bool(tokens <= 0.05)),
        Mark("E2", "Cliff-DPO minus full-sequence DPO at equal CPU", cpu[0], None),
        Mark("E2", "Cliff-DPO minus REINFORCE at equal CPU", cpu[1], None),
        Mark("E3", rise, show(ends[0], "+.5f"), None),
        Mark("E3", "and without it", show(ends[1], "+.5f"), None),
    ]


def _again(t: Lines, promise: str, kinds: Sequence[str], **limits: float) -> Mark:
    """A mark on the share of flags that fire again; fewer than ``FEW`` flags meet none."""
    found = len(t.flags(*kinds))
    if found < FEW:
        told = f"{t.again(*kinds)}" if found else "none flagged"
        return Mark("E1", f"{promise}; {FEW} flags at least", told, False)
    return mark("E1", promise, t.again(*kinds), **limits)


def _error(gain: np.ndarray) -> float:
    return float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("nan")


def _replication(t: Lines) -> list[str]:
    kinds = [kind for kind in ("deterministic", *OPEN, "other") if len(t.flags(kind))]
    (flagged, held), (paper, mended) = (
        [sum(x[field][i] for x in t.detect) for i in (0, 1)] for field in ("mended", "cpu")
    )
    stems, positions, tested = (sum(x[field] for x in t.detect) for field in ("stems", "positions", "tested"))
    return [
        table(
            kinds,
            ("kind", str),
            ("flags", lambda kind: len(t.flags(kind))),
            ("drop that fired", lambda kind: t.flags(kind)[:, 0].mean(), ".3f"),
            ("fires again", t.again),
        ),
        f"On the same {stems} solutions ({positions:,} tokens) the mended form samples at {tested:,} tokens, flags "
        f"{flagged} and confirms {held}, in {mended:.0f} CPU-seconds for the published form's {paper:.0f}. {N} "
        "continuations a place.",
    ]


BURSTS = {
    "clean": "flags of A, grader sound",
    "places": "places whose gradings are all marked wrong (1 %)",
    "hallucinated": "cliffs that A invents from them",
    "undecided": "the same with gradings that say undecided",
    "tested": "of the invented, left to test after the bound",
    "kept": "of the invented, kept on a fresh batch with bursts of its own",
    "kept true": "of A's sound flags, kept",
}


def _bursts(t: Lines) -> str:
    return table(BURSTS, ("", BURSTS.get), ("n", lambda key: sum(x["bursts"][key] for x in t.detect)))


def _effect(t: Lines) -> list[str]:
    names = list(t.effect[0]["right"])
    right, tokens = ({name: t.arm(name, field) for name in names} for field in ("right", "tokens"))
    worth = {name: right[name] * tokens["restart"] / np.maximum(tokens[name], 1) for name in names}
    gaps = [
        show(over(a - b, unit="cliffs"))
        for a, b in (
            (right["delete"], right["keep"]), (right["random delete"], right["random keep"]),
            (worth["delete"], worth["random delete"]), (worth["delete"], worth["restart"]),
        )
    ]  # fmt: skip
    return [
        table(
            names,
            ("from", str),
            ("right", lambda name: over(right[name], unit="cliffs")),
            ("tokens each", lambda name: tokens[name].mean(), ".1f"),
            ("right for the tokens of a restart", lambda name: over(worth[name], unit="cliffs")),
        ),
        f"n = {len(right['delete'])} cliffs of {sum(x['failed'] for x in t.effect)} wrong solutions. del@1 - keep@1 "
        f"{gaps[0]}; control, at random positions {gaps[1]}. At equal tokens: delete minus random delete {gaps[2]}, "
        f"minus restart {gaps[3]}.",
    ]


def _learning(t: Lines) -> list[str]:
    shown = ("sampled", "greedy")
    rows = [["base", "", *(by_seed(t.base(f)) for f in shown), "", "", "", "", ""]]
    for arm, budget in LEARNERS:
        gain = t.gain(arm, budget)
        if len(gain):
            seconds, rollouts, tokens = (t.learn(arm, budget, f).mean() for f in ("seconds", "rollouts", "loss_tokens"))
            cells = [by_seed(t.learn(arm, budget, f)) for f in shown]
            size = f"{gain.mean() / _error(gain):.1f}" if _error(gain) > 0 else ""
            spent = [f"{seconds / 60:.2f}", f"{rollouts:,.0f}", f"{tokens:,.0f}"]
            rows.append([arm, budget, *cells, show(by_seed(gain), "+.3f"), size, *spent])
    head = "learner | budget | sampled | greedy | gain, sampled | gain / s.e. | minutes | rollouts | loss tokens"
    seconds, rollouts, pairs = (np.mean([x[f] for x in t.effect]) for f in ("seconds", "rollouts", "pairs"))
    return [
        markdown(head, rows),
        f"The search of Cliff-DPO took {seconds:.1f} CPU-seconds and {rollouts:,.0f} rollouts a seed, for {pairs:.0f} "
        "pairs.",
    ]


def figure(lines: Sequence[Line]) -> Any:
    """Left: flags that fire again, by kind. Right: held-out accuracy against CPU time."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    for i, kind in enumerate(("deterministic", *OPEN)):
        if len(t.flags(kind)):
            whiskers(left, i, t.again(kind), fmt="o", color=COLOURS[0], capsize=2)
    left.set_xticks(range(3), ["deterministic", *OPEN])
    left.set(xlim=(-0.5, 2.5), ylim=(-0.03, 1.03), ylabel="flags that fire again")
    for (arm, budget), colour in zip(LEARNERS, COLOURS, strict=True):
        if len(t.learn(arm, budget, "sampled")):
            found, spent = by_seed(t.learn(arm, budget, "sampled")), t.learn(arm, budget, "seconds").mean() / 60
            whiskers(right, spent, found, fmt="o", color=colour, capsize=2, label=f"{arm} ({budget})")
    right.axhline(t.base("sampled").mean(), color="black", lw=0.8, label="base")
    right.set(xlabel="CPU-minutes", ylabel="held-out accuracy, sampled")
    finish(right, font=7, grid=False)
    return fig
