"""clew audit decay: whether rules survive compaction, in installed stacks and in the behaviour of a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options

if TYPE_CHECKING:
    from clew.audit.compaction.behaviour import Row
    from clew.audit.compaction.structural import Finding, Oracle
    from clew.core.records import Report

HISTORIES, GENERATIONS = (1.1, 5.0), 3


@click.command("decay", short_help="Test whether rules survive when histories are compacted.")
@option(
    "--stack",
    "stacks",
    multiple=True,
    help="Test only this stack, or FILE.py:FUNCTION of yours; may be repeated.  [default: all installed]",
)
@option("--list", "listing", is_flag=True, help="List the stacks with their versions, and the arms, and stop.")
@option("--summariser", help="Without --model: let this model write the summaries, not the oracle.")
@option("--model", help="Test the behaviour of this model instead; see `clew models`.")
@option("--arm", "arms", multiple=True, help="With --model: test only this arm; may be repeated.")
@option("-n", "--n", "n", default=40, help="With --model: episodes in each arm.")
@option("--seed", default=0, help="With --model: seed of tasks and sampling.")
@run_options.model_options
@run_options.sampling_options
@common.output_options
def command(stacks: tuple[str, ...], arms: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Test whether an agent stack, or a model, keeps its rules when the history is compacted.

    Without --model no model is asked: each installed stack compacts histories that hold a marked rule, with a
    summariser (the oracle) that repeats the rule whenever it sees it, so that a lost rule was cut away by the stack.
    With --summariser a model writes the summaries, and rules that it left out are counted apart from rules that it
    never saw.

    A stack of your own is a function compact(messages, budget, summarise) that takes messages in OpenAI's format and
    gives those of the next request; summarise(text) gives a summary.

    With --model, the model works at a customer desk under one rule, in several arms, and its tool calls are judged.
    Every episode is a run in the store, and the same line continues where it was stopped.

    \b
    clew audit decay
    clew audit decay --stack langmem --stack langmem-half
    clew audit decay --stack own.py:compact
    clew audit decay --stack langmem --summariser http://localhost:8000/v1#name
    clew audit decay --model http://localhost:8000/v1#name -n 40
    """
    from clew.audit.compaction import behaviour
    from clew.audit.compaction.stacks import STACKS

    if options["listing"]:
        rows = [(s.name, s.version or ("" if s.package != "clew" else "this one"), s.settings) for s in STACKS.values()]
        if as_json:
            common.end_with_json({"stacks": [list(row) for row in rows], "arms": list(behaviour.ARMS)})
        common.print_table(("stack", "installed", "settings"), rows)
        common.echo(f"\narms: {', '.join(behaviour.ARMS)}")
        return
    if options["model"] is not None:
        _behaviour(arms, as_json, store_path, options)
        return
    names = [*stacks] or [s.name for s in STACKS.values() if s.package == "clew" or s.version]
    if options["summariser"] is None:
        _structure(names, as_json)
        return
    from clew.audit.compaction.asking import Asking

    _structure(names, as_json, Asking(run_options.load_model(options["summariser"], options)).summariser)


def _structure(names: list[str], as_json: bool, summariser: Callable[[], Oracle] | None = None) -> None:
    from clew.audit.compaction import structural

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
        line = (f.stack, f.version, f.kept, f.n - f.failed, f.unseen, f.later, f.failed, f.torn)
        table.append((*line, pin.kept, pin.n - pin.failed))
    columns = ("stack", "version", "kept", "of", "never seen", "lost later", "gave up", "torn", "kept with pin", "of")
    common.print_table(columns, table)
    common.echo("\n" + ("\n".join(said) if said else "No stack lost the rule."))


def _plain(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__slots__}


def _behaviour(names: tuple[str, ...], as_json: bool, store_path: str, options: Mapping[str, Any]) -> None:
    from clew.audit.compaction import behaviour
    from clew.core.errors import UnknownName

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
        common.end_with_json({"arms": [_figures(row) for row in rows], "verdict": said})
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
