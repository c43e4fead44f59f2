"""The command line. One file per verb; a verb's file is loaded when the verb is named or listed."""

from __future__ import annotations

import _thread
import difflib
import io
import itertools
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from clew.cli.shared import common, next_lines, old_spellings, option, project, verb_table
from clew.cli.shared.trust import BEFORE
from clew.core.errors import BadInput, ClewError
from clew.core.printable import visible
from clew.core.sources import moved

INTERRUPTED = 130  # exit code
EPILOG = """`clew --all` lists every verb: serve a model, train from stored runs, diagnose bugs and more.

The store is ./.clew/store.db; choose another with --store or CLEW_STORE. A file clew.toml says it for a project."""


class Verbs(click.Group):
    """The group of all verbs: loads one when it is named, and turns errors into plain sentences and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verb_table.places())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return common.load_verb(cmd_name) if cmd_name in verb_table.CORE or cmd_name in verb_table.places() else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["clew.arguments"] = list(args)  # for the ranks of `clew train --nproc`, which run the same line
        ctx.meta["clew.leading"] = list(itertools.takewhile(lambda word: word.startswith("-"), args))
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        args = old_spellings.today(args)
        name = args[0]
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), 3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`clew --help` lists the verbs."
            raise click.UsageError(f"there is no verb {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            self._take_project(ctx)
            return super().invoke(ctx)
        except ClewError as error:
            error.remedy = next_lines.with_store(error.remedy, ctx.meta.get(common.STORE))
            raise

    def _take_project(self, ctx: click.Context) -> None:
        """Let click take defaults from clew.toml. `clew init` writes one; `clew doctor` says what is wrong with it."""
        verb = next(iter(ctx._protected_args), "")
        if verb == "init" or (path := project.find()) is None:
            return
        try:
            ctx.meta[project.PROJECT] = found = project.Project(path)
            found.check_moved()
            ctx.meta[BEFORE] = found.allow
            ctx.default_map = project.OfVerb(found, self, ctx)
        except BadInput:
            if verb != "doctor":
                raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        every, places = "--all" in ctx.meta["clew.leading"], verb_table.places().items()
        for section, title in verb_table.SECTIONS.items():
            listed = [verb for verb, at in places if at.section == section and (every or not at.later)]
            if listed:
                with formatter.section(title):
                    formatter.write_dl([(verb, self._line(ctx, verb)) for verb in listed])

    def _line(self, ctx: click.Context, verb: str) -> str:
        try:
            command = self.get_command(ctx, verb)
        except Exception as error:  # a broken extension must not take the help of the others with it
            return f"(does not load: {error})"
        return command.get_short_help_str(90) if command else ""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and exit: 0 done, 1 an error in Clew or a check that failed, 2 bad input, 130 interrupted."""
        args = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in args
        os.environ.setdefault("TQDM_DISABLE", "1")  # other libraries' bars would tear ours
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it a steady training on a GPU ends
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # models and broken files do produce lone surrogates
        extra["standalone_mode"] = False
        try:
            code = super().main([a for a in args if a != "--debug"], **extra)
        except Exception as error:
            if debug:
                common.say(traceback.format_exc())
            code = _explain(error)
        except KeyboardInterrupt:
            code = _explain(click.Abort())
        sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Print an error; the exit code."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever reads has seen enough
        return 0
    said, code = _sentence(error)
    with _uninterrupted() if code == INTERRUPTED else nullcontext():
        common.say(common.bounded(said))
    return code


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let the word on an interrupt be said to its end where the user, or `clew stop`, interrupts once more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _sentence(error: BaseException) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    if isinstance(error, click.ClickException):
        error.show(told := io.StringIO())
        return told.getvalue().rstrip() + _source(error), error.exit_code
    if isinstance(error, click.Abort | common.Interrupted):
        hint = f" Everything recorded so far is kept. Continue with: {error}" if str(error) else ""
        return f"\nInterrupted.{hint}", INTERRUPTED
    if isinstance(error, OSError) and error.filename:
        remedy = "Check that the path exists and that you may use it."
        return f"clew: {error.filename}: {error.strerror}\n  {remedy}", 2
    if isinstance(error, ClewError):
        return f"clew: {error}", 2
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("clew"):
        return f"clew: {error.name} is not installed\n  `clew doctor` says which extra brings it.", 2
    first = str(error).strip().split("\n")[0]
    return f"clew: {type(error).__name__}: {first}\n  This is an error in Clew; --debug shows where.", 1


def _source(error: click.ClickException) -> str:
    """Where a value that is refused stands, if not in the line."""
    if isinstance(error, click.BadParameter) and error.ctx is not None and error.param is not None:
        found = error.ctx.meta.get(project.PROJECT)
        if found and error.ctx.get_parameter_source(str(error.param.name)) is click.core.ParameterSource.DEFAULT_MAP:
            return f"\nThe value stands in {found.path}."
    return ""


def _help(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        common.echo(ctx.get_help())
        ctx.exit()


def _moved(ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]) -> None:
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not old or not equals or not new:
            raise BadInput(f"--moved {pair!r} names no two places", remedy="Write --moved OLD=NEW.")
        moved(old, new)


MOVED_HELP = "The file or folder that runs name A lies at B now."


@click.group(
    cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="clew", message="clew %(version)s")
@option("--all", is_flag=True, is_eager=True, expose_value=False, callback=_help, help="List every verb.")
@option("--debug", is_flag=True, help="Show the traceback of an error; may stand anywhere in the line.")
@option("--moved", multiple=True, metavar="A=B", callback=_moved, expose_value=False, help=MOVED_HELP)
def verbs(debug: bool) -> None:
    """Record the runs of LLM agents, go back to any step or token, change something there and continue, and train.

    Start with `clew quickstart`. Runs are chosen by id (or its first letters), by tag, or by a query such as
    'world=household return<0.5 steps>20 tag:x text:"fridge"'.
    """
    _ = debug  # read from the line itself, so that it works after the verb too


class Plain(logging.Formatter):
    """A line of a log, with its traceback, fit for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _settle_warnings() -> None:
    """Warnings and logs quote what others wrote, and Python prints them past the functions of this package."""
    shown = warnings.formatwarning

    def plain(*args: Any, **named: Any) -> str:
        return visible(shown(*args, **named))

    warnings.formatwarning = plain
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Plain())


def _keep_interrupts() -> None:
    """Take interrupts even where whoever started the program ignores them, and send one again that Python swallowed.

    Python raises it wherever the program is, also inside a finaliser or the callback of a weak reference (each import
    runs some). There nothing can be raised: it is reported as ignored, and the program would go on.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a script's `&` starts programs so, and `clew stop` sends it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    report = sys.unraisablehook

    def later() -> None:
        time.sleep(0.01)  # until what swallowed it has returned
        _thread.interrupt_main()

    swallowed = threading.Event()

    def again(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            swallowed.set()
            _thread.start_new_thread(later, ())
        elif not swallowed.is_set():  # what an interrupt left half made, such as an event loop, cannot be closed
            report(lost)

    sys.unraisablehook = again


def main() -> None:
    """The script. After an interrupt it ends at once: threads inside native code would abort an orderly exit."""
    _settle_warnings()
    _keep_interrupts()
    try:
        verbs()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        raise
    except KeyboardInterrupt:  # a second one, while the first ended the verb
        os._exit(INTERRUPTED)
