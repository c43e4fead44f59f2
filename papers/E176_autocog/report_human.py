"""Tables, pass marks (V6, V8, controls) and figure of tier human, from its lines of results alone."""

from __future__ import annotations

import numpy as np

from clew.core.records import Report
from clew.methods.theories.choice_fits import HeldOut
from clew.methods.theories.mechanism_twins import Claim, claim
from clew.methods.theories.verdict_words import Verdict, verdict
from papers.drawing import canvas, finish, whiskers
from papers.E176_autocog.people_bank import RATINGS
from papers.E176_autocog.people_rules import HALF, POWER, RULES, WADD
from papers.experiment import Line
from papers.stats import (
    Lines,
    Mark,
    Results,
    bullets,
    document,
    gap,
    mark,
    markdown,
    minutes,
    over,
    pooled,
    text,
    times,
)

UNIT = "experiments"


def held(results: Results, ratings: str, rule: str) -> HeldOut:
    (line,) = results.of(kind="fit", ratings=ratings, rule=rule, control="none")
    return HeldOut(np.array(line["errors"]), ())


def floors(results: Results, ratings: str) -> np.ndarray:
    (line,) = results.of(kind="noise", ratings=ratings)
    return np.array(line["floors"])


def shuffled(results: Results, ratings: str) -> np.ndarray:
    """Errors of v^gamma where validities were dealt to other cues, the mean over shuffles, by experiment."""
    rows = results.of(kind="fit", ratings=ratings, rule=POWER.name, control="shuffled")
    found: np.ndarray = np.mean([line["errors"] for line in rows], axis=0)
    return found


def claims(results: Results, ratings: str) -> list[Claim]:
    floor = float(floors(results, ratings).mean())
    twins = [(rule.name, what, twin.name) for rule in RULES[ratings].values() for what, twin in rule.without.items()]
    return [
        claim(name, what, held(results, ratings, name), held(results, ratings, twin), floor, among=len(twins))
        for name, what, twin in twins
    ]


def judged(results: Results, ratings: str) -> Verdict:
    """The verdict on the rules, twins and the guess apart: a twin is no theory that anyone claims."""
    twins = {twin.name for rule in RULES[ratings].values() for twin in rule.without.values()}
    theories = [name for name in RULES[ratings] if name not in twins and name != HALF.name]
    known = {name: held(results, ratings, name) for name in theories}
    return verdict(known, float(floors(results, ratings).mean()), claims(results, ratings))


def shown(name: str, promise: str, found: Report, *bounds: float, **more: float) -> Mark:
    """A mark whose interval is told with four digits: these errors are small."""
    return mark(name, promise, found, *bounds, **more, told=f"{text(found, 4)} n={found.n}")


def powered(line: Line) -> bool:
    """Whether a search ended at a sum of cues by a power of validity whose range has its middle from 2 to 6."""
    low, high = line["form"]["ranges"].get("gamma", (0, 0))
    return line["form"]["aggregator"] == "sum" and line["form"]["sign"] == 1 and 2 <= (low + high) / 2 <= 6


def pass_marks(results: Results) -> list[Mark]:
    own, weighing = (held(results, "binary", name).errors for name in (POWER.name, WADD.name))
    (line,) = results.of(kind="fit", ratings="binary", rule=POWER.name, control="none")
    loops, searches = results.of(kind="loop"), results.of(kind="search")
    ended = sum(powered(x) for x in searches)
    reached = sum(x["winner"] == POWER.name and 2 <= x["gamma"] <= 6 for x in loops)
    gammas = [one["gamma"] for one in line["held"]]
    span = over(gammas, "fits")
    cardinal = {one.mechanism: one for one in claims(results, "cardinal")}
    concave = cardinal["diminishing returns"]
    gain = over(concave.twin.errors - concave.own.errors, UNIT)
    said = any("diminishing returns may not be claimed" in words for words in judged(results, "cardinal").words)
    return [
        shown("V6", "binary: v^gamma's error on experiments left out <= .015", over(own, UNIT), most=0.015),
        shown("V6", "at most .35 of weighing's", times(own, weighing, UNIT), most=0.35),
        shown("V6", f"gamma from 2 to 6 (fits from {min(gammas):.2f} to {max(gammas):.2f})", span, 2.0, 6.0),
        shown("V6", "five cycles from the two seeds end at v^gamma, gamma 2 to 6", pooled(reached, len(loops)), 1.0),
        shown("V6", "so does the closed loop, which fits nothing", pooled(ended, len(searches)), 1.0),
        shown(
            "V8",
            "cardinal: diminishing returns do not beat their linear twin by more than one standard error "
            f"({concave.spread:.4f})",
            gain,
            most=concave.spread,
        ),
        Mark("V8", "the verdict says that diminishing returns may not be claimed", "it does" if said else "no", said),
        *(
            shown("control", f"{ratings}: guessing .5 misses by more than v^gamma", gap(*pair, UNIT), above=0.0)
            for ratings in RATINGS
            for pair in [(held(results, ratings, HALF.name).errors, held(results, ratings, POWER.name).errors)]
        ),
        *(
            shown("control", f"{ratings}: so does v^gamma on shuffled validities", gap(*pair, UNIT), above=0.0)
            for ratings in RATINGS
            for pair in [(shuffled(results, ratings), held(results, ratings, POWER.name).errors)]
        ),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results, parts = Results(lines), []
    for ratings in RATINGS:
        floor, rows = floors(results, ratings), []
        for name in RULES[ratings]:
            (line,) = results.of(kind="fit", ratings=ratings, rule=name, control="none")
            (plain,) = results.of(kind="prior", ratings=ratings, rule=name)
            fitted = ", ".join(f"{key} {value:.2f}" for key, value in line["parameters"].items())
            errors = (over(line["errors"], UNIT), over(plain["errors"], UNIT))
            rows.append([name, *(text(found, 4) for found in errors), fitted])
        rows.append(["v^gamma, validities shuffled", text(over(shuffled(results, ratings), UNIT), 4), "", ""])
        rows.append(["noise alone", text(over(floor, UNIT), 4), "", ""])
        head = "rule | error where left out | error unfitted (evenly drawn parameters) | fitted to all"
        words = bullets(judged(results, ratings).words)
        parts += [f"### {ratings.capitalize()} ratings, {len(floor)} experiments", markdown(head, rows), words]
    rows = [
        [
            str(x["seed"]), x["winner"], str(x["cycle"]), "" if x["gamma"] is None else f"{x['gamma']:.2f}",
            f"{x['error']:.4f}", f"{x['wadd']:.4f}", f"{x['unseen']:.4f}", f"{x['unseen_wadd']:.4f}",
        ]
        for x in results.of(kind="loop")
    ]  # fmt: skip
    head = (
        "seed | best theory | v^gamma added in cycle | gamma | error, drawn and left out | weighing | "
        "error on the 2 never drawn | weighing"
    )
    return document(
        "## Tier human: people's choices",
        "Errors are mean squared errors of the share of people that chose B, over an experiment's pairs; each rule was "
        f"fitted to the other experiments. Intervals over experiments. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(results),
        *parts,
        "### The bank as a lab: binary ratings, five cycles from take the best and weighing",
        markdown(head, rows),
        "### The closed loop over the same bank",
        markdown(
            "seed | best theory | designs | loss | noise alone | that structure fitted, error left out | its gamma",
            [
                [
                    str(x["seed"]),
                    x["words"],
                    str(x["designs"]),
                    f"{x['loss']:.4f}",
                    f"{x['noise']:.4f}",
                    f"{x['error']:.4f}",
                    "" if x["gamma"] is None else f"{x['gamma']:.2f}",
                ]
                for x in results.of(kind="search")
            ],
        ),
    )


def figure(lines: Lines) -> object:
    """Errors of the rules on experiments left out, by kind of rating; the dashed line is noise alone."""
    results = Results(lines)
    fig, axes = canvas((9, 2.8), columns=len(RATINGS))
    for axis, ratings in zip(axes, RATINGS, strict=True):
        names = list(RULES[ratings])
        found = [over(held(results, ratings, name).errors, UNIT) for name in names]
        whiskers(axis, range(len(names)), found, along="x", fmt="o", color="C0")
        axis.axvline(floors(results, ratings).mean(), ls="--", color="grey", lw=0.8)
        axis.set(title=f"{ratings} ratings", xlabel="mean squared error, left out", yticks=range(len(names)))
        axis.set_yticklabels(names)
    finish(*axes, font=None)
    return fig
