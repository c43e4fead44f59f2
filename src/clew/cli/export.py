"""clew export: write runs for other programs to read, as data for training, or what people say of them."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli.shared import common, option
from clew.core.errors import BadInput

KEEP_HELP = "With --sft: keep detours and the way back, or cut out every return to an earlier state."


@click.command(short_help="Write runs to a file, for other programs or as training data.")
@click.argument("file")
@click.argument("runs", nargs=-1)
@option("--format", "form", help="openai, parquet, inspect or atif.  [default: by the file's name]")
@option("--sft", is_flag=True, help="Write data for supervised fine-tuning: one conversation for each solved run.")
@option("--keep-recoveries/--erase-loops", "keep", default=True, help=KEEP_HELP)
@option("--all", "everything", is_flag=True, help="With --sft: also runs that were not solved.")
@option("--pairs", is_flag=True, help="Write preference pairs that people's labels make: prompt, chosen, rejected.")
@option("--labels", is_flag=True, help="Write people's labels: one line for each, earlier ones included.")
@common.verdicts_option
@common.output_options
def command(
    file: str,
    runs: tuple[str, ...],
    form: str | None,
    sft: bool,
    pairs: bool,
    labels: bool,
    verdicts: str,
    as_json: bool,
    store_path: str,
    **data: bool,
) -> None:
    """Export the chosen runs (all runs if none is chosen) with messages, tool calls, rewards and groups.

    The file's name decides the format: .jsonl for messages in OpenAI's format, .parquet, .eval for Inspect, .atif.json
    for ATIF.

    With --sft, FILE is a .jsonl file with one conversation for each solved run (its reward is above 0): observations
    are user messages, actions are assistant messages. Each line names its run and steps, so that `clew audit coverage
    FILE` can look them up. With --erase-loops the data shows perfect solutions only; papers/E163_backtrack measures
    what a model loses by that.

    With --pairs, FILE is a .jsonl file with one line for each two runs of a task, or two replies to the same messages,
    that people order by their labels (`clew label`). `clew tune --loss dpo --by-labels` trains on the same pairs.

    \b
    clew export solved.jsonl 'return>0.5'
    clew export all.parquet
    clew export --sft demos.jsonl world=maze
    clew export --sft golden.jsonl 'world=household return>0' --erase-loops
    clew export --pairs preferred.jsonl has=label
    clew export --labels labels.jsonl
    """
    if sft + pairs + labels > 1:
        raise BadInput("one file holds one kind of data", remedy="Give one of --sft, --pairs and --labels.")
    if sft:
        _sft(file, runs, form, as_json, store_path, **data)
        return
    if data != {"keep": True, "everything": False}:
        raise BadInput("--erase-loops and --all choose data for fine-tuning", remedy="Add --sft, or leave them out.")
    if pairs or labels:
        _labelled(file, runs, form, pairs, verdicts, as_json, store_path)
        return
    from clew.exchange import export, format_of

    format_of(file, form)
    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    with common.bar("exporting", len(chosen)) as move:
        written = export(store, chosen, file, form, progress=lambda count: move(completed=count))
    if as_json:
        common.end_with_json({"file": file, "runs": written, "left_out": len(chosen) - written})
    common.echo(f"{file}: {written} runs")
    if written < len(chosen):
        common.echo(f"Left out: {len(chosen) - written} runs that asked no model and hold no messages.")


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


def _sft(
    file: str, words: tuple[str, ...], form: str | None, as_json: bool, store_path: str, *, keep: bool, everything: bool
) -> None:
    """Write one conversation for each chosen run; FILE may also stand last, as `clew export --sft` had it.

    Raises:
        BadInput: the file is no .jsonl file, or no chosen run was solved.
    """
    from clew.audit import trails
    from clew.exchange import openai_jsonl
    from clew.exchange.distil import demonstration

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
