"""The gate against verify-always on a real repository: oracle runs, seconds, what was shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from clew.coding.gate.plan import Plan, Stakes, best_rule
from clew.coding.gate.rates import Evidence
from papers.drawing import canvas
from papers.E170_gate.policies import by_plan, play
from papers.E170_gate.tier_shell import CRITICS
from papers.stats import Mark, interval, markdown, mean, text

Line = dict[str, Any]
WORTH = (2.0, 4.0, 10.0)  # the reward, in runs of the oracle
SLOW = (1.0, 10.0)  # toolz' suite takes a second of CPU time; a slow one is thought of beside it


def decided(line: Line) -> bool:
    return line["oracle"] is not None


def stakes(fit: Sequence[Line], worth: float, slow: float) -> Stakes:
    """Costs are the seconds measured on the other half; a good change is worth so many runs of the oracle."""
    verify = slow * float(np.mean([x["oracle_s"] for x in fit]))
    critics = {name: float(np.mean([x[f"{name}_s"] for x in fit])) for name in CRITICS}
    return Stakes(verify, verify, critics, worth * verify, None, 1)


def played(fit: Sequence[Line], held: Sequence[Line], worth: float, slow: float) -> list[Mapping[str, Any]]:
    """What the gate does with each candidate of one half, knowing the other half."""
    evidence = Evidence()
    for x in fit:
        evidence.add("toolz", {n: x[n] for n in CRITICS if x[n] is not None}, x["oracle"])
    s = stakes(fit, worth, slow)
    rates = evidence.rates(list(CRITICS), "toolz")
    act, out = by_plan(Plan(rates, s)), []
    for x in held:
        got = play(act, [(x["oracle"], {n: bool(x[n]) for n in CRITICS})], rates, s)
        spent = sum(x[f"{n}_s"] for n in got["used"]) + got["oracle"] * slow * x["oracle_s"]
        out.append({**got, "seconds": spent, "rule": best_rule(rates, s)[0]})
    return out


def report(lines: Sequence[Line]) -> str:
    chosen = sorted((x for x in lines if decided(x)), key=lambda x: (x["seed"], x["program"]))
    if len(chosen) < 4:
        return f"Tier shell says nothing: the oracle was undecided on {len(lines) - len(chosen)} of {len(lines)}.\n"
    halves = chosen[::2], chosen[1::2]
    good = sum(x["oracle"] for x in chosen)
    rates = [
        f"{n} passes {sum(bool(x[n]) for x in chosen if x['oracle'])} of {good} good, "
        f"{sum(bool(x[n]) for x in chosen if not x['oracle'])} of {len(chosen) - good} broken"
        for n in CRITICS
    ]
    rows, marks = [], []
    for slow, worth in product(SLOW, WORTH):
        gate = [*played(halves[1], halves[0], worth, slow), *played(halves[0], halves[1], worth, slow)]
        lines_ = [*halves[0], *halves[1]]
        always = slow * np.array([x["oracle_s"] for x in lines_])
        oracle = np.array([x["oracle"] for x in gate], float)
        shipped, broken = np.array([x["good"] for x in gate], float), sum(x["broken"] for x in gate)
        labels = np.array([float(x["oracle"]) for x in lines_])
        saved = interval("", mean, 1 - oracle, unit="candidates")
        seconds = interval("", mean, always - np.array([x["seconds"] for x in gate]), unit="candidates")
        lost = interval("", mean, labels - shipped, unit="candidates")
        rows.append(
            [f"{slow:g}", f"{worth:g}", text(saved, 2), text(lost, 2), str(broken), text(seconds, 2), gate[0]["rule"]]
        )
        if worth == WORTH[1]:
            found = f"{saved.estimate:.0%} [{saved.low:.0%}, {saved.high:.0%}] of oracle runs saved, n = {len(gate)}; "
            found += f"good changes lost {text(lost, 2)} a candidate, broken shipped {broken}"
            met = saved.low > 0 and lost.estimate == 0 and broken == 0
            where = "as it is" if slow == 1 else f"were the suite {slow:g} times as slow"
            promise = "fewer oracle runs than verify-always at equal shipped quality"
            marks.append(Mark(f"saves ({where})", promise, found, met))
            pays = f"{text(seconds, 2)} s saved of {always.mean():.2f} s a candidate"
            marks.append(Mark(f"pays ({where})", "less time than verify-always", pays, seconds.low > 0))
    head = ["suite's seconds times", "a good change is worth (oracle runs)"]
    head += ["oracle runs saved a candidate", "good changes lost a candidate", "broken shipped"]
    head += ["seconds saved a candidate", "best one-line rule"]
    undecided = len(lines) - len(chosen)
    return (
        "\n\n".join(
            [
                "## Tier shell: toolz 1.0.0, its whole test suite as the oracle",
                f"{len(chosen)} candidates ({good} good), {undecided} undecided. {'; '.join(rates)}. "
                "Rates and costs come from one half, decisions are made on the other, and the reverse; nothing is "
                "shipped unverified.",
                "\n".join(f"- {mark}" for mark in marks),
                markdown(head, rows),
            ]
        )
        + "\n"
    )


def figure(lines: Sequence[Line]) -> Any:
    """Seconds of each check."""
    fig, axis = canvas((5, 2.6))
    names = [*CRITICS, "oracle"]
    axis.boxplot([[x[f"{n}_s"] for x in lines] for n in names], orientation="horizontal")
    axis.set_yticks(range(1, len(names) + 1), names)
    axis.set_xlabel("seconds in the sandbox, on a busy machine")
    axis.set_xscale("log")
    return fig
