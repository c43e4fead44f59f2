"""clew audit decay: whether rules survive compaction, in installed stacks and in the behaviour of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.methods.pins.behaviour import Row
    from clew.methods.pins.recorded import Survival
    from clew.methods.pins.structural import Finding, Oracle

HISTORIES, GENERATIONS = (1.1, 5.0), 3
CAUSES = ("never seen", "lost later", "cause not known")  # how a rule was lost
RULE_HELP = "With RUNS: the rule, word for word as the runs were told it; may be repeated."
SHARE_HELP = "With RUNS: the budget that a history is compacted to, as a share of its tokens."


@click.command("decay", short_help="Test whether rules survive when histories are compacted.")
@click.argument("runs", nargs=-1)
@option("--rule", "rules", multiple=True, help=RULE_HELP)
@option("--share", type=common.Amount(float, 0, 1, above=True), default=0.5, help=SHARE_HELP)
@option(
    "--stack",
    "stacks",
    multiple=True,
    help="Test only this stack, or FILE.py:FUNCTION of yours; may be repeated.  [default: all installed]",
)
@option("--list", "listing", is_flag=True, help="List the stacks with their versions, and the arms, and stop.")
@option("--summariser", help="Let this model write the summaries, not the oracle; not with --model.")
@option("--model", help="Test the behaviour of this model instead; see `clew models`.")
@option("--arm", "arms", multiple=True, help="With --model: test only this arm; may be repeated.")
@option("-n", "--n", "n", default=40, help="With --model: episodes in each arm.")
@option("--seed", default=0, help="With --model: seed of tasks and sampling.")
@run_options.model_options
@run_options.sampling_options
@common.json_option
@common.store_of(only_with=("RUNS", "--model"))
def command(
    runs: tuple[str, ...],
    stacks: tuple[str, ...],
    arms: tuple[str, ...],
    as_json: bool,
    store_path: str,
    **options: Any,
) -> None:
    """Test whether an agent stack, or a model, keeps its rules when the history is compacted.

    Without --model no model is asked: each installed stack compacts histories that hold a marked rule, with a
    summariser (the oracle) that repeats the rule whenever it sees it, so that a lost rule was cut away by the stack.
    With --summariser a model writes the summaries, with RUNS too, and rules that it left out are counted apart from
    rules that it never saw. Where a stack of your own writes its summaries itself, the cause of a loss is not known.

    A stack of your own is a function compact(messages, budget, summarise) that takes messages in OpenAI's format and
    gives those of the next request; summarise(text) gives a summary.

    With RUNS and --rule, the histories of these runs are compacted in place of made ones, each once, as it stood before
    the run's last reply.

    With --model, the model works at a customer desk under one rule, in several arms, and its tool calls are judged.
    Every episode is a run in the store, and the same line continues where it was stopped.

    An option that does nothing beside the others is refused. Where a stack took nothing away, or a model broke the rule
    in no arm, nothing could be lost: the verdict is "not tested".

    \b
    clew audit decay
    clew audit decay 'name=airline' --rule 'Basic economy flights cannot be modified.'
    clew audit decay --stack langmem --stack langmem-half
    clew audit decay --stack own.py:compact
    clew audit decay --stack langmem --summariser http://localhost:8000/v1#name
    clew audit decay --model http://localhost:8000/v1#name -n 40
    """
    from clew.methods.pins import behaviour
    from clew.methods.pins.stacks import STACKS

    if options["listing"]:
        common.refuse_others("--list", ("listing", "as_json"), only=True)
        rows = [(s.name, s.version or ("" if s.package != "clew" else "this one"), s.settings) for s in STACKS.values()]
        if as_json:
            common.end_with_json({"stacks": [list(row) for row in rows], "arms": list(behaviour.ARMS)})
        common.print_table(("stack", "installed", "settings"), rows)
        common.echo(f"\narms: {', '.join(behaviour.ARMS)}")
        return
    _refuse_unused(bool(runs), options)
    if options["model"] is not None:
        _behaviour(arms, as_json, store_path, options)
        return
    names = [*stacks] or [s.name for s in STACKS.values() if s.package == "clew" or s.version]
    summariser, by = _summariser(options), options["summariser"]
    if runs or options["rules"]:
        _recorded(runs, names, options["rules"], options["share"], as_json, store_path, summariser, by)
        return
    _structure(names, as_json, summariser, by)


def _refuse_unused(runs: bool, options: Mapping[str, Any]) -> None:
    """Refuse what the line says and this kind of audit has no use for.

    Raises:
        BadInput: with the option, and where it is of use.
    """
    model, of_runs = options["model"] is not None, runs or bool(options["rules"])
    asks = model or options["summariser"] is not None
    unused = {name: "with --model" for name in ("runs", "rules", "stacks", "summariser", "share") if model}
    unused |= {name: "without --model" for name in ("arms", "n", "seed") if not model}
    unused |= {"share": "without RUNS and --rule"} if not (model or of_runs) else {}
    asking = ("temperature", "top_p", "max_tokens", "max_cost", "model_options")
    unused |= {name: "without --model or --summariser: no model is asked" for name in asking if not asks}
    context, line = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for param in context.command.params:
        name = str(param.name)
        if name in unused and context.get_parameter_source(name) is line:
            flag = "RUNS" if name == "runs" else param.opts[0]
            raise BadInput(f"{flag} does nothing {unused[name]}", remedy="Leave it out, or see `clew audit decay -h`.")


def _summariser(options: Mapping[str, Any]) -> Callable[..., Oracle] | None:
    """What makes summarisers that a model writes for; None: the oracle writes."""
    if options["summariser"] is None:
        return None
    from clew.core.values import Sampling
    from clew.methods.pins.asking import Asking

    model = run_options.load_model(options["summariser"], options)
    return Asking(model, Sampling(**run_options.sampling(options))).summariser


def _written_by(summariser: str | None) -> str:
    """Who wrote the summaries, which bounds what the figures say."""
    if summariser is not None:
        return f"{summariser} wrote the summaries."
    return """The summaries were an oracle's, which repeats the rule when it reads it: what is lost the stack cut away.
What a model leaves out is told with --summariser MODEL.""".replace("\n", " ")


def _structure(names: list[str], as_json: bool, summariser: Callable[[], Oracle] | None, by: str | None) -> None:
    from clew.methods.pins import structural

    grid = structural.cells(HISTORIES)
    most = 2 * len(names) * len(grid) * GENERATIONS
    common.say(
        f"{len(names)} stacks, {len(grid)} histories of {GENERATIONS} compactions each, with and without the pin: "
        + (f"about {most:,} summaries" if summariser else f"about {2 * len(names)} s")
    )
    more: dict[str, Any] = {"generations": GENERATIONS} | ({"summariser": summariser} if summariser else {})
    with _steps(2 * len(names) * len(grid), "histories") as each:
        plain = structural.survey(names, grid, each=each, **more)
        pinned = structural.survey(names, grid, pinned=True, each=each, **more)
    found, kept = structural.findings(plain), {f.stack: f for f in structural.findings(pinned)}
    said = structural.verdicts(found, list(kept.values()))
    if as_json:
        rows = [{**_plain(f), "pinned": _plain(kept[f.stack])} for f in found]
        common.end_with_json({"stacks": rows, "verdicts": said})
    table = []
    for f in found:
        pin = kept[f.stack]
        line = (f.stack, f.version, f.kept, f.n - f.failed, f.unseen, f.later, f.unknown, f.failed, f.torn)
        table.append((*line, pin.kept, pin.n - pin.failed))
    columns = ("stack", "version", "kept", "of", *CAUSES, "gave up", "torn", "kept with pin", "of")
    common.print_table(columns, table)
    common.echo("\n" + ("\n".join(said) if said else "No stack lost the rule."))
    common.echo(_written_by(by))


def _recorded(
    words: tuple[str, ...],
    names: list[str],
    rules: tuple[str, ...],
    share: float,
    as_json: bool,
    store_path: str,
    summariser: Callable[..., Oracle] | None,
    by: str | None,
) -> None:
    """The histories of stored runs, compacted once by each stack."""
    from clew.methods.pins.recorded import histories, survival
    from clew.methods.pins.structural import Oracle

    if not rules:
        raise BadInput("RUNS are named and no rule", remedy="Add --rule 'WORDS', as the runs were told it.")
    found, left = [], {}
    with common.open_store(store_path) as store:
        runs = common.some(store, words)
        told = {rule: histories(runs, rule) for rule in rules}
        for rule, (served, skipped) in told.items():
            left[rule] = dict(skipped)
            if not served:
                why = ", ".join(f"{n} {reason}" for reason, n in skipped.items())
                raise BadInput(f"no run serves for {rule[:80]!r}: {why}", remedy="`clew show RUN` prints its messages.")
        count = sum(len(served) for served, _ in told.values())
        asks = f": about {2 * len(names) * count:,} summaries" if summariser else ""
        common.say(f"{len(names)} stacks, {count} histories of {len(runs)} runs{asks}")
        with _steps(len(names) * count, "histories") as each:
            for rule, (served, _) in told.items():
                found += [survival(name, rule, served, share, each, summariser or Oracle) for name in names]
    if as_json:
        common.end_with_json({"runs": len(runs), "left out": left, "stacks": [_plain_survival(one) for one in found]})
    _tell_recorded(found, left, len(runs), by)


def _tell_recorded(found: list[Survival], left: Mapping[str, Mapping[str, int]], total: int, by: str | None) -> None:
    columns = ("stack", "version", "kept", *CAUSES, "gave up", "not cut", "torn", "kept with pin")
    for rule, skipped in left.items():
        common.echo(f"\n{rule}")
        rows = []
        for o in (one for one in found if one.rule == rule):
            counts = (o.unseen, o.later, o.unknown, o.failed, o.whole, o.torn)
            rows.append((o.stack, o.version, _counted(o.kept), *counts, _counted(o.pinned)))
        common.print_table(columns, rows)
        for reason, n in skipped.items():
            common.echo(f"{n} of {total} runs are left out: {reason}")
    for one in (it for it in found if not it.checks.tested):
        common.echo(f"{one.stack}: {one.checks.verdict('')}")
    worst = next((one.worst for one in found if one.worst), "")
    if not worst and all(one.checks.tested for one in found):
        common.echo("No stack lost a rule.")
    common.echo(_written_by(by))
    if worst:
        common.echo(f"Next: {command_line('show', worst)}")


def _plain_survival(one: Survival) -> dict[str, Any]:
    told = {name: getattr(one, name) for name in one.__slots__} | {"checks": one.checks.json()}
    return told | {name: run_options.numbers(told[name]) for name in ("kept", "pinned") if told[name] is not None}


def _counted(report: Report | None) -> str:
    return "" if report is None else f"{report.estimate:.0%} [{report.low:.0%}, {report.high:.0%}] n={report.n}"


def _plain(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__slots__} | {"checks": finding.checks.json()}


def _behaviour(names: tuple[str, ...], as_json: bool, store_path: str, options: Mapping[str, Any]) -> None:
    from clew.core.errors import UnknownName
    from clew.methods.pins import behaviour

    for name in names:
        if name not in behaviour.ARMS:
            raise UnknownName(f"there is no arm {name!r}", remedy=f"Known: {', '.join(behaviour.ARMS)}.")
    ref, n, seed = options["model"], options["n"], options["seed"]
    chosen = {name: behaviour.ARMS[name] for name in names or behaviour.ARMS}
    model, how = run_options.load_model(ref, options), {"temperature": 0.7, **run_options.sampling(options)}
    common.say(
        f"{len(chosen)} arms, {n} episodes each: about {len(chosen) * n * behaviour.EPISODE_TOKENS:,} prompt tokens in "
        f"{len(chosen) * n * 2:,} requests"
    )
    trials = {}
    with (
        run_options.interruptible("the same line"),
        common.open_store(store_path, create=True) as store,
        _steps(len(chosen) * n, "episodes") as each,
    ):
        for name, condition in chosen.items():
            label, done = f"decay/{ref}/{seed}/{name}", lambda run: each()
            kept: dict[str, Any] = {"store": store, "name": label, "each": done}
            trials[name] = behaviour.arm(model, condition, n, seed=seed, sampling=how, **kept)
    rows = behaviour.compare(trials)
    said = behaviour.verdict(rows)
    if as_json:
        held = [row.arm for row in rows if row.rise is not None]
        tested = {name: behaviour.checks(rows, name).json() for name in held}
        common.end_with_json({"arms": [_figures(row) for row in rows], "verdict": said, "checks": tested})
    columns = ("arm", "n", "violation", "less full context", "rule survived", "not done", "no tool used")
    shares = [[_share(report) for report in (r.violation, r.rise, r.survived, r.refused)] for r in rows]
    common.print_table(columns, [(r.arm, r.n, *told, r.silent) for r, told in zip(rows, shares, strict=True)])
    common.echo("\n" + "\n".join(said))


def _figures(row: Row) -> dict[str, Any]:
    from clew.core.records import Report

    return {k: run_options.numbers(v) if isinstance(v, Report) else v for k, v in row._asdict().items()}


def _share(report: Report | None) -> str:
    return "" if report is None else f"{report.estimate:.2f} [{report.low:.2f}, {report.high:.2f}]"


@contextmanager
def _steps(total: int, what: str) -> Iterator[Callable[[], None]]:
    """A progress bar; gives a function to call after each step."""
    began = time.perf_counter()
    with common.bar(what, total) as move:
        yield lambda: move(advance=1, note=f"{time.perf_counter() - began:.0f} s")
