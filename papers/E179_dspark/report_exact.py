"""Tables, pass marks and figure of tier exact, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from papers.drawing import canvas
from papers.E179_dspark.tier_exact import BIASED
from papers.stats import Mark, markdown

Line = dict[str, Any]
LEAST, MOST = 0.01, 1.5  # p of the chi-square, TV distance over what sampling alone makes


def _groups(lines: Sequence[Line], kind: str, *fields: str) -> dict[tuple[Any, ...], list[Line]]:
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        if line["kind"] == kind:
            found.setdefault(tuple(line[f] for f in fields), []).append(line)
    return found


def _pooled(lines: Sequence[Line]) -> tuple[float, float, float]:
    """p of the pairs and of the first drafted token alone, and the ratio of TV distances, over contexts together."""
    both, first = (
        float(stats.chi2.sf(sum(x["chi2" + s] for x in lines), sum(x["df" + s] for x in lines))) for s in ("", "_first")
    )
    return both, first, float(np.mean([x["tv"] for x in lines]) / np.mean([x["tv_expected"] for x in lines]))


def _z(lines: Sequence[Line]) -> float:
    return float(sum(x["sum"] for x in lines) / np.sqrt(sum(x["squares"] for x in lines)))


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    out = []
    greedy = [x for x in lines if x["kind"] == "greedy"]
    if greedy:
        wrong, tokens = sum(x["mismatches"] for x in greedy), sum(x["tokens"] for x in greedy)
        told = f"{wrong} of {sum(x['n'] for x in greedy)} replies, {tokens} tokens, {len(greedy)} cells"
        promise = "every reply that of generate(do_sample=False), float64"
        out.append(Mark("T2, greedy identity", promise, told, wrong == 0))
    for (drafter, lengths, sampling, rows), group in _groups(
        lines, "law", "drafter", "lengths", "sampling", "rows"
    ).items():  # fmt: skip
        both, first, ratio = _pooled(group)
        told = f"p {both:.3g} of pairs, {first:.3g} of first tokens, TV {ratio:.3f} x expected, n = "
        told += str(sum(x["n"] for x in group))
        name = f"{'T9' if rows == 8 else 'T3'}, {drafter}, {lengths}, {sampling}"
        if lengths in BIASED:
            promise = f"a scheduler that sees the block fails: p of either below {LEAST}"
            out.append(Mark(f"power, {name}", promise, told, min(both, first) < LEAST))
        else:
            met = both > LEAST and ratio <= MOST
            out.append(Mark(name, f"p of pairs above {LEAST}, TV at most {MOST} x expected", told, met))
    for (lengths,), group in _groups(lines, "surprise", "lengths").items():
        z, n = _z(group), sum(x["tokens"] for x in group)
        told = f"z {z:+.2f} over {n} tokens"
        if lengths in BIASED:
            out.append(Mark(f"power, surprise, {lengths}", "|z| above 2.58", told, abs(z) > 2.58))
        else:
            out.append(Mark(f"T9, surprise, {lengths}", "|z| of logprob + entropy at most 2.58", told, abs(z) <= 2.58))
    return out


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for (drafter, lengths), group in _groups(lines, "greedy", "drafter", "lengths").items():
        tau = np.average([x["tau"] for x in group], weights=[x["tokens"] for x in group])
        wrong = f"{sum(x['mismatches'] for x in group)} of {sum(x['n'] for x in group)}"
        rows.append([drafter, lengths, wrong, f"{tau:.2f}", f"{min(x['gap'] for x in group):.1e}"])
    parts = [
        "## Tier exact: what drafts leave unchanged",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes, through the serving engine. "
        f"Policies called {' and '.join(BIASED)} look at the whole block; the same test has to find them.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        "Greedy replies (float64), tokens a round, and the least lead of a best token in what generate wrote:",
        markdown(["drafter", "lengths", "replies that differ", "tokens a round", "least lead, logits"], rows),
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """TV distance of each arm's pairs to the exact law, over what sampling alone makes of it."""
    fig, axis = canvas((7, 3))
    groups = _groups(lines, "law", "drafter", "lengths", "sampling", "rows")
    for i, ((_, lengths, *_), group) in enumerate(groups.items()):
        ratios = [x["tv"] / x["tv_expected"] for x in group if x["tv_expected"]]  # a law of one pair has no distance
        axis.plot(ratios, [i] * len(ratios), "o", color="#D55E00" if lengths in BIASED else "#0072B2", alpha=0.6)
    axis.axvline(1, color="#000000", linestyle=":", linewidth=1)
    axis.set_yticks(range(len(groups)), [f"{d}, {p}, {s}, {r} rows" for d, p, s, r in groups])
    axis.set_xlabel("total variation distance to the exact law / that of a sample from it")
    axis.invert_yaxis()
    axis.grid(alpha=0.25)
    return fig
