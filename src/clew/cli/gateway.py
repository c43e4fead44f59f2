"""clew gateway: record programs that Clew did not write, by standing between them and their model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.serve.gateway.proxy import Gateway
    from clew.serve.gateway.session import Session

PORT = 8421


@click.command(short_help="Record any agent by standing between it and its model.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ...]")
@click.option("--upstream", help="Where requests go, as in http://host/v1.  [default: OpenAI's, Anthropic's]")
@click.option("--model", "ref", help="Instead: this model answers, whatever name is asked for. See `clew models`.")
@click.option("--name", help="Names the run of PROGRAM.")
@click.option("--fork", "place", metavar="RUN@CALL", help="Restart PROGRAM and go live at this Call of its run.")
@click.option("-n", "--n", "n", default=1, show_default=True, help="Forks, each with a PROGRAM of its own.")
@click.option("--reply", help="With --fork at an ask: its reply.")
@click.option("--replay", "again", metavar="RUN", help="Restart PROGRAM; its run's record answers, no model.")
@click.option("--unnamed", type=click.Choice(["guess", "apart"]), default="guess", show_default=True,
              help="Requests without a name: join the run they continue, or be runs of their own.")  # fmt: skip
@click.option(
    "--idle",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="End a run that nothing was asked of for so long; its name goes on with it.  [default: never]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Any but loopback needs --token.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"0 takes a free one.  [default: {PORT}; for PROGRAM 0]")
@click.option("--token", envvar="CLEW_GATEWAY_TOKEN", default="", help="What clients must send as their API key.")
@run_options.model_options
@common.store_option
def command(program: tuple[str, ...], store_path: str, **options: Any) -> None:
    """Serve chat completions, responses and Anthropic's messages; every request becomes part of a run.

    Point a program's base URL at /r/NAME/v1, or let this start it: PROGRAM finds the address in OPENAI_BASE_URL and
    ANTHROPIC_BASE_URL. The upstream credential is read here, from CLEW_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY,
    and is not given to PROGRAM. POST /r/NAME/end ends a run; its body may hold {"reward": 1.0}.

    \b
    clew gateway -- python my_agent.py
    clew gateway --upstream http://localhost:8000/v1 --port 8421
    clew gateway --fork RUN@7 -n 4 -- python my_agent.py
    clew gateway --replay RUN -- python my_agent.py
    """
    from clew.serve.gateway.proxy import Gateway
    from clew.view.guard import loopback
    from clew.view.serving import listen

    if not loopback(options["host"]) and not options["token"]:
        raise BadInput(
            f"{options['host']} can be reached by others, and there is no token",
            remedy="Set CLEW_GATEWAY_TOKEN to something long and secret, or leave --host out.",
        )
    if bool(options["place"]) + bool(options["again"]) + bool(options["name"]) > 1:
        raise BadInput("--name, --fork and --replay exclude each other", remedy="Give one of them.")
    if options["ref"] and options["upstream"]:
        raise BadInput("--model and --upstream exclude each other", remedy="Give one of them.")
    store = common.open_store(store_path, create=not (options["place"] or options["again"]))
    if options["place"] and not (options["ref"] or options["upstream"]):
        options.update(answered_by(store, options["place"].partition("@")[0]))
    gateway = Gateway(
        store,
        upstream(options),
        unnamed=options["unnamed"],
        token=options["token"],
        names=(options["ref"],) if options["ref"] else (),
        about={k: options[k] for k in ("ref", "upstream") if options[k]},
        idle=options["idle"] * 60 if options["idle"] else None,
    )
    port = options["port"] if options["port"] is not None else 0 if program else PORT
    listener = listen(options["host"], port)
    address = f"http://{options['host']}:{listener.getsockname()[1]}"
    raise SystemExit(asyncio.run(_serve(gateway, listener, address, program, options, store_path)))


def upstream(options: Mapping[str, Any]) -> Any:
    """Who answers: one model for all names, or the endpoint's model of the name asked for."""
    if options["ref"]:
        model = run_options.load_model(options["ref"], options)
        return lambda dialect, name, extra: model
    known: dict[str, Any] = {}  # one for all runs: connections, limits and what the endpoint refuses are shared
    given = common.json_object(options["model_options"], "--model-options")
    if options["max_cost"] is not None:
        given["max_cost"] = options["max_cost"]

    def resolve(dialect: str, name: str, extra: Mapping[str, Any]) -> Any:
        from clew.models import ALIASES
        from clew.models.remote.client import Remote

        place = json.dumps([dialect, name, extra], sort_keys=True)
        if place not in known:
            home = ALIASES["anthropic" if dialect == "messages" else "openai"][1]
            key = os.environ.get("ANTHROPIC_API_KEY") if dialect == "messages" and not options["upstream"] else None
            merged = {**given, "extra": {**given.get("extra", {}), **extra}}
            known[place] = Remote(options["upstream"] or home, name, key or common.api_key(), dialect=dialect, **merged)
        return known[place]

    return resolve


def answered_by(store: Any, run: str) -> dict[str, Any]:
    """Who answered a recorded run, so that its forks ask the same."""
    known = json.loads(store.row(run).meta or "{}").get("gateway", {})
    return {k: known[k] for k in ("ref", "upstream") if k in known}


async def _serve(
    gateway: Gateway, listener: Any, address: str, program: tuple[str, ...], options: Mapping[str, Any], store: str
) -> int:
    import uvicorn

    config = uvicorn.Config(gateway.application(), log_level="warning", server_header=False, lifespan="on",
                            timeout_graceful_shutdown=2)  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve([listener]))
    while not server.started:
        if serving.done():
            serving.result()
            return 1
        await asyncio.sleep(0.005)
    try:
        return await _programs(gateway, address, program, options, store, serving)
    finally:
        server.should_exit = True
        await serving


async def _programs(
    gateway: Gateway, address: str, program: tuple[str, ...], options: Mapping[str, Any], store: str, serving: Any
) -> int:
    """Open the forks or the replay asked for; run the program to its end, or serve until told to stop."""
    from clew.core.records import Cursor, Edit, Intervention

    sessions: list[Session] = []
    if options["place"]:
        cursor = Cursor.parse(options["place"])
        edits = (Edit("reply", cursor.seq, options["reply"]),) if options["reply"] is not None else ()
        sessions = gateway.fork(cursor, options["n"], Intervention(edits))
    elif options["again"]:
        sessions = [gateway.replay(options["again"])]
    names = [s.name for s in sessions] or ([options["name"] or f"run-{os.getpid()}"] if program else [])
    if not program:
        for name in names:
            click.echo(f"waiting for the program of run {name} at {address}/r/{name}/v1")
        click.echo(f"{store} records what comes to {address}/v1 or {address}/r/NAME/v1  (Ctrl-C ends)")
        await serving
        return 0
    codes = await asyncio.gather(*(_program(program, address, name, options["token"]) for name in names))
    for name in names:
        _told(gateway, name, store)
    return max(codes, key=abs)


async def _program(program: tuple[str, ...], address: str, name: str, token: str) -> int:
    base, key = f"{address}/r/{name}", token or f"clew:{name}"
    environment = {
        **{k: v for k, v in os.environ.items() if k != "CLEW_API_KEY"},
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_BASE": f"{base}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": key,
        "CLEW_RUN": name,
    }
    try:
        process = await asyncio.create_subprocess_exec(*program, env=environment)
    except OSError as error:
        raise BadInput(f"{program[0]} cannot be started: {error.strerror}", remedy="Check the command.") from None
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        raise


def _told(gateway: Gateway, name: str, store: str) -> None:
    session = gateway.sessions.get(name)
    if session is None:
        click.echo(f"the program asked nothing at the address of run {name}: does it read OPENAI_BASE_URL?", err=True)
        return
    asks = len(session.exchanges)
    click.echo(f"run {session.run}: {asks} requests; clew show {session.run} --store {store}", err=True)


__all__ = ["command"]
