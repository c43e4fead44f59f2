"""clew audit judge: hold a judge against people's labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.methods.agreement.held import Estimate, Held, Part
    from clew.methods.agreement.running import Judged, OwnJudge
    from clew.store import Run

JUDGE_HELP = "Name of a value on the runs (reward, grade, ...), or file.py:function of a judge, which is run first."
MODEL_HELP = "Let this model judge by --rubric: a name, folder, file.py:Class or URL, as `clew run` takes it."
RUBRIC_HELP = "What is wanted of a run, in words, or a .txt or .md file of them; a model judges by it."
DRY_HELP = "Print how many runs would be judged and what that costs, and ask nothing."
SCALE_HELP = "Compare verdicts (two categories) or stars (five, neighbours nearly agree)."
SHARE_HELP = "Share of the tasks to tune a judge on; the others are kept apart. Chosen by a hash of the task."
TUNE_HELP = "Show the half to tune on alone, so that the other stays unseen while you change the judge."


@click.command(short_help="Hold a judge against people's labels.")
@click.argument("runs", nargs=-1)
@option("--judge", default="reward", help=JUDGE_HELP)
@option("--model", help=MODEL_HELP)
@option("--rubric", default="", help=RUBRIC_HELP)
@option("--max-tokens", default=512, only_with="--model", help="most tokens of an answer.")
@option(
    "--temperature", default=0.0, only_with="--model", help="sampling temperature; 0 always takes the likeliest token."
)
@run_options.models_of(only_with="--model")
@option("--dry", is_flag=True, help=DRY_HELP)
@option("--component", help="Which value of a judge that gives several.")
@option("--scale", choices="verdict stars", default="verdict", help=SCALE_HELP)
@option("--threshold", default=0.5, type=float, help="Judge's value above which it says good.")
@option("--on", choices="run call", default="run", help="Compare what is said of runs, or of calls.")
@option("--labelled-by", "by", default="", help="Count this author's labels alone.")
@option("--kind", default="", help="Field of the tasks' data that says their kind.  [default: the world]")
@option("--share", default=0.5, type=common.Amount(float, 0, 1), help=SHARE_HELP)
@option("--tune-only", is_flag=True, help=TUNE_HELP)
@option("--seed", default=0, help="Seed of the bootstrap and of the shuffled control.")
@common.verdicts_of(not_with="--scale stars")
@common.output_options
def command(runs: tuple[str, ...], judge: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Compare what a judge says of labelled runs with what people say of them (`clew label`).

    A judge of a file, and a model with a rubric, are run first, over those labelled runs that they have not judged;
    what they cost is printed before. Each verdict is filed beside its run, the model's question and answer with it, so
    that the same line goes on where it stopped. An answer without a grade leaves its run undecided.

    Printed are Cohen's kappa with its interval over tasks, on all labels, on the tasks to tune on and on those kept
    apart; how far people agree among themselves (Krippendorff's alpha); what saying always the same reaches, and rules
    on length; and, as a control, kappa with the judge's verdicts shuffled, which must be about 0. A judge that does not
    beat a rule of one line is said not to. The result is filed as a report.

    \b
    clew audit judge
    clew audit judge world=household --judge grade --threshold 0
    clew audit judge --judge judges.py:brevity --scale stars
    clew audit judge --model http://127.0.0.1:8000/v1#NAME --rubric 'The refund was asked for.' --tune-only
    clew audit judge 'labelled-by=ann' --judge reward --kind difficulty --json
    """
    from clew.methods.agreement.held import held
    from clew.methods.agreement.rated import rated, star_scale, to_tune_on, verdict_scale
    from clew.methods.agreement.running import run_judge
    from clew.store.labels import verdict_set

    store = common.open_store(store_path)
    scale = star_scale() if options["scale"] == "stars" else verdict_scale(verdict_set(options["verdicts"]))
    on: Literal["run", "call"] = options["on"]
    own = _own_judge(judge, options)
    if own is None:
        common.refuse_others(f"{judge}, whose values the store holds", ("dry", "component"))
    chosen = common.some(store, runs or ("has=label",))
    if options["tune_only"]:
        chosen = [run for run in chosen if to_tune_on(run, options["share"])]
    params, name, done = "", judge if own is None else own.name, None
    labelled = {one.run for one in rated(chosen, name, scale, on=on, **common.pick(options, "by share"))}
    if own is not None and labelled:
        asked = [run for run in chosen if run.id in labelled]
        _tell_cost(asked, own, options, as_json)
        with run_options.interruptible("the same line again"), common.bar("judging", len(asked)) as move:
            done = run_judge(asked, own, options["component"], lambda count: move(completed=count))
        name, params = done.method, done.version
    things = rated(chosen, name, scale, on=on, params=params, **common.pick(options, "by kind share"))
    who = f"{name} ({options['model']})" if own is not None and ":" not in judge else name
    found = held(things, who, scale, threshold=options["threshold"], seed=options["seed"])
    if not options["tune_only"]:
        store.put_report(found.report)
    if as_json:
        told = found._asdict() | {"comparisons": found.comparisons.json()}
        told |= {"verdict": found.verdict, "report": _plain(found.report)}
        told |= {"categories": scale.words, "tune": [one.place for one in things if one.tune]}
        common.end_with_json(told | {"run": done and done._asdict()})
    if done is not None:
        _tell_run(done)
    _print(found, scale.words)


def _own_judge(judge: str, options: Mapping[str, Any]) -> OwnJudge | None:
    """The judge that is to be run: a model with a rubric, or a function; None where a value of the store is compared.

    Raises:
        BadInput: a rubric without a model, or a model beside a judge of another kind.
    """
    from clew.methods.agreement.running import OwnJudge, load_judge

    line = click.get_current_context().get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE
    if not line and not options["rubric"]:  # the model of clew.toml plays; nobody asked it to judge
        return load_judge(judge) if ":" in judge else None
    if options["model"] is None:
        raise BadInput("a rubric, and no model that judges by it", remedy="Name one with --model.")
    if not run_options.is_default("judge"):
        raise BadInput("--judge and --model are two judges", remedy="Leave one of them out.")
    from clew.exchange.dataset.run_judge import RUBRIC, RunJudge

    how = common.pick(options, "max_tokens temperature")
    rubric = _rubric(options["rubric"]) or RUBRIC
    made = RunJudge(options["model"], rubric, load=lambda ref: run_options.load_model(ref, options), **how)
    return OwnJudge(made.name, made.version, made, made.cost)


def _rubric(text: str) -> str:
    if not text.endswith((".txt", ".md")) or "\n" in text:
        return text
    try:
        return Path(text).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the rubric {text} cannot be read: {error}", remedy="Name a file of text.") from error


def _tell_cost(runs: list[Run], own: OwnJudge, options: Mapping[str, Any], as_json: bool) -> None:
    """Say how many runs will be judged and at what cost; with --dry that is all."""
    from clew.methods.agreement.running import unjudged

    fresh = unjudged(runs, own.version)
    cost = own.cost(fresh) if own.cost is not None else {}
    told = {"runs": len(fresh), "judged before": len(runs) - len(fresh), **cost}
    if options["dry"] and as_json:
        common.end_with_json(told)
    text = f"to judge: {len(fresh)} runs, {told['judged before']} judged before"
    if cost:
        dollars = cost["dollars"]
        price = "at a price that is not known" if dollars is None else f"at most ${dollars:.2f}" if dollars else "free"
        text += f"; about {cost['read']:,.0f} tokens to read, at most {cost['written']:,.0f} to write, {price}"
    common.say(text)
    if options["dry"]:
        raise click.exceptions.Exit(0)


def _tell_run(done: Judged) -> None:
    common.echo(
        f"judged {done.asked} runs now, {done.kept} before; {done.undecided} of them undecided"
        + (f", {done.failed} failed: the same line asks these again" if done.failed else "")
    )
    if done.why:
        common.echo(f"  the first of these: {short(done.why, 200)}")


def _plain(report: Any) -> dict[str, Any]:
    return {name: getattr(report, name) for name in ("claim", "estimate", "low", "high", "n", "design", "caveats")}


def _print(found: Held, words: tuple[str, ...]) -> None:
    whole = found.parts["all"]
    people = "1 person" if len(found.authors) == 1 else f"{len(found.authors)} people"
    common.echo(
        f"{found.judge} against {people} on {whole.n} labelled things of {whole.tasks} tasks "
        f"({found.scale}: {', '.join(words)})"
    )
    left = [f"{found.tied} on which people disagree evenly" if found.tied else ""]
    left += [f"{found.undecided} on which the judge is undecided" if found.undecided else ""]
    left += [f"{found.unjudged} that the judge said nothing of" if found.unjudged else ""]
    if any(left):
        common.echo(f"left out: {'; '.join(filter(None, left))}")
    columns = ("", "n", "tasks", "kappa", "agreement", "always the same", "judge says")
    rows = [_row(name, part, words) for name, part in found.parts.items()]
    rows += [_row(f"  {kind}", part, words) for kind, part in found.kinds.items()]
    common.print_table(columns, rows)
    rules = [(rule.name, _shown(rule.kappa), _shown(rule.agreement, True)) for rule in found.rules]
    common.echo("\nrules of one line, made on the tasks to tune on, on those kept apart:")
    common.print_table(("rule", "kappa", "agreement"), rules)
    common.echo(f"judge less the best of them ({found.best}): kappa {_shown(found.beats)}")
    common.echo(f"judge less saying always the same: agreement {_shown(found.beyond, True)}")
    common.echo(f"control, the judge's verdicts shuffled: kappa {_shown(found.control)}, which must hold 0")
    if found.people.estimate is not None:
        common.echo(f"people among themselves: alpha {_shown(found.people)}; with the judge {_shown(found.together)}")
    common.echo(f"\n{found.verdict} ({found.comparisons})")
    for caveat in found.caveats:
        common.say(f"note: {caveat}")
    if found.apart:
        run = found.apart[0].partition("@")[0]
        common.echo(f"\nNext, where they part first on the tasks to tune on:\n  {command_line('show', run)}")
    common.echo("filed as a report: " + command_line("view"))


def _row(name: str, part: Part, words: tuple[str, ...]) -> tuple[object, ...]:
    says = " ".join(f"{word} {share:.0%}" for word, share in zip(words, part.judged, strict=True) if share)
    shown = (_shown(part.kappa), _shown(part.agreement, True), f"{part.base_rate:.0%}", says)
    return (name, part.n, part.tasks, *shown)


def _shown(it: Estimate, percent: bool = False) -> str:
    if it.estimate is None:
        return "not defined"
    form = "{:.0%}" if percent else "{:.2f}"
    if it.low is None or it.high is None:
        return form.format(it.estimate)
    return f"{form.format(it.estimate)} [{form.format(it.low)}, {form.format(it.high)}]"
