"""clew audit methods: how far methods agree on the same runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.methods.agreement.values_compared import Pair

METHOD_HELP = "Compare this method with others; give it several times to compare these alone."


@click.command(short_help="Compare what methods say of the same runs.")
@click.argument("runs", nargs=-1, metavar="[RUNS]")
@option("--method", "methods", multiple=True, help=METHOD_HELP)
@common.output_options
def command(runs: tuple[str, ...], methods: tuple[str, ...], as_json: bool, store_path: str) -> None:
    """Compare the values of all methods that annotated the chosen runs: each two by their rank correlation.

    Where both methods value model calls, calls are compared, else runs, by the mean of a method's values in each. The
    interval resamples tasks, and needs ten of them. "shuffled" is the control: where 95 % of the correlation lies when
    the values of one method are dealt out at random. Each interval is of its two methods alone. The two that agree
    least come first.

    \b
    clew audit methods
    clew audit methods world=household --method g2po
    clew audit methods 'g2po<-1' --method g2po --method bellman --json
    """
    from clew.methods.agreement.values_compared import compared, values_of

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    values, tasks = values_of(chosen, methods if len(methods) > 1 else ())
    if missing := [name for name in methods if name not in values]:
        known = f"Known here: {', '.join(values)}." if values else "Compute some first: `clew credit g2po`."
        raise BadInput(f"none of these runs has values of {missing[0]!r}", remedy=known)
    pairs = [pair for pair in compared(values, tasks) if not methods or {pair.a, pair.b} & {*methods}]
    if as_json:
        told = {name: {"calls": len(of.calls), "runs": len(of.runs)} for name, of in values.items()}
        common.end_with_json({"runs": len(chosen), "methods": told, "pairs": [_plain(pair) for pair in pairs]})
    if not pairs:
        names = ", ".join(values) or "none"
        raise BadInput(
            f"no two methods value three places in common (methods of these runs: {names})",
            remedy="Compute another: `clew credit 'grpo+bellman'`.",
        )
    heads = ("methods", "on", "n", "tasks", "rank correlation", "shuffled")
    common.print_table(heads, [_row(pair) for pair in pairs])
    if pairs[0].apart:
        least = f"{pairs[0].a} and {pairs[0].b}"
        common.echo(f"where {least} differ most: {command_line('show', pairs[0].apart)}")


def _row(pair: Pair) -> tuple[str | int, ...]:
    rank: Any = pair.rank
    if rank is None:
        said = pair.comparisons.verdict("")
    elif isinstance(rank, float):
        said = f"{rank:.2f} (too few for an interval)"
    else:
        said = f"{rank.estimate:.2f} [{rank.low:.2f}, {rank.high:.2f}]"
    dealt = "" if pair.shuffled is None else f"[{pair.shuffled[0]:.2f}, {pair.shuffled[1]:.2f}]"
    return f"{pair.a} / {pair.b}", pair.on, pair.n, pair.tasks, said, dealt


def _plain(pair: Pair) -> dict[str, object]:
    rank: Any = pair.rank
    whole = rank is not None and not isinstance(rank, float)
    told = {"a": pair.a, "b": pair.b, "on": pair.on, "n": pair.n, "tasks": pair.tasks}
    told |= {"rank correlation": rank.estimate if whole else rank, "interval": [rank.low, rank.high] if whole else None}
    return told | {"shuffled": pair.shuffled, "apart": pair.apart, "comparisons": pair.comparisons.json()}
