"""The gate against verify-always on a real repository: oracle runs, seconds, what was shipped."""

from itertools import product
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E170_gate.planner import Plan, Stakes, best_rule
from papers.E170_gate.policies import by_plan, play
from papers.E170_gate.rates import Evidence
from papers.E170_gate.tier_shell import CRITICS
from papers.stats import Line, Lines, Mark, document, over, show, table, text

WORTH = (2.0, 4.0, 10.0)  # the reward, in runs of the oracle
SLOW = (1.0, 10.0)  # toolz' suite takes a second of CPU time; a slow one is thought of beside it


def stakes(fit: Lines, worth: float, slow: float) -> Stakes:
    """Costs are the seconds measured on the other half; a good change is worth so many runs of the oracle."""
    verify = slow * float(np.mean([x["oracle_s"] for x in fit]))
    critics = {name: float(np.mean([x[f"{name}_s"] for x in fit])) for name in CRITICS}
    return Stakes(verify, verify, critics, worth * verify, None, 1)


def played(fit: Lines, held: Lines, worth: float, slow: float) -> list[Line]:
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


def compared(halves: tuple[Lines, Lines], slow: float, worth: float) -> Line:
    """The gate beside verify-always at one worth of a good change and one speed of the suite, per candidate."""
    lines = [*halves[0], *halves[1]]
    gate = [*played(halves[1], halves[0], worth, slow), *played(halves[0], halves[1], worth, slow)]
    runs, shipped, spent = (np.array([x[field] for x in gate], float) for field in ("oracle", "good", "seconds"))
    always, labels = slow * np.array([x["oracle_s"] for x in lines]), np.array([float(x["oracle"]) for x in lines])
    gains = {"saved": 1 - runs, "lost": labels - shipped, "seconds": always - spent}
    found: dict[str, Any] = {name: over(x, unit="candidates") for name, x in gains.items()}
    broken, rule = sum(x["broken"] for x in gate), gate[0]["rule"]
    return found | {
        "slow": slow,
        "worth": worth,
        "broken": broken,
        "rule": rule,
        "always": always.mean(),
        "n": len(gate),
    }


def marks(x: Line) -> list[Mark]:
    saved, lost, seconds = x["saved"], x["lost"], x["seconds"]
    where = "as it is" if x["slow"] == 1 else f"were the suite {x['slow']:g} times as slow"
    promise = "fewer oracle runs than verify-always at equal shipped quality"
    found = f"{show(saved, '.0%')} of oracle runs saved, n = {x['n']}; good changes lost {text(lost, 2)} a candidate, "
    met = saved.low > 0 and lost.estimate == 0 and x["broken"] == 0
    pays = f"{text(seconds, 2)} s saved of {x['always']:.2f} s a candidate"
    return [
        Mark(f"saves ({where})", promise, f"{found}broken shipped {x['broken']}", met),
        Mark(f"pays ({where})", "less time than verify-always", pays, seconds.low > 0),
    ]


def report(lines: Lines) -> str:
    chosen = sorted((x for x in lines if x["oracle"] is not None), key=lambda x: (x["seed"], x["program"]))
    undecided, good = len(lines) - len(chosen), sum(bool(x["oracle"]) for x in chosen)
    if len(chosen) < 4:
        return f"Tier shell says nothing: the oracle was undecided on {undecided} of {len(lines)}.\n"
    rates = [
        f"{n} passes {sum(bool(x[n]) for x in chosen if x['oracle'])} of {good} good, "
        f"{sum(bool(x[n]) for x in chosen if not x['oracle'])} of {len(chosen) - good} broken"
        for n in CRITICS
    ]
    rows = [compared((chosen[::2], chosen[1::2]), slow, worth) for slow, worth in product(SLOW, WORTH)]
    return document(
        "## Tier shell: toolz 1.0.0, its whole test suite as the oracle",
        f"{len(chosen)} candidates ({good} good), {undecided} undecided. {'; '.join(rates)}. "
        "Rates and costs come from one half, decisions are made on the other, and the reverse; nothing is "
        "shipped unverified.",
        [mark for x in rows if x["worth"] == WORTH[1] for mark in marks(x)],
        table(
            rows,
            ("suite's seconds times", "slow", "g"),
            ("a good change is worth (oracle runs)", "worth", "g"),
            ("oracle runs saved a candidate", "saved", ".2f"),
            ("good changes lost a candidate", "lost", ".2f"),
            ("broken shipped", "broken"),
            ("seconds saved a candidate", "seconds", ".2f"),
            ("best one-line rule", "rule"),
        ),
    )


def figure(lines: Lines) -> object:
    """Seconds of each check."""
    fig, axis = canvas((5, 2.6))
    names = [*CRITICS, "oracle"]
    axis.boxplot([[x[f"{n}_s"] for x in lines] for n in names], orientation="horizontal")
    axis.set_yticks(range(1, len(names) + 1), names)
    axis.set(xlabel="seconds in the sandbox, on a busy machine", xscale="log")
    return fig
