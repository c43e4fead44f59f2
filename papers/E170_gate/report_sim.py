"""Tables, pass marks and figure of the simulated episodes, from the lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E170_gate.report_bench import SOURCES
from papers.E170_gate.tier_sim import MISFITS, PRIORS, SETTINGS, VERIFIES
from papers.stats import Mark, interval, markdown, mean, t_interval, values

Line = dict[str, Any]
OURS = ("plan", "greedy", "released")
FIVE = (
    "never verify",
    "verify once",
    "verify until it passes",
    "verify if L2 passes",
    "refine until L2 passes, then verify",
)
META = {"kind", "level", "program", "prior", "verify", "seed", "cpu_s", "plan_se", "L0 used", "oracle", "linked"}


def rule_names(line: Line) -> list[str]:
    return [k for k in line if k not in META and k not in OURS and not k.endswith(" se")]


def best(line: Line) -> str:
    """The fixed rule that did best on these very episodes: harder to beat than the one that would have been chosen."""
    return max(rule_names(line), key=lambda name: line[name])


def gain(line: Line) -> float:
    return float(line["plan"] - line[best(line)])


def narrow(line: Line) -> float:
    """The plan's lead over the best of the five rules that specs/E170 lists."""
    return float(line["plan"] - max(line[name] for name in FIVE))


def cells(lines: Sequence[Line], kind: str = "") -> list[Line]:
    return [x for x in lines if x["level"] == "map" and kind in ("", x["kind"])]


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    out = [_fixture(lines)]
    for kind, source in SOURCES.items():
        grid = cells(lines, kind)
        if not grid:
            continue
        n = len(grid)
        used = sum(x["L0 used"] > 0 for x in grid)
        out.append(
            Mark(f"P1 {source}", "a critic without signal is never run", f"run in {used} of {n} cells", used == 0)
        )
        holds = sum(gain(x) >= -2 * x[f"{best(x)} se"] - 0.3 for x in grid)
        worst = min(gain(x) for x in grid)
        promise = "the plan is no worse than the best fixed rule (2 SE + 0.3) in 95 % of cells"
        out.append(Mark(f"P2 {source}", promise, f"{holds} of {n}, worst {worst:+.2f}", holds >= 0.95 * n))
        out += _regimes(grid, source)
        middle = [x for x in grid if x["program"] != "near-oracle"]
        top = max(middle, key=gain)
        found = (
            f"{gain(top):+.1f} ({top['program']}, prior {top['prior']}, cost {top['verify']}); mean of all {n} cells "
        )
        found += f"{np.mean([gain(x) for x in grid]):+.2f}"
        out.append(Mark(f"P4 {source}", "more than 5 above the best rule somewhere", found, gain(top) > 5))
        top = max(middle, key=narrow)
        found = (
            f"{narrow(top):+.1f} ({top['program']}, prior {top['prior']}, cost {top['verify']}); mean of all {n} cells "
        )
        found += f"{np.mean([narrow(x) for x in grid]):+.2f}"
        promise = "the same against the spec's five rules, which know no critic but the test"
        out.append(Mark(f"P4 {source}", promise, found, narrow(top) > 5))
        out += _scores(lines, kind, source)
        top = max(grid, key=lambda x: x["greedy"] - x["released"])
        found = f"{top['greedy'] - top['released']:+.1f} ({top['program']}, prior {top['prior']}, cost {top['verify']})"
        met = top["greedy"] - top["released"] >= 5
        out.append(Mark(f"P6 {source}", "mended greedy at least 5 above the released one somewhere", found, met))
        out += _misfits(lines, kind, source)
    return out


def _fixture(lines: Sequence[Line]) -> Mark:
    line = next(x for x in lines if x["level"] == "fixture")
    met = abs(line["V1"] - 89.33) < 0.01 and abs(line["V2"] - 130.33) < 0.01
    return Mark("P9", "V1 = 89.33, V2 = 130.33 to 0.01", f"{line['V1']:.4f}, {line['V2']:.4f}", met)


def _regimes(grid: Sequence[Line], source: str) -> list[Mark]:
    """P3: which fixed rule is best where."""

    def share(chosen: list[Line], rule: str) -> tuple[int, int]:
        near = [x for x in chosen if any(rule in name and x[name] >= x[best(x)] - 0.3 for name in rule_names(x))]
        return len(near), len(chosen)

    cheap = [x for x in grid if x["verify"] == 5 and x["prior"] >= 0.7]
    cheap += [x for x in grid if x["verify"] <= 15 and x["prior"] >= 0.4 and x["program"] == "degraded"]
    cheap = list({id(x): x for x in cheap}.values())
    near = [x for x in grid if x["program"] == "near-oracle" and x["verify"] <= 60 and x["prior"] >= 0.2]
    dear = [x for x in grid if x["verify"] == 90 and x["prior"] <= 0.4]
    out = []
    for name, chosen, rule, least in (
        ("cheap oracle, high prior: verify until it passes is best", cheap, "verify until it passes", 1.0),
        ("near-oracle test: gating on it is best in 70 %", near, "L2 passes", 0.7),
        ("dear oracle, low prior: never verifying is best", dear, "never verify", 1.0),
    ):
        if chosen:
            k, n = share(chosen, rule)
            out.append(Mark(f"P3 {source}", name, f"{k} of {n} (ties within 0.3)", k >= least * n))
    return out


def _scores(lines: Sequence[Line], kind: str, source: str) -> list[Mark]:
    chosen = [x for x in lines if x["level"] == "score" and x["kind"] == kind]
    if not chosen:
        return []
    belief, control = values(chosen, "belief"), values(chosen, "control")
    single = {name: values(chosen, name) for name in ("L0", "L1", "L2", "L3")}
    top = max(single, key=lambda name: single[name].mean())
    lead = interval("", mean, belief - single[top])
    found = f"{t_interval('', belief)} against {single[top].mean():.3f} of {top}: {lead}; "
    found += f"labels by lot {t_interval('', control)}"
    return [
        Mark(f"P5 {source}", "AUROC of the belief at least .05 above the best critic", found, lead.estimate >= 0.05)
    ]


def _misfits(lines: Sequence[Line], kind: str, source: str) -> list[Mark]:
    worst: dict[str, tuple[float, str]] = {}
    for guard in ("unguarded", "guarded"):
        for name in MISFITS:
            chosen = [
                x for x in lines if x["level"] == "misfit" and (x["kind"], x["program"]) == (kind, f"{name}, {guard}")
            ]
            if chosen:
                loss = float(np.mean([x["right"] - x["utility"] for x in chosen]))
                worst[guard] = max(worst.get(guard, (-1e9, "")), (loss, name))
    if len(worst) < 2:
        return []
    found = f"worst guarded {worst['guarded'][0]:.1f} ({worst['guarded'][1]}), "
    found += f"unguarded {worst['unguarded'][0]:.1f} ({worst['unguarded'][1]})"
    return [Mark(f"P8 {source}", "the guard keeps the loss under misfit within 5", found, worst["guarded"][0] <= 5)]


def report(lines: Sequence[Line]) -> str:
    parts = [
        "## Tier sim: regimes, scores, misfit",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. Utilities of 3,000 episodes a "
        "cell on functions whose verdicts the rates have not seen; the best fixed rule is the best in hindsight.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
    ]
    for kind, source in SOURCES.items():
        for setting in SETTINGS:
            grid = [x for x in cells(lines, kind) if x["program"] == setting]
            if grid:
                parts += [
                    f"**{source}, {setting}** (P7: plan; best fixed rule; verify once; never verifying is 0)",
                    _table(grid),
                ]
        if any(x["level"] == "misfit" and x["kind"] == kind for x in lines):
            parts += [
                f"**{source}, misfit** (loss against a plan with the right rates; prior .4, cost 30)",
                _losses(lines, kind),
            ]
    return "\n\n".join(parts) + "\n"


def _table(grid: Sequence[Line]) -> str:
    rows = []
    for prior in PRIORS:
        row = [f"{prior:g}"]
        for verify in VERIFIES:
            for x in (x for x in grid if (x["prior"], x["verify"]) == (prior, verify)):
                row.append(f"{x['plan']:.1f}; {x[best(x)]:.1f} {_short(best(x))}; {x['verify once']:.1f}")
        rows.append(row)
    return markdown(["prior", *(f"cost {v}" for v in VERIFIES)], rows)


def _short(rule: str) -> str:
    known = {"never verify": "never", "verify once": "once", "verify until it passes": "until pass"}
    return known.get(rule) or rule.replace("verify if ", "if ").replace("refine until ", "until ").split(" passes")[0]


def _losses(lines: Sequence[Line], kind: str) -> str:
    rows = []
    for name in MISFITS:
        row = [name]
        for guard in ("unguarded", "guarded"):
            chosen = [
                x for x in lines if x["level"] == "misfit" and (x["kind"], x["program"]) == (kind, f"{name}, {guard}")
            ]
            if chosen:
                loss, late = (np.array([x["right"] - x[k] for x in chosen]) for k in ("utility", "late"))
                row.append(
                    f"{loss.mean():.1f} ({loss.min():.1f} to {loss.max():.1f}); late {late.mean():.1f}; n={len(chosen)}"
                )
        rows.append(row)
    return markdown(["begins with", "unguarded", "guarded, learning"], [r for r in rows if len(r) == 3])


def figure(lines: Sequence[Line]) -> Any:
    """The plan's lead over the best fixed rule, by prior and cost, one panel a setting."""
    fig, axes = canvas((9, 4.6), 2, 3, sharex=True, sharey=True, font=8)
    for row, (kind, source) in zip(axes, SOURCES.items(), strict=True):
        for axis, setting in zip(row, SETTINGS, strict=True):
            shown = np.full((len(PRIORS), len(VERIFIES)), np.nan)
            for x in (x for x in cells(lines, kind) if x["program"] == setting):
                i, j = PRIORS.index(x["prior"]), VERIFIES.index(x["verify"])
                shown[i, j] = gain(x)
                axis.text(j, i, f"{gain(x):+.1f}\n{_short(best(x))}", ha="center", va="center", fontsize=6)
            axis.imshow(shown, vmin=-10, vmax=10, cmap="PuOr", aspect="auto")
            axis.set_title(f"{source}, {setting}")
            axis.set_xticks(range(len(VERIFIES)), [str(v) for v in VERIFIES])
            axis.set_yticks(range(len(PRIORS)), [str(p) for p in PRIORS])
    fig.supxlabel("cost of the oracle")
    fig.supylabel("prior")
    return fig
