"""What most verbs share: loading verbs, the store, choosing runs, printing as text or JSON, progress bars."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from clew.cli.shared import verb_table
from clew.cli.shared.trust import guarded
from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.core.printable import DEFAULT_STORE, escaped, short, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from clew.core.records import Cursor
    from clew.store import Group, Keeper, Run
    from clew.view.terminal import Tree


class Interrupted(Exception):
    """The user interrupted a long job; the text says how to go on."""


def load_verb(name: str) -> click.Command:
    """The verb of that name: ``run``, or ``audit why``.

    Raises:
        BadInput: a package brings a verb that does not load.
        UnknownName: there is no such verb.
    """
    if name in verb_table.CORE:
        found = importlib.import_module(f"clew.cli.{'import_' if name == 'import' else name}").command
    elif name in (brought := registry.by_hand("commands")):
        found = brought[name]
    elif entry := verb_table.entries().get(name):
        try:
            found = entry.load()
        except (ModuleNotFoundError, AttributeError) as error:
            if isinstance(error, ModuleNotFoundError) and not _within(error.name, entry.module):
                raise  # a package that an extra brings
            package = entry.dist.name if entry.dist else entry.module.partition(".")[0]
            remedy = f"Install {package} again, or remove it."
            raise BadInput(f"the verb {name!r} of package {package} does not load: {error}", remedy=remedy) from error
    else:
        remedy = "`clew --all` lists the verbs; others come with the package that brings them."
        raise UnknownName(f"there is no verb {name!r}", remedy=remedy)
    if not isinstance(found, click.Command):
        raise BadInput(f"the verb {name!r} is not a click command: got {type(found).__name__}", remedy="Name one.")
    return guarded(found)


def _within(missing: str | None, module: str) -> bool:
    """Whether the module that is missing is that of an entry point, or a package it lies in."""
    return missing is not None and f"{module}.".startswith(f"{missing}.")


class Ordered(click.Group):
    """A verb with verbs of its own, in the order in which they are written; then those that entry points bring."""

    def __init__(self, name: str, *, help: str, short_help: str) -> None:
        super().__init__(name, help=help, short_help=short_help)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*dict.fromkeys((*self.commands, *verb_table.places(str(self.name))))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if found := super().get_command(ctx, cmd_name):
            return found
        return load_verb(f"{self.name} {cmd_name}") if cmd_name in verb_table.places(str(self.name)) else None


F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)
Words = str | tuple[str, ...]
Option = Callable[[Any], Any]  # what click.option makes: a decorator
STORE = "clew.store"  # what click's context calls the store of the present line
SLICE = 0.5  # seconds that counting or searching a store takes before a bar tells how far it is, and between its moves
SLOW = {"list": "the runs are counted", "words": "the messages are searched"}
LONGEST, LINES, WIDEST = 2000, 200, 120  # characters of a line of an error or a cell, its lines, words beside a bar


class Amount(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.4 on
    """A finite number within bounds."""

    def __init__(self, kind: type, least: float, most: float = math.inf, *, above: bool = False) -> None:
        self.number = click.INT if kind is int else click.FLOAT
        self.name, self.least, self.most, self.above = self.number.name, least, most, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """As ``click.ParamType``."""
        number: int | float = self.number.convert(value, param, ctx)
        enough = number > self.least if self.above else number >= self.least
        if not (enough and number <= self.most and math.isfinite(number)):
            least = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
            most = "" if self.most == math.inf else f" and at most {self.most:g}"
            self.fail(f"{value} is out of bounds: give a number {least}{most}.", param, ctx)
        return number


class FromProject(click.Option):
    """An option whose help says where its default stands, if in clew.toml; a line in which it does nothing is refused.

    Args:
        only_with: what must stand in the line too for it to do anything, any one of several: another option, one with a
            value (``--rollouts tree``), or an argument by its name in capitals (``RUNS``). Help begins with it.
        not_with: what it does nothing beside, written the same.
    """

    def __init__(self, names: Sequence[str], *, only_with: Words = (), not_with: Words = (), **settings: Any) -> None:
        self.only_with, self.not_with = ((it,) if isinstance(it, str) else tuple(it) for it in (only_with, not_with))
        if self.only_with:
            settings["help"] = f"With {' or '.join(self.only_with)}: {settings['help']}"
        super().__init__(names, **settings)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """As ``click.Option``.

        Raises:
            BadInput: the line says the option, which does nothing there.
        """
        if self.name in opts and not ctx.resilient_parsing:
            told = self.lost(ctx, opts)
            if told:
                flag = (self.secondary_opts or self.opts)[0] if opts[self.name] is False else self.opts[0]
                raise BadInput(f"{flag} does nothing {told[0]}", remedy=told[1])
        return super().handle_parse_result(ctx, opts, args)

    def lost(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[str, str] | None:
        """Why the option does nothing in a line, and the remedy; None where it does something."""
        if self.only_with and not any(_stands(it, ctx, opts) for it in self.only_with):
            wanted = " or ".join(self.only_with)
            return f"without {wanted}", f"Add {wanted}, or leave it out."
        beside = next((it for it in self.not_with if _stands(it, ctx, opts)), None)
        return (f"with {beside}", "Leave out one of the two.") if beside else None

    def get_help_extra(self, ctx: click.Context) -> Any:
        """As ``click.Option``."""
        extra = super().get_help_extra(ctx)
        if "default" in extra and self.name in (ctx.default_map or {}):
            extra["default"] += ", by clew.toml"
        return extra


def _stands(what: str, ctx: click.Context, opts: Mapping[str, Any]) -> bool:
    """Whether a line, or clew.toml or the environment for it, says an option, an argument, or an option's value."""
    flag, _, wanted = what.partition(" ")
    found = next(it for it in ctx.command.params if flag in (*it.opts, *it.secondary_opts, str(it.name).upper()))
    said = opts.get(str(found.name))
    if not isinstance(said, str | int | float | tuple | list):
        said = ctx.lookup_default(str(found.name)) or found.resolve_envvar_value(ctx)
    if wanted:
        return str(found.default if said is None else said) == wanted
    return bool(said)


def option(*names: str, choices: str = "", **settings: Any) -> Callable[[F], F]:
    """As ``click.option``; help shows the default unless that is empty. The words of ``choices`` are the values.

    A whole number is at least 1, or 0 where that is its default; any other number is at least 0; a seed is any number.
    """
    kind = settings.get("type", type(settings.get("default")))
    if choices:
        settings["type"] = click.Choice(choices.split())
    elif kind in (int, float) and "--seed" not in names:
        settings["type"] = Amount(kind, int(kind is int and settings.get("default") != 0))
    settings.setdefault("cls", FromProject)
    return click.option(*names, **{"show_default": settings.get("default") not in ("", "{}"), **settings})


def options(*chosen: Option) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help lists them."""

    def decorate(function: F) -> F:
        for option in reversed(chosen):
            function = option(function)
        return function

    return decorate


STORE_HELP = "File that holds the runs, or postgresql://USER@HOST/DATABASE (or set CLEW_STORE)."


def _note_store(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from clew.store.address import place_of

    ctx.meta[STORE] = place = place_of(value)  # for what is printed where an error has ended the verb
    return place


def store_of(*, only_with: Words = (), not_with: Words = ()) -> Option:
    """The option --store, of a verb that has a store in some lines alone; further as for ``FromProject``."""
    usual: dict[str, Any] = {"envvar": "CLEW_STORE", "default": DEFAULT_STORE, "callback": _note_store}
    return option("--store", "store_path", help=STORE_HELP, **usual, only_with=only_with, not_with=not_with)


store_option = store_of()
VERDICTS_HELP = "Words of a verdict, the best first (or set CLEW_VERDICTS)."


def verdicts_of(*, only_with: Words = (), not_with: Words = ()) -> Option:
    """The option --verdicts; both as for ``FromProject``."""
    return option(
        "--verdicts",
        envvar="CLEW_VERDICTS",
        default="good,unsure,bad",
        help=VERDICTS_HELP,
        only_with=only_with,
        not_with=not_with,
    )


verdicts_option = verdicts_of()
HOST_HELP = "Address to serve at; any but loopback needs a secret that clients send."


def host_of(*, only_with: Words = (), not_with: Words = ()) -> Option:
    """The option --host; both as for ``FromProject``."""
    return option("--host", default="127.0.0.1", help=HOST_HELP, only_with=only_with, not_with=not_with)


host_option = host_of()
json_option = option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
output_options = options(json_option, store_option)


def refuse_others(way: str, names: Sequence[str], *, only: bool = False) -> None:
    """Refuse a line that says options which do nothing in the way that it takes.

    Args:
        way: what takes it, ``--profile``, or ``rollouts of a file``.
        names: these options, by the names of their parameters; with ``only``, all others but these.

    Raises:
        BadInput: it says one.
    """
    context, line = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for param in context.command.params:
        named = (param.name in names) != only and isinstance(param, click.Option)
        if named and context.get_parameter_source(str(param.name)) is line:
            raise BadInput(f"{param.opts[0]} does nothing with {way}", remedy="Leave out one of the two.")


def open_store(path: str, *, create: bool = False) -> Keeper:
    """The store at ``path``; one that does not exist is made only where runs are going to be written.

    Raises:
        UnknownName: there is none.
    """
    from clew import store

    return store.open_store(path, create=create)


def choose(store: Keeper, words: Sequence[str], *, limit: int | None = None) -> list[Run]:
    """Runs named by ids, prefixes, tags, or by one query; all of them when nothing is given.

    Raises:
        UnknownName, BadInput, BadQuery: nothing or too much is meant by a word, or the query does not parse.
    """
    from clew.store import Run
    from clew.store.names import chosen

    return [Run(store, run) for run in chosen(store, words, lambda query: _found(store, query, limit))]


def _found(store: Keeper, query: str, limit: int | None) -> list[str]:
    """Ids of the runs that a query finds; a bar says how far the store is, where it is first counted or searched."""
    from clew.store.slices import Unfinished, limited

    def slice_of() -> list[str] | Unfinished:
        try:
            with limited(SLICE):
                return store.find(query, limit)
        except Unfinished as late:
            return late

    if isinstance(found := slice_of(), Unfinished):
        with progress() as shown:
            bars: dict[str, TaskID] = {}
            while isinstance(found, Unfinished):
                if found.what not in bars:
                    bars[found.what] = shown.add_task(SLOW[found.what], total=found.total, note="")
                shown.update(bars[found.what], completed=found.done, total=found.total)
                found = slice_of()
    return found


def some(store: Keeper, words: Sequence[str]) -> list[Run]:
    """As ``choose``, where at least one run is needed.

    Raises:
        UnknownName: no run fits.
    """
    runs = choose(store, words)
    if not runs:
        raise UnknownName(f"no run matches {' '.join(words)!r}", remedy="`clew log` lists the runs of the store.")
    return runs


def one(store: Keeper, word: str) -> Run:
    """The one run that an id, the start of an id, or a tag means."""
    from clew.store import Run, resolve

    return Run(store, resolve(store, word))


def cursor(store: Keeper, text: str, step: int | None = None, token: int = 0) -> tuple[Run, Cursor | None]:
    """A run and a place in it: ``run``, ``run@call`` or ``run@call+token``; None for the place where none is given."""
    from clew.core.records import Cursor

    if "@" in text and step is not None:
        raise BadInput(f"--step does nothing with {text}, which names its place", remedy="Leave out one of the two.")
    if "@" not in text:
        run = one(store, text)
        return run, run.at(step=step, token=token) if step is not None else None
    name = text.partition("@")[0]
    run = one(store, name)
    return run, Cursor.parse(run.id + text[len(name) :])


def groups_of(runs: Iterable[Run]) -> list[Group]:
    """The groups that chosen runs belong to, each once and whole.

    Raises:
        BadInput: none of them belongs to a group.
    """
    from clew.store import Group

    runs = list(runs)
    names = dict.fromkeys(run.group for run in runs if run.group)
    if not names:
        remedy = "A group is several runs of one task: collect some with `clew run --n 8`."
        raise BadInput("none of the chosen runs belongs to a group", remedy=remedy)
    return [Group(runs[0].store, name) for name in names]


def number_list(text: str, option: str, kind: Callable[[str], N], *, above: float = -math.inf) -> tuple[N, ...]:
    """Numbers of an option, with commas between them.

    Raises:
        BadInput: a word is no number, or too small.
    """
    try:
        found = tuple(kind(word) for word in text.split(",") if word.strip())
        if (found or not text) and all(above < number < math.inf for number in found):
            return found
    except ValueError:
        pass
    least = f" above {above:g}" if above >= 0 else ""
    raise BadInput(f"{option} {text!r} are not numbers{least}", remedy="Write numbers with commas, as in 1,8,32.")


def refuse_open_host(host: str, secret: str | Sequence[str], what: str, variable: str) -> None:
    """Refuse to serve to other machines without a secret that clients must send.

    Raises:
        BadInput: there is none.
    """
    from clew.core.net import loopback

    if not secret and not loopback(host):
        remedy = f"Set {variable} to something long and secret, or leave --host out."
        raise BadInput(f"{host} can be reached by others, and there {what}", remedy=remedy)


def pick(options: Mapping[str, Any], names: str) -> dict[str, Any]:
    """The options of these names."""
    return {name: options[name] for name in names.split()}


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a text, hidden characters as signs. Every verb prints by this, by ``say``, a table, JSON or ``draw``."""
    click.echo(visible(str(text)), err=err)


def say(text: str) -> None:
    """Print to standard error, which a pipe does not read."""
    echo(text, err=True)


def bounded(text: str) -> str:
    """An error fit for a terminal: what it quotes may be of any length, so long lines and many lines are cut."""
    lines = visible(text).split("\n")
    return "\n".join(it if len(it) <= LONGEST else f"{it[:LONGEST]}… ({len(it):,} characters)" for it in lines[:LINES])


def print_json(value: object) -> None:
    """Print a value as JSON; hidden characters are escapes in it, so that it reads back as it is."""
    from clew.core.json_values import plain

    click.echo(escaped(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)))


def end_with_json(value: object) -> NoReturn:
    """Print the result of a verb as JSON, and end the verb."""
    print_json(value)
    raise click.exceptions.Exit(0)


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 130
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}  # texts are printed as they are
    return Console(stderr=stderr, soft_wrap=True, width=width, **plain)


def width() -> int:
    """Characters in a line of the screen."""
    return console().width


def draw(tree: Tree) -> None:
    """Print a tree, in colour where the screen has any."""
    console().print(tree)


def print_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A plain table: numbers right, everything else left, no frames, so that it can be cut and searched."""
    cells = [[show(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    right = [all(_is_number(row[i]) for row in cells) for i in range(len(columns))]
    for row in [list(columns), *cells]:
        line = "  ".join(text.rjust(w) if r else text.ljust(w) for text, w, r in zip(row, widths, right, strict=True))
        echo(line.rstrip())


def show(value: object) -> str:
    """A value as a cell: short numbers, nothing for None, one line."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return short(str(value), LONGEST)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.]*(e[+-]?\d+)?", text))


def progress() -> Progress:
    """A progress bar on stderr; silent where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Words(ProgressColumn):
        def __init__(self, of: Callable[[Task], object]) -> None:
            super().__init__()
            self.of = of

        def render(self, task: Task) -> Text:
            return Text(short(str(self.of(task)), WIDEST))

    screen = console(stderr=True)
    title, note = Words(lambda task: task.description), Words(lambda task: task.fields["note"])
    columns = (title, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note)
    return Progress(*columns, console=screen, disable=not screen.is_terminal)


@contextmanager
def bar(title: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar of one job; gives a function that moves it: ``move(advance=1, note="...")``."""
    with progress() as shown:
        yield partial(shown.update, shown.add_task(title, total=total, note=""))


def api_key() -> str | None:
    """The credential for remote models; it reaches the model's client and nothing that is recorded."""
    return os.environ.get("CLEW_API_KEY") or os.environ.get("OPENAI_API_KEY") or None


def worker_keys() -> dict[str, str]:
    """Credentials of a pool's workers, from CLEW_API_KEY_NAME, by NAME."""
    start = "CLEW_API_KEY_"
    return {name.removeprefix(start): value for name, value in os.environ.items() if name.startswith(start) and value}


def json_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object given on the command line.

    Raises:
        BadInput: it does not parse, is no object, or holds NaN or infinity, which JSON does not know.
    """
    remedy = """Write an object, as in '{"hints": true}'."""

    def refuse(name: str) -> NoReturn:
        raise BadInput(f"{what}: {name} is not JSON", remedy="Write null, or leave the field out.")

    try:
        value = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise BadInput(f"{what} is not JSON: {error}", remedy=remedy) from error
    if not isinstance(value, dict):
        raise BadInput(f"{what} is not a JSON object", remedy=remedy)
    return value
