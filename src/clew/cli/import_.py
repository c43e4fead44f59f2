"""clew import: read runs that other programs recorded, and portable runs that another Clew wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from clew.cli.shared import common, live_spans, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput, BadRecord

FORM_HELP = "openai, parquet, inspect, atif, otel, codex, claude-code, mini-swe-agent.  [default: by name and content]"
PORT_HELP = "port; 0 takes a free one."
LISTEN_HELP = "Take OpenTelemetry spans over HTTP (OTLP) until Ctrl-C."


@click.command("import", short_help="Import runs that other programs, or another Clew, recorded.")
@click.argument("files", nargs=-1)
@option("--format", "form", help=FORM_HELP)
@option(
    "--skip-bad", is_flag=True, not_with="--listen", help="Import the good records of a file that also has broken ones."
)
@option("--name", default="", help="Name of the imported groups.  [default: the file's name]")
@option("--listen", is_flag=True, help=LISTEN_HELP)
@common.host_of(only_with="--listen")
@option("--port", type=click.IntRange(0, 65535), default=live_spans.PORT, only_with="--listen", help=PORT_HELP)
@option("--token", envvar="CLEW_OTEL_TOKEN", default="", only_with="--listen", help="secret that clients must send.")
@common.output_options
def command(
    files: tuple[str, ...],
    form: str | None,
    skip_bad: bool,
    name: str,
    listen: bool,
    host: str,
    port: int,
    token: str,
    as_json: bool,
    store_path: str,
) -> None:
    """Import runs: messages in OpenAI's format, Parquet, Inspect logs, ATIF, spans, session logs of coding agents.

    Messages in OpenAI's format come one run a line (.jsonl), or as one .json file: a run, a list of runs as tau-bench
    writes it, or a list of messages as mini-swe-agent writes it.

    Session logs of Claude Code, Codex and mini-swe-agent are known by their content. FILES may be folders: all that can
    be imported below them is.

    Spans of OpenTelemetry come as OTLP in JSON, as the collector's file exporter writes it (.json, .jsonl): each trace
    in which a model replied becomes a run. The names of the conventions for generative AI, of OpenInference (Phoenix),
    OpenLLMetry and Langfuse are read. With --listen they come over HTTP instead, while programs run: a trace becomes a
    run once its root span has come and nothing has followed for ten seconds, or at Ctrl-C.

    A portable run (.clew), which `clew export` wrote, comes with its ids, digests, annotations and files; it is proved
    before anything of it is taken.

    Runs of one task become a group, so that they can be compared. If a record is broken, nothing of its file is
    imported, except with --skip-bad.

    \b
    clew import bug.clew
    clew import airline.jsonl
    clew import gpt-4o-airline.json *.traj.json
    clew import logs/*.eval --skip-bad
    clew import traces.json
    clew import --listen
    clew import ~/.claude/projects/my-project ~/.codex/sessions
    """
    if listen:
        if files or form or name or as_json:
            told = "with --listen, runs come over HTTP and are named by their traces"
            raise BadInput(told, remedy="Leave the files, --format, --name and --json out.")
        live_spans.listen(host, port, token, store_path)
        return
    if not files:
        raise click.UsageError("name a file to import, as in: clew import runs.jsonl")
    whole = [file for file in files if file.lower().endswith(".clew") and form is None]
    if whole and (len(whole) < len(files) or name or skip_bad):
        raise BadInput(
            "portable runs are taken as they are", remedy="Import them alone, without --name and --skip-bad."
        )
    if whole:
        _portable(whole, as_json, store_path)
        return
    _import(_found(files, form), form, skip_bad, name, as_json, store_path)


def _portable(files: Sequence[str], as_json: bool, store_path: str) -> None:
    """Take portable runs in, each whole or not at all, and say what is new."""
    from clew.cli.checkout import shelf_of
    from clew.exchange.portable import unpack

    store = common.open_store(store_path, create=True)
    taken = {file: unpack(store, Path(file), shelf_of(store_path)) for file in files}
    if as_json:
        common.end_with_json(
            {file: {**one.told._asdict(), "new": one.new, "new_objects": one.objects} for file, one in taken.items()}
        )
    for file, one in taken.items():
        new = ", ".join(f"{count} {kind}" for kind, count in one.new.items() if count)
        common.echo(f"{file}: {new or 'nothing new'}" + (f", {one.objects} files and folders" if one.objects else ""))
        if one.told.erased:
            common.say(f"{len(one.told.erased)} calls and messages were erased for a credential in them")
        common.echo(f"Next: {command_line('show', one.told.runs[0])}")


def _import(
    found: Mapping[str, bool], form: str | None, skip_bad: bool, name: str, as_json: bool, store_path: str
) -> None:
    """Import the files with a bar for each, and say what became of them."""
    from clew.exchange import import_file
    from clew.store.redaction import known_gone

    store = common.open_store(store_path, create=True)
    taken: dict[str, list[str]] = {}
    skipped: list[BadRecord] = []
    with common.progress() as bar:
        for file, beside in found.items():
            job = bar.add_task(Path(file).name, total=None, note="")
            move = partial(lambda job, count: bar.update(job, completed=count), job)
            try:
                taken[file] = import_file(
                    store, file, form, skip_bad=skip_bad, on_bad=skipped.append, progress=move, name=name
                )
            except BadRecord as error:
                if not beside:
                    raise
                skipped.append(error)
    if not taken:
        raise skipped[-1]
    gone = known_gone(store, [run for runs in taken.values() for run in runs])
    if as_json:
        told = {"runs": taken, "skipped": [str(error) for error in skipped]}
        common.end_with_json(told | ({"redacted before": gone} if gone else {}))
    if gone:
        common.say(
            f"messages of {len(gone)} of these runs were redacted in this store and stay so; what else the files say "
            f"came in. To erase that too: {command_line('store redact', *gone[:3])}"
        )
    for reason in skipped:
        common.say(f"skipped: {reason}")
    for file, runs in taken.items():
        groups = {store.row(run).group for run in runs}
        common.echo(f"{file}: {len(runs)} runs in {len(groups)} groups; look at one: {command_line('show', runs[0])}")


def _found(files: Sequence[str], form: str | None) -> dict[str, bool]:
    """The files to import, and whether each was found in a folder: then others count, if it holds no run.

    Raises:
        BadInput: a file is not there, or of no known format.
    """
    from clew.exchange import files_in, format_of

    found: dict[str, bool] = {}
    for file in files:
        if Path(file).is_dir():
            found |= {str(path): True for path in files_in(Path(file))}
            continue
        format_of(file, form)
        if not Path(file).is_file():
            raise BadInput(f"there is no file {file}", remedy="Name a file that exists.")
        found[file] = False
    return found
