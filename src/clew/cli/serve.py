"""clew serve: serve a model over OpenAI's API."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click

from clew.cli.shared import common, option, run_options, speculation
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Model
    from clew.models.local import Local
    from clew.serve.openai.questions import Limits
    from clew.serve.openai.server import Server
    from clew.serve.openai.weight_routes import WeightRoutes

PORT = 8422


LENGTHS_HELP = "how much of a draft is verified: auto, none, fixed(k=3), threshold(least=0.7), scheduler."
KEYS_HELP = "File of API keys, one per line; clients must send one. Also CLEW_SERVE_KEYS, with commas."
UPDATES_HELP = "Let a trainer replace the weights, or load LoRA adapters, that lie in this folder (docs/fleet.md)."
CACHE_HELP = "Most GB of cached keys and values.  [default: 2.1 on a CPU, on a GPU half of what the weights leave]"
TEMPLATE_HELP = "Variables of the model's chat template, as in '{\"enable_thinking\": false}'."
FILE, FOLDER = click.Path(exists=True, dir_okay=False), click.Path(exists=True, file_okay=False)
POSITIVE = click.IntRange(1)


@click.command(short_help="Serve a model over OpenAI's API.")
@click.argument("ref", metavar="MODEL")
@option("--name", "names", multiple=True, help="Name by which clients ask; may be repeated.  [default: MODEL]")
@option("--also", multiple=True, metavar="NAME=MODEL", help="Serve this model too, as NAME; may be repeated.")
@option("--draft", metavar="DRAFTER", help="Speculative decoding: a folder of `clew draft train`, or lookup.")
@option("--draft-temperature", default=1.0, only_with="--draft", help="temperature of the calibration to use.")
@option("--lengths", default="auto", only_with="--draft", help=LENGTHS_HELP)
@option("--profile", is_flag=True, help="Only measure how long model and drafter take on this machine.")
@option("--weight-updates", metavar="FOLDER", type=FOLDER, help=UPDATES_HELP)
@option("--record", metavar="STORE", help="Record what is served as runs in this store.")
@common.host_option
@option("--port", type=click.IntRange(0, 65535), help=f"Port; 0 takes a free one.  [default: {PORT}, or a free one]")
@option("--agent", metavar="FILE:FUNCTION", help="Let this agent answer: each completion is a run of it.")
@option("--config", default="{}", only_with="--agent", help="arguments of the agent, as JSON.")
@run_options.limit_options
@option("--ledger", metavar="FILE", help="Sign a line here for each request to a model of the agent.")
@option("--ledger-key", metavar="FILE", type=FILE, help="The key that signs the ledger.")
@option("--keys", metavar="FILE", type=FILE, help=KEYS_HELP)
@option("--max-prompt", type=POSITIVE, help="Most tokens in a prompt.  [default: the context]")
@option("--max-output", type=POSITIVE, help="Most tokens in a reply.  [default: the context]")
@option("--max-body", type=POSITIVE, default=16, help="Most MB in a request.")
@option("--max-queue", type=POSITIVE, default=256, help="Most choices at once; more get 429.")
@option("--max-rows", type=POSITIVE, help="Most requests in one batch.  [default: 256]")
@option("--timeout", default=600.0, help="Most seconds for one request.")
@option("--stall", default=30.0, help="Most seconds in which a client sends or reads nothing.")
@option("--drain", default=30.0, help="Seconds to finish open requests after Ctrl-C.")
@option("--template", metavar="JSON", help=TEMPLATE_HELP)
@option("--context", type=click.IntRange(2), help="Most tokens in prompt and reply.  [default: the model's]")
@option("--dtype", help="Type of the weights: float32, bfloat16, ...  [default: float32; on a GPU the checkpoint's]")
@option("--device", help="Device of the weights: cpu, cuda or auto.  [default: cuda if there is one, for 20M and more]")
@option("--cache-gb", type=common.Amount(float, 0, above=True), help=CACHE_HELP)
@option("--threads", type=POSITIVE, help="CPU threads.")
@run_options.model_options
def command(ref: str, **options: Any) -> None:
    """Serve a model over OpenAI's API: chat completions, completions and responses, streamed or whole; embeddings and
    scores; Anthropic's messages (docs/serve.md).

    Ctrl-C or SIGTERM ends the server: open requests are answered, new ones are told to come back later. A second
    Ctrl-C ends it at once.

    \b
    clew serve ./weights
    clew serve ./weights --record served.db --max-queue 64
    clew serve ./weights --name big --also small=./other
    clew serve ./weights --weight-updates .clew/trainings
    clew serve ./weights --agent my_agent.py:solve --record served.db
    clew serve ./weights --agent orchestrator --config '{"workers": ["openai:gpt-5-mini", "./other"]}' --record s.db
    clew serve ./weights --draft ./drafter --profile; clew serve ./weights --draft ./drafter
    curl localhost:8422/v1/chat/completions -d '{"model": "./weights", "messages": [{"role": "user", "content": "hi"}]}'
    """
    _refuse_unserved(options)
    keys = api_keys(options["keys"])
    common.refuse_open_host(options["host"], keys, "are no keys", "CLEW_SERVE_KEYS (or a file for --keys)")
    names, refs = named(ref, options)  # what is wrong with them is said before a model is loaded
    model = load(ref, options)
    if options["profile"]:
        speculation.profile(model, ref, options)
    else:
        listen_and_serve(model, ref, names, refs, keys, options)


def _refuse_unserved(options: Mapping[str, Any]) -> None:
    """Refuse what is of serving in a line that only measures.

    Raises:
        BadInput: the line says such an option.
    """
    measured = "draft draft_temperature model_options template context dtype device cache_gb threads max_rows"
    if options["profile"]:
        common.refuse_others("--profile, which serves nothing", ("profile", *measured.split()), only=True)


def listen_and_serve(
    model: Local,
    ref: str,
    names: tuple[str, ...],
    refs: Mapping[str, str],
    keys: tuple[str, ...],
    options: Mapping[str, Any],
) -> None:
    """Serve the model, with its drafter, agent and recorder where the options name them.

    Args:
        names: of the model. refs: of the further models, by name.
    """
    from clew.core.net import listen
    from clew.serve.agent_model import AgentModel
    from clew.serve.gateway.recorder import Recorder
    from clew.serve.openai.server import Server

    served: Any = speculation.drafted(model, ref, options) if options["draft"] else model
    store = common.open_store(options["record"], create=True) if options["record"] else None
    if options["agent"]:
        config, how = common.json_object(options["config"], "--config"), resolved(served, options)
        how["limits"] = run_options.limits(options)
        served = AgentModel(options["agent"], store=store or ":memory:", config=config, **how)
    elif any(options[name] is not None for name in ("run_tokens", "max_steps", "max_seconds", "run_cost")):
        raise BadInput("limits of a run are for an agent", remedy="Give --agent, or --max-output for a model's reply.")
    elif options["ledger"] or options["ledger_key"]:
        raise BadInput("a ledger is kept of an agent's models", remedy="Give --agent; a router has one of its own.")
    served, updates = updatable(served, options)
    beside = {name: load(other, options) for name, other in refs.items()}
    about = {"ref": ref} | ({"also": dict(refs)} if refs else {})
    recorder = Recorder(store, served, about, beside) if store is not None else None
    most = limits(options)
    server = Server(served, names=names, beside=beside, keys=keys, limits=most, recorder=recorder, updates=updates)
    listener = listen(options["host"], options["port"], PORT)
    told = [f"keys: {len(keys) or 'none'}", f"records into {options['record']}" if recorder else "records nothing"]
    if (module := getattr(model, "module", None)) is not None and (
        at := next(module.parameters())
    ).device.type != "cpu":
        told.insert(0, f"{str(at.dtype).removeprefix('torch.')} on {at.device}")
    if options["draft"]:
        told.insert(0, f"drafts by {options['draft']}, lengths {options['lengths']}")
    if options["agent"]:
        told.insert(0, f"agent {options['agent']}")
    if updates:
        told.insert(0, f"takes weights from {updates.folder}")
    address = f"http://{options['host']}:{listener.getsockname()[1]}/v1"
    told += [f"{name}: {other}" for name, other in refs.items()]
    common.echo(f"serving {ref} as {' and '.join(names)} at {address}  ({'; '.join(told)}; Ctrl-C ends)")
    asyncio.run(serve(server, listener))


def named(ref: str, options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of the first model, and the further models, given as NAME=MODEL, by theirs.

    Raises:
        BadInput: one is not of that form, or a name comes twice.
    """
    names, beside = (*options["names"],) or (ref,), dict[str, str]()
    for text in options["also"]:
        name, _, other = text.partition("=")
        if not name or not other or name in beside or name in names:
            told = f"{name!r} names two models" if name and other else f"--also {text!r} names no model"
            raise BadInput(told, remedy="Write NAME=MODEL, each name once, as in --name big --also small=./other.")
        beside[name] = other
    return names, beside


def updatable(model: Any, options: Mapping[str, Any]) -> tuple[Any, WeightRoutes | None]:
    """The model so that a trainer can replace its weights, and the routes for it; as it is where that was not asked.

    Raises:
        BadInput: the model has no weights here.
    """
    from clew.serve.openai.updatable import Updatable
    from clew.serve.openai.weight_routes import WeightRoutes

    if options["weight_updates"] is None:
        return model, None
    if options["agent"] or not hasattr(model, "take"):
        raise BadInput(
            f"--weight-updates with {options['agent'] or model.ref}, which has no weights in this process",
            remedy="Serve a folder of weights, without --agent.",
        )
    held = Updatable(model)
    return held, WeightRoutes(held, Path(options["weight_updates"]))


def resolved(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's model, and what loads those that it names, with the credential; in the ledger where there is one.

    Raises:
        BadInput: the ledger has no key, the key no ledger, or one of them cannot be used.
    """
    from clew.models.compose.ledger import Ledger, key_of
    from clew.models.compose.signing import Signed, signing

    if (options["ledger"] is None) != (options["ledger_key"] is None):
        raise BadInput("a ledger needs a key, and a key a ledger", remedy="Give --ledger FILE and --ledger-key FILE.")
    purse, named = run_options.purse(options), {"max_cost": options["max_cost"]}
    others = partial(run_options.load_model, options=named, purse=purse)
    if options["ledger"] is None:
        return {"model": model, "resolve_model": others}
    ledger = Ledger(options["ledger"], key_of(options["ledger_key"]))
    return {"model": Signed(model, ledger), "resolve_model": signing(others, ledger)}


def api_keys(file: str | None) -> tuple[str, ...]:
    """Keys of the file and of the environment; empty where neither has one.

    Raises:
        BadInput: the file holds no key, or a key is short or holds a colon, which separates a key from a run's name.
    """
    found = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    keys = [k.strip() for k in (*found, *os.environ.get("CLEW_SERVE_KEYS", "").split(",")) if k.strip()]
    if file and not keys:
        raise BadInput(f"{file} holds no key", remedy="Write one key per line.")
    if any(":" in k or len(k) < 8 for k in keys):
        raise BadInput("a key has a colon, or less than 8 characters", remedy="Use long random letters and digits.")
    return tuple(keys)


def limits(options: Mapping[str, Any]) -> Limits:
    """What the server accepts."""
    from clew.serve.openai.questions import Limits

    lengths = (options["max_prompt"], options["max_output"], options["max_body"] << 20, options["max_queue"])
    return Limits(*lengths, options["timeout"], options["stall"], options["drain"])


def load(ref: str, options: Mapping[str, Any]) -> Local:
    """The model, loaded with the dtype, device and context that the options name."""
    from clew import models

    given = common.json_object(options["model_options"], "--model-options") | speculation.given(options)
    given |= {k: options[k] for k in ("dtype", "device") if options[k] is not None}
    if models.weights_in(ref) is not None:
        given.setdefault("dtype", "auto")
    given |= {"template": common.json_object(options["template"], "--template")} if options["template"] else {}
    model = run_options.load_model(ref, {**options, "model_options": json.dumps(given)})
    if options["threads"] and hasattr(model, "module"):
        sys.modules["torch"].set_num_threads(options["threads"])
    return cast("Local", model)


async def serve(server: Server, listener: socket.socket) -> None:
    """Serve until told to end, then finish open requests."""
    import uvicorn

    from clew.serve.edge import config

    class Draining(uvicorn.Server):
        ending: asyncio.Task[None] | None = None

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.end)

        def end(self) -> None:
            if self.ending is None:
                self.ending = loop.create_task(self.drain())
            else:
                self.should_exit = True

        async def drain(self) -> None:
            if server.busy:
                common.say(f"ending: {server.busy} open requests, at most {server.limits.drain:g} s more")
            if not await server.drain():
                common.say(f"{server.busy} requests did not end in time and are dropped")
            self.should_exit = True

    loop = asyncio.get_running_loop()
    async with server.running():
        await Draining(
            config(server.application(), any_name=bool(server.keys), lifespan="off", log_level="critical")
        ).serve([listener])
