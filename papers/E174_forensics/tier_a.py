"""Tier A: the engine, blind, on exact organisms. A cell is one check at one seed, over many organisms."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from clew.methods.compare import design
from clew.methods.why import probes, why
from clew.methods.why.arms import AT_ONCE, Arm, Ledger
from clew.methods.why.evidence import Case, Finding, Hypothesis, ranked
from papers.E174_forensics import organisms as o
from papers.experiment import Line, grid

BUDGET = 3000
SEEDS = (1, 2)
MOTIVES = ("null", "single", "additive", "and", "or")
BEYOND = ("single, weak", "single, n = 30", "or, n = 30")  # where the engine is expected to miss causes
ORGANISMS = {**dict.fromkeys((*MOTIVES, *BEYOND), 100), "harness": 50, "benign faults": 50, "source": 100, "dose": 200,
             "censoring": 100, "sentence": 100, "resampling": 100, "lock": 50}  # fmt: skip
HYPOTHESES = tuple(Hypothesis(name) for name in o.FACTORS)
CPU = {**dict.fromkeys((*MOTIVES, *BEYOND, "benign faults"), 0.02), "dose": 0.02, "lock": 0.1}


def cells(quick: bool) -> Iterator[Line]:
    for check, n in ORGANISMS.items():
        yield from grid(check=check, organisms=n // 5 if quick else n, seed=SEEDS)


def cost(cell: Line) -> float:
    return CPU.get(cell["check"], 0.01) * float(cell["organisms"])


def run(setting: Line, seeds: list[int]) -> list[Line]:
    check = setting["check"]
    one = {"source": source, "dose": dose, "censoring": censoring, "sentence": sentence, "resampling": resampling,
           "lock": lock}.get(check, causes)  # fmt: skip
    return [{"found": columns([one(check, seed, i) for i in range(setting["organisms"])])} for seed in seeds]


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """One list per field, one entry per organism; yes and no as 1 and 0."""
    plain = [{k: int(v) if isinstance(v, bool | np.bool_) else v for k, v in row.items()} for row in rows]
    return {name: [row[name] for row in plain] for name in plain[0]}


def causes(kind: str, seed: int, number: int) -> dict[str, Any]:
    """Cause set, with and without pairs, beside what reading the traces would say."""
    organism = o.motive(kind, seed, number)
    ledger = Ledger(organism, BUDGET)
    found = why(Case("the shortcut", HYPOTHESES, o.PLACEBO, n=30 if "n = 30" in kind else 100), ledger)
    alone = tuple(x.about[0] for x in found.lines if x.test == "single" and x.reads == "for")
    return {
        "kind": found.kind,
        **o.compared("engine", found.causes, organism.causes),
        **o.compared("one at a time", alone, organism.causes),
        **o.compared("reading", organism.stated(), organism.causes),
        "phi": organism.phi,
        "decoy": organism.decoy in found.causes,
        "chances": [[round(found.chances[f], 4), int(f in organism.causes)] for f in o.FACTORS if f in found.chances],
        "spent": ledger.spent,
    }


def source(kind: str, seed: int, number: int) -> dict[str, Any]:
    """The ratio of a cause of factor six; four times the usual n, since a ratio of small rates needs it."""
    low = o.rng_of(seed, kind, number).uniform(0.06, 0.1)
    subject = o.Source(o.derive(seed, kind, number), low)
    ledger = Ledger(subject, BUDGET)
    found = why(Case("the shortcut", HYPOTHESES[:3], o.PLACEBO, n=400, pairs=False), ledger)
    line = next(x for x in found.lines if x.test == "single" and x.about == ("f0",))
    assert line.counts is not None
    arm, base = line.counts
    ratio = design.ratio("with the source, against without", base, arm)
    covers = ratio.low <= 6 <= ratio.high
    return {"ratio": ratio.estimate, "covers": covers, "exact": found.causes == ("f0",), "spent": ledger.spent}


def dose(kind: str, seed: int, number: int) -> dict[str, Any]:
    rng = o.rng_of(seed, kind, number)
    b = rng.uniform(0.8, 2.5)
    subject = o.Tedium(o.derive(seed, kind, number), float(np.log(0.3 / 0.7) - b * np.log(258.0)), b)
    found = _sweep(subject, per_dose=200)
    known = found.dose
    if known is None:  # no slope is known from these counts
        return {"covers": False, "threshold": False, "z": 0.0}
    curve = known.curve("log")
    return {
        "covers": curve.low <= b <= curve.high, "threshold": known.threshold is not None, "z": round(known.trend.z, 2)
    }  # fmt: skip


def censoring(kind: str, seed: int, number: int) -> dict[str, Any]:
    rng = o.rng_of(seed, kind, number)
    b = rng.uniform(0.8, 2.5)
    subject = o.Tedium(o.derive(seed, kind, number), float(np.log(0.3 / 0.7) - b * np.log(258.0)), b, cut=0.3)
    ledger = Ledger(subject, BUDGET)
    found = why(_dose_case(100), ledger)
    rows = []
    for level in o.DOSES:
        arm = ledger.arms[Arm(dose=level)]
        if arm.missing:
            firsts = range(0, len(arm.outcomes), AT_ONCE)
            line = next(x for x in found.lines if x.test == "dose" and x.about == (f"{level:g}",))
            rows.append(
                {
                    "share": float(np.mean([subject.latent(Arm(dose=level), i, AT_ONCE)[0] for i in firsts])),
                    "rate": subject.rate(level),
                    "missing": arm.missing / len(arm.outcomes),
                    **{name: getattr(line.report, name) for name in ("low", "estimate", "high")},
                }
            )
    return {"bounds": rows}


def _dose_case(per_dose: int) -> Case:
    return Case("the shortcut", doses=o.DOSES, per_dose=per_dose, n=50)


def _sweep(subject: o.Tedium, per_dose: int) -> Finding:
    return why(_dose_case(per_dose), Ledger(subject, BUDGET))


def sentence(kind: str, seed: int, number: int) -> dict[str, Any]:
    rng = o.rng_of(seed, kind, number)
    at, decoy = (int(x) for x in rng.choice(o.UNITS, 2, replace=False))
    low = rng.uniform(0.05, 0.2)
    subject = o.Turning(o.derive(seed, kind, number), at, decoy, low, low + rng.uniform(0.35, 0.6))
    units = tuple(f"sentence {i}" for i in range(o.UNITS))
    ledger = Ledger(subject, BUDGET)
    found = why(Case("the shortcut", units=units, n=50), ledger)
    order = [int(x.about[0].split(":")[0]) for x in ranked(found)]
    line = next(x for x in found.lines if x.test == "unit" and x.about[0].startswith(f"{decoy}:"))
    declared = [int(x.about[0].split(":")[0]) for x in found.lines if x.test == "unit" and x.reads == "for"]
    return {"rank": order.index(at) + 1, "decoy": line.report.low <= 0 <= line.report.high,
            "declared": declared == [at], "spent": ledger.spent}  # fmt: skip


def resampling(kind: str, seed: int, number: int) -> dict[str, Any]:
    rng = o.rng_of(seed, kind, number)
    subject = o.Speaker(o.derive(seed, kind, number), 0.06, rng.uniform(0.05, 0.15), rng.uniform(0.6, 0.8))
    found = why(Case("the shortcut", classes=(o.CLASS, o.OTHER_CLASS)), Ledger(subject, BUDGET))
    causal, placebo = [x.report for x in found.lines if x.test == "resampling"]
    redrawn = [subject.redrawn[name] for name in (o.CLASS, o.OTHER_CLASS)]
    return {"drop": causal.estimate, "placebo": placebo.low <= 0 <= placebo.high, "redrawn": redrawn}


def lock(kind: str, seed: int, number: int) -> dict[str, Any]:
    """How well log p of the commitment phrase after the second paragraph tells the outcome, over 300 traces."""
    out = {}
    for name, locked in (("locked", True), ("open", False)):
        scores, outcomes = o.traces(o.derive(seed, kind, number), locked, 300)
        out[name] = probes.lock("early lock", scores[:, 1], outcomes).estimate
    return out
