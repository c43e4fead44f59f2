"""Tables, marks and figure of the tier in a real model, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E172_cliffs.report_toy import share
from papers.E172_cliffs.tier_model import LEARNERS, N
from papers.stats import Mark, interval, markdown, mean, t_interval

Line = dict[str, Any]
EOS = ("cliff-dpo, eos", "cliff-dpo")
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#E69F00", "#999999")


class Lines:
    def __init__(self, lines: Sequence[Line]) -> None:
        every = sorted(lines, key=lambda x: x["seed"])
        self.by = {k: [x for x in every if x["kind"] == k] for k in ("detect", "effect", "base", "learn")}
        self.cpu = sum(x["cpu_s"] for x in every)

    def learn(self, arm: str, budget: str, field: str) -> np.ndarray:
        return np.array([x[field] for x in self.by["learn"] if (x["arm"], x["budget"]) == (arm, budget)], float)

    def base(self, field: str) -> np.ndarray:
        return np.array([x[field] for x in self.by["base"]], float)

    def gain(self, arm: str, budget: str, field: str = "sampled") -> np.ndarray:
        return self.learn(arm, budget, field) - self.base(field)

    def flags(self, *kinds: str) -> list[list[float]]:
        return [f for x in self.by["detect"] for kind in kinds for f in x["flags"].get(kind, [])]

    def arm(self, name: str, field: str) -> np.ndarray:
        return np.concatenate([np.array(x[field][name], float) for x in self.by["effect"]])


def over(x: np.ndarray) -> Report:
    """Mean over seeds; with one seed the interval is the value alone."""
    if len(x) > 1:
        return t_interval("", x)
    value = float(x[0])
    return Report(claim="", estimate=value, low=value, high=value, n=1, design="one seed, no interval")


def text(found: Report) -> str:
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def fine(found: Report) -> str:
    return f"{found.estimate:+.5f} [{found.low:+.5f}, {found.high:+.5f}]"


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Lines(lines)
    seeds = len(t.by["base"])
    parts = [
        "# E172 in a real model: `sums`",
        f"{len(lines)} cells, {seeds} seeds, each a transformer of 0.1M parameters of its own with its tasks and "
        f"sampling; {t.cpu / 60:.1f} CPU-minutes. 95 % t intervals over seeds, paired with the base model; shares "
        "pooled with Wilson's.",
        "\n".join(f"- {mark}" for mark in marks(t)),
        "## What the published detector flags, and whether it fires again on fresh continuations (E1)",
        _replication(t),
        "## A grader that fails in bursts (E4)",
        _bursts(t),
        "## Delete or keep the first cliff of a wrong solution",
        _effect(t),
        "## Learning from them (E2, E3)",
        _learning(t),
        "Equal CPU-seconds are those of Cliff-DPO with its search; equal rollouts count every continuation as one, "
        "though it decodes a part of a solution only.",
    ]
    return "\n\n".join(parts) + "\n"


def marks(t: Lines) -> list[Mark]:
    sure, open_ = t.flags("deterministic"), t.flags("uncertain", "sampled-off")
    first = share("", sum(f[1] for f in sure), len(sure)) if sure else "none flagged, so not tried"
    others = share("", sum(f[1] for f in open_), len(open_)) if open_ else "none flagged, so not tried"
    found = [x["rollouts"] for x in t.by["detect"]]
    spent = sum(r[1] for r in found) / sum(r[0] for r in found)
    bursts = [x["bursts"] for x in t.by["detect"]]
    invented, kept = sum(b["hallucinated"] for b in bursts), sum(b["kept"] for b in bursts)
    gain = t.gain("cliff-dpo", "own")
    error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("nan")
    tokens = t.learn("cliff-dpo", "own", "loss_tokens").sum() / t.learn("sequence dpo", "cpu", "loss_tokens").sum()
    fewer = share("", invented - kept, invented) if invented else "none invented"
    ok = not isinstance(first, str) and first.estimate <= 0.1
    good = not isinstance(others, str) and others.estimate >= 0.6
    ends, plain = (over(t.learn(a, "own", "end after") - t.learn(a, "own", "end before")) for a in EOS)
    won = f"{text(over(gain))}, s.e. {error:.3f}"
    cpu = [over(_gap(t, arm, "cpu")) for arm in ("sequence dpo", "reinforce")]
    return [
        Mark("E1", "deterministic flags fire again in at most .1", first, ok),
        Mark("E1", "uncertain and sampled-off in at least .6", others, good),
        Mark("7d", "continuations of the mended form over the published's (no mark)", f"{spent:.3f}", True),
        Mark("E4", "A invents cliffs in bursts, C rejects them", fewer, invented > 0 and kept <= 0.1 * invented),
        Mark("E2", "Cliff-DPO beats base by 2 s.e.", won, bool(gain.mean() >= 2 * error)),
        Mark("E2", "with at most .05 of full-sequence DPO's loss tokens", f"{tokens:.4f}", bool(tokens <= 0.05)),
        Mark("E2", "Cliff-DPO minus full-sequence DPO at equal CPU (no mark)", text(cpu[0]), True),
        Mark("E2", "Cliff-DPO minus REINFORCE at equal CPU (no mark)", text(cpu[1]), True),
        Mark("E3", "rise of the chance to end after a chosen token, with the end token (no mark)", fine(ends), True),
        Mark("E3", "and without it (no mark)", fine(plain), True),
    ]


def _gap(t: Lines, arm: str, budget: str) -> np.ndarray:
    return t.learn("cliff-dpo", "own", "sampled") - t.learn(arm, budget, "sampled")


def _replication(t: Lines) -> str:
    rows = []
    for kind in ("deterministic", "uncertain", "sampled-off", "other"):
        flags = np.array(t.flags(kind), float).reshape(-1, 2)
        if len(flags):
            again = text(share("", flags[:, 1].sum(), len(flags)))
            rows.append([kind, str(len(flags)), f"{flags[:, 0].mean():.3f}", again])
    found = t.by["detect"]
    held = [sum(x["mended"][i] for x in found) for i in (0, 1)]
    cpu = [sum(x["cpu"][i] for x in found) for i in (0, 1)]
    note = (
        f"\n\nOn the same {sum(x['stems'] for x in found)} solutions ({sum(x['positions'] for x in found):,} "
        f"tokens) the mended "
        f"form samples at {sum(x['tested'] for x in found):,} tokens, flags {held[0]} and confirms {held[1]}, in "
        f"{cpu[1]:.0f} "
        f"CPU-seconds for the published form's {cpu[0]:.0f}. {N} continuations a place."
    )
    return markdown(["kind", "flags", "drop that fired", "fires again"], rows) + note


def _bursts(t: Lines) -> str:
    b = [x["bursts"] for x in t.by["detect"]]
    total = {key: sum(x[key] for x in b) for key in b[0]}
    rows = [
        ["flags of A, grader sound", str(total["clean"])],
        ["places whose gradings are all marked wrong (1 %)", str(total["places"])],
        ["cliffs that A invents from them", str(total["hallucinated"])],
        ["the same with gradings that say undecided", str(total["undecided"])],
        ["of the invented, left to test after the bound", str(total["tested"])],
        ["of the invented, kept on a fresh batch with bursts of its own", str(total["kept"])],
        ["of A's sound flags, kept", str(total["kept true"])],
    ]
    return markdown(["", "n"], rows)


def _effect(t: Lines) -> str:
    names = list(t.by["effect"][0]["right"])
    tokens = {name: t.arm(name, "tokens") for name in names}
    right = {name: t.arm(name, "right") for name in names}
    worth = {name: right[name] * tokens["restart"] / np.maximum(tokens[name], 1) for name in names}
    rows = []
    for name in names:
        cells = [text(interval("", mean, x, design="bootstrap over cliffs")) for x in (right[name], worth[name])]
        rows.append([name, cells[0], f"{tokens[name].mean():.1f}", cells[1]])
    drops = (("delete", "keep"), ("random delete", "random keep"))
    gaps = [interval("", mean, right[a] - right[b], design="bootstrap over cliffs") for a, b in drops]
    better = [
        interval("", mean, worth["delete"] - worth[x], design="bootstrap over cliffs")
        for x in ("random delete", "restart")
    ]
    n, failed = len(right["delete"]), sum(x["failed"] for x in t.by["effect"])
    note = (
        f"\n\nn = {n} cliffs of {failed} wrong solutions. del@1 - keep@1 {text(gaps[0])}; control, at random positions "
        f"{text(gaps[1])}. At equal tokens: delete minus random delete {text(better[0])}, minus restart "
        f"{text(better[1])}."
    )
    return markdown(["from", "right", "tokens each", "right for the tokens of a restart"], rows) + note


def _learning(t: Lines) -> str:
    rows = [["base", "", *(text(over(t.base(f))) for f in ("sampled", "greedy")), "", "", "", "", ""]]
    for arm, budget in LEARNERS:
        gain = t.gain(arm, budget)
        if not len(gain):
            continue
        size = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("nan")
        seconds, rollouts, tokens = (t.learn(arm, budget, f).mean() for f in ("seconds", "rollouts", "loss_tokens"))
        cells = [text(over(t.learn(arm, budget, f))) for f in ("sampled", "greedy")]
        more = over(gain)
        change = f"{more.estimate:+.3f} [{more.low:+.3f}, {more.high:+.3f}]"
        spent = [f"{seconds / 60:.2f}", f"{rollouts:,.0f}", f"{tokens:,.0f}"]
        rows.append([arm, budget, *cells, change, f"{gain.mean() / size:.1f}" if size > 0 else "", *spent])
    head = [
        "learner",
        "budget",
        "sampled",
        "greedy",
        "gain, sampled",
        "gain / s.e.",
        "minutes",
        "rollouts",
        "loss tokens",
    ]
    found = t.by["effect"]
    note = (
        f"\n\nThe search of Cliff-DPO took {np.mean([x['seconds'] for x in found]):.1f} CPU-seconds and "
        f"{np.mean([x['rollouts'] for x in found]):,.0f} rollouts a seed, for "
        f"{np.mean([x['pairs'] for x in found]):.0f} pairs."
    )
    return markdown(head, rows) + note


def figure(lines: Sequence[Line]) -> Any:
    """Left: flags that fire again, by kind. Right: held-out accuracy against CPU time."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    for i, kind in enumerate(("deterministic", "uncertain", "sampled-off")):
        flags = t.flags(kind)
        if flags:
            found = share("", sum(f[1] for f in flags), len(flags))
            error = [[found.estimate - found.low], [found.high - found.estimate]]
            left.errorbar(i, found.estimate, error, fmt="o", color=COLOURS[0], capsize=2)
    left.set_xticks(range(3), ["deterministic", "uncertain", "sampled-off"])
    left.set(xlim=(-0.5, 2.5), ylim=(-0.03, 1.03), ylabel="flags that fire again")
    for (arm, budget), colour in zip(LEARNERS, COLOURS, strict=True):
        if len(t.learn(arm, budget, "sampled")):
            found, minutes = over(t.learn(arm, budget, "sampled")), t.learn(arm, budget, "seconds").mean() / 60
            error = [[found.estimate - found.low], [found.high - found.estimate]]
            right.errorbar(minutes, found.estimate, error, fmt="o", color=colour, capsize=2, label=f"{arm} ({budget})")
    right.axhline(t.base("sampled").mean(), color="black", lw=0.8, label="base")
    right.set(xlabel="CPU-minutes", ylabel="held-out accuracy, sampled")
    right.legend(frameon=False, fontsize=7)
    return fig
