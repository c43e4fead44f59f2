"""clew memory: what agents remember of earlier runs: look at it, write it, take it elsewhere, delete it for good."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import visible
from clew.core.stats import deviate, wilson

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.harness.memory import Item
    from clew.harness.memory.telling import Share
    from clew.methods.memory.worth.filed_worth import Known
    from clew.store import Keeper

HELP = """Keep what agents remember of earlier runs: plans, facts, pitfalls and tools that they recall from the store.

\b
clew memory list
clew memory add shop --kind fact --text 'The bakery opens at six.' --scope bakery --by ann
clew memory show shop k3j2
clew memory learn shop --reflector openai:gpt-5-mini
clew memory craft shop --codifier openai:gpt-5-mini
clew memory audit shop
clew memory embed shop openai:text-embedding-3-small
clew memory delete shop k3j2
clew memory mcp shop
"""
SHORT = "Keep what agents remember: write, learn, craft, audit, delete."
command = common.Ordered("memory", help=HELP, short_help=SHORT)

BY_HELP = "The person who says so (or set CLEW_AUTHOR)."
FROM_HELP = "Where it was learnt, as RUN@CALL; may be repeated."
FIELDS = ("text", "trigger", "mistake", "consequence", "fix", "name", "signature", "doc")
body_options = common.options(
    option("--text", help="What a plan or a fact says."),
    option("--trigger", help="Of a pitfall: when it happens."),
    option("--mistake", help="Of a pitfall: what is done wrong."),
    option("--consequence", help="Of a pitfall: what comes of it."),
    option("--fix", help="Of a pitfall: what to do instead."),
    option("--name", help="Of a tool: how it is called."),
    option("--signature", help="Of a tool: its arguments."),
    option("--doc", help="Of a tool: what it does."),
    option("--scope", multiple=True, help="An app or a thing it holds for; may be repeated.  [default: everything]"),
    option("--from", "places", multiple=True, metavar="RUN@CALL", help=FROM_HELP),
    option("--by", envvar="CLEW_AUTHOR", default="", help=BY_HELP),
)


@command.command("list", short_help="List the memories of the store, or the items of one.")
@click.argument("memory", required=False)
@option("--state", choices="active superseded promoted retired", only_with="MEMORY", help="only items in this state.")
@common.output_options
def list_(memory: str | None, state: str | None, as_json: bool, store_path: str) -> None:
    """List the memories of the store; with MEMORY, its items, oldest first.

    \b
    clew memory list
    clew memory list shop --state active
    """
    from clew.harness.memory import Memory

    store = common.open_store(store_path)
    if memory is None:
        _list_memories(store, as_json)
        return
    items = Memory(store, memory).items(state or "")
    if as_json:
        common.end_with_json([_told(item) for item in items])
    if not items:
        add = command_line("memory add", memory, kind="fact", text="TEXT")
        common.echo(f"memory {memory} has no such items; what adds one: {add}")
        return
    common.print_table(("item", "kind", "state", "scope", "recalled", "from", "text"), map(_row, items))
    common.echo(f"\nNext:\n  {command_line('memory show', memory, items[-1].id)}")


def _list_memories(store: Keeper, as_json: bool) -> None:
    from clew.harness.memory import Memory

    counts = {name: Counter(item.state for item in Memory(store, name).items()) for name in store.memories()}
    if as_json:
        common.end_with_json(counts)
    if not counts:
        add = command_line("memory add", "NAME", kind="fact", text="TEXT")
        common.echo(f"the store holds no memory; what begins one: {add}")
        return
    states = ("active", "promoted", "superseded", "retired")
    common.print_table(("memory", *states), [(name, *(n[state] for state in states)) for name, n in counts.items()])
    common.echo(f"\nNext:\n  {command_line('memory list', min(counts))}")


@command.command(short_help="Show one item, where it comes from, and the runs that saw it.")
@click.argument("memory")
@click.argument("item")
@common.output_options
def show(memory: str, item: str, as_json: bool, store_path: str) -> None:
    """Show ITEM of MEMORY: its text, where it was learnt, which runs were given it, and their success against
    that of runs that were given other items. That is no causal claim: `clew memory audit` makes one, and what it
    found is shown too.

    \b
    clew memory show shop k3j2
    """
    from clew.harness.memory import Memory
    from clew.harness.memory.telling import CAVEAT, told
    from clew.methods.memory.lessons.learn import seen_again
    from clew.methods.memory.worth.filed_worth import known

    store = common.open_store(store_path)
    book = Memory(store, memory)
    found = book.item(item)
    success, again = told(store, found, book.items()), seen_again(book).get(found.id, [])
    worth = known(store.reports(), memory, (found.id,))
    if as_json:
        shares = {"success": _success(success.given), "success of others": _success(success.others)}
        said = {**_told(found), "seen again": again, **shares, "difference": _difference(success.report)}
        common.end_with_json({**said, "caveat": CAVEAT, "worth": _worth(worth)})
    common.echo(f"{found.kind} {found.id} of memory {memory}: {_state(found)}\n")
    common.echo(found.text)
    for name in ("from_plan", "deps", "checks", "source"):  # of a tool
        if found.body.get(name):
            common.echo(f"{name}: {found.body[name]}" if name != "source" else f"\n{found.body[name]}")
    common.echo(f"\nscope: {', '.join(found.scope) or 'everything'}")
    common.echo(f"from:  {', '.join((*found.provenance, *([found.by] if found.by else ())))}")
    if again:
        common.echo(f"seen again at {', '.join(again[-5:])}{f' and {len(again) - 5} more' if len(again) > 5 else ''}")
    common.echo(f"recalled by {len({given.place.partition('@')[0] for given in found.given})} runs")
    for given in found.given[-5:]:
        common.echo(f"  {given.place}  {common.show(given.query)}")
    both = f"{_share(success.given)} of the runs that were given it, {_share(success.others)} of the others"
    common.echo(f"success: {both}")
    if success.report is not None:
        common.echo(f"  difference {success.report}; {CAVEAT}")
    if worth is not None:
        common.echo(f"worth: {worth.verdict}: {worth.why}")
        for measure, report in worth.reports.items():
            common.echo(f"  {measure} with it less without: {report}")
        common.echo(f"  {worth.reports['success'].caveats[1]}")
    common.echo("\nNext:")
    if found.given:
        common.echo(f"  {command_line('memory audit', memory, items=found.id)}")
        common.echo(f"  {_fork_line(store, found.given[-1].place, found.id)}")
    common.echo(f"  {command_line('memory list', memory)}")


@command.command(short_help="Add an item to a memory.")
@click.argument("memory")
@option("--kind", required=True, choices="plan fact pitfall tool", help="What the item is.")
@body_options
@common.output_options
def add(memory: str, kind: str, as_json: bool, store_path: str, **given: Any) -> None:
    """Add an item to MEMORY, which begins with its first item. It says where it was learnt, or who says so.

    \b
    clew memory add shop --kind fact --text 'The bakery opens at six.' --scope bakery --by ann
    clew memory add shop --kind plan --text 'Ask for the price, then pay.' --from 4fzk2w@12
    clew memory add shop --kind pitfall --trigger 'a page is full' --mistake 'to stop there' \\
      --consequence 'half the rows are missing' --fix 'ask for the next page' --from 4fzk2w@12
    """
    from clew.harness.memory import Memory

    book = Memory(common.open_store(store_path, create=True), memory)
    body, more = _body(given), {"scope": given["scope"], "provenance": given["places"], "by": given["by"]}
    if not given["places"] and not given["by"]:
        raise BadInput("an item that comes from nowhere", remedy="Say --from RUN@CALL, or --by NAME for a person.")
    _written(book.add(kind, body, **more), as_json)


@command.command(short_help="Put a new item in the place of one.")
@click.argument("memory")
@click.argument("item")
@option("--why", default="", help="Why it is changed.")
@body_options
@common.output_options
def edit(memory: str, item: str, why: str, as_json: bool, store_path: str, **given: Any) -> None:
    """Put a new item in the place of ITEM of MEMORY. What is not said stays as it was; the old item stays in
    the store as superseded, and is not recalled any more.

    \b
    clew memory edit shop k3j2 --text 'The bakery opens at seven.' --why 'it changed in May' --by ann
    """
    from clew.harness.memory import Memory

    book = Memory(common.open_store(store_path), memory)
    old, more = book.item(item), {"why": why, "by": given["by"]}
    for option_, field in (("scope", "scope"), ("places", "provenance")):
        if given[option_]:
            more[field] = given[option_]
    _written(book.edit(old.id, {**old.body, **_body(given)}, **more), as_json)


@command.command(short_help="Take an item out of use.")
@click.argument("memory")
@click.argument("item")
@option("--why", default="", help="Why it is not to be recalled any more.")
@common.output_options
def retire(memory: str, item: str, why: str, as_json: bool, store_path: str) -> None:
    """Take ITEM of MEMORY out of use: it is not recalled any more and stays in the store with the reason.

    \b
    clew memory retire shop k3j2 --why 'the bakery has closed'
    """
    from clew.harness.memory import Memory

    _written(Memory(common.open_store(store_path), memory).retire(item, why), as_json)


@command.command(short_help="Delete items for good, and what runs were shown of them.")
@click.argument("memory")
@click.argument("items", nargs=-1, required=True)
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common.output_options
def delete(memory: str, items: tuple[str, ...], yes: bool, as_json: bool, store_path: str) -> None:
    """Delete ITEMS of MEMORY for good, with the items whose place they took. No byte of them stays in the
    store, and no merge brings them back.

    Runs that were given them keep a tombstone where the text stood: such a run still verifies and can no longer be
    replayed. Runs from which an item was learnt are left as they are. It says what it will do before it asks.

    \b
    clew memory delete shop k3j2
    clew memory delete shop k3j2 --yes
    """
    from clew.harness.memory import Memory
    from clew.harness.memory.forgetting import forget, places

    store = common.open_store(store_path)
    book = Memory(store, memory)
    doomed = {one.id: one for item in items for one in book.line(book.item(item))}
    where = places(store, list(doomed.values()))
    runs = len({place.run for place in where})
    common.say(f"{_many(doomed, 'item')} will be deleted: {', '.join(doomed)}")
    common.say(f"{len(where)} recalls of {runs} runs will be erased, with the messages that hold what they gave")
    if not yes:
        click.confirm(visible(f"Delete them in {store.path} for good?"), abort=True, err=True)
    erased = forget(book, list(doomed.values()), where)
    if as_json:
        common.end_with_json({"items": sorted(doomed), "erased": erased})
    common.echo(f"deleted {_many(doomed, 'item')}, erased {_many(erased, 'place')} in records")
    common.echo(f"\nNext:\n  {command_line('store verify')}\n  {command_line('memory list', memory)}")


@command.command(short_help="Write the items of a memory as JSON lines.")
@click.argument("memory")
@click.argument("file", type=click.Path(dir_okay=False))
@common.output_options
def export(memory: str, file: str, as_json: bool, store_path: str) -> None:
    """Write the items of MEMORY to FILE, one JSON object a line, in every state; not who recalled them.

    \b
    clew memory export shop shop.jsonl
    """
    from clew.harness.memory import Memory
    from clew.harness.memory.item_lines import line_of

    items = Memory(common.open_store(store_path), memory).items()
    if not items:
        raise BadInput(f"memory {memory!r} holds no items", remedy="`clew memory list` lists the memories.")
    Path(file).write_text("".join(f"{line_of(item)}\n" for item in items), encoding="utf-8")
    if as_json:
        common.end_with_json({"file": file, "items": len(items)})
    line = command_line("memory import", memory, file, store_path="other.db")
    common.echo(f"{len(items)} items in {file}\n\nNext:\n  {line}")


@command.command("import", short_help="Take the items of a file of JSON lines into a memory.")
@click.argument("memory")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@common.output_options
def import_(memory: str, file: str, as_json: bool, store_path: str) -> None:
    """Take the items of FILE, which `clew memory export` wrote, into MEMORY: all of them, or none where a line
    is no item. An item that MEMORY holds, or that was deleted in the store, is passed over; of one that another
    memory holds, MEMORY gets a copy with an id of its own.

    \b
    clew memory import shop shop.jsonl
    """
    from clew.harness.memory import Memory
    from clew.harness.memory.item_lines import take_lines

    with Path(file).open(encoding="utf-8", errors="replace", newline="\n") as lines:
        taken = take_lines(Memory(common.open_store(store_path, create=True), memory), lines)
    if as_json:
        common.end_with_json(taken._asdict())
    line = command_line("memory list", memory)
    told = f"{taken.added} items added, {taken.known} known before"
    if taken.deleted:
        told += f", {taken.deleted} deleted before and left out"
    if taken.copied:
        told += f"\n{taken.copied} of those added have ids of their own: another memory here holds theirs"
    common.echo(f"{told}\n\nNext:\n  {line}")


def _fork_line(store: Keeper, place: str, item: str) -> str:
    """The line that forks a run without an item; a program that asked the gateway is started again for it."""
    run = place.partition("@")[0]
    if store.row(run).agent.endswith(":relay"):
        return f"{command_line('gateway', place=place, without=item)} -- PROGRAM"
    return command_line("fork", place, without_memory=item)


def _many(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def _body(given: dict[str, Any]) -> dict[str, str]:
    return {name: given[name] for name in FIELDS if given[name] is not None}


def _written(item: Item, as_json: bool) -> None:
    if as_json:
        common.end_with_json(_told(item))
    line = command_line("memory show", item.memory, item.id)
    common.echo(f"{item.kind} {item.id}: {_state(item)}\n\nNext:\n  {line}")


def _state(item: Item) -> str:
    by = f" by {item.replaced_by}" if item.state == "superseded" else ""
    return f"{item.state}{by}{f', {item.why}' if item.why else ''}"


def _row(item: Item) -> tuple[object, ...]:
    whence = item.provenance[0] if item.provenance else item.by
    return item.id, item.kind, item.state, ",".join(item.scope), len(item.given), whence, item.text[:60]


def _told(item: Item) -> dict[str, object]:
    told = {name: getattr(item, name) for name in item.__dataclass_fields__ if name != "given"}
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.made))
    return told | {"made": made, "text": item.text, "given": [given._asdict() for given in item.given]}


def _share(share: Share) -> str:
    """Successes among runs, with Wilson's interval."""
    low, high = wilson(share.hits, share.n, deviate(0.95))
    return f"{share.hits} of {share.n} [{low:.2f}, {high:.2f}]" if share.n else "none judged"


def _success(share: Share) -> dict[str, object]:
    low, high = wilson(share.hits, share.n, deviate(0.95))
    return {"hits": share.hits, "n": share.n, "low": low, "high": high}


def _difference(report: Report | None) -> dict[str, object] | None:
    return None if report is None else {name: getattr(report, name) for name in ("estimate", "low", "high", "n")}


def _worth(worth: Known | None) -> dict[str, object] | None:
    if worth is None:
        return None
    reports = {name: run_options.numbers(report) for name, report in worth.reports.items()}
    return {"verdict": worth.verdict, "why": worth.why, "audit": worth.label, **reports}
