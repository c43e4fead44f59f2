"""clew gate --run: the gate over what runs changed in their files, and its decisions beside the runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.cli.checkout import shelf_of
from clew.cli.gate_decisions import Gate, ended, report
from clew.cli.shared import common
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import Cursor
    from clew.methods.gate.candidates import Checks
    from clew.store import Keeper, Run

METHOD = "gate"  # of the annotations of runs


class Decided(NamedTuple):
    """What the gate decided over a run. ``gate``: the run that records it; None where nothing was changed."""

    run: Run
    verdict: str
    good: bool | None
    seconds: float
    oracle: int
    gate: Run | None

    def json(self) -> dict[str, Any]:
        return self._asdict() | {"run": self.run.id, "gate": self.gate.id if self.gate else None}


def decide_runs(options: dict[str, Any], names: dict[str, str], as_json: bool, store_path: str) -> bool:
    """Decide over each run, and file the decision beside it; whether any is shipped.

    Raises:
        BadInput: an option that is for other candidates; a run that has no files, or of whose files none changed.
    """
    for name, flag in (("refine", "--refine"), ("mutants", "--mutants"), ("outside", "--outside")):
        if options[name]:
            raise BadInput(f"{flag} is for changes of your own, not for runs", remedy="Leave it out, or --run.")
    store = common.open_store(store_path)
    chosen = _chosen(store, options["of_runs"])
    found = list[Decided]()
    for run, cursor in chosen:
        found.append(_decided(store, store_path, run, cursor, options, names, as_json or len(chosen) > 1))
        if len(chosen) > 1 and not as_json:
            common.echo(_line(found[-1]))
    shipped = [one for one in found if one.verdict == "ship"]
    if as_json:
        common.print_json([one.json() for one in found])
    else:
        _summary(found, shipped)
    return bool(shipped)


def _chosen(store: Keeper, words: tuple[str, ...]) -> list[tuple[Run, Cursor | None]]:
    found: list[tuple[Run, Cursor | None]] = []
    for word in words:
        found += [common.cursor(store, word)] if "@" in word else [(run, None) for run in common.some(store, (word,))]
    return found


def _decided(
    store: Keeper,
    store_path: str,
    run: Run,
    cursor: Cursor | None,
    options: dict[str, Any],
    names: dict[str, str],
    quiet: bool,
) -> Decided:
    from clew.serve.gateway.run_files import files_at, files_of

    after, before = files_at(run, cursor), files_of(run)[0]
    checks = _checks(store_path, run, before.tree, options, names)
    try:
        task = checks.patch(run.id, before.tree, after.tree)
    except BadInput:
        if not quiet:
            raise
        return Decided(run, "nothing changed", None, 0.0, 0, None)
    gate = Gate(store, checks, options, names)
    known = None if options["again"] or options["learn"] else gate.before(task)
    made = known or gate.run([task])[0]
    end, acts = ended(made), [call for call in made.calls if call.kind == "act"]
    seconds = 0.0 if known else sum(json.loads(call.text)["seconds"] for call in acts)
    oracle = 0 if known else sum(call.action == "verify" for call in acts)
    decided = Decided(run, str(end["verdict"]), end["good"], seconds, oracle, made)
    if cursor is None:
        _file(store, decided, checks)
    if not quiet:
        report(made, gate, known is not None, False)
    return decided


def _checks(store_path: str, run: Run, before: str, options: dict[str, Any], names: dict[str, str]) -> Checks:
    """The checks, in the workspace that the run was made in; of a recorded program, in one of the usual bounds."""
    from clew.core.registry import make_ref, parse_ref
    from clew.methods.gate.candidates import Checks
    from clew.worlds.workspace import Workspace

    shelf = str(shelf_of(store_path).folder)
    name, given = parse_ref(run.taskset) if run.taskset.startswith("workspace(") else ("workspace", {})
    given = {"folder": str(Path(options["repo"]).resolve()), "tree": before} | given | {"shelf": shelf}
    *critics, oracle = names.values()
    how = {"folder": given["folder"], "wall": options["timeout"], "workspace": make_ref(name, given, Workspace)}
    return Checks(oracle, critics, **how)


def _file(store: Keeper, decided: Decided, checks: Checks) -> None:
    """Put the decision beside the run: 1 for ship, 0 for stop, none where nothing was decided."""
    from clew.core.keys import value_digest
    from clew.core.records import Annotation

    value = {"ship": 1.0, "stop": 0.0}.get(decided.verdict)
    data = {**decided.json(), "critics": list(checks.critics), "command": checks.oracle}
    params = value_digest([checks.oracle]).hex()
    told = json.dumps(data, ensure_ascii=False)
    store.annotate([Annotation("run", METHOD, value, decided.run.id, params=params, data=told)])
    store.commit()


VERIFIED: Mapping[bool | None, str] = {True: "verified", False: "broken", None: ""}


def _line(one: Decided) -> str:
    if one.gate is None:
        return f"run {one.run.id}  {one.verdict}"
    cost = f"{one.seconds:.1f} s" if one.seconds else "verified before, with the same files"
    said = f"{one.verdict}, {VERIFIED[one.good]}" if one.good is not None else f"{one.verdict}, unverified"
    return f"run {one.run.id}  {said:16}  {cost}"


def _summary(found: list[Decided], shipped: list[Decided]) -> None:
    """How many of several were shipped and at what cost, and the line that goes on."""
    if len(found) > 1:
        total, ran = sum(one.seconds for one in found), sum(one.oracle for one in found)
        common.echo(f"{len(shipped)} of {len(found)} ship; the oracle ran {ran} times; {total:.1f} s in all")
    best = shipped[0] if shipped else found[-1]
    if shipped:
        common.echo(f"Next: {command_line('checkout', best.run.id, 'shipped')}")
    else:
        common.echo(f"what it changed: {command_line('show', best.run.id, files=True)}")
    if best.gate is not None:
        common.echo(f"how it was decided: {command_line('show', best.gate.id)}")
