"""Tables, pass marks and figure of tier exact, from its lines of results alone."""

from typing import Any

import numpy as np
from scipy import stats

from papers.drawing import canvas, finish
from papers.E179_dspark.tier_exact import BIASED
from papers.stats import Line, Lines, Mark, document, minutes, table

LEAST, MOST = 0.01, 1.5  # p of the chi-square, TV distance over what sampling alone makes
LAW = ("drafter", "lengths", "sampling", "rows")


def _groups(lines: Lines, kind: str, *fields: str) -> dict[tuple[Any, ...], list[Line]]:
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        if line["kind"] == kind:
            found.setdefault(tuple(line[f] for f in fields), []).append(line)
    return found


def _sum(lines: Lines, field: str) -> Any:
    return sum(x[field] for x in lines)


def _pooled(lines: Lines) -> tuple[float, float, float]:
    """p of the pairs and of the first drafted token alone, and the ratio of TV distances, over contexts together."""
    both, first = (float(stats.chi2.sf(_sum(lines, "chi2" + s), _sum(lines, "df" + s))) for s in ("", "_first"))
    return both, first, float(np.mean([x["tv"] for x in lines]) / np.mean([x["tv_expected"] for x in lines]))


def pass_marks(lines: Lines) -> list[Mark]:
    out = []
    if greedy := [x for x in lines if x["kind"] == "greedy"]:
        wrong = _sum(greedy, "mismatches")
        told = f"{wrong} of {_sum(greedy, 'n')} replies, {_sum(greedy, 'tokens')} tokens, {len(greedy)} cells"
        promise = "every reply that of generate(do_sample=False), float64"
        out.append(Mark("T2, greedy identity", promise, told, wrong == 0))
    for (drafter, lengths, sampling, rows), group in _groups(lines, "law", *LAW).items():
        both, first, ratio = _pooled(group)
        told = f"p {both:.3g} of pairs, {first:.3g} of first tokens, TV {ratio:.3f} x expected, n = {_sum(group, 'n')}"
        name = f"{'T9' if rows == 8 else 'T3'}, {drafter}, {lengths}, {sampling}"
        if lengths in BIASED:
            promise = f"a scheduler that sees the block fails: p of either below {LEAST}"
            out.append(Mark(f"power, {name}", promise, told, min(both, first) < LEAST))
        else:
            promise = f"p of pairs above {LEAST}, TV at most {MOST} x expected"
            out.append(Mark(name, promise, told, both > LEAST and ratio <= MOST))
    for (lengths,), group in _groups(lines, "surprise", "lengths").items():
        z = float(_sum(group, "sum") / np.sqrt(_sum(group, "squares")))
        told = f"z {z:+.2f} over {_sum(group, 'tokens')} tokens"
        if lengths in BIASED:
            out.append(Mark(f"power, surprise, {lengths}", "|z| above 2.58", told, abs(z) > 2.58))
        else:
            out.append(Mark(f"T9, surprise, {lengths}", "|z| of logprob + entropy at most 2.58", told, abs(z) <= 2.58))
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    return document(
        "## Tier exact: what drafts leave unchanged",
        f"{len(lines)} cells, {minutes(lines):.1f} CPU-minutes, through the serving engine. "
        f"Policies called {' and '.join(BIASED)} look at the whole block; the same test has to find them.",
        pass_marks(lines),
        "Greedy replies (float64), tokens a round, and the least lead of a best token in what generate wrote:",
        table(
            _groups(lines, "greedy", "drafter", "lengths").values(),
            ("drafter", lambda group: group[0]["drafter"]),
            ("lengths", lambda group: group[0]["lengths"]),
            ("replies that differ", lambda group: f"{_sum(group, 'mismatches')} of {_sum(group, 'n')}"),
            ("tokens a round", lambda g: np.average([x["tau"] for x in g], weights=[x["tokens"] for x in g]), ".2f"),
            ("least lead, logits", lambda group: min(x["gap"] for x in group), ".1e"),
        ),
    )


def figure(lines: Lines) -> object:
    """TV distance of each arm's pairs to the exact law, over what sampling alone makes of it."""
    fig, axis = canvas((7, 3))
    groups = _groups(lines, "law", *LAW)
    for i, ((_, lengths, *_), group) in enumerate(groups.items()):
        ratios = [x["tv"] / x["tv_expected"] for x in group if x["tv_expected"]]  # a law of one pair has no distance
        axis.plot(ratios, [i] * len(ratios), "o", color="#D55E00" if lengths in BIASED else "#0072B2", alpha=0.6)
    axis.axvline(1, color="#000000", linestyle=":", linewidth=1)
    axis.set_yticks(range(len(groups)), [f"{d}, {p}, {s}, {r} rows" for d, p, s, r in groups])
    axis.set_xlabel("total variation distance to the exact law / that of a sample from it")
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
