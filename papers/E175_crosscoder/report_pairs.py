"""Tables and marks of the pairs of language models, from their lines of results alone (specs/E175, section 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas, finish
from papers.E175_crosscoder.tier_pairs import FRESH
from papers.stats import Line, Mark, Results, document, markdown, minutes

SPILL = "spillover to B"


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Results(lines)
    pairs = t.of(kind="pair")
    return document(
        "# E175 in pairs of tiny language models",
        f"{len(t.all)} cells, {minutes(t.all):.1f} CPU-minutes. Each pair is trained for its seed, and compared at "
        "layer 1 of 3, width 48; effects are differences of rates on test prompts that no choice has seen.",
        marks(t),
        "## Verdicts",
        _verdicts(pairs),
        "## Arms on the test prompts",
        _arms([x for x in pairs if x["method"] == "reseated"]),
        "## Patches at the last prompt token, rate of A less its clean rate",
        _patches(pairs),
        "## Penalties on a dedicated crosscoder (pair N)" if t.of(kind="penalty") else "",
        _penalties(t.of(kind="penalty")),
    )


def _each(
    lines: Sequence[Line], name: str, promise: str, of: Callable[[Line], tuple[bool, str]], least: float = 1.0
) -> Mark:
    found = [of(line) for line in lines]
    good = sum(ok for ok, _ in found)
    told = f"{good} of {len(found)}: " + ", ".join(text for _, text in found)
    return Mark(name, promise, told, good >= least * len(found)) if found else Mark(name, promise, "not run", None)


def marks(t: Results) -> list[Mark]:
    """Over seeds; none is left out."""
    every = t.of(kind="pair")
    n, r, z = (t.of(kind="pair", method="reseated", pair=pair) for pair in "NRZ")
    out = [
        _each(every, "masks", "weights across a mask exactly 0", lambda x: (x["leak"] == 0, f"{x['leak']:g}")),
        _each(
            every,
            "held-out",
            "unexplained at most .05 in A and B",
            lambda x: (max(x["unexplained"]) <= 0.05, f"{max(x['unexplained']):.3f}"),
        ),
        _each(
            every,
            "files",
            "saved and loaded, the same to the bit",
            lambda x: (x["same when loaded"], str(x["same when loaded"])),
        ),
        _each(every, "refusal", "states scaled twice are refused", lambda x: (x["refused"], str(x["refused"]))),
        _each(every, "identity", "the state itself patched in moves at most .01", _identity),
        _each(
            n,
            "N",
            "planted direction among A's own, cosine at least .8 in 2 of 3",
            lambda x: (x["planted"] >= 0.8, f"{x['planted']:.2f}"),
            2 / 3,
        ),
        _each(n, "N", "a feature of A alone, clamped, raises calls by 40 points on test", _clamp, 2 / 3),
        _each(n, "N", "it beats random p99 and the shared features, Holm p < .01", _beats, 2 / 3),
        _each(n, "N", "verdict exclusive", lambda x: (x["verdict"] == "exclusive", x["verdict"]), 2 / 3),
        _each(r, "R", "verdict shared, not exclusive", lambda x: (x["verdict"] == "shared", x["verdict"])),
        _each(
            [x for x in n if x["seed"] in FRESH],
            "N, fresh seeds",
            "verdict exclusive",
            lambda x: (x["verdict"] == "exclusive", x["verdict"]),
            2 / 3,
        ),
        _each(
            [x for x in r if x["seed"] in FRESH],
            "R, fresh seeds",
            "verdict shared, not exclusive",
            lambda x: (x["verdict"] == "shared", x["verdict"]),
        ),
        _each(
            z,
            "Z",
            "declares nothing in 95 % of seeds",
            lambda x: (x["verdict"] in ("nothing", "cannot tell"), x["verdict"]),
            0.95,
        ),
        _each(
            z,
            "Z",
            "nor does any feature pass without the comparison of rates",
            lambda x: (x["ungated"] in ("nothing", "cannot tell"), x["ungated"]),
            0.95,
        ),
        _each(every, "off-target", "calls at prompts for prose at most 5 points, or flagged", _aside),
    ]
    raw = [x for x in every if x["pair"] in "RN" and "patch raw in A" in x["lines"]]
    out.append(
        _each(
            raw,
            "spec 5.1",
            "raw states into a scaled crosscoder raise the calls (lower limit above 0)",
            lambda x: _above(x, "patch raw in A"),
        )
    )
    out.append(_each(raw, "spec 5.1", "the right ones do not", lambda x: _below(x, "patch normalised in A")))
    out.append(
        _each(
            every, "spillover", "claimed only where its lower limit is above 0 (no mark)", lambda x: _above(x, SPILL)
        )._replace(met=None)
    )
    return out


def _identity(x: Line) -> tuple[bool, str]:
    found = x["lines"]["patch identity in A"]["estimate"]
    return abs(found) <= 0.01, f"{found:+.3f}"


def _clamp(x: Line) -> tuple[bool, str]:
    if "exclusive" not in x:
        return False, "no feature"
    return x["exclusive"]["test"] >= 0.4, f"{x['exclusive']['test']:+.2f}"


def _beats(x: Line) -> tuple[bool, str]:
    if "exclusive" not in x:
        return False, "no feature"
    p = [v for k, v in x["p"].items() if k.startswith(("exclusive", "alone"))]
    if x["exclusive"]["random p99"] is None:
        return False, "no effect"
    above = x["exclusive"]["test"] > x["exclusive"]["random p99"]
    return above and max(p) < 0.01, f"p {max(p):.2g}, random p99 {x['exclusive']['random p99']:.2f}"


def _aside(x: Line) -> tuple[bool, str]:
    found = [line["estimate"] for name, line in x["lines"].items() if name.startswith("off-target")]
    return True, "none tried" if not found else " and ".join(
        f"{v:+.2f}{' flagged' if abs(v) > 0.05 else ''}" for v in found
    )


def _above(x: Line, arm: str) -> tuple[bool, str]:
    found = x["lines"].get(arm)
    return (False, "not tried") if found is None else (found["low"] > 0, _told(found))


def _below(x: Line, arm: str) -> tuple[bool, str]:
    found = x["lines"].get(arm)
    return (False, "not tried") if found is None else (found["low"] <= 0, _told(found))


def _told(line: dict[str, Any]) -> str:
    return f"{line['estimate']:+.2f} [{line['low']:.2f}, {line['high']:.2f}]"


def _verdicts(pairs: Sequence[Line]) -> str:
    rows = []
    for x in pairs:
        rate = [f"{x['rates'][f'rate of {who}']['estimate']:.2f}" for who in "AB"]
        rows.append(
            [x["pair"], x["method"], str(x["seed"]), *rate, str(x["alone"]), _cos(x), f"**{x['verdict']}**", x["said"]]
        )
    return markdown("pair | method | seed | A | B | latents of A alone | cosine of the planted | verdict | why", rows)


def _cos(x: Line) -> str:
    return "" if x["planted"] is None else f"{x['planted']:.2f}"


def _arms(pairs: Sequence[Line]) -> str:
    rows = []
    for x in pairs:
        for part in ("exclusive", "shared"):
            if part not in x:
                continue
            one = x[part]
            scaled = ", ".join(f"{a}: {v:+.2f}" for a, v in one["multiplied"].items())
            rest = {name.split(" (cosine")[0]: line for name, line in x["lines"].items() if "(cosine" in name}
            beside = "; ".join(f"{name} {line['estimate']:+.2f}" for name, line in rest.items())
            drawn = (
                f"{one['random mean']:+.2f}/{one['random p99']:.2f}" if one["random p99"] is not None else "not drawn"
            )
            rows.append(
                [
                    x["pair"],
                    str(x["seed"]),
                    part,
                    f"{one['dose']:g}",
                    f"{one['select']:+.2f}",
                    f"{one['test']:+.2f}",
                    drawn,
                    scaled,
                    beside,
                ]
            )
    head = "pair | seed | part | dose | selection | test | random mean/p99 | multiplied by | others at its norm"
    return markdown(head, rows)


def _patches(pairs: Sequence[Line]) -> str:
    names = ("identity", "normalised", "raw", "mean")
    rows = []
    for x in pairs:
        cells = [
            _told(x["lines"][f"patch {name} in A"]) if f"patch {name} in A" in x["lines"] else "" for name in names
        ]
        rows.append(
            [x["pair"], x["method"], str(x["seed"]), *cells, _told(x["lines"][SPILL]) if SPILL in x["lines"] else ""]
        )
    return markdown(["pair", "method", "seed", *names, "spillover"], rows)


def _penalties(cells: Sequence[Line]) -> str:
    rows = []
    for kind in sorted({x["method"] for x in cells}):
        mine = [x for x in cells if x["method"] == kind]
        for i, point in enumerate(mine[0]["curve"]):
            of = [x["curve"][i] for x in mine]
            fvu, own, cos = ([p[name] for p in of] for name in ("fvu", "own", "cos"))
            rows.append(
                [
                    kind,
                    f"{point['weight']:g}",
                    f"{np.mean(fvu):.4f}",
                    f"{np.mean(own):.3f}",
                    " ".join(f"{c:.2f}" for c in cos),
                    str(len(of)),
                ]
            )
    return (
        markdown(
            "penalty | weight | unexplained | active share of A's own | cosine of the planted, by seed | seeds", rows
        )
        if rows
        else ""
    )


def figure(lines: Sequence[Line]) -> Any:
    """Effects on the test prompts, by pair and part, beside random directions."""
    pairs = [x for x in Results(lines).of(kind="pair") if x["method"] == "reseated"]
    fig, axis = canvas((6, 3.2), 1, 1)
    labels = []
    for i, x in enumerate(pairs):
        labels.append(f"{x['pair']} {x['seed']}")
        for shift, part, colour in ((-0.15, "exclusive", "#009E73"), (0.15, "shared", "#0072B2")):
            if part in x:
                axis.plot(
                    i + shift,
                    x[part]["test"],
                    "o",
                    color=colour,
                    label=part if i == 0 or part not in pairs[0] else None,
                )
                if x[part]["random p99"] is not None:
                    axis.plot(i + shift, x[part]["random p99"], "_", color="black", ms=12)
    axis.set_xticks(range(len(labels)), labels)
    axis.set_ylabel("change of the call rate, test")
    finish(axis, font=7, grid=False)
    return fig
