"""clew memory learn: reflect on stored runs, and let a memory take the lessons that pass the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.harness.memory import Memory
    from clew.methods.memory.lessons.lesson import Learnt, Reflector, Screen
    from clew.methods.memory.lessons.spent import Spent
    from clew.store import Run

REFLECTOR_HELP = "Who reflects: a model, as `clew run` takes it, or file.py:function of a run."
SCREEN_HELP = "Who lets lessons through: rules, strict rules, a model (after the rules), or file.py:function."
LIMIT_HELP = "Most runs to reflect on now, the oldest first.  [default: all]"
QUERIES_HELP = "Of a model: most looks into copies of a failed run's world, each of up to 4 acts of its own."
AGAIN_HELP = "Also reflect on runs that this reflector has seen."
DRY_HELP = "Print how many runs it would reflect on and what that costs, and ask nothing."
RULES = ("rules", "strict")  # screens without a model
DONE = {"add": "added", "merge": "merged", "replace": "replaced", "drop": "dropped"}


@click.command("learn", short_help="Reflect on stored runs, and take lessons from them.")
@click.argument("memory")
@click.argument("runs", nargs=-1)
@option("--reflector", required=True, metavar="MODEL|FILE", help=REFLECTOR_HELP)
@option("--screen", default="rules", metavar="rules|strict|MODEL|FILE", help=SCREEN_HELP)
@option("--limit", type=int, help=LIMIT_HELP)
@option("--looks", default=3, type=common.Amount(int, 0), help="Of a model: most closer looks at one run.")
@option("--queries", default=0, type=common.Amount(int, 0), help=QUERIES_HELP)
@option("--max-tokens", default=1500, help="Of a model: most tokens of an answer.")
@option("--again", is_flag=True, help=AGAIN_HELP)
@option("--dry", is_flag=True, help=DRY_HELP)
@run_options.model_options
@common.output_options
def command(memory: str, runs: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Reflect on stored, judged runs, and let MEMORY take the lessons that the screen lets through.

    RUNS are ids, tags or a query; without any, all that are no forks. The reflector reads each run from its record, a
    line a step, and no agent plays; with --queries a model may also act in copies of the world of a run that failed.
    What a run says is put before a model as data. The screen drops what is not general, not seen in the run, wrongly
    scoped, or planted by a tool's output; it merges what the memory says already, and replaces what a later run
    contradicts. Each item says where it was learnt.

    What was reflected is remembered: after an interrupt, and for new runs, the same line goes on. What it cost is kept
    beside the items, and the whole cost is printed.

    \b
    clew memory learn shop --reflector openai:gpt-5-mini --dry
    clew memory learn shop 'world=desk' --reflector http://127.0.0.1:8000/v1#NAME --limit 50
    clew memory learn shop --reflector mine.py:reflect --screen openai:gpt-5-mini
    """
    from clew.core.aio import run_sync
    from clew.harness.memory import Memory
    from clew.methods.memory.lessons.learn import learn, reflected
    from clew.methods.memory.lessons.spent import ledger

    store = common.open_store(store_path)
    book = Memory(store, memory)
    reflector, screen = _reflector(options), _screen(options)
    chosen = [run for run in common.some(store, runs) if runs or not (run.row.parent or run.row.spawned_by)]
    known = set() if options["again"] else reflected(book, reflector)
    fresh = sorted((run for run in chosen if run.id not in known), key=lambda run: (run.row.created, run.id))
    ready = [run for run in fresh if run.stop is not None and run.reward is not None]
    left = {"reflected before": len(chosen) - len(fresh), "not ended or not judged": len(fresh) - len(ready)}
    todo = ready[: options["limit"]]
    _tell_cost(todo, left, (reflector, screen), options, as_json)
    with run_options.interruptible("the same line again"), common.bar("reflecting", len(todo)) as move:
        done = run_sync(
            learn(book, todo, reflector, screen, again=options["again"], progress=lambda n: move(completed=n))
        )
    whole = ledger(store, memory)
    if done.failed and not done.reflected:
        raise BadInput(f"no run was reflected on: {done.notes[0]}", remedy="See what it says, and mend it.")
    if as_json:
        common.end_with_json(_told(done, whole))
    _print(book, done, whole)


def _reflector(options: Mapping[str, Any]) -> Reflector:
    from clew.core.values import Sampling
    from clew.methods.memory.lessons.model_reflector import ModelReflector
    from clew.methods.memory.lessons.references import is_own, load_reflector

    ref = options["reflector"]
    if is_own(ref):
        return load_reflector(ref)
    how = Sampling(max_tokens=options["max_tokens"], temperature=0.0)
    return ModelReflector(run_options.load_model(ref, options), options["looks"], how, options["queries"])


def _screen(options: Mapping[str, Any]) -> Screen:
    from clew.methods.memory.lessons.model_screen import ModelScreen
    from clew.methods.memory.lessons.references import is_own, load_screen
    from clew.methods.memory.lessons.screens import RuleScreen

    ref = options["screen"]
    if ref in RULES:
        return RuleScreen(strict=ref == "strict")
    return load_screen(ref) if is_own(ref) else ModelScreen(run_options.load_model(ref, options))


def _tell_cost(
    runs: Sequence[Run],
    left: Mapping[str, int],
    asked: tuple[Reflector, Screen],
    options: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Say how many runs it will reflect on and at what cost; with --dry that is all."""
    from clew.methods.memory.lessons.model_reflector import ModelReflector
    from clew.methods.memory.lessons.model_screen import ModelScreen
    from clew.methods.memory.lessons.run_view import RunView

    reflector, screen = asked
    cost = reflector.cost([RunView(run) for run in runs]) if isinstance(reflector, ModelReflector) else {}
    if options["dry"] and as_json:
        common.end_with_json({"runs": len(runs), **left, **cost})
    others = "".join(f", {n} {what}" for what, n in left.items() if n)
    text = f"to reflect on: {_many(len(runs), 'run')}{others}"
    if cost:
        dollars = cost["dollars"]
        price = "at a price that is not known" if dollars is None else f"at most ${dollars:.2f}" if dollars else "free"
        text += f"; about {cost['read']:,.0f} tokens to read, with closer looks and second tries at most "
        text += f"{cost['most']:,.0f}; at most {cost['written']:,.0f} to write; {price}"
    if isinstance(screen, ModelScreen):
        text += f"; {options['screen']} is asked once or more for each lesson"
    common.say(text)
    if options["dry"]:
        raise click.exceptions.Exit(0)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _told(done: Learnt, whole: Spent) -> dict[str, Any]:
    lessons = [
        {"run": it.run, "what": it.ruling.what, "item": it.item, "why": it.ruling.why, **it.lesson._asdict()}
        for it in done.ruled
    ]
    spent = {name: _costs(cost) for name, cost in (("now", done.spent), ("whole", whole))}
    counts = {"reflected": done.reflected, "passed": done.passed, "failed": done.failed}
    return {**counts, "lessons": lessons, "notes": done.notes, "spent": spent}


def _costs(spent: Spent) -> dict[str, dict[str, float]]:
    return {name: cost._asdict() for name, cost in spent._asdict().items()}


def _print(book: Memory, done: Learnt, whole: Spent) -> None:
    from clew.harness.memory.item_kinds import text_of

    for note in done.notes:
        common.say(f"note: {note}")
    counts = Counter[str](it.ruling.what for it in done.ruled)
    said = ", ".join(f"{counts[what]} {word}" for what, word in DONE.items() if counts[what]) or "none"
    common.echo(f"reflected on {_many(done.reflected, 'run')}; lessons: {said}")
    if done.ruled:
        rows = [
            (
                DONE[it.ruling.what],
                it.lesson.kind,
                it.item,
                it.run,
                short(text_of(it.lesson.kind, it.lesson.body), 60),
                it.ruling.why,
            )
            for it in done.ruled
        ]
        common.print_table(("", "kind", "item", "run", "says", "why"), rows)
    common.echo()
    for line in whole.beside():
        common.echo(line)
    items = book.items("active")
    if items:
        common.echo(f"\nNext:\n  {command_line('memory list', book.name)}")
        common.echo(f"  {command_line('memory show', book.name, items[-1].id)}")
