"""The report of the tier plans: marks R6 to R9 of specs/E166 section 7.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.E166_route.sessions import KINDS, MEMORY
from papers.E166_route.tier_plans import WAYS
from papers.experiment import Line
from papers.stats import Mark, Report, Results, by_seed, document, mark, pooled, table

OURS = "conductor"
MARKED = "files"  # the kind of files that R9's marks are of


def report(lines: Sequence[Line]) -> str:
    r = Results(lines)
    return document(
        "# E166, tier plans: plans for a simulated pool, through the orchestrator", marks(r),
        "## R6: what was trained", _ways(r), _starts(r), "## R7: at the conductor's calls", _controls(r),
        "## R8", _isolation(r), "## R9", _memory(r), _told(r),
    )  # fmt: skip


def ways(r: Results) -> list[str]:
    return [way for way in WAYS if r.of(kind="plans", way=way)]


def get(r: Results, field: str, way: str = OURS) -> np.ndarray:
    return r.get(field, kind="plans", way=way)


def at_calls(r: Results, name: str, calls: np.ndarray) -> np.ndarray:
    """A control at so many calls, by seed: between two whole numbers both are asked, each in a share of the tasks."""
    by_calls = np.array([line[name] for line in r.of(kind="controls")], float)
    most = by_calls.shape[1]
    return np.array([np.interp(c, range(1, most + 1), row) for c, row in zip(calls, by_calls, strict=True)])


def marks(r: Results) -> list[Mark]:
    """Met or not by the point estimate, except where a promise names the interval."""
    success, calls = get(r, "success"), get(r, "calls")
    first = np.array([line["calls by size"][0] for line in r.of(kind="plans", way=OURS)])
    unparsed, drawn = get(r, "drawn unparsed").sum(), get(r, "drawn").sum()
    single, greedy = success - get(r, "single"), get(r, "unparsed").sum()
    out = [
        mark("R6 conductor less best single worker", "at least .10", by_seed(single), least=0.10),
        mark("R6 less the same plans by that worker", "at least .08", by_seed(success - get(r, "forced")), least=0.08),
        mark("R6 share of the masters' plans", "at least .75", by_seed(success / get(r, "masters")), least=0.75),
        mark("R6 drawn plans that do not parse", "below .01", pooled(unparsed, drawn), under=0.01),
        Mark("R6 greedy plans that do not parse", "no mark", pooled(greedy, get(r, "programs").sum()), None),
        mark("R6 calls for programs of one operation", "at most 1.3", by_seed(first), most=1.3),
    ]  # fmt: skip
    every = [line for way in ways(r) for line in r.of(kind="plans", way=way)]
    agreed, played = sum(line["agreed"] for line in every), sum(line["programs"] for line in every)
    told = f"{agreed:,} of {played:,} alike"
    out.append(Mark("R6 answers through the orchestrator and in process", "all alike", told, agreed == played))
    for name, promised in (("vote", "votes of the best single worker"), ("crew vote", "votes of the best crew")):
        gap = by_seed(success - at_calls(r, name, calls))
        out.append(mark(f"R7 conductor less {promised}, equal calls", "interval above 0", gap, above=0.0))
    for name, told in (
        ("verified", "best single worker with a perfect verifier"), ("crew verified", "best crew with one"),
        ("routed verified", "perfectly routed samples with one"),
    ):  # fmt: skip
        gap = by_seed(success - at_calls(r, name, calls))
        out.append(Mark(f"R7 conductor less {told}, equal calls", "no mark, a ceiling", gap, None))
    for name in ("repair", "routed"):
        told = {"repair": "solve, check, check, at three calls", "routed": "the perfect router, at one call"}[name]
        out.append(Mark(f"R7 conductor less {told}", "no mark", by_seed(success - r.get(name, kind="controls")), None))
    return out + _isolated(r) + _remembered(r)


def arms(r: Results, field: str, copying: float) -> tuple[np.ndarray, np.ndarray]:
    return tuple(r.get(arm, field, kind="isolation", copying=copying) for arm in ("isolated", "shared"))  # type: ignore[return-value]


def _isolated(r: Results) -> list[Mark]:
    (alone, shared), (alike, both) = arms(r, "success", 0.6), arms(r, "alike", 0.6)
    (alone0, shared0), (alike0, both0) = arms(r, "success", 0.0), arms(r, "alike", 0.0)
    saw = sum(r.get("isolated", "saw", kind="isolation", copying=c).sum() for c in (0.0, 0.6))
    attempts = sum(r.get("isolated", "attempts", kind="isolation", copying=c).sum() for c in (0.0, 0.6))
    apart = max(np.abs(alone0 - shared0).max(), np.abs(alike0 - both0).max())
    return [
        mark("R8 isolated less shared", "at least .05", by_seed(alone - shared), least=0.05),
        mark("R8 drop of the rate of equal attempts", "at least .30 of it", by_seed(1 - alike / both), least=0.30),
        Mark("R8 the same where nobody copies", "0 in every seed", f"{apart:g} at most", not apart),
        Mark("R8 isolated attempts that saw another", "none", f"{int(saw)} of {int(attempts):,}", not saw),
    ]


def session(r: Results, field: str, memory: str, files: str = MARKED) -> np.ndarray:
    return r.get(field, kind="memory", files=files, memory=memory)


def leaked(r: Results, name: str, *memory: str) -> int:
    return sum(line["leaks"].get(name, 0) for line in r.of(kind="memory") if line["memory"] in memory)


def _remembered(r: Results) -> list[Mark]:
    out, without, plain = list[Mark](), session(r, "repeats", "none"), session(r, "success", "none")
    for memory in MEMORY[1:]:
        again, gap = session(r, "repeats", memory), by_seed(session(r, "success", memory) - plain)
        saw, asked = (leaked(r, name, memory) for name in ("uncleared saw secret", "uncleared"))
        told, near = f"in {saw:,} of {asked:,} requests", max(-gap.low, gap.high) < 0.05
        out += [
            mark(f"R9 repeated calls saved, memory {memory}", "at least .70", by_seed(1 - again / without), least=0.70),
            Mark(f"R9 success less that without, memory {memory}", "interval within .05 of 0", gap, near),
            Mark(f"R9 secret canaries before the uncleared worker, memory {memory}", "none", told, not saw),
        ]
    first, others = (leaked(r, name, *MEMORY) for name in ("uncleared saw secret, first turn", "other sessions"))
    of_first, of_all = (leaked(r, name, *MEMORY) for name in ("uncleared, first turn", "requests"))
    return [
        *out,
        Mark("R9 the same within a turn, by another part's tools", "none", f"in {first} of {of_first:,}", not first),
        Mark("R9 canaries of other sessions", "none", f"in {others} of {of_all:,} requests", not others),
    ]


def _ways(r: Results) -> str:
    def column(head: str, field: str) -> tuple[Any, ...]:
        return head, lambda way: by_seed(get(r, field, way)), ".3f"

    def part(head: str, field: str, at: int) -> tuple[Any, ...]:
        return head, lambda way: by_seed([line[field][at] for line in r.of(kind="plans", way=way)]), ".2f"

    def drawn(way: str) -> Report:
        return pooled(get(r, "drawn unparsed", way).sum(), get(r, "drawn", way).sum())

    def last(way: str) -> str:
        """Of the last tenth of training: groups of one reward alone, and the entropy of who is named."""
        logs = [line["log"][-1] for line in r.of(kind="plans", way=way) if line["log"]]
        return ", ".join(f"{np.mean([log[k] for log in logs]):.2f}" for k in ("flat groups", "worker entropy") if logs)

    return table(
        ways(r),
        ("way", lambda way: way),
        column("success", "success"), column("by the best worker", "forced"),
        part("one operation", "by size", 0), part("two", "by size", 1), part("three", "by size", 2),
        part("calls for one", "calls by size", 0), part("two", "calls by size", 1), part("three", "calls by size", 2),
        ("drawn plans unparsed", drawn, ".4f"),
        ("groups without signal, entropy of workers", last),
        ("workflows", lambda way: int(get(r, "workflows", way).max()), ",d"),
    )  # fmt: skip


def _starts(r: Results) -> str:
    """Drawn plans after as many iterations as the ways without a cold start had."""
    short = [way for way in ways(r) if 0 < r.of(kind="plans", way=way)[0]["iterations"] < WAYS[OURS].iterations]
    if not short:
        return ""
    at = r.of(kind="plans", way=short[0])[0]["iterations"]

    def drawn(way: str, field: str) -> Report:
        tenth = at * 10 // r.of(kind="plans", way=way)[0]["iterations"] - 1
        return by_seed([line["log"][tenth][field] for line in r.of(kind="plans", way=way)])

    shown = table(
        [OURS, *short],
        ("way", lambda way: way),
        ("plans that the parser of training reads", lambda way: drawn(way, "parsed"), ".3f"),
        ("right", lambda way: drawn(way, "right"), ".3f"),
        ("calls", lambda way: drawn(way, "calls"), ".2f"),
        ("seeds", lambda way: len(r.of(kind="plans", way=way))),
    )
    return f"Drawn plans in training, in the tenth of it that ends near {at} iterations:\n\n{shown}"


def _controls(r: Results) -> str:
    success, calls = get(r, "success"), get(r, "calls")
    rows: list[tuple[str, Report]] = [
        ("the conductor", by_seed(success)),
        ("its plans by the best worker", by_seed(get(r, "forced"))),
    ]
    for name, told in (
        ("vote", "votes of the best single worker"), ("crew vote", "votes of the best crew"),
        ("verified", "best single worker, perfect verifier"), ("crew verified", "best crew, perfect verifier"),
        ("routed verified", "perfect router, perfect verifier"),
    ):  # fmt: skip
        rows.append((told, by_seed(at_calls(r, name, calls))))
    for name, told in (
        ("single", "best single worker, one call"),
        ("routed", "perfect router, one call"),
        ("repair", "solve, check, check: three calls"),
    ):
        rows.append((told, by_seed(r.get(name, kind="controls"))))
    rows.append(("masters' plans: each operation by who is best at it", by_seed(get(r, "masters"))))
    shown = table(rows, ("what", lambda row: row[0]), ("success", lambda row: row[1], ".3f"))
    return f"The conductor makes {by_seed(calls)} calls a program.\n\n{shown}"


def _isolation(r: Results) -> str:
    rows = [(copying, arm) for copying in (0.0, 0.6) for arm in ("isolated", "shared")]

    def column(head: str, field: str) -> tuple[Any, ...]:
        return head, lambda row: by_seed(r.get(row[1], field, kind="isolation", copying=row[0])), ".3f"

    return table(
        rows, ("copying", lambda row: row[0]), ("attempts", lambda row: row[1]), column("success", "success"),
        column("pairs of attempts that are equal", "alike"), column("equal and wrong", "wrong alike"),
    )  # fmt: skip


def _memory(r: Results) -> str:
    rows = [(files, memory) for files in KINDS for memory in MEMORY]

    def column(head: str, field: str) -> tuple[Any, ...]:
        return head, lambda row: by_seed(r.get(field, kind="memory", files=row[0], memory=row[1])), ".2f"

    return table(
        rows, ("session", lambda row: row[0]), ("memory", lambda row: row[1]),
        column("turns answered rightly", "success"), column("calls of tools", "calls"),
        column("of them repeated", "repeats"),
    )  # fmt: skip


def _told(r: Results) -> str:
    n = len(r.of(kind="plans", way=OURS))
    each = "each with programs, prompts, training and luck of its own"
    return f"n = {n} seeds, {each}; intervals are Student's, of shares Wilson's."


def figure(lines: Sequence[Line]) -> Any:
    """Success against calls: ways of training whose plans parse, controls by calls, the masters' plans."""
    from papers.drawing import canvas, finish

    r = Results(lines)
    made, axis = canvas((6.4, 4.0))
    for n, way in enumerate(way for way in ways(r) if get(r, "calls", way).any()):
        x, y = by_seed(get(r, "calls", way)), by_seed(get(r, "success", way))
        axis.errorbar(
            [x.estimate], [y.estimate], xerr=[[x.estimate - x.low], [x.high - x.estimate]],
            yerr=[[y.estimate - y.low], [y.high - y.estimate]], fmt="os^vD<>"[n % 7], color=f"C{n}", label=way, ms=4,
        )  # fmt: skip
    for name, style, told in (
        ("vote", "-", "votes, best worker"), ("crew vote", "--", "votes, best crew"),
        ("verified", ":", "best worker, verified"),
    ):  # fmt: skip
        rows = np.array([line[name] for line in r.of(kind="controls")]).mean(0)
        axis.plot(range(1, len(rows) + 1), rows, style, color="0.4", label=told, lw=1)
    axis.axhline(get(r, "masters").mean(), color="0.7", lw=0.8)
    axis.set_xlabel("calls of workers a program")
    axis.set_ylabel("success on held-out programs")
    finish(axis, font=6)
    return made
