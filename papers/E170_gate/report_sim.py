"""Tables, pass marks and figure of the simulated episodes, from the lines of results alone."""

from collections.abc import Callable

import numpy as np

from papers.drawing import canvas
from papers.E170_gate.report_bench import SOURCES
from papers.E170_gate.tier_sim import MISFITS, PRIORS, SETTINGS, VERIFIES, chosen_rule
from papers.stats import Line, Lines, Mark, by_seed, document, markdown, minutes, over, table, values

OURS = ("plan", "greedy", "released")
FIVE = (
    "never verify", "verify once", "verify until it passes", "verify if L2 passes",
    "refine until L2 passes, then verify",
)  # fmt: skip
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


def mended(line: Line) -> float:
    return float(line["greedy"] - line["released"])


def cells(lines: Lines, kind: str) -> list[Line]:
    return [x for x in lines if (x["level"], x["kind"]) == ("map", kind)]


def pass_marks(lines: Lines) -> list[Mark]:
    fixture = next(x for x in lines if x["level"] == "fixture")
    met = abs(fixture["V1"] - 89.33) < 0.01 and abs(fixture["V2"] - 130.33) < 0.01
    out = [Mark("P9", "V1 = 89.33, V2 = 130.33 to 0.01", f"{fixture['V1']:.4f}, {fixture['V2']:.4f}", met)]
    for kind, source in SOURCES.items():
        if grid := cells(lines, kind):
            out += [*_plan(grid, source), *_scores(lines, kind, source)]
            told, top = _largest(grid, mended)
            promise = "mended greedy at least 5 above the released one somewhere"
            out += [Mark(f"P6 {source}", promise, told, top >= 5), *_misfits(lines, kind, source)]
    return out


def _largest(grid: Lines, lead: Callable[[Line], float]) -> tuple[str, float]:
    """The largest lead, where it is, and how large."""
    top = max(grid, key=lead)
    return f"{lead(top):+.1f} ({top['program']}, prior {top['prior']}, cost {top['verify']})", lead(top)


def _plan(grid: Lines, source: str) -> list[Mark]:
    n, used = len(grid), sum(x["L0 used"] > 0 for x in grid)
    holds, worst = sum(gain(x) >= -2 * x[f"{best(x)} se"] - 0.3 for x in grid), min(map(gain, grid))
    promise = "the plan is no worse than the best fixed rule (2 SE + 0.3) in 95 % of cells"
    out = [
        Mark(f"P1 {source}", "a critic without signal is never run", f"run in {used} of {n} cells", used == 0),
        Mark(f"P2 {source}", promise, f"{holds} of {n}, worst {worst:+.2f}", holds >= 0.95 * n),
        *_regimes(grid, source),
    ]
    middle = [x for x in grid if x["program"] != "near-oracle"]
    for promise, lead in (
        ("more than 5 above the best rule somewhere", gain),
        ("the same against the spec's five rules, which know no critic but the test", narrow),
    ):
        told, top = _largest(middle, lead)
        told += f"; mean of all {n} cells {np.mean([lead(x) for x in grid]):+.2f}"
        out.append(Mark(f"P4 {source}", promise, told, top > 5))
    return [*out, _held_out(grid, source)]


def _held_out(grid: Lines, source: str) -> Mark:
    """The plan against the rule that the same rates choose, both played on functions that the rates have not seen."""
    names = [chosen_rule(x) for x in grid]
    leads = [float(x["plan"] - x[name]) for x, name in zip(grid, names, strict=True)]
    sure = [lead / max(float(x[f"{name} se"]), 1e-9) for lead, x, name in zip(leads, grid, names, strict=True)]
    found = (
        f"mean {np.mean(leads):+.2f}, from {min(leads):+.2f} to {max(leads):+.2f} of a reward of 100; by 2 SE ahead in "
        f"{sum(s > 2 for s in sure)} of {len(grid)}, behind in {sum(s < -2 for s in sure)}"
    )
    return Mark(f"held out {source}", "the plan beside the one-line rule that the same rates choose", found, None)


def _regimes(grid: Lines, source: str) -> list[Mark]:
    """P3: which fixed rule is best where."""
    cheap = [
        x
        for x in grid
        if (x["verify"] == 5 and x["prior"] >= 0.7)
        or (x["verify"] <= 15 and x["prior"] >= 0.4 and x["program"] == "degraded")
    ]
    near = [x for x in grid if x["program"] == "near-oracle" and x["verify"] <= 60 and x["prior"] >= 0.2]
    dear = [x for x in grid if x["verify"] == 90 and x["prior"] <= 0.4]
    out = []
    for name, chosen, rule, least in (
        ("cheap oracle, high prior: verify until it passes is best", cheap, "verify until it passes", 1.0),
        ("near-oracle test: gating on it is best in 70 %", near, "L2 passes", 0.7),
        ("dear oracle, low prior: never verifying is best", dear, "never verify", 1.0),
    ):
        if n := len(chosen):
            k = sum(any(rule in r and x[r] >= x[best(x)] - 0.3 for r in rule_names(x)) for x in chosen)
            out.append(Mark(f"P3 {source}", name, f"{k} of {n} (ties within 0.3)", k >= least * n))
    return out


def _scores(lines: Lines, kind: str, source: str) -> list[Mark]:
    chosen = [x for x in lines if (x["level"], x["kind"]) == ("score", kind)]
    if not chosen:
        return []
    belief, control = values(chosen, "belief"), values(chosen, "control")
    single = {name: values(chosen, name) for name in ("L0", "L1", "L2", "L3")}
    top = max(single, key=lambda name: single[name].mean())
    lead = over(belief - single[top])
    found = f"{by_seed(belief)} against {single[top].mean():.3f} of {top}: {lead}; labels by lot {by_seed(control)}"
    promise = "AUROC of the belief at least .05 above the best critic"
    return [Mark(f"P5 {source}", promise, found, lead.estimate >= 0.05)]


def misfits(lines: Lines, kind: str, name: str, guard: str, field: str = "utility") -> np.ndarray:
    """Loss against a plan with the right rates, by seed."""
    at = ("misfit", kind, f"{name}, {guard}")
    return np.array([x["right"] - x[field] for x in lines if (x["level"], x["kind"], x.get("program")) == at])


def _misfits(lines: Lines, kind: str, source: str) -> list[Mark]:
    worst: dict[str, tuple[float, str]] = {}
    for guard in ("guarded", "unguarded"):
        found = {name: misfits(lines, kind, name, guard) for name in MISFITS}
        if losses := [(float(np.mean(loss)), name) for name, loss in found.items() if len(loss)]:
            worst[guard] = max(losses)
    if len(worst) < 2:
        return []
    told = ", ".join(f"{guard} {loss:.1f} ({name})" for guard, (loss, name) in worst.items())
    promise = "the guard keeps the loss under misfit within 5"
    return [Mark(f"P8 {source}", promise, f"worst {told}", worst["guarded"][0] <= 5)]


def report(lines: Lines) -> str:
    parts = []
    for kind, source in SOURCES.items():
        for setting in SETTINGS:
            if grid := [x for x in cells(lines, kind) if x["program"] == setting]:
                told = "(P7: plan; best fixed rule; verify once; never verifying is 0)"
                parts += [f"**{source}, {setting}** {told}", _table(grid)]
        if any(len(misfits(lines, kind, name, "guarded")) for name in MISFITS):
            told = "(loss against a plan with the right rates; prior .4, cost 30)"
            parts += [f"**{source}, misfit** {told}", _losses(lines, kind)]
    return document(
        "## Tier sim: regimes, scores, misfit",
        f"{len(lines)} cells, {minutes(lines):.1f} CPU-minutes. Utilities of 3,000 episodes a "
        "cell on functions whose verdicts the rates have not seen; the best fixed rule is the best in hindsight.",
        pass_marks(lines),
        *parts,
    )


def _table(grid: Lines) -> str:
    told = {
        (x["prior"], x["verify"]): f"{x['plan']:.1f}; {x[best(x)]:.1f} {_short(best(x))}; {x['verify once']:.1f}"
        for x in grid
    }
    rows = [[f"{p:g}", *(told[p, v] for v in VERIFIES if (p, v) in told)] for p in PRIORS]
    return markdown(["prior", *(f"cost {v}" for v in VERIFIES)], rows)


def _short(rule: str) -> str:
    known = {"never verify": "never", "verify once": "once", "verify until it passes": "until pass"}
    return known.get(rule) or rule.replace("verify if ", "if ").replace("refine until ", "until ").split(" passes")[0]


def _losses(lines: Lines, kind: str) -> str:
    def cell(name: str, guard: str) -> str:
        loss, late = (misfits(lines, kind, name, guard, field) for field in ("utility", "late"))
        return f"{loss.mean():.1f} ({loss.min():.1f} to {loss.max():.1f}); late {late.mean():.1f}; n={len(loss)}"

    return table(
        [name for name in MISFITS if all(len(misfits(lines, kind, name, g)) for g in ("guarded", "unguarded"))],
        ("begins with", str),
        ("unguarded", lambda name: cell(name, "unguarded")),
        ("guarded, learning", lambda name: cell(name, "guarded")),
    )


def figure(lines: Lines) -> object:
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
