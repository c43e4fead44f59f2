"""clew audit early: whether the outcome of runs is settled before the model thinks, and where thinking may stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from clew.harness import Runner
    from clew.methods.early.branches import Arms
    from clew.methods.early.curves import Curve
    from clew.methods.early.outcome import Shown, Voted
    from clew.methods.early.study import Answer
    from clew.store import Keeper, Run

OUTCOME_HELP = "The outcome: the run matches this query, such as 'return>0.5'."
DOES_HELP = "The outcome: an action (or reply) matches."
JUDGE_HELP = "The outcome: judges vote, file.py:function each; may be repeated."
RULE_HELP = "how the judges' votes become one label."
UNTIL_HELP = "Text with which answers begin; what comes before it in the reply is thinking."
THINKING_HELP = """What counts as thinking: reasoning of a reply, text before --until, earlier model calls, or the
tokens of the reply of a model that does not think."""
STANCES_HELP = "Also cut where thinking turns from one sign to the other, and test whether the outcome changes."
SOURCE_HELP = "Field of the tasks' data that says where a run comes from, as a control."
STEP = 0.05  # of what is settled, from which a cut is told in words
SAVING_HELP = "Ask only where thinking may stop; the outcome may then be nearly always the same."

outcome_options = common.options(
    option("--outcome", default="", metavar="QUERY", help=OUTCOME_HELP),
    option("--does", default="", metavar="REGEX", help=DOES_HELP),
    option("--judge", "judges", multiple=True, metavar="REF", help=JUDGE_HELP),
    option("--rule", choices="3/4 2/4 dawid-skene", default="3/4", only_with="--judge", help=RULE_HELP),
)
thinking_options = common.options(
    option("--until", default="", metavar="TEXT", help=UNTIL_HELP),
    option("--thinking", choices="auto reasoning marker calls reply", default="auto", help=THINKING_HELP),
    option(
        "--at", type=common.Amount(int, 0), metavar="CALL", help="The model call that thinks.  [default: the first]"
    ),
)
size_options = common.options(
    option("-n", "--n", "n", default=8, help="Continuations from each cut."),
    option("--shares", default="0,.2,.4,.6,.8,1", help="Where thinking is cut, as shares of it."),
    option("--prompts", default=200, help="Most prompts to sample from."),
    option("--each", default=1, help="Most runs of each prompt to sample from."),
    option("--risk", default=0.05, help="Share of outcomes that stopping may change."),
)


@click.command("early", short_help="Find whether outcomes are settled before the model thinks.")
@click.argument("runs", nargs=-1, required=True)
@outcome_options
@thinking_options
@size_options
@option("--stances", nargs=2, metavar="FOR AGAINST", help=STANCES_HELP)
@option("--source", default="", metavar="FIELD", help=SOURCE_HELP)
@option("--saving", is_flag=True, help=SAVING_HELP)
@option("--dry", is_flag=True, help="Print the plan and its cost, and sample nothing.")
@option("--model", help="Use another model (or checkpoint) than the runs'.")
@option("--judge-seconds", type=float, help="Time limit of a world's judge; a slower verdict counts as undecided.")
@option("--seed", default=0, help="Seed of the continuations and intervals.")
@run_options.model_options
@common.output_options
def command(runs: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Find whether the outcome of runs is settled before the model thinks, and where its thinking may stop.

    From each cut, thinking is sampled anew (does the outcome stay?), or closed there and answered (a forced answer: may
    it stop?). The thinking of a run with the other outcome is put in its place (does the answer follow it?). With local
    weights, linear probes of hidden states are held against controls that know only the prompt.

    The verdict is one of: decided at the prompt; predictable but computed in the trace; open until then; open after
    the thinking; cannot tell.
    The point at which thinking may stop is chosen on half of the prompts and judged on the others. All samples are
    kept: the same line continues where it stopped.

    \b
    clew audit early world=tally --does 'answer odd' --until answer
    clew audit early model=./reasoner --outcome 'return>0.5' --risk 0.02
    clew audit early tag:refusals --judge guards.py:one --judge guards.py:two --rule 2/4
    clew audit early world=desk --outcome 'return>0.5' --thinking calls
    """
    from clew.methods.early import study

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    outcome = _outcome(chosen, options)
    runner = _runner(store, chosen, options)
    arms, left = _prepared(chosen, runner, outcome, options)
    if not as_json:
        _forecast(arms, left, outcome, options["saving"])
    cost = arms.cost(options["saving"])
    if options["dry"]:
        if as_json:
            common.end_with_json({"runs": len(arms.traces), "left out": left, "cost": cost})
        return
    field = options["source"]
    source = partial(_source, field=field) if field else None
    with run_options.interruptible("the same line"), common.progress() as shown:
        sampling = shown.add_task("continuations", total=max(int(cost["continuations"]), 1), note="")
        states = shown.add_task("hidden states", total=None, visible=False, note="")
        found = study.answer(
            arms,
            bound=options["risk"],
            saving_only=options["saving"],
            source=source,
            told=partial(_moved, shown, sampling),
            reading=lambda done, total: shown.update(states, completed=done, total=total, visible=True),
        )
    found.left_out = left
    found.notes += _rules(arms, outcome)
    if options["model"] and chosen[0].model != options["model"]:
        found.notes.append(
            f"recorded runs are {chosen[0].model}'s, continuations {options['model']}'s: risk and probes compare them"
        )
    ids = study.filed(found, outcome.name)
    if as_json:
        common.end_with_json(_json(found, outcome, ids))
    _told(found, ids, runs, options)


def _outcome(chosen: list[Run], options: dict[str, Any]) -> Shown | Voted:
    from clew.methods.agreement.running import load_judge
    from clew.methods.early.outcome import Shown, Voted
    from clew.methods.why.rewind import Behaviour

    if options["judges"]:
        if options["outcome"] or options["does"]:
            raise BadInput("two outcomes are named", remedy="Give --judge, or --outcome and --does.")
        return Voted(tuple(map(load_judge, options["judges"])), options["rule"])
    if not options["outcome"] and not options["does"]:
        raise BadInput("no outcome is named", remedy="Say what a run shows: --outcome 'return>0.5', --does REGEX.")
    behaviour = Behaviour(options["does"], options["outcome"])
    behaviour.check()
    return Shown(behaviour.as_in(chosen, [0] * len(chosen)))


def _runner(store: Keeper, chosen: list[Run], options: dict[str, Any]) -> Runner:
    """The runner that made all the runs.

    Raises:
        BadInput: they were made in several ways, or their model cannot be loaded.
    """
    from clew.harness import Runner

    made = {(run.row.agent, run.row.config, run.row.taskset, run.row.model): run for run in chosen}
    if len(made) > 1:
        ways = "; ".join(
            f"{run.agent} in {run.taskset or 'no world'} by {run.model}" for run in list(made.values())[:3]
        )
        raise BadInput(
            f"these runs were made in {len(made)} ways: {ways}",
            remedy="Ask of one at a time: world=, model=, agent=, or name= where `clew run --name` gave one.",
        )
    load = partial(run_options.load_model, options=options)
    model = load(options["model"]) if options["model"] else None
    runner = Runner.of(store, chosen[0], model=model, resolve_model=load)
    if runner.model is None:
        raise BadInput(
            f"the runs were made by {chosen[0].model or 'no model'}, which cannot be loaded",
            remedy="Name a model with --model.",
        )
    return runner


def _prepared(
    chosen: list[Run], runner: Runner, outcome: Shown | Voted, options: dict[str, Any]
) -> tuple[Arms, dict[str, int]]:
    from clew.harness.fork.continuations import Continuations
    from clew.methods.early import stance, study
    from clew.methods.early.branches import Sizes

    shares = common.number_list(options["shares"], "--shares", float, above=-1e-9)
    hands = Continuations(runner, seed=options["seed"], judge_seconds=options["judge_seconds"], outcome=outcome)
    arms, left = study.prepare(
        chosen,
        hands,
        outcome,
        kind=options["thinking"],
        sizes=Sizes(shares=shares, n=options["n"]),
        one_sided=options["saving"],
        **common.pick(options, "until at seed prompts each"),
    )
    if options["stances"]:
        renderer = runner.model.renderer if runner.model is not None else None
        arms.cuts = stance.changes(arms.traces, renderer, *options["stances"])
    return arms, left


def _source(run: Run, field: str) -> str:
    import json

    return str(json.loads(run.row.task or "{}").get("data", {}).get(field, ""))


def _forecast(arms: Arms, left: dict[str, int], outcome: Shown | Voted, saving: bool) -> None:
    cost = arms.cost(saving)
    yes = sum(1 for value in arms.outcomes if value)
    lengths = sorted(one.tokens for one in arms.traces)
    unit = "calls" if arms.traces[0].kind == "calls" else "tokens"
    common.echo(
        f"{len(arms.traces) + len(arms.others)} runs with thinking, {lengths[len(lengths) // 2]} {unit} in the middle; "
        f"{len(arms.traces)} of them are sampled from, and the outcome ({outcome.name}) holds in {yes} of these"
    )
    for why, count in left.items():
        common.echo(f"left out: {count} runs, {why}")
    dollars = f", ${cost['dollars']:.2f}" if cost["dollars"] else ""
    low, high = cost["seconds"], cost["most_seconds"]
    time = f", {low:,.0f} to {high:,.0f} s at the speed of these runs" if high >= 1 else ""
    common.echo(
        f"to sample: {cost['continuations']:,} continuations, about {cost['tokens']:,.0f} tokens{dollars}{time}"
    )


def _moved(shown: Progress, sampling: TaskID, count: int) -> None:
    """Move the bar, and tell the time that is left at the speed so far; the forecast knew that of the runs alone."""
    shown.advance(sampling, count)
    task = shown.tasks[sampling]
    rate = task.completed / task.elapsed if task.elapsed else 0.0
    left = max((task.total or 0) - task.completed, 0)
    shown.update(sampling, note=f"about {left / rate:,.0f} s left" if rate else "")


def _rules(arms: Arms, outcome: Shown | Voted) -> list[str]:
    """How many of the recorded labels hang on the vote rule."""
    from clew.methods.early.outcome import Voted

    if not isinstance(outcome, Voted):
        return []
    labels = outcome.labels([one.run for one in arms.traces])
    turned = ", ".join(f"{rule} would turn {share:.1%}" for rule, share in labels.turned.items())
    return [f"labels by {labels.rule}: {labels.ties} even splits of {len(labels.labels)}; {turned}"]


def _told(found: Answer, ids: list[str], runs: tuple[str, ...], options: dict[str, Any]) -> None:
    from clew.methods.early.linear_probes import SHUFFLES

    shares = found.arms.sizes.shares
    if found.curve is not None:
        risks = found.saving.risks if found.saving else (None,) * len(shares)
        settled = found.curve.committed or (None,) * len(shares)
        rows = [
            (f"{b:.0%}", _shown(flip), _shown(c), _shown(r))
            for b, flip, c, r in zip(shares, found.curve.flips, settled, risks, strict=True)
        ]
        common.print_table(("thinking kept", "resampled: outcomes differ", "settled", "forced answer: risk"), rows)
        common.echo(_in_words(found.curve))
        common.echo()
        common.echo(f"rate of the outcome             {_shown(found.curve.rate)}")
        common.echo(f"fixed by the prompt (s0)        {_shown(found.curve.fixed)}")
    elif found.saving is not None:
        cut = [(f"{b:.0%}", _shown(risk)) for b, risk in zip(shares, found.saving.risks, strict=True)]
        common.print_table(("thinking kept", "forced answer: risk"), cut)
    if found.dependence is not None:
        common.echo(f"answers follow swapped thinking {_shown(found.dependence)} of {found.dependence.n} pairs")
    if found.own is not None:
        common.echo(f"control, own thinking put in    {_shown(found.own)} change")
    if found.probes:
        common.echo("\nwhat tells the outcome (AUROC out of fold; .5 tells nothing):")
        told = [(p.name, _shown(p.auroc), _number(p.balanced), _number(p.within), p.auroc.n) for p in found.probes]
        common.print_table(("probe", "AUROC", "balanced accuracy", "within sources", "n"), told)
        for control in (p for p in found.probes if p.bar is not None):
            mean = control.auroc.estimate
            common.echo(f"{control.name}, {SHUFFLES} times: mean {mean:.2f}, 95th percentile {control.bar:.2f}")
        if found.gain is not None:
            common.echo(f"the first thinking token tells {found.gain:+.2f} beyond the prompt's words")
        if found.matched is not None:
            common.echo(f"between runs of one prompt {_shown(found.matched)}, {found.matched.n} prompts")
        if found.valley is not None and found.valley.ends:
            dip = "a dip beyond chance" if found.valley.found else "no dip beyond chance"
            common.echo(
                f"separability along the thinking: depth {found.valley.depth:.2f}, p {found.valley.p:.2g}: {dip}"
            )
    _cuts(found)
    for note in found.notes:
        common.echo(f"note: {note}")
    if found.verdict is not None:
        common.echo(f"\n{found.verdict.kind}: {found.verdict.text}")
        if found.verdict.remedy:
            common.echo(found.verdict.remedy)
    _saved(found)
    page = f"early/{ids[0].split('-')[1]}" if found.curve is not None or found.saving is not None else "reports"
    common.echo(f"curves and reports: {command_line('view', page=page)}")
    common.echo(f"Next: {_next(found, runs, options)}")


def _in_words(curve: Curve) -> str:
    """The commitment curve as a sentence: at each cut by how much more is settled than at the one before."""
    if curve.committed is None:
        return "nothing is open before the thinking, so there is no commitment curve"
    told, last = list[str](), None
    for at, report in zip(curve.at, curve.committed, strict=True):
        if last is None or report.estimate - last >= STEP or at == curve.at[-1]:
            told.append(f"{max(report.estimate, 0):.0%} after {at:.0%}")
            last = report.estimate
    return f"of what is open before the thinking, so much is settled: {', '.join(told)} of it; {curve.half}"


def _cuts(found: Answer) -> None:
    if not found.cuts:
        return
    kinds = {kind: sum(cut.kind == kind for cut in found.cuts) for kind in ("meaningful", "equivalent", "inconclusive")}
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    published = sum(cut.published == "performative" for cut in found.cuts)
    common.echo(f"\n{len(found.cuts)} stance changes: {told} (published rule: {published} performative)")


def _saved(found: Answer) -> None:
    it = found.saving
    if it is None:
        return
    if it.at is None:
        common.echo(f"no point before the end of thinking keeps the outcome at a risk of {it.bound:g}")
        return
    more = f"; about {it.wanted} prompts would show it" if it.wanted else ""
    held = "" if it.held else f" (more than {it.bound:g} cannot be ruled out{more})"
    common.echo(
        f"thinking may stop after {it.at:.0%}: on {it.judged_on} other prompts "
        f"{_shown(it.risk)} of outcomes change{held}; "
        f"it saves {_shown(it.tokens, 1)} tokens a run, {_shown(it.share)} of the thinking; "
        f"the outcome's rate changes by {_shown(it.rate)}"
    )


def _next(found: Answer, runs: tuple[str, ...], options: dict[str, Any]) -> str:
    """More of the same where nothing can be told; else forks of a run from where half of its outcome is settled."""
    if found.verdict is not None and found.verdict.kind == "cannot tell":
        again = {name: options[name] for name in AGAIN} | {"prompts": 4 * options["prompts"]}
        return command_line("audit early", *runs, **again)
    one = found.arms.traces[0]
    time = found.curve.time.estimate if found.curve is not None and found.curve.time is not None else 0.0
    start = one.resumed(one.kept(time))
    return command_line("fork", str(start.cursor), n=4, model=options["model"])


AGAIN = (
    "outcome", "does", "judges", "rule", "until", "thinking", "at", "n", "shares", "each", "risk", "stances", "source",
    "saving", "model", "judge_seconds", "seed", "max_cost", "model_options",
)  # fmt: skip


def _json(found: Answer, outcome: Shown | Voted, ids: list[str]) -> dict[str, Any]:
    def plain(report: Any) -> Any:
        return None if report is None else run_options.numbers(report)

    said: dict[str, Any] = {"outcome": outcome.name, "runs": len(found.arms.traces), "left out": found.left_out}
    if found.verdict is not None:
        said |= {"verdict": found.verdict.kind, "text": found.verdict.text, "remedy": found.verdict.remedy}
    if found.curve is not None:
        curve = found.curve
        said["curve"] = {
            "at": list(curve.at),
            "flips": [plain(r) for r in curve.flips],
            "settled": None if curve.committed is None else [plain(r) for r in curve.committed],
        }
        said |= {"rate": plain(curve.rate), "fixed": plain(curve.fixed), "time": plain(curve.time)}
        said |= {"half is settled": curve.half, "later than told": curve.late}
    said |= {"trace dependence": plain(found.dependence), "own thinking": plain(found.own)}
    said["probes"] = [
        {"name": p.name, "balanced": p.balanced, "within": p.within, "bar": p.bar, **plain(p.auroc)}
        for p in found.probes
    ]
    said |= {"beyond the prompt": found.gain, "matched": plain(found.matched)}
    if found.valley is not None:
        v = found.valley
        said["valley"] = {
            "depth": v.depth,
            "dip": v.dip,
            "p": v.p,
            "ends": v.ends,
            "separability": v.separability.tolist(),
        }
    said["cuts"] = [cut._asdict() | {"before": list(cut.before), "after": list(cut.after)} for cut in found.cuts]
    if found.saving is not None:
        it = found.saving
        parts = {name: plain(getattr(it, name)) for name in ("risk", "tokens", "share", "rate")}
        said["saving"] = {
            "at": it.at,
            "bound": it.bound,
            "held": it.held,
            **parts,
            "risks": [plain(r) for r in it.risks],
        }
    return said | {"notes": found.notes, "reports": ids}


def _shown(report: Any, digits: int = 2) -> str:
    if report is None:
        return ""
    return f"{report.estimate:.{digits}f} [{report.low:.{digits}f}, {report.high:.{digits}f}]"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
