"""Tables, pass marks and figure of tier cost, from its lines of results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.drawing import band, canvas, finish
from papers.E168_metis.paired import paired, rates
from papers.E168_metis.tier_cost import DEAR, EXPONENTS, PRICES, SHIPPED, SKIS, THETAS, prices
from papers.stats import Lines, Mark, by_seed, document, mark, markdown, minutes, select, show

NAMES = [f"{theta:g}" for theta in THETAS]


def whole(line: dict[str, Any], price: float = 1.0) -> float:
    """P6's cost of a stream in tokens: executor and building."""
    return float(line["executor"] + line["building"] * price)


def of(lines: Lines, name: str, zipf: float, price: float) -> list[dict[str, Any]]:
    """The lines of a rule."""
    return select(lines, condition=name, zipf=zipf, **({"price": price} if name in SKIS else {}))


def cost_of(lines: Lines, name: str, zipf: float, price: float) -> np.ndarray:
    """By seed."""
    return np.array([whole(line, 1.0 if name in SKIS else price) for line in of(lines, name, zipf, price)])


def best(lines: Lines, zipf: float, price: float) -> str:
    """The threshold of the least mean cost."""
    return min(NAMES, key=lambda name: cost_of(lines, name, zipf, price).mean())


def clairvoyant(lines: Lines, zipf: float, price: float) -> np.ndarray:
    """By seed: the cost where each plan had the threshold, of those of the sweep, that came out cheapest for it."""
    sweep = [of(lines, name, zipf, price) for name in NAMES]
    out = []
    for seed in zip(*sweep, strict=True):
        least: dict[str, float] = {}
        for line in seed:
            for plan, (_, _, _, tokens, building) in line["plans"].items():
                least[plan] = min(tokens + price * building, least.get(plan, np.inf))
        rest = seed[-1]["executor"] - sum(plan[3] for plan in seed[-1]["plans"].values())
        out.append(rest + sum(least.values()))
    return np.array(out)


def excess(lines: Lines, zipf: float, price: float, name: str) -> np.ndarray:
    """By seed: the threshold problem alone. Rent and price that a rule paid, over what a clairvoyant would have paid.

    A plan of N uses costs a clairvoyant min(N D, C): D is what a tool saves in a use, C what it costs to build, both as
    this stream shows them. A rule pays D for each use before its tool and C for each tool; uses of a plan with a tool
    that is not selected are no rent.
    """
    eager, never = (of(lines, one, zipf, price) for one in ("0", "inf"))
    out = []
    for mine, tool, text in zip(of(lines, name, zipf, price), eager, never, strict=True):
        uses = {plan: found[0] for plan, found in text["plans"].items()}
        saves = text["plan_tokens"] / sum(uses.values()) - tool["tool_tokens"] / tool["by_tool"]
        builds = price * tool["building"] / tool["built"]
        least = sum(min(used * saves, builds) for used in uses.values())
        paid = sum(before * saves + built * builds for _, before, built, _, _ in mine["plans"].values())
        out.append(paid / least)
    return np.array(out)


def within(ratios: np.ndarray) -> str:
    """How many streams are within 2, and how they lie."""
    return f"{int((ratios <= 2).sum())} of {len(ratios)}, mean {ratios.mean():.2f}, worst {ratios.max():.2f}"


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
    skis = []
    for name in SKIS:
        every = [(zipf, price) for zipf in EXPONENTS for price in prices(name)]
        ratios = np.concatenate([cost_of(lines, name, *at) / clairvoyant(lines, *at) for at in every])
        alone = {p: np.concatenate([excess(lines, z, p, name) for z in EXPONENTS]) for p in prices(name)}
        skis += [
            Mark(f"8.1 {name}", "executor and building within 2 x of the clairvoyant choice on every stream",
                 within(ratios), bool((ratios <= 2).all())),
            Mark(f"8.1 {name}, rent and price alone", "within 2 x on every stream",
                 "; ".join(f"price {p:g}: {within(x)}" for p, x in alone.items()),
                 all((x <= 2).all() for x in alone.values())),
        ]  # fmt: skip
    text = ", ".join(f"{price:g}: {NAMES[at]}" for price, at in zip(PRICES, by_price, strict=True))
    zipfs = "; ".join(f"price {p:g}: {', '.join(NAMES[at] for at in one)}" for p, one in by_zipf.items())
    return [
        Mark("P6 interior", "the cheapest threshold is neither 0 nor infinite",
             f"{found} at exponent {middle}, price 1; {inner:,.0f} against {edge:,.0f} tokens", found in inside),
        Mark("P6 price", "the cheapest threshold rises with the price of building", text, rising),
        Mark("P6 exponent", f"and falls with the exponent ({', '.join(map(str, EXPONENTS))})", zipfs,
             len(falling) == len(by_zipf) and bool(strictly)),
        *skis,
        *_learnt(lines),
        *_against(lines),
    ]  # fmt: skip


def _learnt(lines: Lines) -> list[Mark]:
    """What learning the saving from the memory's tools, from a prior of a half, is worth against how it was before."""
    out, now, before = [], *SHIPPED
    for price in PRICES:
        every = [cost_of(lines, now, zipf, price) / cost_of(lines, before, zipf, price) for zipf in EXPONENTS]
        found = by_seed(np.mean(every, 0))
        told = [show(found)] + [f"exponent {z:g} {show(by_seed(x))}" for z, x in zip(EXPONENTS, every, strict=True)]
        if price in DEAR:
            prior = [
                cost_of(lines, "ski, learnt from .26", z, price) / cost_of(lines, before, z, price) for z in EXPONENTS
            ]
            told.append(f"learnt from .26 {show(by_seed(np.mean(prior, 0)))}")
        promise = "executor and building fall where the saving is learnt from a prior of .5, as a share of before"
        met = found.high < 1 if price in DEAR else None
        out.append(Mark(f"8.1 learnt saving, price {price:g}", promise, "; ".join(told), met))
    return out


def _against(lines: Lines) -> list[Mark]:
    """Ski rental's whole cost against theta 3 and against the best threshold, which nobody knows beforehand."""
    out = []
    for price in PRICES:
        told = []
        for ski in (one for one in SKIS if price in prices(one) and one != "ski, learnt from .26"):
            own = cost_of(lines, ski, EXPONENTS[1], price)
            for name in dict.fromkeys(("3", best(lines, EXPONENTS[1], price))):
                found = by_seed(own / cost_of(lines, name, EXPONENTS[1], price))
                told.append(f"{ski} {show(found)} of theta {name}")
        out.append(
            Mark(
                f"price {price:g}",
                "whole cost, exponent 1.1; the last threshold is the cheapest there",
                "; ".join(told),
                None,
            )
        )
    same = paired(
        select(lines, condition="ski", zipf=EXPONENTS[1], price=1.0), select(lines, condition="3", zipf=EXPONENTS[1])
    )
    return [*out, mark("ski success", "against theta 3", same.gap, told=str(same))._replace(met=None)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    seeds = len(select(lines, condition="0", zipf=EXPONENTS[0]))
    rows = []
    for zipf in EXPONENTS:
        for price in PRICES:
            row = [f"{zipf}", f"{price:g}"]
            for name in (*NAMES, *SKIS):
                tried = name not in SKIS or price in prices(name)
                row.append(f"{cost_of(lines, name, zipf, price).mean() / 1000:.0f}k" if tried else "")
            rows.append([*row, f"{clairvoyant(lines, zipf, price).mean() / 1000:.0f}k"])
    won = []
    for name in (*NAMES, "ski"):
        pair = [[line for zipf in EXPONENTS for line in of(lines, one, zipf, 1.0)] for one in (name, "inf")]
        won.append(f"{name} {rates(pair[0]).mean():.4f}, {paired(*pair).counts}")
    return document(
        "## Tier cost: when a tool is worth its price",
        f"{seeds} seeds of {len(lines[0]['success'])} tasks; 40 families; cost is executor and "
        f"building, building multiplied by the price. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown(["exponent", "price", *(f"theta {n}" for n in NAMES), *SKIS, "clairvoyant"], rows),
        "Success at price 1, all exponents; tasks that it alone has right against those that text alone has: "
        f"{'; '.join(won)}.",
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
