"""clew gate: which cheap checks may decide whether the expensive one is run, and what that decides over a change."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.gate_decisions import Gate, ended, grounds, numbers, report, verdicts_of
from clew.cli.gate_runs import decide_runs
from clew.cli.shared import common, option
from clew.core.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from clew.core.values import Task
    from clew.methods.gate.candidates import Checks
    from clew.store import Keeper

RUN_HELP = "In place of CHANGE: what a run changed in its files, up to its end or a call; or a query; may be repeated."
SHOWN = 8  # rules in the table
SHARE, SOME = common.Amount(float, 0, 1), common.Amount(float, 0, 1, above=True)  # none at all would notice nothing

JUDGED = ("CHANGE", "--run")


@click.command(short_help="Decide which checks a code change needs, and whether to ship it.")
@click.argument("change", required=False)
@option("--run", "of_runs", multiple=True, metavar="RUN[@CALL]", help=RUN_HELP)
@option("--critic", "critics", multiple=True, metavar="COMMAND", help="A cheap check; {file}: the changed files.")
@option("--oracle", default="", metavar="COMMAND", help="The check that counts, such as 'pytest -q'.")
@option("--from", "sources", multiple=True, metavar="PATH", help="JUnit files, or exports of GitHub's checks.")
@option(
    "--refine",
    default="",
    metavar="COMMAND",
    only_with="CHANGE",
    help="command that changes the files: the next candidate.",
)
@option("--repo", default=".", help="Repository that is changed.")
@option("--lose", default=0.01, type=SHARE, help="Share of good changes that a rule may be expected to stop.")
@option("--wrong", default=0.0, type=SHARE, help="Share of broken ones in what is shipped unverified; 0: nothing is.")
@option("--by", choices="runs seconds", default="runs", help="What the best rule saves most of.")
@option(
    "--audit",
    default=0.02,
    type=SOME,
    only_with=JUDGED,
    help="share of the stopped changes that are verified all the same.",
)
@option("--horizon", type=common.Amount(int, 1, 50), help="Most candidates.  [default: 3 with --refine, else 1]")
@option("--cell", default="", help="Key of what is learnt: a generator, a kind of task.  [default: the repository]")
@option("--learn", is_flag=True, only_with=JUDGED, help="run every critic, twice, and the oracle.")
@option(
    "--mutants",
    type=int,
    metavar="N",
    only_with="CHANGE",
    help="learn from N broken variants of a file, in the sandbox.",
)
@option(
    "--again",
    is_flag=True,
    only_with=JUDGED,
    not_with=("--learn", "--mutants"),
    help="verify anew what was verified before.",
)
@option("--timeout", default=600.0, only_with=JUDGED, help="most seconds for one command.")
@option(
    "--outside", is_flag=True, only_with="CHANGE", help="run the commands in the repository itself, without a sandbox."
)
@option(
    "--seed",
    type=int,
    only_with=JUDGED,
    help="seed of the lottery and the mutants.  [default: drawn, and recorded in the run]",
)
@common.output_options
def command(change: str | None, as_json: bool, store_path: str, **options: Any) -> None:
    """Decide over CHANGE: a file, a diff (a .diff or .patch file, or - for stdin), a commit or range A..B, or . for
    what the working tree holds; or over what runs of agents changed (--run), which files the decision beside each run.
    Without any of these: print the one-line rule that would have been best.

    A rule says which critics must pass before the oracle is run. The best one is learnt from the runs in the store
    and from the verdicts that --from names. At first every critic and the oracle are run; a rule is followed once it
    is expected to stop at most the share --lose of the good changes, and a lottery goes on verifying some of what it
    stops. A check may be named as the project names it: --critic "lint: ruff check {file}".

    Exit status 0 of a command is a pass and 1 a failure; any other, or a timeout, decides nothing. Commands run in the
    sandbox on a copy of the repository's files. Exit code: 0 ship, 1 stop or undecided.

    \b
    clew gate --from ci-results/                     # the rule that would have been best
    clew gate --from checks.json --oracle e2e
    clew gate src/x.py --critic "ruff check {file}" --critic "pytest -q tests/test_x.py" --oracle "pytest -q"
    clew gate . --critic "ruff check {file}" --oracle "pytest -q"
    clew gate --run name=fix/* --critic "pytest -q tests/test_x.py" --oracle "pytest -q"
    clew gate main..work --critic "mypy src" --oracle "make test" --refine "python agent.py {file}"
    """
    from clew.methods.gate.candidates import Checks

    if (options["horizon"] or 1) > 1 and not options["refine"]:
        remedy = "Name with --refine the command that makes the next candidate."
        raise BadInput(f"--horizon {options['horizon']} without --refine", remedy=remedy)
    if change is None and not options["of_runs"]:
        _advise(options, as_json, store_path)
        return
    if not options["oracle"]:
        raise BadInput("no oracle is named", remedy="Give the check that counts: --oracle 'pytest -q'.")
    names = dict(map(_named, (*options["critics"], options["oracle"])))
    if options["of_runs"]:
        if change is not None:
            raise BadInput(f"--run and {change} are two candidates", remedy="Name one of them.")
        raise SystemExit(0 if decide_runs(options, names, as_json, store_path) else 1)
    assert change is not None
    *critics, oracle = names.values()
    checks = Checks(oracle, critics, *(options[k] for k in ("refine", "repo", "outside", "timeout")))
    store = common.open_store(store_path, create=True)
    if options["mutants"] is not None:
        _mutants(store, checks, change, options, as_json)
        return
    task = _candidate(checks, change)
    gate = Gate(store, checks, options, names)
    before = None if options["again"] or options["learn"] else gate.before(task)
    run = before or gate.run([task])[0]
    raise SystemExit(0 if report(run, gate, before is not None, as_json) == "ship" else 1)


def _named(text: str) -> tuple[str, str]:
    """A check's name and command: ``lint: ruff check {file}``; without a name the command is its own."""
    found = re.fullmatch(r"([\w./-]+): +(\S.*)", text, re.DOTALL)
    return (found[1], found[2]) if found else (text, text)


def _candidate(checks: Checks, change: str) -> Task:
    """The candidate that the words name: the working tree, a diff, a file, or a commit.

    Raises:
        UnknownName: none of these.
    """
    if change == ".":
        return checks.working()
    if change == "-":
        return checks.diff(sys.stdin.buffer.read((5 << 20) + 1))
    if change.endswith((".diff", ".patch")) and Path(change).is_file():
        with Path(change).open("rb") as file:
            return checks.diff(file.read((5 << 20) + 1))
    try:
        return checks.find(change)
    except UnknownName as unknown:
        if change.startswith(("/", ".")):
            raise
        try:
            return checks.revision(change)
        except BadInput as error:
            if "no commit" in str(error) or "not a git" in str(error):
                raise unknown from error
            raise


# ---- the rule that would have been best ------------------------------------------------------------------------------


def _advise(options: dict[str, Any], as_json: bool, store_path: str) -> None:
    """Print what each rule would have saved and lost, from the verdicts there are."""
    from clew.methods.gate.gate_agent import history
    from clew.methods.gate.line_rules import choose, held_out, once

    if not options["sources"] and not options["oracle"]:
        remedy = "Name them with --from, or the oracle of past runs with --oracle; or name a change."
        raise BadInput("there are no verdicts to look at", remedy=remedy)
    if options["sources"]:
        common.refuse_others("--from and no change", ("repo", "cell", "store_path"))
        rows, seconds = verdicts_of(options["sources"], _named(options["oracle"])[0])
    else:
        cell = options["cell"] or Path(options["repo"]).resolve().name
        past = history(common.open_store(store_path), cell, _named(options["oracle"])[1])
        rows, seconds = past.rows, past.seconds
        if not rows:
            raise BadInput(f"no run of {cell!r} has this oracle", remedy="Gate a change first, or give --cell.")
    critics = [_named(c)[0 if options["sources"] else 1] for c in options["critics"]]
    critics = critics or sorted({name for row in rows for name in row.verdicts})
    how = {name: options[name] for name in ("lose", "wrong", "by")} | {"seconds": seconds}
    choice, apart, rows = choose(rows, critics, **how), held_out(rows, critics, **how), once(rows)
    labels = [row.good for row in rows if row.good is not None]
    if as_json:
        shown = [numbers(found) for found in choice.all]
        labelled = {"candidates": len(rows), "good": labels.count(True), "broken": labels.count(False)}
        common.end_with_json({**labelled, "best": shown[0], "held_out": numbers(apart), "rules": shown})
    common.echo(f"{len(rows)} candidates: {labels.count(True)} good, {labels.count(False)} broken")
    table = [
        ("*" if i == 0 else "", common.show(str(f.rule)), str(f.saved), f"{f.lost.part:.0f} of {f.lost.n:.0f}",
         f"{f.risk:.1%}", f"{f.spares:+.1f}")
        for i, f in enumerate(choice.all[:SHOWN])
    ]  # fmt: skip
    common.print_table(["", "rule", "oracle runs saved", "good lost", "expected", "s spared each"], table)
    common.echo(f"chosen on one half, judged on the other: saves {apart.saved}, loses {apart.lost} of the good")
    common.echo(grounds(choice.best, options["lose"]))


# ---- a change --------------------------------------------------------------------------------------------------------


def _mutants(store: Keeper, checks: Checks, file: str, options: dict[str, Any], as_json: bool) -> None:
    """Run every check on broken variants of the file, from which the critics' rates are learnt."""
    from clew.coding.repairs.mutants import mutants
    from clew.methods.gate.line_rules import Rule, judge, once

    source = Path(checks.folder, checks.find(file).data["file"]).read_text()
    tasks = [checks.variant(file, text) for text in mutants(source, options["mutants"], options["seed"] or 0)]
    if not tasks:
        raise BadInput(f"{file} has no mutants", remedy="Name a Python file with comparisons, numbers or conditions.")
    names = dict(map(_named, (*options["critics"], options["oracle"])))
    gate = Gate(store, checks, options, names)
    each = 2 * sum(gate.known.seconds.get(c, 1.0) for c in checks.critics) + gate.known.seconds.get("verify", 10.0)
    common.say(f"{len(tasks)} mutants of {file}, about {each * len(tasks):.0f} s")
    runs = gate.run(tasks, f"mutants/{checks.variant(file, source).id}")
    goods = [ended(run)["good"] for run in runs]
    if not any(isinstance(good, bool) for good in goods):
        why = next(json.loads(c.text)["why"] for c in runs[0].calls if c.kind == "act" and c.action == "verify")
        remedy = "Run it by hand in the repository."
        raise BadInput(f"the oracle decided nothing about {len(runs)} mutants: {why}", remedy=remedy)
    found = {"mutants": len(runs), "broken": goods.count(False), "passed": goods.count(True)}
    found["undecided"] = goods.count(None)
    rows, rates = once(Gate(store, checks, options, names).rows), {}
    for name in checks.critics:
        one = judge(rows, Rule((name,)), options["lose"])
        said = [(row.good, row.verdicts[name]) for row in rows if name in row.verdicts and row.good is not None]
        rates[name] = {
            label: {"passed": said.count((y, True)), "of": said.count((y, True)) + said.count((y, False))}
            for label, y in (("good", True), ("broken", False))
        }
        common.say(
            f"{name}: passes {rates[name]['good']['passed']} of {rates[name]['good']['of']} good, "
            f"{rates[name]['broken']['passed']} of {rates[name]['broken']['of']} broken; "
            f"{one.risk:.1%} of the good expected lost"
        )
    if as_json:
        common.end_with_json(found | {"rates": rates})
    common.echo(
        f"{len(runs)} mutants: " + ", ".join(f"{found[name]} {name}" for name in ("broken", "passed", "undecided"))
    )
