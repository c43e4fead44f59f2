"""Tables, pass marks and figure of tier T6, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E179_dspark.tier_confidence import SCALED
from papers.stats import Lines, Mark, Results, by_seed, document, mark, markdown, minutes, text


def excess(t: Results, who: str, how: str) -> np.ndarray:
    """Calibration error above what a perfect forecaster would show at as many rounds, mean over places, [seeds]."""
    return (t.get(who, how, "ece") - t.get(who, how, "floor")).mean(1)


def pass_marks(t: Results) -> list[Mark]:
    least = float(t.get("own", "scaled", "auroc").mean(0).min())
    own, raw, wrong = excess(t, "own", "scaled"), excess(t, "own", "raw"), by_seed(excess(t, "wrong", "raw"))
    scaled, lower, apart = map(by_seed, (own, own - raw, excess(t, "wrong", "scaled") - own))
    rounds = min(line["rounds"] for line in t.all)
    repaired = f"logits x {SCALED} (error {text(wrong, 4)}) repaired to within .005 of the well-scaled"
    error = "mean calibration error scaled, less its floor, <= .015"
    return [
        Mark("T6", "at least 20,000 held-out rounds", f"{rounds:,}", rounds >= 20_000),
        Mark("T6", "AUROC >= .75 at every position", f"least {least:.3f} (mean of seeds)", least >= 0.75),
        mark("T6", error, scaled, most=0.015, told=text(scaled, 4)),
        mark("T6", f"and not above raw ({text(by_seed(raw), 4)}): difference", lower, most=0, told=text(lower, 4)),
        mark("T6", repaired, apart, least=-0.005, most=0.005, told=text(apart, 4)),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    if not lines:
        return "## Tier T6: confidence\n\nno cells yet\n"
    t, wrong = Results(lines), f"logits x {SCALED}: "
    shown = {
        "rounds that accept so many": t.get("share"),
        "AUROC": t.get("own", "scaled", "auroc"),
        "error raw": t.get("own", "raw", "ece"),
        "error scaled": t.get("own", "scaled", "ece"),
        "its noise floor": t.get("own", "scaled", "floor"),
        "temperature": t.get("own", "heat"),
        f"{wrong}error raw": t.get("wrong", "raw", "ece"),
        f"{wrong}error scaled": t.get("wrong", "scaled", "ece"),
        f"{wrong}temperature": t.get("wrong", "heat"),
    }
    forms = {name: ".4f" if "error" in name or "floor" in name else ".3f" for name in shown}
    rows = [[name, *(f"{v:{forms[name]}}" for v in x.mean(0))] for name, x in shown.items()]
    return document(
        "## Tier T6: confidence and its calibration",
        f"{len(lines)} seeds, {lines[0]['rounds']:,} held-out rounds each, {lines[0]['fitted_on']:,} to fit on, "
        f"{minutes(lines):.1f} CPU-minutes. Calibration error over 20 bins of the chance that at "
        "least k tokens are accepted; its noise floor is the error of outcomes drawn from the chances themselves.",
        pass_marks(t),
        markdown(["mean over seeds, at least k tokens", *map(str, range(1, len(rows[0])))], rows),
    )


def figure(lines: Lines) -> object:
    """Calibration error by position, raw and scaled, own and mis-scaled, with the noise floor."""
    t = Results(lines)
    fig, axis = canvas((5, 3.2))
    for who, name, colour in (("own", "as trained", "#0072B2"), ("wrong", f"logits x {SCALED}", "#D55E00")):
        for how, style in (("raw", "--"), ("scaled", "-")):
            y = t.get(who, how, "ece").mean(0)
            axis.plot(np.arange(1, len(y) + 1), y, style, color=colour, marker=".", label=f"{name}, {how}")
    floor = t.get("own", "scaled", "floor").mean(0)
    axis.plot(np.arange(1, len(floor) + 1), floor, ":", color="#000000", label="noise floor")
    axis.set(xlabel="at least k tokens accepted", ylabel="calibration error")
    finish(axis, font=7)
    return fig
