"""Tables, pass marks and figure of tier cost, from its lines of results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.drawing import band, canvas, finish
from papers.E168_metis.paired import paired, rates
from papers.E168_metis.tier_cost import EXPONENTS, PRICES, THETAS
from papers.stats import Lines, Mark, by_seed, document, mark, markdown, minutes, select

NAMES = [f"{theta:g}" for theta in THETAS]


def whole(line: dict[str, Any], price: float = 1.0) -> float:
    """P6's cost of a stream in tokens: executor and building."""
    return float(line["executor"] + line["building"] * price)


def cost_of(lines: Lines, name: str, zipf: float, price: float) -> np.ndarray:
    """By seed."""
    if name == "ski":
        return np.array([whole(line) for line in select(lines, condition="ski", zipf=zipf, price=price)])
    return np.array([whole(line, price) for line in select(lines, condition=name, zipf=zipf)])


def best(lines: Lines, zipf: float, price: float) -> str:
    """The threshold of the least mean cost."""
    return min(NAMES, key=lambda name: cost_of(lines, name, zipf, price).mean())


def excess(lines: Lines, zipf: float, price: float, name: str = "ski") -> np.ndarray:
    """By seed: what a rule paid beyond what tools would have cost, over what a clairvoyant would have paid.

    A plan of N uses costs a clairvoyant min(N D, C): D is what a tool saves in a use, C what it costs to build, both as
    this stream shows them (tasks of plans played by text at threshold infinite, tasks answered by tools at threshold 0).
    """
    eager, never = (select(lines, condition=one, zipf=zipf) for one in ("0", "inf"))
    own = select(lines, condition=name, zipf=zipf, **({"price": price} if name == "ski" else {}))
    out = []
    for mine, tool, text in zip(own, eager, never, strict=True):
        uses = sum(used for used, _, _ in text["plans"])
        saves = text["plan_tokens"] / uses - tool["tool_tokens"] / tool["by_tool"]
        builds = price * tool["building"] / tool["built"]
        least = sum(min(used * saves, builds) for used, _, _ in text["plans"])
        paid = sum(by_text * saves + built * builds for _, by_text, built in mine["plans"])
        out.append(paid / least)
    return np.array(out)


def order(name: str) -> int:
    return NAMES.index(name)


def pass_marks(lines: Lines) -> list[Mark]:
    """P6 and improvement 1."""
    middle, inside = EXPONENTS[1], NAMES[1:-1]
    found = best(lines, middle, 1.0)
    edge = min(cost_of(lines, name, middle, 1.0).mean() for name in (NAMES[0], NAMES[-1]))
    inner = min(cost_of(lines, name, middle, 1.0).mean() for name in inside)
    by_price = [order(best(lines, middle, price)) for price in PRICES]
    by_zipf = {price: [order(best(lines, zipf, price)) for zipf in EXPONENTS] for price in PRICES}
    rising = by_price == sorted(by_price) and by_price[0] < by_price[-1]
    falling = [one for one in by_zipf.values() if one == sorted(one, reverse=True)]
    strictly = [one for one in falling if one[0] > one[-1]]
    ratios = np.concatenate([excess(lines, zipf, price) for zipf in EXPONENTS for price in PRICES])
    worst = Mark(
        "8.1", "ski rental within 2 x of the clairvoyant choice on every stream",
        f"{int((ratios <= 2).sum())} of {len(ratios)} streams, mean {ratios.mean():.2f}, worst {ratios.max():.2f}",
        bool((ratios <= 2).all()),
    )  # fmt: skip
    text = ", ".join(f"{price:g}: {NAMES[at]}" for price, at in zip(PRICES, by_price, strict=True))
    zipfs = "; ".join(f"price {p:g}: {', '.join(NAMES[at] for at in one)}" for p, one in by_zipf.items())
    return [
        Mark("P6 interior", "the cheapest threshold is neither 0 nor infinite",
             f"{found} at exponent {middle}, price 1; {inner:,.0f} against {edge:,.0f} tokens", found in inside),
        Mark("P6 price", "the cheapest threshold rises with the price of building", text, rising),
        Mark("P6 exponent", f"and falls with the exponent ({', '.join(map(str, EXPONENTS))})", zipfs,
             len(falling) == len(by_zipf) and bool(strictly)),
        worst,
        *_against(lines),
    ]  # fmt: skip


def _against(lines: Lines) -> list[Mark]:
    """Ski rental's whole cost against theta 3 and against the best threshold, which nobody knows beforehand."""
    out = []
    for price in PRICES:
        ski = cost_of(lines, "ski", EXPONENTS[1], price)
        top = best(lines, EXPONENTS[1], price)
        told = [
            f"{by_seed(ski / cost_of(lines, name, EXPONENTS[1], price)).estimate:.3f} of theta {name}"
            for name in dict.fromkeys(("3", top))
        ]
        out.append(Mark(f"ski, price {price:g}", "whole cost, exponent 1.1 (the last is the cheapest)", ", ".join(told), None))
    same = paired(select(lines, condition="ski", zipf=EXPONENTS[1], price=1.0), select(lines, condition="3", zipf=EXPONENTS[1]))
    return [*out, mark("ski success", "against theta 3", same.gap, told=str(same))._replace(met=None)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    seeds = len(select(lines, condition="0", zipf=EXPONENTS[0]))
    rows = []
    for zipf in EXPONENTS:
        for price in PRICES:
            row = [f"{zipf}", f"{price:g}"]
            for name in (*NAMES, "ski"):
                row.append(f"{cost_of(lines, name, zipf, price).mean() / 1000:.0f}k")
            found = excess(lines, zipf, price)
            rows.append([*row, f"{found.mean():.2f} ({found.max():.2f})"])
    won = []
    for name in (*NAMES, "ski"):
        for zipf in EXPONENTS:
            own = select(lines, condition=name, zipf=zipf, **({"price": 1.0} if name == "ski" else {}))
            won.append(f"{name} at {zipf}: {by_seed(rates(own)).estimate:.3f}")
    return document(
        "## Tier cost: when a tool is worth its price",
        f"{seeds} seeds of {len(lines[0]['success'])} tasks, 40 families; cost is executor and building, building "
        f"multiplied by the price. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown(["exponent", "price", *(f"theta {n}" for n in NAMES), "ski", "ski over clairvoyant, mean (worst)"], rows),
        f"Success: {'; '.join(won)}.",
    )


def figure(lines: Lines) -> object:
    """Cost by threshold, a panel for each exponent."""
    fig, axes = canvas((8.5, 2.8), columns=len(EXPONENTS), sharey=True)
    for axis, zipf in zip(axes, EXPONENTS, strict=True):
        for at, price in enumerate(PRICES):
            found = [by_seed(cost_of(lines, name, zipf, price) / 200) for name in NAMES]
            band(axis, range(len(NAMES)), found, label=f"price {price:g}", color=f"C{at}")
            ski = cost_of(lines, "ski", zipf, price).mean() / 200
            axis.axhline(ski, color=f"C{at}", linestyle=":", linewidth=1)
        axis.set(title=f"exponent {zipf}", xlabel="threshold", xticks=range(len(NAMES)), xticklabels=NAMES)
    axes[0].set(ylabel="tokens a task (dotted: ski rental)", yscale="log")
    finish(axes[0])
    finish(*axes[1:], font=None)
    return fig
