"""Starts the programs of ``clew gateway``: of a new run, of forks or of a replay, and says what became of each.

A program that leaves the recorded course is told so by the status of its answer; one that asks on is ended. The
credential of the upstream must never be given to a program.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.cli.programs.own_home import at_home, fresh_home
from clew.cli.shared import common, run_options
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.own_folder import in_own_folder, own_folders
from clew.core.errors import BadInput
from clew.core.printable import quoted
from clew.core.values import StopReason
from clew.store.address import beside

if TYPE_CHECKING:
    from asyncio import Future

    from clew.core.records import RunRow
    from clew.serve.gateway.proxy import Gateway
    from clew.serve.gateway.session import Session

LOOK, PATIENCE = 0.5, 3.0  # seconds: between looks at a program, and before one that asks on is ended
SAID = 8  # requests that differ of which each is named


class Start(NamedTuple):
    """How a program is started. folder: a copy or fresh folder that it works in, if any. date: git's, pinned. home:
    where its home of its own lies, as it is called while it runs, if it has one."""

    command: Sequence[str]
    folder: Path | None = None
    date: str = ""
    home: str = ""


async def programs(
    gateway: Gateway,
    address: str,
    program: tuple[str, ...],
    options: Mapping[str, Any],
    store: str,
    serving: Future[None],
) -> int:
    """Open the forks or the replay asked for, then run the program to its end, or serve until told to stop."""
    sessions = _opened(gateway, options)
    names = [s.name for s in sessions] or ([options["name"] or f"run-{os.getpid()}"] if program else [])
    if not program:
        for name in names:
            common.echo(f"waiting for the program of run {name} at {address}/r/{name}/v1")
        common.echo(f"{store} records what comes to {address}/v1 or {address}/r/NAME/v1  (Ctrl-C ends)")
        await serving
        return 0
    starts = _starts(gateway, sessions, names, program, options, store)
    codes = await asyncio.gather(*(_run(starts[name], gateway, address, name, options["token"]) for name in names))
    for name, code in zip(names, codes, strict=True):
        await _failed(gateway, name, code)
    for name, start in starts.items():
        if start.folder is not None:
            common.say(f"run {name} worked in {start.folder}")
    kept = [gateway.sessions[name] for name in names if name in gateway.sessions] if gateway.folders is not None else []
    for session in kept:
        assert gateway.folders is not None
        await gateway.folders.at_end(gateway.store, session)
    strayed = [_told(gateway, name, bool(sessions)) for name in names]
    if kept and not options["again"]:
        _next(gateway.store.row(kept[0].run), program, beside(store))
    if gateway.memory and (line := _without_line(gateway, names[0], program, options)):
        common.echo(f"\nNext:\n  {line}")
    return max(codes, key=abs) or int(any(strayed))


def _opened(gateway: Gateway, options: Mapping[str, Any]) -> list[Session]:
    """The forks or the replay that were asked for."""
    from clew.core.records import Edit, Intervention

    if options["again"]:
        return [gateway.replay(options["again"])]
    if not options["place"]:
        return []
    reply = options["reply"] if options["reply_json"] is None else message(options["reply_json"])
    place, memory = options["place"], run_options.without(options["without"])
    if reply is not None and isinstance(place, str):
        raise BadInput("--reply is of a call", remedy="Name it as --fork RUN@CALL; see `clew show`.")
    edits = (Edit("reply", place.seq, reply),) if reply is not None else ()
    return gateway.fork(place, options["n"], Intervention(edits), memory=memory)


def _starts(
    gateway: Gateway,
    sessions: Sequence[Session],
    names: Sequence[str],
    program: Sequence[str],
    options: Mapping[str, Any],
    store: str,
) -> dict[str, Start]:
    """How each program is started: in its fresh folder, in its copy of this one, or here."""
    from clew.serve.gateway.beginnings import HOME
    from clew.serve.noted_files import METHOD

    if options["into"]:
        places = [Path(options["into"], s.name) if len(sessions) > 1 else Path(options["into"]) for s in sessions]
        pairs = zip(sessions, places, strict=True)
        return {session.name: _begun_again(gateway, session, place, program, store) for session, place in pairs}
    if sessions and any(row.params == HOME for row in gateway.store.annotations([sessions[0].run], METHOD)):
        common.say("note: the run had a home of its own, which comes back with --into FOLDER")
    if len(names) > 1 and not options["one_folder"]:
        copies = own_folders(names, beside(store))
        return {name: Start(in_own_folder(copy, program), copy) for name, copy in copies.items()}
    date = gateway.folders.date if gateway.folders is not None else ""
    home = "" if options["own_home"] is None else str(options["own_home"])
    return {name: Start(program, None, date, home) for name in names}


def _begun_again(gateway: Gateway, session: Session, place: Path, program: Sequence[str], store: str) -> Start:
    """Put back what a run began with, its home too; how its program is started there.

    Raises:
        BadInput: a recorded folder is not there, so that nothing can be mounted over it.
    """
    from clew.serve.gateway import beginnings
    from clew.store import Run

    assert gateway.folders is not None
    home = fresh_home(beside(store), session.name)
    begun = gateway.folders.put_back(Run(gateway.store, session.run), session.name, place, home)
    lacking = [folder for folder in filter(None, (begun.folder, begun.at)) if not Path(folder).is_dir()]
    if lacking:
        remedy = f"Make it: mkdir -p {' '.join(map(quoted, lacking))}. It is only mounted over, and stays empty."
        raise BadInput(f"the run worked in {lacking[0]}, which is not there", remedy=remedy)
    for told in beginnings.changed(begun.facts, beginnings.facts(os.environ)):
        common.say(f"note: {told}")
    first = [(home, begun.at)] if begun.at else []
    command = in_own_folder(place, program, begun.folder, begun.cwd, first)
    return Start(command, place, begun.date, begun.at)


async def _run(start: Start, gateway: Gateway, address: str, name: str, token: str) -> int:
    """Run a program to its end; one that the record refused twice, and that asks on, is ended."""
    from clew.serve.gateway.program_folders import pinned
    from clew.serve.gateway.programs import environment

    given = environment(address, name, token, os.environ) | pinned(start.date, os.environ)
    given = at_home(start.home, given) if start.home else given
    try:
        process = await asyncio.create_subprocess_exec(*start.command, env=given)
    except OSError as error:
        told = f"{start.command[0]} cannot be started: {error.strerror}"
        raise BadInput(told, remedy="Check the command.") from None
    ending = asyncio.ensure_future(process.wait())
    try:
        while not (await asyncio.wait({ending}, timeout=LOOK))[0]:
            session = gateway.sessions.get(name)
            if session is not None and len(session.refusals) > 1:
                await asyncio.wait({ending}, timeout=PATIENCE)
                if not ending.done():
                    common.say(f"run {name}: the program asks on after it left the recorded course, and is ended")
                    process.terminate()
                    break
        return await ending
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        raise


async def _failed(gateway: Gateway, name: str, code: int) -> None:
    """End the run of a program that did not end in order, with the reason; a replay's record stays as it is."""
    session = gateway.sessions.get(name)
    if not code or session is None or session.frozen:
        return
    how = f"with exit status {code}" if code > 0 else f"by signal {-code}"
    common.say(f"run {session.run}: the program ended {how}, and the run is kept as {StopReason.PROGRAM_FAILED}")
    session.end(f"the program ended {how}", StopReason.PROGRAM_FAILED)
    if session.run in gateway.work:
        await asyncio.wait([gateway.work[session.run]], timeout=10)


def message(text: str) -> dict[str, Any]:
    """A reply's fields, from a chat message; a tool call without an id gets one.

    Raises:
        BadInput: it is none.
    """
    from clew.core.errors import BadRecord
    from clew.harness.run.nodes import message_json
    from clew.models.dialects.chat import message_from_wire

    fields = common.json_object(text, "--reply-json")
    try:
        found = message_from_wire({"content": None, **fields, "role": "assistant"})._replace(extra="")
    except (BadRecord, TypeError, AttributeError) as error:
        told = error.message if isinstance(error, BadRecord) else str(error)
        remedy = """Write {"content": "..."} or {"tool_calls": [{"function": {"name": "...", "arguments": "{}"}}]}."""
        raise BadInput(f"--reply-json is no chat message: {told}", remedy=remedy) from None
    calls = tuple(c if c.id else c._replace(id=f"call_{i}") for i, c in enumerate(found.calls))
    return message_json(found._replace(calls=calls))


def _told(gateway: Gateway, name: str, again: bool) -> bool:
    """Say what became of a program's run; whether the record refused one of its requests, or waits for more."""
    session = gateway.sessions.get(name)
    if session is None:
        common.say(f"the program asked nothing at the address of run {name}: does it read OPENAI_BASE_URL?")
        return False
    asks = len(session.exchanges)
    if again:
        _told_of_record(session)
    if not session.frozen:
        common.say(f"run {session.run}: {asks} requests; look at it: {command_line('show', session.run)}")
    short = session.instead is not None and session.live is None
    return again and (bool(session.refusals) or short or any(not one.used for one in session.expected))


def _told_of_record(session: Session) -> None:
    """How the requests of a program that was started again compare with those recorded."""
    differing = [met for met in session.met if met.differs]
    for met in differing[:SAID]:
        common.say(f"request {met.number} differs, and is answered for its place: {met.differs}")
    if len(differing) > SAID:
        common.say(f"so do {len(differing) - SAID} more requests")
    masked = sum((Counter(met.masked) for met in session.met), Counter[str]())
    if masked:
        said = ", ".join(f"{name} ({count})" for name, count in sorted(masked.items()))
        common.say(f"run {session.name}: left out of the comparison: {said}")
    for why in dict.fromkeys(session.refusals):
        common.say(f"run {session.name}: {why}")
    waiting = [one.exchange.number for one in session.expected if not one.used]
    if waiting:
        told = f"request {waiting[0]} of the {len(session.expected)} recorded was not made again"
        common.say(f"run {session.name}: {told}")
    elif differing:
        told = (
            f"{len(session.expected)} recorded requests were answered for their place, {len(differing)} of them differ"
        )
        common.say(f"run {session.name}: {told}")
    else:
        common.say(f"run {session.name}: all {len(session.expected)} recorded requests were made again")
    if session.live is not None:
        number, why = session.live
        told = f"differs from the recorded one: {why}" if why else "is the recorded one"
        common.say(f"run {session.name}: request {number}, the first that a model was asked, {told}")
    elif session.instead is not None:
        common.say(f"run {session.name}: the program did not come to the fork; no model was asked")


def _next(run: RunRow, program: Sequence[str], store: Path) -> None:
    """The lines that go on from a run with its files."""
    lines = [command_line("checkout", run.id)]
    if run.parent:
        lines.append(command_line("diff", run.parent.partition("@")[0], run.id, files=True))
    else:
        into = store.parent / f"again-{run.id}"  # not in the folder that is kept
        lines.append(f"{command_line('gateway', again=run.id, into=into)} -- {' '.join(map(quoted, program))}")
    common.echo("\nNext:\n" + "\n".join(f"  {line}" for line in lines))


def _without_line(gateway: Gateway, name: str, program: Sequence[str], options: Mapping[str, Any]) -> str:
    """The line that starts the program again without what its run was given; empty where that was nothing."""
    from clew.harness.memory.recalled import first_recall

    session = gateway.sessions.get(name)
    if session is None or first_recall(gateway.store.calls(session.run), ())[0] < 0:
        return ""
    kept = common.pick(options, "max_cost model_options")
    line = command_line("gateway", place=session.run, without="all", **kept)
    return f"{line} -- {' '.join(map(quoted, program))}"


def answered_by(gateway: str) -> dict[str, Any]:
    """What a run's ``meta`` says of how it was answered, so that its forks ask the same and mask the same."""
    known = json.loads(gateway or "{}").get("gateway", {})
    return {k: known[k] for k in ("ref", "upstream", "masks", "also") if k in known}
