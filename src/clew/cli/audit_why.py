"""clew audit why: why an agent did something, by rewinding its run and changing one thing, or two."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.audit.why.evidence import Case, Finding
    from clew.audit.why.rewind import Change, Rewound
    from clew.store import Keeper, Run

CHANGE = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<message>\d+):(?P<old>.*?)(?:=>(?P<new>.*))?", re.DOTALL)


@click.command("why", short_help="Say why an agent did something: rewind its run, change one thing, compare.")
@click.argument("run")
@click.option("--does", default="", metavar="REGEX", help="The behaviour: an action (else a reply) that matches.")
@click.option("--where", default="", metavar="QUERY", help="The behaviour: the run is selected by this query.")
@click.option("--change", "changes", multiple=True, metavar="NAME=I:OLD=>NEW", help="A hypothesis; may be repeated.")
@click.option("--rises", multiple=True, metavar="NAME", help="Predicts that this change raises the rate.")
@click.option("--at", type=int, metavar="CALL", help="Go on from this Call.  [default: the first that asks]")
@click.option("--rewind", type=click.Choice(["steps", "sentences"]), help="Rank the parts of the run, too.")
@click.option("--sweep", metavar="I:OLD=>NEW", help="A dose: {} in NEW takes the values of --doses.")
@click.option("--doses", default="", metavar="X,Y,Z", help="At least three.")
@click.option("--avoid", nargs=2, metavar="REGEX PLACEBO", help="Never let a reply match; the same for a placebo.")
@click.option("--phrase", help="Probe: how likely the run's model is to begin each reply so (local weights).")
@click.option("--fault", metavar="REGEX", help="Observations that show a failing harness.")
@click.option(
    "-n", "--n", "n", default=100, show_default=True, help="Rollouts per arm; of the run as it was twice that."
)
@click.option("--budget", default=3000, show_default=True, help="Rollouts in all.")
@click.option("--keep", default=3, show_default=True, help="Rollouts of each arm that are kept whole.")
@click.option("--seed", default=0, show_default=True, help="Fixes the sampling.")
@click.option("--model", help="Another model than the run's.")
@run_options.model_options
@common.json_option
@common.store_option
def command(run: str, n: int, budget: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Find out why an agent did something.

    Without --change the sentences that the agent was first told are the hypotheses: each is taken away alone, then in
    pairs, beside a placebo of equal length. All arms go on from one place of the run. A verdict may be "cannot tell".

    \b
    clew audit why 4fzk2w --does 'refund'
    clew audit why 4fzk2w --does 'git commit.*--no-verify' --change 'hurry=0:Finish today.' --rewind steps
    clew audit why 4fzk2w --where 'return<0.5' --sweep '0:12 errors=>{} errors' --doses 10,50,100,200
    """
    from clew.audit.why import probes
    from clew.audit.why.arms import Ledger
    from clew.audit.why.evidence import filed
    from clew.audit.why.question import why

    store = common.open_store(store_path)
    view = common.one(store, run)
    case, subject = _question(store, view, n, options)
    label, wanted = _label(view, case, subject, options), min(case.forecast(), budget)
    probed = probes.prefill(subject.runner.model, view, options["phrase"]) if options["phrase"] else []
    forecast(view, wanted, budget)
    with run_options.interruptible("the same line"), common.progress() as bar:
        job = bar.add_task("rollouts", total=wanted, note="")

        def done(made: int) -> None:
            bar.update(job, advance=made)

        ledger = Ledger(subject, budget, store, f"{view.id}@{subject.at}", label, on_rollouts=done)
        found = why(case, ledger)
    found.caveats += [
        f"never {name}: {sum(counts) / len(counts):.2f} redraws per reply" for name, counts in subject.redrawn.items()
    ]
    found.caveats += [note for name in found.causes for note in noted(name, subject.changes[name].old)]
    ids = filed(found, store, label)
    if as_json:
        common.print_json({**_json(found, ids, ledger.found), "log p of the phrase": dict(probed)})
        return
    for seq, log_p in probed:
        click.echo(f"log p of {options['phrase']!r} at {view.id}@{seq}: {log_p:.2f}")
    told(found, ledger.found, label)


def noted(name: str, old: str) -> list[str]:
    """What a report must say of a cause whose name does not: its whole text, and that it may be only part of it."""
    from clew.audit.why.rewind import sentences

    whole = " ".join(old.split())
    told = [f"{name} is: {whole}"] if whole and whole not in name else []
    parts = len(sentences(old))
    return told + ([f"{name} is {parts} sentences: name each with --change to part them"] if parts > 1 else [])


def _question(store: Keeper, view: Run, n: int, options: dict[str, Any]) -> tuple[Case, Rewound]:
    """What is asked, from the options; the model is loaded here."""
    from clew.audit.why import rewind
    from clew.audit.why.evidence import Case, Hypothesis
    from clew.harness import Runner

    behaviour = rewind.Behaviour(options["does"], options["where"])
    behaviour.check()
    at = rewind.first_ask(view) if options["at"] is None else options["at"]
    changes = dict(parsed(text) for text in options["changes"]) or rewind.factors(view, at)
    if unknown := sorted(set(options["rises"]) - set(changes)):
        raise BadInput(f"--rises {unknown[0]!r} is no change", remedy=f"Known: {', '.join(changes) or 'none'}.")
    sweep = parsed(options["sweep"])[1] if options["sweep"] else None
    if bool(sweep) != bool(options["doses"]):
        raise BadInput("--sweep and --doses go together", remedy="Give both: --sweep '0:12=>{}' --doses 10,50,100.")
    places, units = _places(view, at, options["rewind"])
    avoid = dict(zip(("the class", "the placebo class"), options["avoid"] or (), strict=False))
    extra = {"fault": options["fault"]} if options["fault"] else {}
    runner = Runner.of(
        store, view,
        model=run_options.load_model(options["model"], options) if options["model"] else None,
        resolve_model=lambda ref: run_options.load_model(ref, options),
    )  # fmt: skip
    subject = rewind.Rewound(
        runner, view, behaviour, {**changes, "placebo": rewind.neutral(changes)}, at=at, dose=sweep, places=places,
        avoid=avoid, keep=options["keep"], seed=options["seed"], **extra,
    )  # fmt: skip
    case = Case(
        str(behaviour),
        tuple(Hypothesis(name, 1 if name in options["rises"] else -1) for name in changes),
        "placebo" if changes else "",
        units=tuple(units),
        doses=_numbers(options["doses"]),
        classes=("the class", "the placebo class") if avoid else None,
        n=n,
        k=max(n // 2, 2),
    )
    return case, subject


def _places(view: Run, at: int, kind: str | None) -> tuple[list[Any], list[str]]:
    from clew.audit.why import rewind

    if kind == "steps":
        return rewind.steps(view, at)
    return rewind.spoken(view, at) if kind == "sentences" else ([], [])


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(piece) for piece in text.split(",")) if text else ()
    except ValueError as error:
        raise BadInput(f"--doses {text!r}", remedy="Write numbers with commas: 10,50,100.") from error


def parsed(text: str) -> tuple[str, Change]:
    """A change as it is written on the command line, with its name.

    Raises:
        BadInput: it is not of that form.
    """
    from clew.audit.why.rewind import Change

    match = CHANGE.fullmatch(text)
    if not match:
        raise BadInput(
            f"{text!r} is no change",
            remedy="Write NAME=I:OLD=>NEW: in message I, OLD becomes NEW (or goes, without =>).",
        )
    change = Change(int(match["message"]), match["old"], match["new"] or "")
    return match["name"] or f"{change.message}: {change.old or change.new}", change


def _label(view: Run, case: Case, subject: Rewound, options: dict[str, Any]) -> str:
    """Names the question, so that the same line finds what a stopped one has done; sizes do not count."""
    from clew.core.keys import value_digest

    changes = {name: list(change) for name, change in subject.changes.items()}
    fixed = [list(subject.dose) if subject.dose else [], [str(place) for place in subject.places]]
    asked = [view.id, subject.at, case.behaviour, changes, fixed, [options[k] for k in ("seed", "fault")]]
    asked += [list(options["avoid"] or ()), options["model"] or ""]
    return value_digest(asked).hex()[:8]


def forecast(view: Run, wanted: int, budget: int) -> None:
    """Say what it will cost before it starts, by what the run itself took."""
    cost, seconds = f"{view.cost * wanted:,.2f} dollars" if view.cost else "no dollars", view.seconds * wanted
    click.echo(
        f"at most {wanted} rollouts (budget {budget}), each like run {view.id}: {len(view.calls)} Calls; in all about "
        f"{cost}, {view.tokens * wanted:,} tokens, {seconds / 60:.1f} minutes one after the other",
        err=True,
    )


def told(found: Finding, again: int, label: str) -> None:
    """The evidence as a table, then the verdict."""
    rows = []
    for line in found.lines:
        r = line.report
        p = "" if line.reads == "control" else f"{line.p:.2g}"
        figures = f"{r.estimate:.2f}" if line.test in ("as it was", "dose") else f"{r.estimate:+.2f}"
        rows.append([line.test, " + ".join(line.about), figures, f"[{r.low:.2f}, {r.high:.2f}]", r.n, p, line.reads])
    common.print_table(("test", "about", "found", "95 % interval", "n", "p", "reads"), rows)
    if found.chances:
        click.echo("chance of being a cause: " + ", ".join(f"{k} {v:.2f}" for k, v in found.chances.items()))
    for caveat in found.caveats:
        click.echo(f"note: {caveat}")
    click.echo(f"{found.kind}: {found.text}")
    click.echo(f"{found.spent} rollouts" + (f", {again} of them found in the store" if again else ""))
    click.echo(f"reports: clew view    examples of each arm: clew log 'tag:why/{label}/*'")


def _json(found: Finding, ids: list[str], again: int) -> dict[str, Any]:
    lines = [
        {"test": x.test, "about": list(x.about), "p": x.p, "reads": x.reads, "confound": x.confound,
         "claim": x.report.claim, "runs": list(x.report.runs), **run_options.numbers(x.report)}
        for x in found.lines
    ]  # fmt: skip
    return {
        "behaviour": found.case.behaviour, "kind": found.kind, "verdict": found.text, "causes": list(found.causes),
        "chances": found.chances, "evidence": lines, "caveats": found.caveats, "rollouts": found.spent,
        "found in the store": again, "reports": ids,
    }  # fmt: skip
