"""clew memory audit: what the items of a memory are worth, by forks of stored runs with and without each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.memory import Memory
    from clew.methods.memory.worth.unproven import Lists
    from clew.methods.memory.worth.worth_audit import Finding, Plan
    from clew.methods.memory.worth.worth_verdict import Worth

ITEMS_HELP = "Only these items, by their ids.  [default: all in use, those given to most runs first]"
RUNS_HELP = "Only runs that this query finds; may be repeated."
MARGIN_HELP = "A change of success within this counts as none."
COST_HELP = "A change of turns or tokens within this share counts as none."
NAMES = {"never": "never given", "unfounded": "without a sound origin"}


@click.command("audit", short_help="Find what each item is worth, by forks with it and without.")
@click.argument("memory")
@option("--items", default="", metavar="ITEM,...", help=ITEMS_HELP)
@option("--runs", multiple=True, metavar="QUERY", help=RUNS_HELP)
@option("-n", "--n", "n", default=60, help="Pairs of forks for each item.")
@option("--per-run", default=4, help="Pairs from one run at most, where there are fewer runs than pairs.")
@option("--budget", default=3000, help="Forks in total; items beyond it are left out.")
@option("--margin", default=0.1, type=common.Amount(float, 0.0), help=MARGIN_HELP)
@option("--cost-margin", default=0.1, type=common.Amount(float, 0.0), help=COST_HELP)
@option("--seed", default=0, help="Seed of the forks, and of which runs are taken.")
@option("--model", help="Use another model than the runs'.")
@option("--dry", is_flag=True, help="Print the lists and what the forks would cost, and run nothing.")
@run_options.model_options
@common.output_options
def command(memory: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Find what each item of MEMORY is worth: fork stored runs that were given it, with the item left out and with
    nothing left out, under the same seeds, and compare success, turns and tokens.

    Near copies are also left out together, and once everything is. Verdicts hold over all of them (5 % chance of one
    false call); "cannot tell" says how many more runs would decide. What was run is not run again: the same line goes
    on where it stopped. Lists of junk, copies, contradictions and items that were never given need no run.

    \b
    clew memory audit shop --dry
    clew memory audit shop -n 100
    clew memory audit shop --items k3j2,m2aa --runs 'tag:evening'
    """
    from clew.harness.memory import Memory
    from clew.methods.memory.worth import filed_worth, unproven, worth_audit
    from clew.methods.memory.worth.left_out import Forks

    store = common.open_store(store_path)
    book = Memory(store, memory)
    known = book.items()
    if not known:
        raise BadInput(f"memory {memory!r} holds no items", remedy="`clew memory list` lists the memories.")
    listed = unproven.lists(store, known)
    resolve = partial(run_options.load_model, options=options)
    model = resolve(options["model"]) if options["model"] else None
    forks = Forks(store, seed=options["seed"], resolve=resolve, model=model)
    runs = {run.id for run in common.choose(store, options["runs"])} if options["runs"] else None
    named = [one for one in options["items"].split(",") if one]
    wanted = common.pick(options, "n per_run budget")
    plan = worth_audit.plan(book, forks, items=[book.item(one).id for one in named], runs=runs, **wanted)
    forecast(plan)
    found = None
    if plan.starts and not options["dry"]:
        again = "the same line goes on where it stopped"
        with run_options.interruptible(again), common.bar("forks", plan.cost.forks) as move:
            margins = {"margin": options["margin"], "cost": options["cost_margin"]}
            found = worth_audit.carry_out(plan, forks, **margins, on_fork=lambda _: move(advance=1))
        ids = filed_worth.filed(found, store)
    if as_json:
        common.end_with_json(_json(plan, found, listed, ids if found else []))
    if found is not None:
        told(found)
    for note in plan.notes:
        common.echo(f"note: {note}")
    _lists(listed, book)
    _next(book, plan, found, listed, options)


def forecast(plan: Plan) -> None:
    """Say what the forks will cost, before any is made."""
    if not plan.starts:
        common.say("no stored run that can be forked and judged was given one of these items")
        return
    cost, jobs = plan.cost, len(plan.jobs)
    dollars = f"${cost.dollars:,.2f}, " if cost.dollars else ""
    pairs = sum(map(len, plan.starts.values()))
    common.say(
        f"{len(plan.starts)} to audit, {pairs} pairs: {jobs} forks, {plan.found} of them in the store; the other "
        f"{cost.forks} take about {dollars}{cost.tokens:,.0f} tokens, "
        f"{cost.seconds / 60:.1f} minutes if none ran at once"
    )


def told(found: Finding) -> None:
    """The table of verdicts, and what it cost."""
    rows = []
    for it in found.worth:
        tokens = _figures(it.tokens, 0) if it.tokens is not None else ""
        more = f"~{it.more} runs" if it.more is not None else ""
        cells = [_name(it), it.verdict, _figures(it.success, 2), f"{it.p:.2g}", _figures(it.turns, 1), tokens]
        rows.append([*cells, it.pairs, it.success.n, more])
    head = ("left out", "verdict", "success", "p", "turns", "tokens", "pairs", "runs", "to know")
    common.print_table(head, rows)
    common.echo("Figures: with it less without it, 95 % intervals over runs; p: of success, corrected for all of them.")
    for it in found.worth:
        if it.verdict != "cannot tell" or not it.checks.tested:
            common.echo(f"{_name(it)}: {it.verdict}: {it.why}")
    cost = found.cost
    dollars = f", ${cost.dollars:,.2f}" if cost.dollars else ""
    common.echo(f"{cost.forks} forks made, {cost.tokens:,.0f} tokens{dollars}, {cost.seconds:.1f} s")


def _figures(report: Any, digits: int) -> str:
    return f"{report.estimate:+.{digits}f} [{report.low:+.{digits}f}, {report.high:+.{digits}f}]"


def _name(it: Worth) -> str:
    return "everything" if it.subject.kind == "all" else " + ".join(it.subject.items)


def _lists(listed: Lists, book: Memory) -> None:
    for name, remarks in listed._asdict().items():
        if remarks:
            common.echo(f"\n{NAMES.get(name, name)}:")
        for one in remarks[:20]:
            common.echo(f"  {' '.join(one.items)}  {common.show(one.why)}")
        if len(remarks) > 20:
            common.echo(f"  and {len(remarks) - 20} more; --json lists all")


def _next(book: Memory, plan: Plan, found: Finding | None, listed: Lists, options: dict[str, Any]) -> None:
    from clew.methods.memory.worth.worth_verdict import ALPHA

    worth = found.worth if found is not None else []
    lines = []
    for it in worth:
        if it.subject.kind == "item" and it.verdict == "harmful":
            by = f": {_figures(it.success, 2)} in {it.pairs} pairs" if it.p <= ALPHA else ""
            lines.append(command_line("memory retire", book.name, it.subject.items[0], why=f"{it.why}{by}"))
        if it.subject.kind == "copies" and any(
            one.verdict == "redundant" and one.subject.items[0] in it.subject.items for one in worth
        ):
            keep, *rest = it.subject.items
            lines += [command_line("memory retire", book.name, item, why=f"a copy of {keep}") for item in rest]
    foreseen = [(it.success.n + it.more, plan.runs[it.subject]) for it in worth if it.more is not None]
    wanted = [pairs for pairs, runs in foreseen if pairs <= runs]
    if wanted:
        lines.append(command_line("memory audit", book.name, n=max(min(wanted), options["n"] + 1), **_again(options)))
    elif foreseen:
        common.echo("note: there are too few runs for what is undecided; make more that recall from this memory")
    if found is None and plan.starts:
        lines.append(command_line("memory audit", book.name, n=options["n"], **_again(options)))
    listing = [one.items[0] for one in (*listed.junk, *listed.copies, *listed.contradictions)]
    shown = next(iter([it.subject.items[0] for it in worth] + listing), None)
    lines.append(command_line("memory show", book.name, shown) if shown else command_line("memory list", book.name))
    common.echo("\nNext:")
    for line in dict.fromkeys(lines):
        common.echo(f"  {line}")


def _again(options: dict[str, Any]) -> dict[str, Any]:
    return common.pick(options, "items runs per_run budget margin cost_margin seed model model_options")


def _json(plan: Plan, found: Finding | None, listed: Lists, ids: list[str]) -> dict[str, Any]:
    worth = []
    for it in found.worth if found is not None else []:
        one: dict[str, Any] = {"kind": it.subject.kind, "items": list(it.subject.items)}
        one |= common.pick(it._asdict(), "verdict why p p_cost more pairs missing")
        one |= {"checks": it.checks.json()}
        one |= {"shares": dict(zip(("with", "without"), it.shares, strict=True))}
        reports = {"success": it.success, "turns": it.turns, "tokens": it.tokens}
        worth.append(one | {name: r and run_options.numbers(r) for name, r in reports.items()})
    remarks = {name: [one._asdict() for one in these] for name, these in listed._asdict().items()}
    cost = found.cost if found is not None else None
    said: dict[str, Any] = {"memory": plan.memory, "worth": worth, "lists": remarks, "notes": plan.notes}
    return said | {"expected": plan.cost._asdict(), "cost": cost and cost._asdict(), "reports": ids}
