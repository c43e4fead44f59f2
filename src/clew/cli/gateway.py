"""clew gateway: record programs that Clew did not write, as a proxy between them and their model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.programs.own_home import fresh_home, made_home
from clew.cli.programs.started import answered_by, programs
from clew.cli.shared import common, embedding, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.own_folder import check_mounts
from clew.core.errors import BadInput
from clew.store.address import beside

if TYPE_CHECKING:
    from socket import socket

    from clew.core.protocols import Model
    from clew.serve.gateway.matching import Matching
    from clew.serve.gateway.program_folders import ProgramFolders
    from clew.serve.gateway.proxy import Gateway
    from clew.store import Keeper

PORT = 8421
PORT_HELP = f"Port; 0 takes a free one.  [default: {PORT}, or a free one; for PROGRAM 0]"
MOST = 12  # paths that a line names


UNNAMED_HELP = "Requests without a name: join the run they continue (guess), or be runs of their own (apart)."
FORK_HELP = "Start PROGRAM again on the record of its run, live from this call."
WITHOUT_HELP = "With --fork: pin none of these items of memories; `all`: none at all. A run is place enough then."
IDLE_HELP = "End a run after so many minutes without a request; its name can continue it.  [default: never]"
MEMORY_HELP = "Pin what this memory has for a conversation in what its model is sent (extra memory)."
WORKSPACE_HELP = """Keep all files of this folder at each request, ignored ones and .git too; `clew checkout` brings
them back."""
INTO_HELP = """With --fork or --replay: start PROGRAM in this fresh folder, with the files that its run began with,
mounted where they lay."""
HOME_HELP = """With --workspace: a home of PROGRAM's own, empty (`fresh`) or a copy of this folder without its
credentials; it is recorded at the beginning and comes back with --into."""
MATCH_HELP = """With --fork or --replay: a request is that of the record if it is equal to the letter (exact), apart
from what agents draw anew at each start (masked), or by its place alone (position); what differs is told."""
MASK_HELP = "A regular expression of what may differ too: its groups, if it has any. May be given several times."
MINUTES = common.Amount(float, 0, above=True)


@click.command(short_help="Record any program by standing between it and its model.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ...]")
@option("--upstream", help="Endpoint that answers, as in http://host/v1.  [default: OpenAI's or Anthropic's]")
@option("--model", "ref", help="Instead, let this model answer every request; see `clew models`.")
@option("--name", only_with="PROGRAM", help="name of its run.")
@option("--fork", "place", metavar="RUN@CALL", help=FORK_HELP)
@option("--without-memory", "without", metavar="ITEM,...", help=WITHOUT_HELP)
@option("-n", "--n", "n", default=1, only_with="--fork", help="number of forks, each with its PROGRAM.")
@option("--reply", only_with="--fork", help="the reply that the call gets.")
@option("--reply-json", only_with="--fork", help="the same as a chat message in JSON, which may call tools.")
@option(
    "--one-folder",
    is_flag=True,
    only_with="-n",
    not_with="--into",
    help="all PROGRAMs work in this folder, not each in a copy of it.",
)
@option("--replay", "again", metavar="RUN", help="Start PROGRAM again; the record answers, no model.")
@option("--unnamed", choices="guess apart", default="guess", help=UNNAMED_HELP)
@option("--memory", default="", metavar="NAME", help=MEMORY_HELP)
@embedding.embed_option
@option("--workspace", metavar="FOLDER", default="", help=WORKSPACE_HELP)
@option("--into", metavar="FOLDER", default="", help=INTO_HELP)
@option("--home", metavar="FOLDER", default="", help=HOME_HELP)
@option("--match", choices="exact masked position", default="masked", help=MATCH_HELP)
@option("--mask", "masks", metavar="REGEX", multiple=True, help=MASK_HELP)
@option("--idle", type=MINUTES, metavar="MINUTES", help=IDLE_HELP)
@common.host_option
@option("--port", type=click.IntRange(0, 65535), help=PORT_HELP)
@option("--token", envvar="CLEW_GATEWAY_TOKEN", default="", help="API key that clients must send.")
@run_options.model_options
@common.store_option
def command(program: tuple[str, ...], store_path: str, **options: Any) -> None:
    """Record programs that Clew did not write: a proxy for chat completions, responses and Anthropic's messages.

    Every request becomes part of a run. Set a program's base URL to /r/NAME/v1, or let the gateway start it: PROGRAM
    finds the address in OPENAI_BASE_URL and ANTHROPIC_BASE_URL. The upstream credential is read from CLEW_API_KEY,
    OPENAI_API_KEY or ANTHROPIC_API_KEY and is not given to PROGRAM. POST /r/NAME/end ends a run; its body may hold
    {"reward": 1.0}.

    \b
    clew gateway -- python my_agent.py
    clew gateway --upstream http://localhost:8000/v1 --port 8421
    clew gateway --workspace . --home fresh -- python my_agent.py
    clew gateway --memory shop -- python my_agent.py
    clew gateway --fork RUN@7 -n 4 -- python my_agent.py
    clew gateway --fork RUN --without-memory all -- python my_agent.py
    clew gateway --replay RUN -- python my_agent.py
    clew gateway --fork RUN@7 --into branch -- python my_agent.py
    """
    from clew.core.net import listen
    from clew.serve.gateway.proxy import Gateway

    common.refuse_open_host(options["host"], options["token"], "is no token", "CLEW_GATEWAY_TOKEN")
    _refuse_contradictions(options, program)
    store = common.open_store(store_path, create=not (options["place"] or options["again"]))
    if options["memory"]:
        _check_memory(store, options["memory"], options["embed"])
    if options["again"]:
        options["again"] = common.one(store, options["again"]).id
    if options["place"]:
        run, options["place"] = common.cursor(store, options["place"])
        if options["place"] is None and options["without"] is None:
            raise BadInput(f"--fork {run.id} names no place in the run", remedy="Write RUN@CALL; see `clew show`.")
        options["place"] = options["place"] or run.id
    if recorded := options["again"] or getattr(options["place"], "run", options["place"]):
        known = answered_by(store.row(recorded).meta)
        options["masks"] = (*known.pop("masks", ()), *options["masks"])
        if not (options["again"] or options["ref"] or options["upstream"]):
            options.update(known)
    options["own_home"] = _home(options, store_path) if options["home"] else None
    gateway = Gateway(
        store,
        upstream(options),
        unnamed=options["unnamed"],
        token=options["token"],
        names=(options["ref"],) if options["ref"] else (),
        about={k: options[k] for k in ("ref", "upstream", "masks") if options[k]},
        idle=options["idle"] * 60 if options["idle"] else None,
        memory=options["memory"],
        embedder=embedding.embedder(options["embed"]),
        folders=_folders(options, store_path) if options["workspace"] or options["into"] else None,
        matching=_matching(options["match"], options["masks"]),
    )
    port = 0 if options["port"] is None and program else options["port"]
    listener = listen(options["host"], port, PORT)
    address = f"http://{options['host']}:{listener.getsockname()[1]}"
    raise SystemExit(asyncio.run(_serve(gateway, listener, address, program, options, store_path)))


def _refuse_contradictions(options: Mapping[str, Any], program: Sequence[str]) -> None:
    """Say which options exclude each other, before a store is opened.

    Raises:
        BadInput: two options were given of which only one can hold.
    """
    if bool(options["place"]) + bool(options["again"]) + bool(options["name"]) > 1:
        raise BadInput("--name, --fork and --replay exclude each other", remedy="Give only one of them.")
    if (options["memory"] or options["embed"]) and (options["place"] or options["again"]):
        raise BadInput("--memory is of new runs", remedy="A fork or a replay has the memory that its run had.")
    if options["embed"] and not options["memory"]:
        raise BadInput("--embed ranks what is recalled from a memory", remedy="Name one with --memory.")
    if options["ref"] and options["upstream"]:
        raise BadInput("--model and --upstream exclude each other", remedy="Give only one of them.")
    if options["reply"] is not None and options["reply_json"] is not None:
        raise BadInput("--reply and --reply-json exclude each other", remedy="Give only one of them.")
    if options["workspace"] and (options["place"] or options["again"]):
        raise BadInput("--workspace is of new runs", remedy="`clew checkout` brings back the files of a recorded one.")
    if options["one_folder"] and not program:
        raise BadInput("--one-folder does nothing without PROGRAM", remedy="Add -- PROGRAM, or leave it out.")
    if options["into"] and not (program and (options["place"] or options["again"])):
        remedy = "Write `clew gateway --fork RUN@CALL --into FOLDER -- PROGRAM`."
        raise BadInput("--into is where the PROGRAM of a fork or a replay is started", remedy=remedy)
    if options["home"] and not (program and options["workspace"]):
        remedy = "Write `clew gateway --workspace FOLDER --home fresh -- PROGRAM`."
        raise BadInput("--home is of a PROGRAM whose files are kept", remedy=remedy)
    if options["match"] != "masked" and not (options["place"] or options["again"]):
        raise BadInput("--match is of a fork or a replay", remedy="Name the run with --fork or --replay.")
    if options["without"] is not None and not options["place"]:
        raise BadInput("--without-memory changes a fork", remedy="Name the run with --fork.")


def _folders(options: Mapping[str, Any], store: str) -> ProgramFolders:
    """The folders that programs work in, with the shelf beside the store.

    Raises:
        BadInput: --workspace names no folder, a home folder or a root, or the store lies in it; or nothing can be
            mounted, which --into needs.
    """
    from clew.cli.checkout import shelf_of
    from clew.serve.gateway.beginnings import facts
    from clew.serve.gateway.program_folders import ProgramFolders

    shelf = shelf_of(store)
    if options["into"]:
        check_mounts("Bring the files back with `clew checkout`, and start the program there yourself.")
        return ProgramFolders(shelf, None, common.say)
    root = Path(options["workspace"]).resolve()
    if not root.is_dir():
        raise BadInput(f"{options['workspace']} is no folder", remedy="Name the folder in which the program works.")
    if root in (Path("/"), Path.home().resolve()):
        told = f"{options['workspace']} is a root or a home folder"
        raise BadInput(told, remedy="Let the program work in a folder of its own.")
    if shelf.folder.resolve().is_relative_to(root):
        remedy = f"Put the store elsewhere: --store {root.parent / 'runs.db'}."
        told = f"the store {store} lies in {options['workspace']}, whose files would hold themselves"
        raise BadInput(told, remedy=remedy)
    return ProgramFolders(shelf, root, common.say, home=options["own_home"], facts=facts(os.environ))


def _home(options: Mapping[str, Any], store: str) -> Path:
    """Make the home that the program has; say which of the given files are not in it.

    Raises:
        BadInput: it cannot be made from what --home names.
    """
    place = fresh_home(beside(store), options["name"] or f"run-{os.getpid()}")
    withheld = made_home(place, options["home"], os.environ)
    if withheld:
        more = f" and {len(withheld) - MOST} more" if len(withheld) > MOST else ""
        common.say(
            f"left out of the program's home, which is recorded, for a credential: {', '.join(withheld[:MOST])}{more}"
        )
    return place


def _matching(match: str, own: Sequence[str]) -> Matching:
    """How the requests of a fork or a replay are matched with those recorded.

    Raises:
        BadInput: a mask is no regular expression that a mask can be.
    """
    from clew.serve.gateway.matching import Matching
    from clew.serve.published.masks import Masks
    from clew.serve.published.masks import own as masks_of
    from clew.serve.published.published_agents import MASKS

    given = masks_of(own)
    return Matching(Masks([] if match == "exact" else [*MASKS, *given]), match == "position")


def _check_memory(store: Keeper, name: str, embed: str) -> None:
    """Say now what would be missing at every request, and make the vectors that items lack.

    Raises:
        MissingExtra, BadInput: recalling needs an extra, or no memory can be called so.
    """
    from clew.core.errors import need
    from clew.harness.memory import Memory

    need("bm25s", "memory")
    if not Memory(store, name).items("active"):
        common.say(f"note: memory {name} holds no items; what adds one: {command_line('memory add', name)}")
    if embed:
        embedding.warmed(store, name, embed)


def upstream(options: Mapping[str, Any]) -> Callable[[str, str, Mapping[str, Any]], Model]:
    """Finds the model that answers: one for all names but those of `--also`, or the endpoint's of that name."""
    if options["ref"]:
        first, refs = run_options.load_model(options["ref"], options), options.get("also") or {}
        also = {name: run_options.load_model(ref, options) for name, ref in refs.items()}
        return lambda dialect, name, extra: also.get(name, first)
    from clew.serve.gateway.programs import endpoints

    given = common.json_object(options["model_options"], "--model-options")
    if options["max_cost"] is not None:
        given["max_cost"] = options["max_cost"]

    def key_of(dialect: str) -> str | None:
        own = os.environ.get("ANTHROPIC_API_KEY") if dialect == "messages" and not options["upstream"] else None
        return own or common.api_key()

    return endpoints(options["upstream"] or "", key_of, given)


async def _serve(
    gateway: Gateway, listener: socket, address: str, program: tuple[str, ...], options: Mapping[str, Any], store: str
) -> int:
    import uvicorn

    from clew.serve.edge import config

    how = config(gateway.application(), any_name=bool(options["token"]), lifespan="on", log_level="warning")
    server = uvicorn.Server(how)
    serving = asyncio.ensure_future(server.serve([listener]))
    while not server.started:
        if serving.done():
            serving.result()
            return 1
        await asyncio.sleep(0.005)
    try:
        return await programs(gateway, address, program, options, store, serving)
    finally:
        server.should_exit = True
        await serving
