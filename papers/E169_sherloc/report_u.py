"""Tables and pass marks U1 to U3 of tier U, from its lines alone; every mark is of the held-out issues."""

from typing import Any

import numpy as np

from clew.methods.diagnose.confidence import F64, Calibration, fit
from clew.methods.diagnose.known import ELSEWHERE
from papers.E169_sherloc.report_l import at, gap, share, split
from papers.stats import Line, Lines, Mark, document, mark, table

BASELINE = "bm25 as often"  # the better of the two on dev
SHOWN = ("largest", "shuffled", "plain bm25", BASELINE, "all - trace", "all - mention", "all - past", "all")


def bundled(commits: Lines, issues: Lines) -> Calibration:
    """The confidence that holds where a repository has not been calibrated, from dev of tier L and of this tier."""
    past, users = split(commits, "dev"), split(issues, "dev")
    of = sorted({x["project"] for x in past})
    source = f"{len(past)} past fixes of {', '.join(of)} and {len(users)} issues of users"
    right = np.concatenate([at(past, "all"), at(users, "all")]).astype(bool)
    return fit(np.array([x["features"] for x in (*past, *users)]), right, source)


def sure(lines: Lines) -> F64:
    """The bundled confidence of the first finding of each line."""
    return np.array([ELSEWHERE(np.array(x["features"])) for x in lines])


def pass_marks(lines: Lines) -> list[Mark]:
    test = split(lines, "test")
    first, five = (gap(at(test, "all", k), at(test, BASELINE, k)) for k in (1, 5))
    control = gap(at(test, "all"), at(test, "shuffled"))
    right, p = at(test, "all"), sure(test)
    known = gap((p - right) ** 2, (at(split(lines, "dev"), "all").mean() - right) ** 2)
    return [
        mark("U1", "first file right more often than BM25's by .10, interval above 0", first, least=0.1, above=0),
        mark("U2", "one of the first five right no less often than BM25's", five, least=0),
        mark("U3", "control: told another issue, right less often by .20", control, least=0.2, above=0),
        mark("U4", "Brier score of the bundled confidence below that of the dev rate alone", known, under=0),
    ]


def report(lines: Lines) -> str:
    dev, test = split(lines, "dev"), split(lines, "test")
    if not test:
        return "Tier U did not run: give the collections by --issues and a folder of clones by --clones.\n"
    of = {p: [x for x in test if x["project"] == p] for p in dict.fromkeys(x["project"] for x in test)}
    return document(
        "# E169, tier U",
        f"{len(test)} held-out issues of {len(of)} repositories, {len(dev)} dev issues. "
        f"Candidates per snapshot: {np.mean([x['files'] for x in test]):.0f} on average.",
        _choosers(test),
        "By repository, first file right:",
        table(
            tuple(of),
            ("repository", str),
            ("issues", lambda p: len(of[p]), "d"),
            ("all", lambda p: at(of[p], "all").mean(), ".3f"),
            (BASELINE, lambda p: at(of[p], BASELINE).mean(), ".3f"),
        ),
        "On dev:",
        _choosers(dev),
        f"Bundled confidence of the first finding on the held-out issues: {share(sure(test)).estimate:.3f} on average.",
        pass_marks(lines),
    )


def _choosers(lines: list[Line]) -> Any:
    ks = (1, 5)
    return table(SHOWN, ("chooser", str), *((f"acc@{k}", lambda n, k=k: share(at(lines, n, k))) for k in ks))


def figure(lines: Lines) -> Any:
    return None
