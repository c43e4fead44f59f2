"""clew audit judge: hold a judge against people's labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from clew.cli.shared import common, option
from clew.cli.shared.next_lines import command_line

if TYPE_CHECKING:
    from clew.audit.agreement.held import Estimate, Held, Part

JUDGE_HELP = "Name of a value on the runs (reward, grade, ...), or file.py:function of a judge, which is run first."
SCALE_HELP = "Compare verdicts (two categories) or stars (five, neighbours nearly agree)."
SHARE_HELP = "Share of the tasks to tune a judge on; the others are kept apart. Chosen by a hash of the task."
TUNE_HELP = "Show the half to tune on alone, so that the other stays unseen while you change the judge."


@click.command(short_help="Hold a judge against people's labels.")
@click.argument("runs", nargs=-1)
@option("--judge", default="reward", help=JUDGE_HELP)
@option("--component", help="Which value of a judge that gives several.")
@option("--scale", choices="verdict stars", default="verdict", help=SCALE_HELP)
@option("--threshold", default=0.5, type=float, help="Judge's value above which it says good.")
@option("--on", choices="run call", default="run", help="Compare what is said of runs, or of calls.")
@option("--labelled-by", "by", default="", help="Count this author's labels alone.")
@option("--kind", default="", help="Field of the tasks' data that says their kind.  [default: the world]")
@option("--share", default=0.5, type=common.Amount(float, 0, 1), help=SHARE_HELP)
@option("--tune-only", is_flag=True, help=TUNE_HELP)
@option("--seed", default=0, help="Seed of the bootstrap and of the shuffled control.")
@common.verdicts_option
@common.output_options
def command(runs: tuple[str, ...], judge: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Compare what a judge says of labelled runs with what people say of them (`clew label`).

    Printed are Cohen's kappa with its interval over tasks, on all labels, on the tasks to tune on and on those kept
    apart; how far people agree among themselves (Krippendorff's alpha); what saying always the same reaches, and rules
    on length; and, as a control, kappa with the judge's verdicts shuffled, which must be about 0. A judge that does not
    beat a rule of one line is said not to. The result is filed as a report.

    \b
    clew audit judge
    clew audit judge world=household --judge grade --threshold 0
    clew audit judge --judge judges.py:brevity --scale stars
    clew audit judge 'labelled-by=ann' --judge reward --kind difficulty --json
    """
    from clew.audit.agreement.held import held
    from clew.audit.agreement.rated import rated, star_scale, verdict_scale
    from clew.store.labels import verdict_set

    store = common.open_store(store_path)
    scale = star_scale() if options["scale"] == "stars" else verdict_scale(verdict_set(options["verdicts"]))
    chosen = common.some(store, runs or ("has=label",))
    method = judge if ":" not in judge else _judged(chosen, judge, options["component"])
    on: Literal["run", "call"] = options["on"]
    things = rated(chosen, method, scale, on=on, **common.pick(options, "by kind share"))
    if options["tune_only"]:
        things = [one for one in things if one.tune]
    found = held(things, method, scale, threshold=options["threshold"], seed=options["seed"])
    if not options["tune_only"]:
        store.put_report(found.report)
    if as_json:
        told = found._asdict() | {"verdict": found.verdict, "report": _plain(found.report)}
        common.end_with_json(told | {"categories": scale.words, "tune": [one.place for one in things if one.tune]})
    _print(found, scale.words)


def _judged(runs: list[Any], judge: str, component: str | None) -> str:
    """Run a judge of a file over the labelled runs; the name under which its value is filed."""
    from clew.audit.agreement.running import load_judge, run_judge

    loaded = load_judge(judge)
    labelled = [run for run in runs if run.labels]
    with common.bar("judging", len(labelled)) as move:
        return run_judge(labelled, loaded, judge, component, lambda count: move(completed=count))


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
    common.echo(f"\n{found.verdict}")
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
