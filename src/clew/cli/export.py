"""clew export: write runs for other programs or another store to read, as training data, or what people say of them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from clew.cli.shared import common, live_spans, option
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

OTEL_HELP = "Write OpenTelemetry spans, to FILE or to a receiver of OTLP/HTTP (extra otel). All words are then RUNS."
TO_HELP = "Append runs that ended to a folder of Parquet files by day, for DuckDB or Polars. All words are then RUNS."
KEEP_HELP = "With --sft: keep detours and the way back, or cut out every return to an earlier state."


@click.command(short_help="Write runs to a file, for other programs or as training data.")
@click.argument("file", required=False)
@click.argument("runs", nargs=-1)
@option("--format", "form", help="openai, parquet, inspect, atif, otel or csv.  [default: by the file's name]")
@option("--otel", metavar="FILE|URL", help=OTEL_HELP)
@option("--follow", is_flag=True, help="With --otel URL: go on, and send each run as it ends, until Ctrl-C.")
@option("--sft", is_flag=True, help="Write data for supervised fine-tuning: one conversation for each solved run.")
@option("--keep-recoveries/--erase-loops", "keep", default=True, help=KEEP_HELP)
@option("--all", "everything", is_flag=True, help="With --sft: also runs that were not solved.")
@option("--pairs", is_flag=True, help="Write preference pairs that people's labels make: prompt, chosen, rejected.")
@option("--to", "folder", metavar="FOLDER", help=TO_HELP)
@option("--labels", is_flag=True, help="Write people's labels: one line for each, earlier ones included.")
@option("--no-files", "bare", is_flag=True, help="With .clew: leave the snapshots of the runs' files out.")
@common.verdicts_of(only_with="--pairs")
@common.output_options
def command(
    file: str | None,
    runs: tuple[str, ...],
    form: str | None,
    bare: bool,
    otel: str | None,
    follow: bool,
    sft: bool,
    pairs: bool,
    folder: str | None,
    labels: bool,
    verdicts: str,
    as_json: bool,
    store_path: str,
    **data: bool,
) -> None:
    """Export the chosen runs (all runs if none is chosen) with messages, tool calls, rewards and groups.

    The file's name decides the format: .jsonl for messages in OpenAI's format, .parquet, .eval for Inspect, .atif.json
    for ATIF, .otlp.jsonl for OpenTelemetry spans, .csv for the list of the runs: figures, tags and labels in columns,
    .clew for a portable run: all that a fork needs, with its files, for `clew import` elsewhere, without credentials.

    With --otel, runs are written as spans of OpenTelemetry's conventions for generative AI, to a file, or sent to a
    collector, Phoenix or Langfuse at a URL. Credentials come from OTEL_EXPORTER_OTLP_HEADERS. With --follow each run
    is sent as it ends, whichever process makes it.

    With --sft, FILE is a .jsonl file with one conversation for each solved run (its reward is above 0): observations
    are user messages, actions are assistant messages. Each line names its run and steps, so that `clew audit coverage
    FILE` can look them up. With --erase-loops the data shows perfect solutions only; papers/E163_backtrack measures
    what a model loses by that.

    With --to, runs are appended to the Parquet files of a folder, by the day on which they began (day=2026-11-27/). No
    file is ever written again: runs that the folder holds are passed over, and those that go on wait for the next time.

    With --pairs, FILE is a .jsonl file with one line for each two runs of a task, or two replies to the same messages,
    that people order by their labels (`clew label`). `clew tune --loss dpo --by-labels` trains on the same pairs.

    \b
    clew export bug.clew RUN
    clew export solved.jsonl 'return>0.5'
    clew export list.csv has=label
    clew export --otel http://localhost:4318 --follow
    clew export --sft demos.jsonl world=maze
    clew export --sft golden.jsonl 'world=household return>0' --erase-loops
    clew export --labels labels.jsonl
    clew export --to runs/ world=shop
    """
    if sft + pairs + labels + bare + (otel is not None) + (folder is not None) > 1:
        raise BadInput("one file holds one kind of data", remedy="Give one of --sft, --pairs, --labels, --otel, --to.")
    alone, words = data == {"keep": True, "everything": False}, (file, *runs) if file is not None else ()
    if otel is not None or follow:
        _spans(otel or "", words, form, as_json, store_path, alone=alone, follow=follow)
    elif folder is not None:
        _days(folder, words, form, as_json, store_path, alone=alone)
    elif sft and file:
        _sft(file, runs, form, as_json, store_path, **data)
    elif (pairs or labels) and alone and file:
        _labelled(file, runs, form, pairs, verdicts, as_json, store_path)
    else:
        _runs(file, runs, form, bare, as_json, store_path, alone=alone)


def _days(
    folder: str, words: tuple[str, ...], form: str | None, as_json: bool, store_path: str, *, alone: bool
) -> None:
    """Append the chosen runs to a folder of Parquet files by day."""
    from clew.exchange.day_files import append

    if form not in (None, "parquet") or not alone:
        raise BadInput("--to writes whole runs as Parquet", remedy="Leave the other options out.")
    store = common.open_store(store_path)
    chosen = [run.id for run in common.some(store, words)]
    with common.bar("appending", len(chosen)) as move:
        done = append(store, chosen, Path(folder), progress=lambda count: move(completed=count))
    if as_json:
        common.end_with_json({"folder": folder, **done._asdict()})
    common.echo(f"{folder}: {done.written} runs added, {done.known} were there, {done.open} go on and wait")


def _list(file: str, words: tuple[str, ...], as_json: bool, store_path: str) -> None:
    """Write the list of the chosen runs as CSV."""
    from clew.exchange.files import writing
    from clew.view.pages.overview import table

    store = common.open_store(store_path)
    chosen = [run.id for run in common.some(store, words)]
    with writing(Path(file)) as out:
        for line in table(store, chosen):
            out.write(line.encode("utf-8", "replace"))
    if as_json:
        common.end_with_json({"file": file, "runs": len(chosen)})
    common.echo(f"{file}: {len(chosen)} runs")


def _runs(
    file: str | None,
    words: tuple[str, ...],
    form: str | None,
    bare: bool,
    as_json: bool,
    store_path: str,
    *,
    alone: bool,
) -> None:
    """Write the chosen runs in a format that other programs read, or another store."""
    from clew.exchange import export, format_of

    if file is None:
        raise click.UsageError("name the file to write, as in: clew export runs.jsonl")
    if not alone:
        raise BadInput("--erase-loops and --all choose data for fine-tuning", remedy="Add --sft, or leave them out.")
    if form is None and file.lower().endswith(".clew"):
        _portable(file, words, bare, as_json, store_path)
        return
    if bare:
        raise BadInput("--no-files is of portable runs", remedy="Name a file that ends in .clew, or leave it out.")
    if form == "csv" or (form is None and file.lower().endswith(".csv")):
        _list(file, words, as_json, store_path)
        return
    format_of(file, form)
    store = common.open_store(store_path)
    chosen = common.some(store, words)
    with common.bar("exporting", len(chosen)) as move:
        written = export(store, chosen, file, form, progress=lambda count: move(completed=count))
    if as_json:
        common.end_with_json({"file": file, "runs": written, "left_out": len(chosen) - written})
    common.echo(f"{file}: {written} runs")
    if written < len(chosen):
        common.echo(f"Left out: {len(chosen) - written} runs that asked no model and hold no messages.")


def _portable(file: str, words: tuple[str, ...], bare: bool, as_json: bool, store_path: str) -> None:
    """Write the chosen runs as one file for another store, and say what was taken out."""
    from clew.cli.checkout import shelf_of
    from clew.exchange.portable import Credentials, pack
    from clew.store.names import some

    store = common.open_store(store_path)
    chosen = [run.id for run in common.some(store, words)]
    shelf = None if bare else shelf_of(store_path)
    done = pack(store, chosen, Path(file), shelf=shelf, credentials=Credentials.of_environment(os.environ))
    told = done.told
    if as_json:
        common.end_with_json({"file": file, "bytes": done.size, **told._asdict()})
    along = f", with {len(told.along)} that they share calls with, spawned or were spawned by" if told.along else ""
    common.echo(f"{file}: {len(told.runs)} runs{along}, {told.objects} files and folders, {done.size:,} bytes")
    for what, places in (
        ("a credential stood in these calls and messages, which are erased in the file", told.erased),
        ("a credential is masked in what is noted of", told.masked),
        (
            "files that hold a credential are left out",
            [f"{path} ({kind})" for path, kind in sorted(done.left_out.items())],
        ),
    ):
        if places:
            common.say(f"{what}: {some(places)}")
    if told.erased:
        common.say("an erased call cannot be replayed or forked there; those before it can")
    common.echo(f"Next: {command_line('import', file, store_path='elsewhere.db')}")


def _labelled(
    file: str, words: tuple[str, ...], form: str | None, pairs: bool, verdicts: str, as_json: bool, store_path: str
) -> None:
    """Write what people say of the chosen runs, or what they prefer."""
    from clew.exchange.labelled import write_labels, write_pairs
    from clew.store.labels import verdict_set

    if form not in (None, "openai"):
        raise BadInput(f"labels are not written as {form}", remedy="Leave --format out.")
    store = common.open_store(store_path)
    chosen = common.some(store, words)
    if not pairs:
        count = write_labels(chosen, file)
        if as_json:
            common.end_with_json({"file": file, "labels": count})
        common.echo(f"{file}: {count} labels")
        return
    count, alone, found = write_pairs(chosen, file, verdict_set(verdicts))
    if as_json:
        told = {"tied": found.tied, "left_out": found.left_out, "single": found.single, "without_prompt": alone}
        common.end_with_json({"file": file, "pairs": count, **told})
    common.echo(f"{file}: {count} pairs")
    common.say(f"labels give {found}" + (f"; {alone} of them say the same or share no prompt" if alone else ""))


def _spans(
    to: str, words: tuple[str, ...], form: str | None, as_json: bool, store_path: str, *, alone: bool, follow: bool
) -> None:
    """Write the spans of runs to a file, or send them to an address.

    Raises:
        BadInput: another way to export is asked for too, or no run is chosen. Unreachable: the receiver took nothing.
    """
    from clew.exchange.telemetry.send import endpoint_of

    if not alone or form not in (None, "otel"):
        raise BadInput("--otel writes spans and nothing else", remedy="Leave --sft, --format and their options out.")
    remote = "://" in to
    if remote:
        endpoint_of(to)
    elif follow:
        raise BadInput("--follow sends to a receiver", remedy="Give --otel a URL, as in http://localhost:4318.")
    sent = live_spans.follow(to, words, store_path) if follow else _written(to, words, store_path, remote)
    if as_json:
        common.end_with_json({"file": to, "runs": sent, "left_out": 0})
    common.echo(f"{to}: {sent} runs")


def _written(to: str, words: tuple[str, ...], store_path: str, remote: bool) -> int:
    from clew.exchange import export
    from clew.exchange.telemetry.send import send

    store = common.open_store(store_path)
    chosen = common.some(store, words)
    with common.bar("sending" if remote else "exporting", len(chosen)) as move:

        def moved(count: int) -> None:
            move(completed=count)

        return send(chosen, to, progress=moved) if remote else export(store, chosen, to, "otel", progress=moved)


def _sft(
    file: str, words: tuple[str, ...], form: str | None, as_json: bool, store_path: str, *, keep: bool, everything: bool
) -> None:
    """Write one conversation for each chosen run; FILE may also stand last, as `clew export --sft` had it.

    Raises:
        BadInput: the file is no .jsonl file, or no chosen run was solved.
    """
    from clew.exchange import openai_jsonl
    from clew.exchange.distil import demonstration
    from clew.methods.recoveries import trails

    if words and not file.endswith(openai_jsonl.SUFFIXES):
        file, words = words[-1], (file, *words[:-1])
    if not file.endswith(openai_jsonl.SUFFIXES) or form not in (None, "openai"):
        remedy = "Name a .jsonl file, as in: clew export --sft demos.jsonl RUNS"
        raise BadInput(f"data for fine-tuning is written as .jsonl, not as {form or file!r}", remedy=remedy)
    store = common.open_store(store_path)
    chosen = {run.id: run for run in common.some(store, words)}
    wanted = [path for path in trails(chosen.values()) if everything or path.solved]
    if not wanted:
        raise BadInput("none of these runs was solved", remedy="Choose others, or take all of them with --all.")
    made = [demonstration(chosen[path.run], not keep) for path in wanted]
    written = openai_jsonl.write(Path(file), made)
    acts, kept = sum(len(path.actions) for path in wanted), sum(len(it.messages) for it in made) // 2
    if as_json:
        common.end_with_json({"file": file, "runs": written, "acts": acts, "kept": kept})
    common.echo(f"{file}: {written} of {len(chosen)} runs, {kept} of {acts} acts")
