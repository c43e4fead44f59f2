"""clew credit: compute step advantages for stored runs by one or several methods, and compare the methods."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.training_report import lowest
from clew.core import registry

if TYPE_CHECKING:
    from clew.credit.filing import Credit
    from clew.credit.tree import TreeCredit
    from clew.store import Group


@click.command(short_help="Compute each step's advantage, by one or several methods.")
@click.argument("methods")
@click.argument("runs", nargs=-1)
@option("--dry", is_flag=True, help="Compute and compare, but store nothing.")
@common.output_options
def command(methods: str, runs: tuple[str, ...], dry: bool, as_json: bool, store_path: str) -> None:
    """Compute the advantage of every step in the groups of the chosen runs, and store it beside the runs.

    METHODS are names joined by +, with arguments in brackets: grpo, gigpo, hgpo, graphgpo, g2po, bellman, tree.
    All but grpo and tree compare steps at equal states; key="text" takes what the agent saw for the state.
    file.py:NAME is an estimator of your own; a warning says if its file changed since it valued the same groups.
    A run can hold the values of several methods; of one with other arguments, those computed last count.
    `clew show` prints them; `clew fork --low METHOD` forks at the lowest.

    \b
    clew credit g2po
    clew credit 'grpo+g2po+bellman(lam="auto")' world=household
    clew credit 'g2po(key="text")' world=gymnasium
    clew credit 'mine.py:mine(k=2.0)'
    """
    from clew.harness.estimators import estimator

    store = common.open_store(store_path)
    groups = common.groups_of(common.some(store, runs))
    found = []
    for ref in methods.split("+"):
        found.append((ref, estimator(ref)(groups, store=not dry)))
    summary = [_summary(ref, credit) for ref, credit in found]
    by_step = [(ref, credit) for ref, credit in found if hasattr(credit, "diagnostics")]  # tree values tokens
    pairs = [_compare(a, b) for a, b in itertools.combinations(by_step, 2)]
    notes = [note for _, credit in by_step for note in credit.notes]
    if as_json:
        tested = {ref: credit.comparisons.json() for ref, credit in by_step if credit.comparisons}
        common.end_with_json({"methods": summary, "pairs": pairs, "notes": notes, "comparisons": tested})
    common.print_table(tuple(summary[0]), [row.values() for row in summary])
    if pairs:
        common.echo()
        common.print_table(tuple(pairs[0]), [row.values() for row in pairs])
    for note in notes:
        common.echo(note)
    if not dry:
        common.echo("stored beside the runs")
        _next(groups, found)


def _next(groups: Sequence[Group], found: Sequence[tuple[str, Credit | TreeCredit]]) -> None:
    """Print the lines that show and fork the run with the lowest value of the first method that values calls."""
    for ref, _ in found:
        method = registry.parse_ref(ref)[0].rpartition(":")[2]
        runs = [(low, run.id) for group in groups for run in group if (low := lowest(run, method)) is not None]
        if runs:
            worst = min(runs, key=lambda item: item[0])[1]  # of several the first of its group
            common.echo(f"the run that lost most in one step: {command_line('show', worst)}")
            common.echo(f"forked before that step: {command_line('fork', worst, low=method, n=4)}")
            return


def _summary(ref: str, credit: Credit | TreeCredit) -> dict[str, Any]:
    """The line of a method; where it values tokens, ``steps`` counts edges of trees, and ``valued`` counts tokens."""
    import numpy as np

    from clew.credit.tree import TreeCredit

    silent: float | None
    singletons: float | None
    if isinstance(credit, TreeCredit):
        rows = [a.values[np.isfinite(a.values)] for a in credit.annotations() if a.values is not None]
        value = np.concatenate(rows) if rows else np.zeros(0)
        groups, runs, steps = credit.live + credit.dead, credit.runs, credit.edges
        silent, singletons = credit.dead / groups if groups else None, None
    else:
        value = credit.value[credit.diagnostics.present]
        groups, runs, steps = len(credit.steps.groups), len(credit.steps.runs), len(credit.steps)
        silent, singletons = float(credit.diagnostics.silent_groups), float(credit.diagnostics.singleton_steps)
    found = {"method": ref, "groups": groups, "runs": runs, "steps": steps, "valued": len(value)}
    found["rms"] = float(np.sqrt(np.mean(value**2))) if len(value) else None
    found["negative"] = float(np.mean(value < 0)) if len(value) else None
    return found | {"silent groups": silent, "singletons": singletons}


def _compare(a: tuple[str, Credit], b: tuple[str, Credit]) -> dict[str, Any]:
    """How far two methods agree on the steps that both value: sign, rank (Spearman), and the step called worst."""
    import numpy as np

    from clew.core.errors import need

    spearmanr = need("scipy.stats", "stats").spearmanr
    both = a[1].diagnostics.present & b[1].diagnostics.present
    x, y = a[1].value[both], b[1].value[both]
    varied = len(x) > 2 and np.ptp(x) > 0 and np.ptp(y) > 0
    runs = a[1].steps.run[both]
    worst = [np.argmin(x[runs == r]) == np.argmin(y[runs == r]) for r in np.unique(runs)]
    return {
        "methods": f"{a[0]} / {b[0]}",
        "steps both value": len(x),
        "same sign": float(np.mean(np.sign(x) == np.sign(y))) if len(x) else None,
        "rank correlation": float(spearmanr(x, y).statistic) if varied else None,
        "same worst step": float(np.mean(worst)) if worst else None,
    }
