"""clew gate: decide which check to run next on a code change, and whether to refine, verify or ship the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.coding.gate.candidates import Checks
    from clew.core.values import Task
    from clew.store import Keeper, Run


@click.command(short_help="Decide which checks a code change needs, and whether to ship it.")
@click.argument("file")
@option("--critic", "critics", multiple=True, metavar="COMMAND", help="A cheap check; {file} is FILE. Repeatable.")
@option("--oracle", required=True, metavar="COMMAND", help="The check that decides, such as 'pytest -q'.")
@option("--refine", default="", metavar="COMMAND", help="Command that changes the files: the next candidate.")
@option("--repo", default=".", help="Repository that holds FILE.")
@option("--reward", default=100.0, help="Value of a good change.")
@option("--loss", type=float, help="Cost of shipping a broken change.  [default: nothing is shipped unverified]")
@option("--rate", default=1.0, help="Cost of a second of running.")
@option("--refine-cost", type=float, help="Cost of one refinement.  [default: as measured, else as the oracle]")
@option("--horizon", type=int, help="Most candidates.  [default: 3 with --refine, else 1]")
@option("--cell", default="", help="Key of the learnt rates: a generator, a kind of task.  [default: the repository]")
@option("--audit", default=0.05, help="Share of changes verified although the plan says no.")
@option("--learn", is_flag=True, help="Run every check on this change, to learn how reliable the critics are.")
@option("--mutants", type=int, metavar="N", help="Learn from N broken variants of FILE, in the sandbox.")
@option("--timeout", default=600.0, help="Most seconds for one command.")
@option("--outside", is_flag=True, help="Run the commands in the repository itself, without a sandbox.")
@option("--seed", default=0, help="Seed of the audits and the mutants.")
@common.output_options
def command(file: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Decide over the change in FILE: run the critics that are worth their cost, then verify, ship, refine or stop.

    Exit status 0 of a command is a pass and 1 a failure; any other status, or a timeout, decides nothing. A cost is
    measured seconds times --rate. How reliable each critic is, is learnt from the runs in the store; until 20 broken
    changes were seen, the oracle is never left out altogether. Commands run in the sandbox on a copy of the
    repository's files. Exit code: 0 ship, 1 stop or undecided.

    \b
    clew gate src/x.py --critic "ruff check {file}" --critic "pytest -q tests/test_x.py" --oracle "pytest -q"
    clew gate src/x.py --critic "ruff check {file}" --oracle "pytest -q" --mutants 30
    clew gate src/x.py --oracle "make test" --refine "python agent.py {file}" --reward 600 --loss 3600
    """
    from clew.coding.gate.candidates import Checks

    checks = Checks(*(options[k] for k in ("oracle", "critics", "refine", "repo", "outside", "timeout")))
    task = checks.find(file)
    store = common.open_store(store_path, create=True)
    if options["mutants"]:
        learnt = _mutants(store, checks, file, options)
        if as_json:
            common.end_with_json(learnt)
        counts = (f"{learnt[name]} {name}" for name in ("broken", "passed", "undecided"))
        common.echo(f"{learnt['mutants']} mutants: {', '.join(counts)}")
        return
    from clew.coding.gate_agent import history

    _, seconds = history(store)
    known = all(name in seconds for name in (*checks.critics, "verify"))
    learn = options["learn"] or not known
    run = _run(store, checks, [task], options, learn=learn)[0]
    end = _report(run, learn, known, as_json)
    raise SystemExit(0 if end == "ship" else 1)


def _stakes(checks: Checks, seconds: dict[str, float], options: dict[str, Any]) -> dict[str, Any]:
    """Costs from measured seconds; a command that never ran costs 0 here, since it is measured first."""
    rate = options["rate"]
    verify = rate * seconds.get("verify", 0.0)
    refine = options["refine_cost"]
    if refine is None:
        refine = rate * seconds["refine"] if "refine" in seconds else verify
    horizon = options["horizon"] or (3 if checks.refine else 1)
    if not checks.refine and horizon > 1:
        remedy = "Name with --refine the command that makes the next candidate."
        raise BadInput(f"--horizon {horizon} without --refine", remedy=remedy)
    critics = {name: rate * seconds.get(name, 0.0) for name in checks.critics}
    worth = {"reward": options["reward"], "loss": options["loss"], "horizon": horizon}
    return {"refine": refine, "verify": verify, "critics": critics, **worth}


def _run(
    store: Keeper, checks: Checks, tasks: list[Task], options: dict[str, Any], *, learn: bool, mutants: str = ""
) -> list[Run]:
    """Decide over each task with what the runs in the store teach; ``mutants`` names a collection of mutants."""
    from clew.coding.gate.plan import Stakes
    from clew.coding.gate_agent import AGENT, history
    from clew.harness import Runner

    evidence, seconds = history(store)
    stakes = _stakes(checks, seconds, options)
    Stakes(**stakes)  # what cannot be planned with is refused before anything runs
    cell = options["cell"] or Path(checks.folder).name
    config = {"stakes": stakes, "evidence": evidence.dumps(), "cell": cell, "audit": options["audit"], "learn": learn}
    runner = Runner(AGENT, checks, None, store, config | {"invented": bool(mutants)}, concurrency=1)
    with common.bar("gate", len(tasks)) as move, run_options.interruptible("the same line again"):
        groups = runner.collect(tasks, n=1, seed=options["seed"], name=mutants, on_run=lambda run: move(advance=1))
    return list(groups.runs)


def _mutants(store: Keeper, checks: Checks, file: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run every check on broken variants of the file, from which the critics' rates (but not the prior) are learnt."""
    from clew.coding.gate.mutants import mutants
    from clew.coding.gate_agent import history

    source = Path(checks.folder, file).read_text()
    tasks = [checks.variant(file, text) for text in mutants(source, options["mutants"], options["seed"])]
    if not tasks:
        raise BadInput(f"{file} has no mutants", remedy="Name a Python file with comparisons, numbers or conditions.")
    _, seconds = history(store)
    each = 2 * sum(seconds.get(c, 1.0) for c in checks.critics) + seconds.get("verify", 10.0)
    common.say(f"{len(tasks)} mutants of {file}, about {each * len(tasks):.0f} s")
    runs = _run(store, checks, tasks, options, learn=True, mutants=f"mutants/{file}")
    goods = [_end(run)["good"] for run in runs]
    after, _ = history(store)
    cell, rates = options["cell"] or Path(checks.folder).name, {}
    for name in checks.critics:
        bad, good = after.critic(name, cell)
        rates[name] = {"passes_broken": bad.mean, "passes_good": good.mean, "broken": bad.n, "good": good.n}
        common.say(f"{name}: passes good {good}; broken {bad}")
    if not any(isinstance(good, bool) for good in goods):
        why = next(json.loads(c.text)["why"] for c in runs[0].calls if c.kind == "act" and c.action == "verify")
        remedy = "Run it by hand in the repository."
        raise BadInput(f"the oracle decided nothing about {len(runs)} mutants: {why}", remedy=remedy)
    found = {"mutants": len(runs), "broken": goods.count(False), "passed": goods.count(True)}
    return found | {"undecided": goods.count(None), "rates": rates}


def _end(run: Run) -> dict[str, Any]:
    ends = [json.loads(c.text) for c in run.calls if c.kind == "note" and c.action == "gate end"]
    if not ends:
        why = run.calls[-1].error or run.stop
        raise BadInput(f"run {run.id} broke off: {why}", remedy=f"Look at the run: `clew show {run.id}`.")
    return dict(ends[-1])


def _report(run: Run, learn: bool, known: bool, as_json: bool) -> str:
    """Print the decisions and their reasons, in the order in which they were taken."""
    end, notes = _end(run), [(c.action, json.loads(c.text)) for c in run.calls if c.kind == "note" and c.text]
    plan = next(data for name, data in notes if name == "gate plan")
    decisions = [data for name, data in notes if name == "gate decision"]
    acts = [(c.action, json.loads(c.text)) for c in run.calls if c.kind == "act"]
    if as_json:
        checks = [{"action": action, **found} for action, found in acts]
        common.print_json({"run": run.id, "learnt": learn, **end, **plan, "decisions": decisions, "checks": checks})
        return str(end["verdict"])
    if learn:
        why = "" if known else ": nothing is known of these commands yet"
        common.echo(f"everything is run once, critics twice{why}")
    else:
        common.echo(plan["regime"])
    for d in decisions:
        worth = ", ".join(f"{name} {value:.1f}" for name, value in d["values"].items())
        common.echo(f"belief {d['belief']:.2f}: {d['action']} ({d['reason']}) [{worth}]")
    for action, found in acts:
        word = {True: "pass", False: "fail", None: "undecided"}[found["passed"]]
        common.echo(f"  {word:9} {found['seconds']:6.2f} s  {action}" + (f"  ({found['why']})" if found["why"] else ""))
    for data in (data for name, data in notes if name == "gate flip"):
        common.echo(f"  {data['critic']} flips: it said {data['first']}, then {data['second']}; not counted")
    known_good = {True: ", verified", False: ", broken", None: ""}[end["good"]]
    common.echo(f"{end['verdict']}{known_good}; belief {end['belief']:.2f}; run {run.id}")
    return str(end["verdict"])
