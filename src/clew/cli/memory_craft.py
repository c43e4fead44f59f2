"""clew memory craft: tools from plans that have earned one, and the return to text of those that no longer do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.harness.memory import Item, Memory
    from clew.methods.memory.craft.crafting import Crafted
    from clew.methods.memory.craft.drafting import Codifier
    from clew.methods.memory.craft.returning import Record, Returned
    from clew.methods.memory.craft.stored_plays import Finish
    from clew.methods.memory.craft.thresholds import Due

CODIFIER_HELP = "Who writes tools: a model, as `clew run` takes it, or file.py:function of a plan, queries and tools."
THETA_HELP = "How often a plan must recur: a number of --by, or auto: as often as would have paid for the build."
BY_HELP = "Count queries of different shapes, or queries that differ in any word."
SHADOW_HELP = "Stored runs that the tool does again and on which it must end as the text path did."
FRESH_HELP = "Most new tasks of the runs' own world to play, with the plan as text, where stored runs are too few."
FINISH_HELP = "How an answer is handed in: TOOL.ARGUMENT of the world.  [default: as the stored runs did]"
DRY_HELP = "Print which plans are due and which tools would return to text, and change nothing."
LIMIT_HELP = "Most plans to build now, the readiest first.  [default: all that are due]"


@click.command("craft", short_help="Make tools of plans that earned them, or return them to text.")
@click.argument("memory")
@click.argument("plans", nargs=-1)
@option("--codifier", default="", metavar="MODEL|FILE", help=CODIFIER_HELP)
@option("--theta", default="auto", metavar="N|auto", help=THETA_HELP)
@option("--by", choices="shapes queries", default="shapes", help=BY_HELP)
@option("--shadow", default=3, help=SHADOW_HELP)
@option("--fresh", default=0, type=common.Amount(int, 0), help=FRESH_HELP)
@option("--seconds", default=120.0, help="That the codifier may take for one tool.")
@option("--finish", default="", metavar="TOOL.ARGUMENT", help=FINISH_HELP)
@option("--limit", type=int, help=LIMIT_HELP)
@option("--max-tokens", default=4000, help="Of a model: most tokens of an answer.")
@option("--dry", is_flag=True, help=DRY_HELP)
@run_options.model_options
@common.output_options
def command(memory: str, plans: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Make tools of the plans of MEMORY that have earned one. PLANS are ids: these are built without being due.

    A plan recurs when runs are given it. By ski rental it has earned a tool when the tokens that one would have saved
    pay for building it. The codifier reads the plan and its queries and no run. Its tool must call nothing but what
    the world offers, run in the sandbox, and end as the text path did in --shadow stored runs; else the plan stays
    text, one sentence says why, and it is tried again when it has recurred as often once more. Where stored runs are
    too few, --fresh N lets up to N new tasks be played for each plan, as the runs were; they are kept.

    Before, each tool that does worse than its plan did, or whose world has changed, returns to text with the reason.
    What was built and refused is remembered: after an interrupt the same line goes on.

    \b
    clew memory craft shop --dry
    clew memory craft shop --codifier openai:gpt-5-mini
    clew memory craft shop --codifier mine.py:codify --theta 3 --shadow 5
    """
    from clew.harness.memory import Memory
    from clew.methods.memory.craft.returning import records, returned
    from clew.methods.memory.craft.workshop import offered, survey
    from clew.methods.memory.lessons.spent import ledger

    if not options["dry"] and not options["codifier"]:
        raise BadInput("nobody is named who writes tools", remedy="Say --codifier MODEL, or --dry to look first.")
    store = common.open_store(store_path)
    book = Memory(store, memory)
    theta, finish = _theta(options["theta"]), _finish(options["finish"])
    codifier = _codifier(options) if options["codifier"] else None
    gone = returned(book, offered(book), dry=options["dry"])
    guess = _guess(codifier, book)
    found = survey(book, theta, options["by"], guess)
    chosen = _chosen(book, plans, found)[: options["limit"]]
    tools = [_used(tool, record) for tool, record in records(book)]
    if as_json and options["dry"]:
        common.end_with_json({"returned": [one._asdict() for one in gone], "tools": tools, "plans": _plain(found)})
    if not as_json:
        _tell(found, gone, tools, options["dry"])
    _tell_cost(chosen, guess, options, book)
    if options["dry"]:
        raise click.exceptions.Exit(0)
    assert codifier is not None
    done = _built(book, chosen, codifier, finish, options)
    whole = ledger(store, memory)
    if as_json:
        told = {"returned": [one._asdict() for one in gone], "tools": tools, "plans": _plain(found)}
        spent = {name: cost._asdict() for name, cost in whole._asdict().items()}
        common.end_with_json({**told, "crafted": [_crafted(one) for one in done], "spent": spent})
    _print(book, done)
    for line in whole.beside():
        common.echo(line)
    common.echo("\nNext:")
    for tool in [one.tool for one in done if one.tool][:3]:
        common.echo(f"  {command_line('memory show', memory, tool)}")
    common.echo(f"  {command_line('memory list', memory)}")


def _theta(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) < 10**9:
        raise BadInput(f"a threshold of {text[:20]!r}", remedy="Say --theta auto, or a whole number from 1.")
    return int(text)


def _finish(text: str) -> Finish | None:
    from clew.methods.memory.craft.stored_plays import Finish

    if not text:
        return None
    tool, _, argument = text.partition(".")
    if not tool or not argument:
        raise BadInput(f"{text[:40]!r} is no tool and argument", remedy="Write --finish submit.answer.")
    return Finish(tool, argument)


def _codifier(options: Mapping[str, Any]) -> Codifier:
    from clew.core.values import Sampling
    from clew.methods.memory.craft.model_codifier import ModelCodifier
    from clew.methods.memory.craft.own_codifier import load_codifier
    from clew.methods.memory.lessons.references import is_own

    ref = options["codifier"]
    if is_own(ref):
        return load_codifier(ref)
    how = Sampling(max_tokens=options["max_tokens"], temperature=0.0)
    return ModelCodifier(run_options.load_model(ref, options), how)


def _guess(codifier: Codifier | None, book: Memory) -> float:
    """Tokens of a build before one was measured: of a model, one question of a plan and half of the longest answer."""
    from clew.methods.memory.craft.crafting import different
    from clew.methods.memory.craft.model_codifier import ModelCodifier

    if not isinstance(codifier, ModelCodifier):
        return 0.0
    plans = [one for one in book.items() if one.kind == "plan" and one.state not in ("superseded", "retired")]
    asked = [len(codifier.question(one, different(one), ())) / 4 for one in plans]
    return max(asked, default=0.0) + codifier.sampling.max_tokens / 2


def _chosen(book: Memory, plans: Sequence[str], found: Sequence[Due]) -> list[Due]:
    if not plans:
        return [one for one in found if one.ready]
    wanted = [book.item(plan).id for plan in plans]
    known = {one.plan.id: one for one in found}
    if unknown := [id for id in wanted if id not in known]:
        raise BadInput(f"{unknown[0]} is no plan without a tool", remedy="`clew memory craft --dry` lists those.")
    return [known[id] for id in wanted]


def _used(tool: Item, record: Record) -> dict[str, object]:
    """How a tool did: what fell through to the text is counted too."""
    answered = sum(use.answered for use in record.uses)
    good = {"tool": record.tool, "plan": record.text}
    shares = {f"success of {name}": f"{sum(got)} of {len(got)}" for name, got in good.items()}
    return {"tool": tool.body["name"], "item": tool.id, "uses": len(record.uses), "answered": answered, **shares}


def _tell(found: Sequence[Due], gone: Sequence[Returned], tools: Sequence[Mapping[str, object]], dry: bool) -> None:
    from clew.methods.memory.craft.workshop import never

    for one in gone:
        common.echo(f"{one.name} ({one.tool}) {'would be ' if dry else ''}{one.why}")
    if tools:
        common.print_table([*tools[0]], [[*one.values()] for one in tools])
        common.echo()
    if not found:
        common.echo("no plan without a tool")
        return
    rows = [
        (
            one.plan.id,
            *one.seen,
            "due" if one.ready else "",
            short(never(one) or one.why, 100),
            short(one.plan.text, 40),
        )
        for one in found
    ]
    common.print_table(("plan", "uses", "queries", "shapes", "", "why", "text"), rows)


def _tell_cost(chosen: Sequence[Due], guess: float, options: Mapping[str, Any], book: Memory) -> None:
    """What will be asked and played, before it is."""
    most = f"; about {guess * len(chosen):,.0f} tokens, with second tries three times as many" if guess else ""
    common.say(f"to build: {len(chosen)} tool{'s' * (len(chosen) != 1)}{most}")
    for one in chosen if options["fresh"] else ():
        from clew.methods.memory.craft.fresh_plays import expected
        from clew.methods.memory.craft.workshop import followed

        some, most_of = followed(book, one.plan), options["fresh"]
        if some:
            tokens, dollars, seconds = (most_of * each for each in expected(book.store, some))
            price = f", ${dollars:.2f}" if dollars else ""
            lack = max(0, options["shadow"] - len(some))
            why = f"{lack} shadow tasks are lacking" if lack else "only where stored runs show nothing"
            told = f"up to {most_of} new tasks ({why}): about {tokens:,.0f} tokens{price}, {seconds:,.0f} s"
            common.say(f"plan {one.plan.id}: {told}")


def _built(
    book: Memory, chosen: Sequence[Due], codifier: Codifier, finish: Finish | None, options: Mapping[str, Any]
) -> list[Crafted]:
    from clew.core.aio import run_sync
    from clew.methods.memory.craft.workshop import build

    done: list[Crafted] = []
    resolve = partial(run_options.load_model, options=options)
    how = {"m": options["shadow"], "seconds": options["seconds"], "finish": finish}
    how |= {"fresh": options["fresh"], "resolve": resolve}
    with run_options.interruptible("the same line again"), common.bar("crafting", len(chosen)) as move:

        def playing(begun: int) -> None:
            move(note=f"playing new task {begun}, at most {options['fresh']}")

        for one in chosen:
            done.append(run_sync(build(book, one, codifier, **how, progress=playing)))
            move(advance=1, note="")
    return done


def _plain(found: Sequence[Due]) -> list[dict[str, object]]:
    return [
        {
            "plan": one.plan.id,
            **one.seen._asdict(),
            "have": one.need.have,
            "theta": one.need.theta,
            "tried": one.tried,
            "due": one.ready,
            "why": one.why,
        }
        for one in found
    ]


def _crafted(one: Crafted) -> dict[str, object]:
    shadowed = one.shadowed and {**one.shadowed._asdict(), "checks": one.shadowed.checks.json()}
    costs = {name: getattr(one, name)._asdict() for name in ("building", "checking")}
    return {"plan": one.plan, "tool": one.tool, "name": one.name, "why": one.why, "shadow": shadowed, **costs}


def _print(book: Memory, done: Sequence[Crafted]) -> None:
    for one in done:
        what = f"admitted {one.name} ({one.tool})" if one.tool else "refused"
        common.echo(f"plan {one.plan}: {what}: {short(one.why, 300)}")
        if one.shadowed is not None:
            common.echo(f"  {one.shadowed.checks}")
