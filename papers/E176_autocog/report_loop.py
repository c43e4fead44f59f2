"""Tables, pass marks (V1 to V4, V9) and figure of tier loop, from its lines of results alone."""

from __future__ import annotations

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E176_autocog.tier_loop import ABLATED, OUTSIDE, POLICIES, SEQUENTIAL, STRESS
from papers.stats import Lines, Mark, Results, document, gap, mark, markdown, minutes, over, pooled, text, times

PLAIN = {"policy": "adversarial", "loss": "vector", "people": 25}


def pass_marks(results: Results) -> list[Mark]:
    def found(truth: str, field: str, **how: object) -> np.ndarray:
        return results.get(field, truth=truth, **({"lacking": "none", **PLAIN} | how))

    marks = [
        mark("V1", "ttb: mean error of the best theory <= .003", over(found("ttb", "error")), most=0.003),
        mark("V1", "ttb: at most a tenth of the better seed's", _ratio(found, "ttb"), most=0.1),
        mark("V1", "wadd: mean error <= .003", over(found("wadd", "error")), most=0.003),
        mark("V1", "wadd: at most .15 of the better seed's", _ratio(found, "wadd"), most=0.15),
        mark("V1", "tally: mean error <= .003", over(found("tally", "error")), most=0.003),
    ]
    marks += [mark("V2", f"{one}: mean error <= .01", over(found(one, "error")), most=0.01) for one in STRESS]
    marks += [mark("V3", f"{one}: switch rate within .03", over(found(one, "switch")), most=0.03) for one in SEQUENTIAL]
    for truth, lacking in OUTSIDE.items():
        half = times(found(truth, "error", lacking=lacking), found(truth, "floor", lacking=lacking))
        marks.append(mark("V4", f"{truth} without its primitive: error at most half of predicting .5", half, most=0.5))
        said = found(truth, "adequate", lacking=lacking)
        none = pooled(float((said == 0).sum()), len(said))
        marks.append(mark("V4", f"{truth} without its primitive: 'no adequate theory' is said", none, 1.0))
    inside = [line["adequate"] for line in results.of(lacking="none", **PLAIN)]
    called = pooled(sum(inside), len(inside))
    marks.append(mark("control", "of truths within the grammar at least .9 are called adequate", called, 0.9))
    return marks


def _ratio(found: object, truth: str) -> object:
    return times(found(truth, "error"), found(truth, "seed_error"))  # type: ignore[operator]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results, rows, ways = Results(lines), [], []
    plain = [x for x in results.all if all(x[key] == value for key, value in PLAIN.items())]
    for truth, lacking in dict.fromkeys((x["truth"], x["lacking"]) for x in plain):
        own = {"truth": truth, "lacking": lacking, **PLAIN}
        fields = [text(over(results.get(name, **own)), 4) for name in ("error", "seed_error", "floor", "switch")]
        adequate = results.get("adequate", **own)
        rows.append([truth, lacking, *fields, f"{int(adequate.sum())} of {len(adequate)}"])
    for truth, lacking in [*((one, "none") for one in ABLATED), ("anti_majority", "flip")]:
        base = results.get("error", truth=truth, lacking=lacking, **PLAIN)
        field = "switch" if truth in SEQUENTIAL else "error"
        base = results.get(field, truth=truth, lacking=lacking, **PLAIN)
        arms = [{**PLAIN, "policy": way} for way in POLICIES] + [{**PLAIN, "loss": "scalar"}]
        for arm in arms:
            own = results.get(field, truth=truth, lacking=lacking, **arm)
            less = "" if arm == PLAIN else text(gap(own, base), 4)
            ways.append([truth, field, arm["policy"], arm["loss"], text(over(own), 4), less])
    few = [
        [way, text(over(results.get("error", truth="ttb", lacking="none", policy=way, loss="vector", people=6)), 4)]
        for way in ("adversarial", "blind")
    ]
    return document(
        "## Tier loop: simulated people",
        "Five cycles, ten designs, 25 simulated people on each; begun with the two canonical theories that are not the "
        "truth. Error: mean squared, to the truth, on 24 pairs that were not designed for it. Intervals over seeds. "
        f"{minutes(lines):.1f} CPU-minutes.",
        pass_marks(results),
        markdown("truth | taken out | error | better seed | predicting .5 | switch rate off | called adequate", rows),
        "### Ablations (V9): designs and loss",
        markdown("truth | measure | designs | loss | measure's mean | less adversarial with vector loss", ways),
        "### Six people on each design, truth ttb",
        markdown("designs | error", few),
    )


def figure(lines: Lines) -> object:
    """Error of the best theory, of the better seed and of predicting .5, by truth."""
    results = Results(lines)
    plain = [x for x in results.all if all(x[key] == value for key, value in PLAIN.items())]
    truths = list(dict.fromkeys((x["truth"], x["lacking"]) for x in plain))
    fig, axis = canvas((7, 3.2))
    for at, (field, label) in enumerate((("error", "best"), ("seed_error", "better seed"), ("floor", "predicting .5"))):
        found = [over(results.get(field, truth=truth, lacking=lacking, **PLAIN)) for truth, lacking in truths]
        places = [i + 0.15 * (at - 1) for i in range(len(truths))]
        whiskers(axis, places, found, along="x", fmt="o", color=f"C{at}", label=label)
    axis.set(xlabel="mean squared error to the truth", yticks=range(len(truths)))
    axis.set_yticklabels([truth if lacking == "none" else f"{truth}, no {lacking}" for truth, lacking in truths])
    axis.legend()
    finish(axis, font=None)
    return fig
