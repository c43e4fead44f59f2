"""Tables, pass marks and figure of tier ``tabular``, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E173_progress.tier_tabular import NOISES, STEPS, TILTS
from papers.stats import Mark, interval, markdown, mean

Line = dict[str, Any]
ARMS = {"pa": "PA sum", "pa_min": "PA min", "policy": "log pi", "ref": "log ref"}
PUBLISHED = {  # specs/E173, 6a: AUROC of the same four, mean |luck|, success, best of 8 by PA and by log pi
    0.0: (1.0, 0.994, 0.908, 0.508, 0.0, 0.659, 0.999, 0.989),
    0.3: (0.900, 0.861, 0.737, 0.492, 0.25, 0.537, 0.892, 0.781),
    0.8: (0.837, 0.781, 0.641, 0.481, 0.34, 0.449, 0.816, 0.626),
}


class Lines:
    """Results of one kind and setting, over seeds in order."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = sorted(lines, key=lambda line: line["seed"])

    def get(self, *fields: str, **setting: Any) -> np.ndarray:
        chosen = [x for x in self.all if all(x.get(k) == v for k, v in setting.items())]
        for field in fields:
            chosen = [x[field] for x in chosen]
        return np.array(chosen, dtype=float)


def over(x: np.ndarray, claim: str = "") -> Report:
    return interval(claim, mean, x)


def text(found: Report) -> str:
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def marks(t: Lines) -> list[Mark]:
    worst = {
        f: max(t.get(f, kind="exact", noise=n).max() for n in (0.0, 0.8)) for f in ("identity", "t1", "t1_kl", "t2")
    }
    margin = over(t.get("auroc", "pa", kind="exact", noise=0.3) - t.get("auroc", "policy", kind="exact", noise=0.3))
    sure = over(t.get("auroc", "pa", kind="exact", noise=0.0))
    free = t.get("corr", kind="train", kl=False)
    fall = over(free.max(1) - free[:, -1])
    null = over(t.get("found", kind="null", n=50).mean(1))
    honest = over(np.nanmean(t.get("honest", kind="null", n=50), axis=1))
    beta = over(np.concatenate([t.get("beta", kind="exact", noise=n) for n in NOISES]))
    exact = worst["identity"]
    both = max(worst["t1"], worst["t1_kl"], worst["t2"])
    return [
        Mark("P1", "beta log-ratio is A* to 1e-10 at noise 0 and .8", f"{exact:.1e}", exact < 1e-10),
        Mark("P2", "T1 and T2 to 1e-10", f"{both:.1e}", both < 1e-10),
        Mark("P3", "AUROC of PA at least .10 above log pi at noise .3", margin, margin.estimate >= 0.10),
        Mark("P4", "AUROC at least .999 at noise 0", sure, sure.estimate >= 0.999),
        Mark("P5", "without KL the correlation at 2,000 steps is .15 below its peak", fall, fall.estimate >= 0.15),
        Mark("P6", "best of 30 on noise is .65 +- .03 at n = 50", null, abs(null.estimate - 0.65) <= 0.03),
        Mark("control", "the nested split says .50 +- .03 of it", honest, abs(honest.estimate - 0.5) <= 0.03),
        Mark("T1", "calibrate_beta finds the planted .25 (within .02)", beta, abs(beta.estimate - 0.25) <= 0.02),
    ]  # fmt: skip


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Lines(lines)
    parts = [
        "# E173 where the optimum is exact",
        f"{len(lines)} cells, {len(t.get('success', kind='exact', noise=0.0))} MDPs, "
        f"{sum(x['cpu_s'] for x in lines) / 60:.2f} CPU-minutes. 95 % bootstrap intervals over MDPs.",
        "\n".join(f"- {mark}" for mark in marks(t)),
        "## At the optimum",
        _graded(t),
        "## On the way there (exact policy gradient from the reference, noise .3)",
        _way(t),
        "## A reference that is good already (ref exp(tilt Q / beta), noise .3; ours)",
        _skilled(t),
        "## Choosing among 30 aggregations of noise",
        _null(t),
    ]
    return "\n\n".join(parts) + "\n"


def _graded(t: Lines) -> str:
    rows = []
    for noise in NOISES:
        at = {"kind": "exact", "noise": noise}
        rows.append([f"{noise:g}, ours", *(text(over(t.get("auroc", arm, **at))) for arm in ARMS),
                     f"{t.get('luck', **at).mean():.2f}", f"{t.get('success', **at).mean():.3f}",
                     text(over(t.get("best", "pa", **at))), text(over(t.get("best", "policy", **at)))])  # fmt: skip
        rows.append([f"{noise:g}, spec", *(f"{x:.3f}" for x in PUBLISHED[noise])])
    head = ["noise", *(f"AUROC {label}" for label in ARMS.values()), "mean luck", "success", "best of 8 PA"]
    return markdown([*head, "best of 8 log pi"], rows)


def _way(t: Lines) -> str:
    rows = []
    for kl in (True, False):
        for i, k in enumerate(STEPS):
            cells = [text(over(t.get(f, kind="train", kl=kl)[:, i])) for f in ("corr", "pa", "policy")]
            rows.append(["KL .25" if kl else "no KL", str(k), *cells])
    return markdown(["", "steps", "correlation with A*", "AUROC PA", "AUROC log pi"], rows)


def _skilled(t: Lines) -> str:
    rows = []
    for tilt in TILTS:
        at = {"kind": "skilled", "tilt": tilt}
        gap = over(t.get("auroc", "pa", **at) - t.get("auroc", "policy", **at))
        cells = [text(over(t.get("auroc", arm, **at))) for arm in ("pa", "policy", "ref")]
        rows.append([f"{tilt:g}", *cells, text(gap), f"{t.get('success', **at).mean():.3f}"])
    return markdown(["tilt", "AUROC PA", "AUROC log pi", "AUROC log ref", "PA minus log pi", "success"], rows)


def _null(t: Lines) -> str:
    rows = []
    for n in (50, 100, 400):
        found = t.get("found", kind="null", n=n)
        honest, optimism = (np.nanmean(t.get(f, kind="null", n=n), axis=1) for f in ("honest", "optimism"))
        high = f"{np.percentile(found, 95):.3f}"
        rows.append([str(n), text(over(found.mean(1))), high, text(over(optimism)), text(over(honest))])
    return markdown(["trajectories", "best of 30", "95th percentile", "optimism", "nested split"], rows)


def figure(lines: Sequence[Line]) -> Any:
    """Correlation with A* along training; PA against log pi as the reference gets better."""
    t = Lines(lines)
    fig, (left, right) = canvas((8, 3.2), 1, 2)
    for kl, colour, label in ((True, "#0072B2", "KL .25"), (False, "#D55E00", "no KL")):
        found = [over(t.get("corr", kind="train", kl=kl)[:, i]) for i in range(len(STEPS))]
        left.plot(STEPS, [f.estimate for f in found], color=colour, marker="o", label=label)
        left.fill_between(STEPS, [f.low for f in found], [f.high for f in found], color=colour, alpha=0.2, lw=0)
    left.set_xscale("log")
    left.set_xlabel("steps of exact policy gradient")
    left.set_ylabel("correlation of log-ratio with A*")
    left.legend(frameon=False)
    for arm, colour in (("pa", "#0072B2"), ("policy", "#D55E00"), ("ref", "#999999")):
        found = [over(t.get("auroc", arm, kind="skilled", tilt=tilt)) for tilt in TILTS]
        right.plot(TILTS, [f.estimate for f in found], color=colour, marker="o", label=ARMS[arm])
        right.fill_between(TILTS, [f.low for f in found], [f.high for f in found], color=colour, alpha=0.2, lw=0)
    right.set_xlabel("tilt of the reference towards the good")
    right.set_ylabel("AUROC")
    right.legend(frameon=False)
    return fig
