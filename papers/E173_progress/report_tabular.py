"""Tables, pass marks and figure of tier ``tabular``, from its lines of results alone."""

from typing import Any

import numpy as np

from papers.drawing import band, canvas, finish
from papers.E173_progress.tier_tabular import NOISES, STEPS, TILTS
from papers.stats import Lines, Mark, Results, document, mark, markdown, minutes, over, table

ARMS = {"pa": "PA sum", "pa_min": "PA min", "policy": "log pi", "ref": "log ref"}
PUBLISHED = {  # specs/E173, 6a: AUROC of the same four, mean |luck|, success, best of 8 by PA and by log pi
    0.0: (1.0, 0.994, 0.908, 0.508, 0.0, 0.659, 0.999, 0.989),
    0.3: (0.900, 0.861, 0.737, 0.492, 0.25, 0.537, 0.892, 0.781),
    0.8: (0.837, 0.781, 0.641, 0.481, 0.34, 0.449, 0.816, 0.626),
}


def auroc(t: Results, arm: str, **setting: Any) -> np.ndarray:
    return t.get("auroc", arm, **setting)


def marks(t: Results) -> list[Mark]:
    worst = {
        f: max(t.get(f, kind="exact", noise=n).max() for n in (0.0, 0.8)) for f in ("identity", "t1", "t1_kl", "t2")
    }
    exact, both = worst["identity"], max(worst["t1"], worst["t1_kl"], worst["t2"])
    noisy = {"kind": "exact", "noise": 0.3}
    margin = over(auroc(t, "pa", **noisy) - auroc(t, "policy", **noisy))
    free = t.get("corr", kind="train", kl=False)
    null, honest = (t.get(f, kind="null", n=50) for f in ("found", "honest"))
    beta = over(np.concatenate([t.get("beta", kind="exact", noise=n) for n in NOISES]))
    falls = "without KL the correlation at 2,000 steps is .15 below its peak"
    return [
        Mark("P1", "beta log-ratio is A* to 1e-10 at noise 0 and .8", f"{exact:.1e}", exact < 1e-10),
        Mark("P2", "T1 and T2 to 1e-10", f"{both:.1e}", both < 1e-10),
        mark("P3", "AUROC of PA at least .10 above log pi at noise .3", margin, least=0.10),
        mark("P4", "AUROC at least .999 at noise 0", over(auroc(t, "pa", kind="exact", noise=0.0)), least=0.999),
        mark("P5", falls, over(free.max(1) - free[:, -1]), least=0.15),
        mark("P6", "best of 30 on noise is .65 +- .03 at n = 50", over(null.mean(1)), least=0.62, most=0.68),
        mark("control", "the nested split says .50 +- .03 of it", over(np.nanmean(honest, 1)), least=0.47, most=0.53),
        mark("T1", "calibrate_beta finds the planted .25 (within .02)", beta, least=0.23, most=0.27),
    ]


def report(lines: Lines) -> str:
    """Markdown, pass marks first."""
    t = Results(lines)
    train = [(kl, i, k) for kl in (True, False) for i, k in enumerate(STEPS)]
    return document(
        "# E173 where the optimum is exact",
        f"{len(lines)} cells, {len(t.get('success', kind='exact', noise=0.0))} MDPs, "
        f"{minutes(lines):.2f} CPU-minutes. 95 % bootstrap intervals over MDPs.",
        marks(t),
        "## At the optimum",
        _graded(t),
        "## On the way there (exact policy gradient from the reference, noise .3)",
        table(
            train,
            ("", lambda x: "KL .25" if x[0] else "no KL"),
            ("steps", 2),
            ("correlation with A*", lambda x: over(t.get("corr", kind="train", kl=x[0])[:, x[1]])),
            ("AUROC PA", lambda x: over(t.get("pa", kind="train", kl=x[0])[:, x[1]])),
            ("AUROC log pi", lambda x: over(t.get("policy", kind="train", kl=x[0])[:, x[1]])),
        ),
        "## A reference that is good already (ref exp(tilt Q / beta), noise .3; ours)",
        _skilled(t),
        "## Choosing among 30 aggregations of noise",
        table(
            (50, 100, 400),
            ("trajectories", str),
            ("best of 30", lambda n: over(t.get("found", kind="null", n=n).mean(1))),
            ("95th percentile", lambda n: np.percentile(t.get("found", kind="null", n=n), 95), ".3f"),
            ("optimism", lambda n: over(np.nanmean(t.get("optimism", kind="null", n=n), axis=1))),
            ("nested split", lambda n: over(np.nanmean(t.get("honest", kind="null", n=n), axis=1))),
        ),
    )


def _graded(t: Results) -> str:
    rows = []
    for noise in NOISES:
        at = {"kind": "exact", "noise": noise}
        best = [over(t.get("best", arm, **at)) for arm in ("pa", "policy")]
        luck, success = (t.get(field, **at).mean() for field in ("luck", "success"))
        graded = [over(auroc(t, arm, **at)) for arm in ARMS]
        rows.append([f"{noise:g}, ours", *graded, f"{luck:.2f}", f"{success:.3f}", *best])
        rows.append([f"{noise:g}, spec", *(f"{x:.3f}" for x in PUBLISHED[noise])])
    head = ["noise", *(f"AUROC {label}" for label in ARMS.values()), "mean luck", "success", "best of 8 PA"]
    return markdown([*head, "best of 8 log pi"], rows)


def _skilled(t: Results) -> str:
    def of(tilt: float, arm: str) -> np.ndarray:
        return auroc(t, arm, kind="skilled", tilt=tilt)

    return table(
        TILTS,
        ("tilt", lambda tilt: tilt, "g"),
        ("AUROC PA", lambda tilt: over(of(tilt, "pa"))),
        ("AUROC log pi", lambda tilt: over(of(tilt, "policy"))),
        ("AUROC log ref", lambda tilt: over(of(tilt, "ref"))),
        ("PA minus log pi", lambda tilt: over(of(tilt, "pa") - of(tilt, "policy"))),
        ("success", lambda tilt: t.get("success", kind="skilled", tilt=tilt).mean(), ".3f"),
    )


def figure(lines: Lines) -> object:
    """Correlation with A* along training; PA against log pi as the reference gets better."""
    t = Results(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    for kl, colour, label in ((True, "#0072B2", "KL .25"), (False, "#D55E00", "no KL")):
        found = [over(column) for column in t.get("corr", kind="train", kl=kl).T]
        band(left, STEPS, found, color=colour, marker="o", label=label)
    left.set(xscale="log", xlabel="steps of exact policy gradient", ylabel="correlation of log-ratio with A*")
    for arm, colour in (("pa", "#0072B2"), ("policy", "#D55E00"), ("ref", "#999999")):
        found = [over(auroc(t, arm, kind="skilled", tilt=tilt)) for tilt in TILTS]
        band(right, TILTS, found, color=colour, marker="o", label=ARMS[arm])
    right.set(xlabel="tilt of the reference towards the good", ylabel="AUROC")
    finish(left, right, font=9, grid=False)
    return fig
