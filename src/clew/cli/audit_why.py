"""clew audit why: why an agent did something, by rewinding its run and changing one or two inputs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short

if TYPE_CHECKING:
    from clew.methods.why.evidence import Case, Finding
    from clew.methods.why.rewind import Change, Rewound
    from clew.store import Keeper, Run

CHANGE = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<message>\d+):(?P<old>.*?)(?:=>(?P<new>.*))?", re.DOTALL)

EDITS_HELP = "Behaviour: an act changed a path that matches, such as 'tests/**' (runs in a workspace)."
AT_HELP = "Continue from this call.  [default: the first model call]"


@click.command("why", short_help="Find what made an agent do something, by changing its input.")
@click.argument("run")
@option("--does", default="", metavar="REGEX", help="Behaviour: an action or reply of the run that matches.")
@option("--edits", default="", metavar="GLOB", help=EDITS_HELP)
@option("--where", default="", metavar="QUERY", help="Behaviour: the run matches this query.")
@option("--change", "changes", multiple=True, metavar="NAME=I:OLD=>NEW", help="A hypothesis; may be repeated.")
@option("--rises", multiple=True, metavar="NAME", help="Predict that this change raises the rate.")
@option("--at", type=common.Amount(int, 0), metavar="CALL", help=AT_HELP)
@option("--rewind", choices="steps sentences", help="Also rank the parts of the run.")
@option("--sweep", metavar="I:OLD=>NEW", help="A dose: {} in NEW takes the values of --doses.")
@option("--doses", default="", metavar="X,Y,Z", help="At least three numbers for --sweep.")
@option("--avoid", nargs=2, metavar="REGEX PLACEBO", help="Never let a reply match REGEX; the same for a placebo.")
@option("--phrase", help="Also print how likely the run's model is to begin each reply so (local weights).")
@option("--fault", metavar="REGEX", help="Leave out rollouts in which a result matches: a failing harness.")
@option("-n", "--n", "n", default=100, help="Rollouts per arm; the unchanged run gets twice that.")
@option("--budget", default=3000, help="Most rollouts in total.")
@option("--keep", default=3, type=common.Amount(int, 0), help="Rollouts of each arm that are kept as whole runs.")
@option("--seed", default=0, help="Seed of the sampling.")
@option("--model", help="Use another model than the run's.")
@run_options.model_options
@common.output_options
def command(run: str, n: int, budget: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Find what made an agent do something: rewind its run, change one input or two, and sample many continuations.

    Without --change, each sentence that the agent was first told is a hypothesis: the sentences are removed alone, then
    in pairs, beside a placebo of equal length. All arms continue from one place of the run. The verdict may be "cannot
    tell".

    \b
    clew audit why 4fzk2w --does 'refund'
    clew audit why 4fzk2w --does 'git commit.*--no-verify' --change 'hurry=0:Finish today.' --rewind steps
    clew audit why 4fzk2w --edits 'tests/**'             # why did it edit the tests?
    clew audit why 4fzk2w --where 'return<0.5' --sweep '0:12 errors=>{} errors' --doses 10,50,100,200
    """
    from clew.methods.why import probes
    from clew.methods.why.arms import Ledger
    from clew.methods.why.evidence import filed
    from clew.methods.why.question import why

    store = common.open_store(store_path)
    view = common.one(store, run)
    case, subject = _question(store, view, n, options)
    label, wanted = _label(view, case, subject, options), min(case.forecast(), budget)
    probed = probes.prefill(subject.runner.model, view, options["phrase"]) if options["phrase"] else []
    forecast(view, wanted, budget)
    if options["edits"]:
        edits_told(subject)
    with run_options.interruptible("the same line"), common.bar("rollouts", wanted) as move:
        place = f"{view.id}@{subject.at}"
        ledger = Ledger(subject, budget, store, place, label, on_rollouts=lambda made: move(advance=made))
        found = why(case, ledger)
    found.caveats += [
        f"never {name}: {sum(counts) / len(counts):.2f} redraws per reply" for name, counts in subject.redrawn.items()
    ]
    found.caveats += suspected(subject)
    found.caveats += [note for name in found.causes for note in noted(name, subject.changes[name].old)]
    ids = filed(found, store, label)
    if as_json:
        common.end_with_json({**_json(found, ids, ledger.found), "log p of the phrase": dict(probed)})
    for seq, log_p in probed:
        common.echo(f"log p of {options['phrase']!r} at {view.id}@{seq}: {log_p:.2f}")
    told(found, ledger.found, label)


def suspected(subject: Rewound) -> list[str]:
    """What rollouts whose results read like a failing harness show, where no --fault says what is one."""
    (hits, n), (others, rest) = subject.suspects[True], subject.suspects[False]
    if not n:
        return []
    beside = f" and in {others} of the {rest} others" if rest else ""
    told = f"results in {n} of {n + rest} new rollouts of the unchanged run read like a failing harness (a timeout)"
    return [f"{told}; the behaviour came up in {hits} of these{beside}; all are counted, --fault REGEX leaves some out"]


def noted(name: str, old: str) -> list[str]:
    """Notes on a cause: its whole text where the name is shorter, and whether it could be divided further."""
    from clew.methods.why.rewind import sentences

    whole = " ".join(old.split())
    told = [f"{name} is: {whole}"] if whole and whole not in name else []
    parts = len(sentences(old))
    return told + ([f"{name} is {parts} sentences: test each alone with --change"] if parts > 1 else [])


def _question(store: Keeper, view: Run, n: int, options: dict[str, Any]) -> tuple[Case, Rewound]:
    """What is asked, from the options; the model is loaded here."""
    from clew.harness import Runner
    from clew.methods.why import rewind
    from clew.methods.why.evidence import Case, Hypothesis

    behaviour = rewind.Behaviour(options["does"], options["where"], options["edits"])
    behaviour.check()
    at = rewind.first_ask(view) if options["at"] is None else options["at"]
    changes = dict(parsed(text) for text in options["changes"]) or rewind.factors(view, at)
    if unknown := sorted(set(options["rises"]) - set(changes)):
        remedy = f"Known: {', '.join(changes) or 'none'}."
        raise BadInput(f"--rises {unknown[0]!r} is not the name of a change", remedy=remedy)
    sweep = parsed(options["sweep"])[1] if options["sweep"] else None
    if bool(sweep) != bool(options["doses"]):
        raise BadInput("--sweep and --doses go together", remedy="Give both: --sweep '0:12=>{}' --doses 10,50,100.")
    places, units = _places(view, at, options["rewind"])
    avoid = dict(zip(("the class", "the placebo class"), options["avoid"] or (), strict=False))
    extra: dict[str, Any] = {"fault": options["fault"]} if options["fault"] else {}
    load = partial(run_options.load_model, options=options)
    model = load(options["model"]) if options["model"] else None
    runner = Runner.of(store, view, model=model, resolve_model=load)
    changes, sought = {**changes, "placebo": rewind.neutral(changes)}, tuple(changes)
    extra |= {"dose": sweep, "places": places, "avoid": avoid, "keep": options["keep"], "seed": options["seed"]}
    subject = rewind.Rewound(runner, view, behaviour, changes, at=at, **extra)
    case = Case(
        str(behaviour),
        tuple(Hypothesis(name, 1 if name in options["rises"] else -1) for name in sought),
        "placebo" if sought else "",
        units=tuple(units),
        doses=common.number_list(options["doses"], "--doses", float),
        classes=("the class", "the placebo class") if avoid else None,
        n=n,
        k=max(n // 2, 2),
    )
    return case, subject


def _places(view: Run, at: int, kind: str | None) -> tuple[list[Any], list[str]]:
    from clew.methods.why import rewind

    if kind == "steps":
        return rewind.steps(view, at)
    return rewind.spoken(view, at) if kind == "sentences" else ([], [])


def parsed(text: str) -> tuple[str, Change]:
    """A change as it is written on the command line, with its name.

    Raises:
        BadInput: it is not of that form.
    """
    from clew.methods.why.rewind import Change

    match = CHANGE.fullmatch(text)
    if not match:
        remedy = "Write NAME=I:OLD=>NEW: in message I, OLD becomes NEW (without =>NEW, OLD is removed)."
        raise BadInput(f"{text!r} is no change", remedy=remedy)
    change = Change(int(match["message"]), match["old"], match["new"] or "")
    return match["name"] or f"{change.message}: {change.old or change.new}", change


def _label(view: Run, case: Case, subject: Rewound, options: dict[str, Any]) -> str:
    """A name for the question (without its sizes), so that the same line finds the rollouts of a stopped one."""
    from clew.core.keys import value_digest

    changes = {name: list(change) for name, change in subject.changes.items()}
    fixed = [list(subject.dose) if subject.dose else [], [str(place) for place in subject.places]]
    asked = [view.id, subject.at, case.behaviour, changes, fixed, [options["seed"], subject.fault.pattern]]
    asked += [list(options["avoid"] or ()), options["model"] or "", subject.behaviour.actions_only]
    return value_digest(asked).hex()[:8]


def forecast(view: Run, wanted: int, budget: int) -> None:
    """Print what the rollouts will cost, estimated from the cost of the run itself."""
    from clew.store.run import pace

    cost = f"{view.cost * wanted:,.2f} dollars" if view.cost else "no dollars"
    seconds = wanted * (view.tokens * pace([view]) or view.seconds)
    common.say(
        f"at most {wanted} rollouts (budget {budget}), each like run {view.id}: {len(view.calls)} calls; in total "
        f"about {cost}, {view.tokens * wanted:,} tokens, {seconds / 60:.1f} minutes at the speed of that run"
    )


def edits_told(subject: Rewound) -> None:
    """Print which act of the run itself edited the files, and from where on what it read before that is tested."""
    from clew.methods.why.rewind import first_edit
    from clew.store.run import brief

    run, edits = subject.run, subject.behaviour.edits
    assert subject.shelf is not None  # else it was refused
    call = first_edit(run, subject.at, edits, subject.shelf)
    assert call is not None  # else it was refused
    common.say(f"the run itself changed what matches {edits} at call {call.seq}: {short(brief(call), 80)}")
    asks = [one.seq for one in run.calls[: call.seq] if one.kind == "ask"]
    if asks and asks[-1] > subject.at:
        line = command_line("audit why", run.id, edits=edits, at=asks[-1])
        common.say(f"what it had read last by then is put to the test by: {line}")


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
        common.echo("chance of being a cause: " + ", ".join(f"{k} {v:.2f}" for k, v in found.chances.items()))
    for caveat in found.caveats:
        common.echo(f"note: {caveat}")
    common.echo(f"{found.kind}: {found.text}")
    common.echo(f"tested: {found.comparisons()}")
    common.echo(f"{found.spent} rollouts" + (f", {again} of them found in the store" if again else ""))
    common.echo(f"examples of each arm: {command_line('log', f'tag:why/{label}/*')}")
    common.echo(f"reports: {command_line('view')}")


def _json(found: Finding, ids: list[str], again: int) -> dict[str, Any]:
    lines = []
    for x in found.lines:
        line = {"test": x.test, "about": list(x.about), "p": x.p, "reads": x.reads, "confound": x.confound}
        line |= {"claim": x.report.claim, "runs": list(x.report.runs)}
        lines.append(line | run_options.numbers(x.report))
    said: dict[str, Any] = {"behaviour": found.case.behaviour, "kind": found.kind, "verdict": found.text}
    said |= {
        "causes": list(found.causes),
        "comparisons": found.comparisons().json(),
        "chances": found.chances,
        "evidence": lines,
        "caveats": found.caveats,
        "rollouts": found.spent,
    }
    return said | {"found in the store": again, "reports": ids}
