"""What the modes of ``clew gate`` share: the rule that is known, how it is followed, and how its decision is told."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.values import Task
    from clew.methods.gate.candidates import Checks
    from clew.methods.gate.line_rules import Choice, Found, Seen
    from clew.store import Keeper, Run


class Gate:
    """What is known of the candidates of a cell, the rule chosen from it, and how it is followed."""

    def __init__(self, store: Keeper, checks: Checks, options: dict[str, Any], names: dict[str, str]) -> None:
        from clew.methods.gate.gate_agent import history
        from clew.methods.gate.line_rules import choose

        self.store, self.checks, self.options = store, checks, options
        self.cell = options["cell"] or Path(checks.folder).name
        self.known = history(store, self.cell, checks.oracle)
        oracle = next(reversed(names))
        told, _ = verdicts_of(options["sources"], oracle if oracle != checks.oracle else "")
        self.rows = [row._replace(verdicts=_renamed(row.verdicts, names)) for row in told] + self.known.rows
        how = {name: options[name] for name in ("lose", "wrong", "by")}
        self.choice: Choice = choose(self.rows, checks.critics, seconds=self.known.seconds, **how)
        self.new = not all(name in self.known.seconds for name in (*checks.critics, "verify"))

    def before(self, task: Task) -> Run | None:
        """The run that verified the same files, all of the tree's, with the same oracle."""
        from clew.store import Run

        if self.checks.outside:
            return None
        world: Any = self.checks.open(task)
        name = self.known.verified.get(world.state_key)
        world.close()
        return Run(self.store, name) if name else None

    def run(self, tasks: list[Task], mutants: str = "") -> list[Run]:
        """Follow the rule over each candidate; ``mutants`` names a collection of mutants, and all is run on those."""
        from clew.harness import Runner
        from clew.methods.gate.gate_agent import AGENT

        rule, o = self.choice.best.rule, self.options
        learn = bool(mutants) or o["learn"] or self.new
        config = {
            "rule": [] if learn else list(rule.checks), "critics": list(self.checks.critics), "ships": rule.ships,
            "oracle": self.checks.oracle, "explore": learn or self.choice.explore, "probe": self.choice.probe,
            "twice": learn, "audit": o["audit"],
            "horizon": o["horizon"] or (3 if self.checks.refine else 1), "cell": self.cell, "invented": bool(mutants),
        }  # fmt: skip
        if mutants:
            config["horizon"] = 1
        seed = o["seed"] if o["seed"] is not None else 0 if mutants else secrets.randbits(62)
        runner = Runner(AGENT, self.checks, None, self.store, config, concurrency=1)
        with common.bar("gate", len(tasks)) as move, run_options.interruptible("the same line again"):
            groups = runner.collect(tasks, n=1, seed=seed, name=mutants, on_run=lambda run: move(advance=1))
        return list(groups.runs)


def _renamed(verdicts: Any, names: dict[str, str]) -> dict[str, bool]:
    return {names.get(name, name): said for name, said in verdicts.items()}


def verdicts_of(sources: tuple[str, ...], oracle: str) -> tuple[list[Seen], dict[str, float]]:
    """The candidates that files tell of, and running times."""
    from clew.methods.gate.past_verdicts import read

    rows, seconds = list[Any](), dict[str, float]()
    for source in sources:
        if not Path(source).exists():
            raise BadInput(f"there is no file {source}", remedy="Name JUnit files, or an export of GitHub's checks.")
        found, took = read(Path(source), oracle)
        rows += found
        seconds |= took
    return rows, seconds


def grounds(best: Found, lose: float) -> str:
    if best.rule.checks:
        note = "" if best.spares >= 0 else "; its critics take longer than it saves (--by seconds looks at that)"
        return f"best: {best}{note}"
    return f"best: verify always; no rule is expected to lose at most {lose:.1%} of the good, and saves anything"


def numbers(found: Found) -> dict[str, Any]:
    parts = {"rule": str(found.rule), "critics": list(found.rule.checks), "usable": found.usable}
    for name, share in (("saved", found.saved), ("lost", found.lost)):
        parts[name] = {"share": share.value, "n": share.n, "interval": list(share.interval)}
    return parts | {"expected": found.risk, "telling": found.telling, "seconds": found.spares}


def ended(run: Run) -> dict[str, Any]:
    ends = [json.loads(c.text) for c in run.calls if c.kind == "note" and c.action == "gate end"]
    if not ends:
        why = run.calls[-1].error or run.stop
        raise BadInput(f"run {run.id} broke off: {why}", remedy=f"Look at the run: `clew show {run.id}`.")
    return dict(ends[-1])


def report(run: Run, gate: Gate, before: bool, as_json: bool) -> str:
    """Print the decisions and their reasons, in the order in which they were taken."""
    from clew.methods.gate.line_rules import belief

    end, notes = ended(run), [(c.action, json.loads(c.text)) for c in run.calls if c.kind == "note" and c.text]
    decisions = [data for name, data in notes if name == "gate decision"]
    acts = [(c.action, json.loads(c.text)) for c in run.calls if c.kind == "act" and not c.redacted]
    config, best = run.config, gate.choice.best
    sure = float(end["good"]) if end["good"] is not None else belief(gate.rows, decisions[-1]["verdicts"])
    if as_json:
        checks = [{"action": action, **found} for action, found in acts]
        told = {"run": run.id, "before": before, "rule": list(config["rule"]), "best": numbers(best), "belief": sure}
        more = {"explored": config["explore"], "learnt": config["twice"], "decisions": decisions, "checks": checks}
        common.print_json({**told, **more, **end})
        return str(end["verdict"])
    if before:
        common.echo("these files were verified before, and nothing has changed since; --again verifies them anew")
    elif config["twice"]:
        why = "" if not gate.new else ": nothing is known of these commands yet"
        common.echo(f"everything is run once, critics twice{why}")
    else:
        common.echo(grounds(best, gate.options["lose"]))
        if config["explore"]:
            common.echo("every critic is run: too few good and broken changes were seen yet")
    for action, found in acts:
        word = {True: "pass", False: "fail", None: "undecided"}[found["passed"]]
        common.echo(f"  {word:9} {found['seconds']:6.2f} s  {action}" + (f"  ({found['why']})" if found["why"] else ""))
    for data in (data for name, data in notes if name == "gate flip"):
        common.echo(f"  {data['critic']} flips: it said {data['first']}, then {data['second']}; not counted")
    if decisions and decisions[-1]["lot"]:
        common.echo(f"verified by lot: the rule says {decisions[-1]['action']}")
    known_good = {True: ", verified", False: ", broken", None: ""}[end["good"]]
    common.echo(f"{end['verdict']}{known_good}; belief {sure:.2f}; run {run.id}")
    return str(end["verdict"])
