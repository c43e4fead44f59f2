"""clew audit cliffs: at which token or step of a run the success probability fell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.fork.continuations import Continuations, Start
    from clew.methods.cliffs import Effect, Found, Pairs, Survey
    from clew.methods.cliffs.detect import Cliff
    from clew.store import Keeper, Run


DETECTOR_HELP = "published: test every token on one batch, without a correction for many tests."
WIDEST = 48  # characters of a step in a table
AT_HELP = "Look for cliffs at tokens or at steps.  [default: at tokens where the runs have them, else at steps]"
search_options = common.options(
    option("--at", choices="tokens steps", help=AT_HELP),
    option("--detector", choices="mended published", default="mended", help=DETECTOR_HELP),
    option("-n", "--n", "n", default=64, help="Continuations from each place."),
    option("--fresh", type=int, help="Continuations of the second batch.  [default: as --n]"),
    option("--margin", default=0.1, help="Smallest drop in success probability that counts."),
    option("--level", default=0.05, help="Level of the tests, and rate of false cliffs."),
)


@click.command(short_help="Find the tokens or steps at which runs were lost.")
@click.argument("runs", nargs=-1, required=True, metavar="RUNS|FILE")
@search_options
@option("--effect", is_flag=True, help="Fork with and without each cliff, beside random and restart controls.")
@option("--pairs", type=click.Path(path_type=Path), metavar="FILE", help="Write single-token DPO pairs as JSONL.")
@option("--floor", default=0.01, only_with="--pairs", help="lowest probability of a chosen token (published: 0).")
@option(
    "--hard",
    is_flag=True,
    only_with="--pairs",
    help="choose only tokens that keep at least the value before the cliff.",
)
@option("--dry", is_flag=True, help="Print the plan and its cost, and sample nothing.")
@option("--model", help="Let another model (or checkpoint) continue the runs.")
@option("--judge-seconds", type=float, help="Time limit of the judge; a slower verdict counts as undecided.")
@option("--seed", default=0, help="Seed of the continuations.")
@run_options.model_options
@common.output_options
def command(runs: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Estimate the success probability (value) along runs, and find the tokens or steps at which it
    falls (cliffs).

    Before and after each token that can matter, continuations are sampled and judged. A token with a significant drop
    is tested again on a new batch. A token that the policy picks with probability p lowers the success probability by
    at most 1 - p, so most tokens need no sampling. Outcomes are kept: the same line continues where it stopped, and
    costs nothing the second time. Values are stored beside the runs as `potential` and `cliff`.

    FILE.jsonl holds released rollouts: lines with "tokens", "potential" (the share of "n_rollouts" continuations that
    end right when they start after each token) and nothing to sample from. There the published rule flags tokens, and a
    cliff is kept if the places around it share the drop.

    \b
    clew audit cliffs 4fzk2w
    clew audit cliffs 'world=sums return<0.5' --effect --pairs pairs.jsonl
    clew audit cliffs world=household --at steps --n 32
    clew audit cliffs 4fzk2w --n 32                      # of a run in a workspace: at which command it was lost
    clew audit cliffs released.jsonl.gz
    """
    if runs[0].endswith((".jsonl", ".jsonl.gz", ".ndjson")):
        _released(runs, as_json, **common.pick(options, "at margin level effect pairs"))
        return
    from clew.methods import cliffs

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    fresh = options["n"] if options["fresh"] is None else options["fresh"]
    sought = common.pick(options, "n margin level detector") | {"at": options["at"] or _at(chosen)}
    search = cliffs.Search(fresh=fresh, **sought)
    if options["pairs"] and search.at == "steps":
        remedy = "Leave out --at steps." if options["at"] else "Make runs with a model that gives token ids."
        raise BadInput("--pairs makes pairs of tokens, not of steps", remedy=remedy)
    plan = cliffs.survey(chosen, _hands(store, options), search)
    if not as_json:
        _forecast(plan)
    if options["dry"]:
        if as_json:
            common.print_json({"positions": len(plan.positions), "tested": len(plan.tested), "cost": plan.cost()})
        return
    effect, made = None, None
    with run_options.interruptible("the same line again"), _told(plan) as told:
        found = cliffs.detect(plan, told)
        found.file()
        if options["effect"]:
            effect = cliffs.effect(found, search.n, told)
        if options["pairs"]:
            how = cliffs.Candidates(n=search.n, floor=options["floor"], hard=options["hard"])
            made = cliffs.pairs(found, how, told)
            made.file()
            lines = [json.dumps(record) + "\n" for record in made.records()]
            options["pairs"].write_text("".join(lines))
    if as_json:
        common.end_with_json(_as_json(found, effect, made))
    _report(found, effect, made, options, runs)


def _at(runs: list[Run]) -> Literal["tokens", "steps"]:
    """What the search looks at where the line does not say."""
    from clew.methods.cliffs.positions import has_tokens

    return "tokens" if all(map(has_tokens, runs)) else "steps"


def _released(
    files: tuple[str, ...], as_json: bool, *, at: str, margin: float, level: float, effect: bool, pairs: Path | None
) -> None:
    """What released rollouts show; nothing is sampled and nothing is stored."""
    from clew.exchange.rollouts import released

    if len(files) > 1 or effect or pairs or at == "steps":
        raise BadInput(
            "released rollouts hold shares after tokens and nothing to sample from",
            remedy="Give one file, without --effect, --pairs and --at steps.",
        )
    used = ("margin", "level", "effect", "pairs", "as_json")
    common.refuse_others("released rollouts, from which nothing is sampled", used, only=True)
    paths, drops = released(Path(files[0]), margin, level)
    if as_json:
        common.end_with_json({"solutions": len(paths), "cliffs": [drop._asdict() for drop in drops]})
    kept, listed = sum(drop.kept for drop in drops), sum(len(it.listed) for it in paths)
    tokens = sum(len(it.tokens) for it in paths)
    common.echo(
        f"{len(paths)} solutions, {tokens:,} tokens: the published rule flags {len(drops)}, "
        f"the places around share the drop in {kept}" + (f"; their authors list {listed}" if listed else "")
    )
    columns = ("solution", "place", "token", "before", "after", "low", "high", "p around", "kept", "listed")
    yes = {True: "yes", False: "no"}
    common.print_table(
        columns,
        [
            (d.path, d.position, d.token.strip(), *(round(x, 3) for x in (d.before, d.after, d.low, d.high)),
             float(f"{d.p:.2g}"), yes[d.kept], yes[d.listed])
            for d in drops
        ],
    )  # fmt: skip


def _hands(store: Keeper, options: dict[str, Any]) -> Callable[[Run], Continuations]:
    """Gives each run the runner that continues it: one for all runs made alike; models are loaded once."""
    from functools import lru_cache

    from clew.harness import Runner
    from clew.harness.fork.continuations import Continuations

    load = lru_cache(maxsize=None)(lambda ref: run_options.load_model(ref, options))
    known: dict[tuple[str, ...], Continuations] = {}

    def of(run: Run) -> Continuations:
        row = run.row
        key = (row.agent, row.config, row.taskset, row.model, row.settings)
        if key not in known:
            model = load(options["model"]) if options["model"] else None
            runner = Runner.of(store, run, model=model, resolve_model=load)
            if runner.model is None:
                raise BadInput(
                    f"run {run.id} was made by {row.model or 'no model'}, which cannot be loaded",
                    remedy="Name a model with --model.",
                )
            known[key] = Continuations(runner, seed=options["seed"], judge_seconds=options["judge_seconds"])
        return known[key]

    return of


def _forecast(plan: Survey) -> None:
    cost, what = plan.cost(), "tokens" if plan.search.at == "tokens" else "steps"
    common.echo(
        f"{len(plan.runs)} runs, {len(plan.positions)} {what}; {len(plan.tested)} of them could lower the chance of "
        f"success by more than {plan.search.margin:g}"
        if plan.search.detector == "mended"
        else f"{len(plan.runs)} runs, {len(plan.tested)} {what} to test"
    )
    dollars = f", ${cost['dollars']:.2f}" if cost["dollars"] else ""
    time = f", {cost['seconds']:,.0f} s at the speed of these runs" if cost["seconds"] >= 1 else ""
    more = f"; {cost['each flagged']} more for each that is flagged" if cost["each flagged"] else ""
    common.echo(
        f"to sample: {cost['continuations']:,} continuations, about {cost['tokens']:,.0f} tokens{dollars}{time}{more}"
    )


@contextmanager
def _told(plan: Survey) -> Iterator[Callable[[int], None]]:
    """A progress bar of continuations; its total grows where flagged places and candidates add some."""
    total, done = max(int(plan.cost()["continuations"]), 1), 0
    with common.bar("continuations", total) as move:

        def told(count: int) -> None:
            nonlocal done
            done += count
            move(completed=done, total=max(total, done))

        yield told


def _as_json(found: Found, effect: Effect | None, made: Pairs | None) -> dict[str, Any]:
    from clew.methods.cliffs import statistics
    from clew.methods.cliffs.detect import described

    curve = []
    for start, counts in found.potentials.items():
        low, high = (float(x) for x in statistics.wilson(counts.right, counts.n))
        value = float(counts.potential) if counts.n else None
        row = {"at": str(start), "potential": value, "low": low, "high": high}
        curve.append(row | {"n": int(counts.n), "undecided": int(counts.undecided)})
    rate = found.replicated()
    said: dict[str, Any] = {name: len(getattr(found.survey, name)) for name in ("runs", "positions", "tested")}
    said |= {"continuations": found.continuations, "undecided": found.undecided, "potential": curve}
    said["comparisons"] = found.comparisons().json()
    said["cliffs"] = [described(c) for c in found.cliffs]
    said["replicated"] = run_options.numbers(rate) if rate else None
    said["effect"] = [{"claim": r.claim, **run_options.numbers(r)} for r in effect.reports()] if effect else None
    return said | {"pairs": len(made) if made is not None else None}


def _report(
    found: Found, effect: Effect | None, made: Pairs | None, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    if len(found.survey.runs) == 1:
        _curve(found)
    flagged, kept = len(found.cliffs), len(found.confirmed)
    again = (
        ", no second batch" if found.survey.search.detector == "published" else f", {kept} confirmed on a fresh batch"
    )
    tests = found.comparisons()
    told = tests.verdict(f"{flagged} flagged{again}")
    common.echo(f"{found.continuations:,} continuations, {found.undecided} undecided: {told}")
    common.echo(f"tested: {tests}")
    if found.cliffs:
        what = ("token", "type") if found.survey.search.at == "tokens" else ("step",)
        columns = ("cliff", *what, "before", "after", "drop", "low", "high", "p adjusted", "kept")
        common.print_table(columns, [_line(found, cliff) for cliff in found.cliffs])
    if effect is not None:
        common.echo()
        for report in effect.reports():
            common.echo(f"{report.claim}: {report}")
    elif options["effect"]:
        common.echo("no confirmed cliff in a failed run: --effect has nothing to compare")
    if made is not None:
        common.echo(f"{len(made)} pairs of {len(made.items)} cliffs in {options['pairs']}")
        if len(made):
            common.echo(f"Next: {_training(found, options['model'], words)}")
    elif found.confirmed:
        _next(found, options["model"])


def _next(found: Found, model: str | None) -> None:
    """The lines that go on from the largest cliff: forks from before it, and the files as they were there."""
    from clew.worlds.workspace.tree_edits import tree_at

    at = max(found.confirmed, key=lambda cliff: cliff.drop).position.before
    run = next(run for run in found.survey.runs if at.run in {run.id, *(call.run for call in run.calls)})
    common.echo(
        f"Next: {command_line('fork', f'{run.id}@{at.seq}' + f'+{at.token}' * (at.token > 0), n=4, model=model)}"
    )
    if any(tree_at(run, call) for call in run.calls[:1]):
        common.echo(f"the files there: {command_line('checkout', f'{run.id}@{at.seq}', 'before-cliff')}")


def _training(found: Found, model: str | None, words: tuple[str, ...]) -> str:
    """The line that trains on the pairs; where no weights made the runs, it needs some to be named."""
    run = found.survey.runs[0]
    local = hasattr(found.survey.of[run.id].spec.model, "module")
    weights = (model or run.model) if local else "FOLDER"
    typed = command_line("tune", *words, loss="cliff-dpo", name="cliffs", model=weights)
    return typed if local else f"name a FOLDER of weights in: {typed}"


def _curve(found: Found) -> None:
    from clew.methods.cliffs import statistics

    rows, steps = [], _steps(found) if found.survey.search.at == "steps" else None
    for start, counts in sorted(found.potentials.items(), key=lambda item: item[0][1:3]):
        low, high = statistics.wilson(counts.right, counts.n)
        said = _text(found, start.seq, start.run, start.token - 1) if steps is None else steps.get(start, "")
        rows.append((str(start), said, float(counts.potential), float(low), float(high), int(counts.undecided)))
    after = "after token" if steps is None else "before step"
    common.print_table(("place", after, "potential", "low", "high", "undecided"), rows)
    common.echo()


def _line(found: Found, cliff: Cliff) -> tuple[Any, ...]:
    p = cliff.position
    numbers = [round(x, 3) for x in (cliff.before, cliff.after, cliff.drop, cliff.low, cliff.high)]
    at_tokens = found.survey.search.at == "tokens"
    said = (_text(found, p.seq, p.run, p.token), cliff.kind or "") if at_tokens else (_steps(found).get(p.before, ""),)
    kept = "yes" if cliff.confirmed else "no"
    return (str(p.before), *said, *numbers, float(f"{cliff.q:.2g}"), kept)


def _steps(found: Found) -> dict[Start, str]:
    """What each step did, by the place before it; of one without an act, what the model said."""
    from clew.core.printable import short
    from clew.harness.fork.continuations import Start
    from clew.store.run import brief

    said = dict[Start, str]()
    for run in found.survey.runs:
        for step in run.steps:
            if step.asks:
                first = step.asks[0]
                tip = step.asks[-1].node_out
                text = brief(step.act) if step.act else run.store.node(tip).message.text if tip else ""
                said[Start(first.run, first.seq)] = short(text, WIDEST)
    return said


def _text(found: Found, seq: int, run: str, token: int) -> str:
    """A token of a reply (counted after its head) as text, where the text is known."""
    from clew.view.pages.tokens import tokens

    store = found.survey.runs[0].store
    call = store.calls(run, seq, seq + 1)[0]
    if token < 0 or not call.node_out:
        return ""
    said = tokens(call, store.node(call.node_out)) or []
    place = call.head + token
    return str(said[place][0] or "").strip() or f"#{said[place][1]}" if place < len(said) else ""
