"""clew serve: answer OpenAI's API with a model."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, run_options, serve_drafts
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.serve.openai.questions import Limits
    from clew.serve.openai.server import Server

PORT = 8422


@click.command(short_help="Answer OpenAI's API with a model.")
@click.argument("ref", metavar="MODEL")
@click.option("--name", "names", multiple=True, help="The model goes by this name; may be repeated.  [default: MODEL]")
@click.option(
    "--draft", metavar="DRAFTER", help="Speculate with this drafter: a folder of `clew draft train`, or lookup."
)
@click.option("--draft-temperature", default=1.0, show_default=True, help="Whose calibration the drafter uses.")
@click.option(
    "--lengths",
    default="auto",
    show_default=True,
    help="How much of a draft is verified: auto, none, fixed(k=3), threshold(least=0.7), scheduler.",
)
@click.option("--profile", is_flag=True, help="Only measure what the model and its drafter cost on this machine.")
@click.option(
    "--simulate", metavar="USERS", help="Only say what this server would do with so many users, as in 1,8,64."
)
@click.option("--record", metavar="STORE", help="Keep what is served as runs, in this store.")
@click.option("--agent", metavar="FILE:FUNCTION", help="This agent answers: each completion is a run of it over MODEL.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Any but loopback needs keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes a free one.")
@click.option(
    "--keys",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="API keys, one a line, of which clients must send one; also CLEW_SERVE_KEYS, with commas.",
)
@click.option("--max-prompt", type=click.IntRange(1), help="Tokens of a prompt at most.  [default: the context]")
@click.option("--max-output", type=click.IntRange(1), help="Tokens of a reply at most.  [default: the context]")
@click.option("--max-body", type=click.IntRange(1), default=16, show_default=True, help="MB of a request at most.")
@click.option(
    "--max-queue",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Choices in work or waiting at once; more are answered 429.",
)
@click.option("--max-rows", type=click.IntRange(1), help="Requests in one batch at most.  [default: 256]")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds of one request at most.")
@click.option("--stall", default=30.0, show_default=True, help="Seconds a client may send or read nothing.")
@click.option("--drain", default=30.0, show_default=True, help="Seconds for requests in work once told to end.")
@click.option("--context", type=click.IntRange(2), help="Tokens of prompt and reply at most.  [default: the model's]")
@click.option("--dtype", help="Of the weights: float32, bfloat16, ...")
@click.option("--device", help="cpu, cuda or auto.")
@click.option("--threads", type=click.IntRange(1), help="Of the CPU.")
@run_options.model_options
def command(ref: str, **options: Any) -> None:
    """Serve chat completions, completions and responses, streamed or whole, over any model; see docs/serve.md.

    Ctrl-C or SIGTERM ends it: what is in work is answered, what comes is told to come back; a second one ends at once.

    \b
    clew serve ./weights
    clew serve ./weights --record served.db --max-queue 64
    clew serve ./weights --agent my_agent.py:solve --record served.db
    clew serve ./weights --draft ./drafter --profile; clew serve ./weights --draft ./drafter
    curl localhost:8422/v1/chat/completions -d '{"model": "./weights", "messages": [{"role": "user", "content": "hi"}]}'
    """
    from clew.view.guard import loopback

    keys = api_keys(options["keys"])
    if not loopback(options["host"]) and not keys:
        raise BadInput(
            f"{options['host']} can be reached by others, and there are no keys",
            remedy="Set CLEW_SERVE_KEYS or give --keys, or leave --host out.",
        )
    model = load(ref, options)
    if options["profile"]:
        serve_drafts.profile(model, ref, options)
    elif options["simulate"]:
        serve_drafts.simulate(model, ref, options)
    else:
        listen_and_serve(model, ref, keys, options)


def listen_and_serve(model: Any, ref: str, keys: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Serve, once the model is what the options ask for."""
    from clew.serve.agent_model import AgentModel
    from clew.serve.gateway.recorder import Recorder
    from clew.serve.openai.server import Server
    from clew.view.serving import listen

    if options["draft"]:
        model = serve_drafts.drafted(model, ref, options)
    store = common.open_store(options["record"], create=True) if options["record"] else None
    if options["agent"]:
        model = AgentModel(options["agent"], model, store=store or ":memory:")
    recorder = Recorder(store, model, {"ref": ref}) if store is not None else None
    names = (*options["names"],) or (ref,)
    server = Server(model, names=names, keys=keys, limits=limits(options), recorder=recorder)
    listener = listen(options["host"], options["port"])
    told = [f"keys: {len(keys) or 'none'}", f"records into {options['record']}" if recorder else "records nothing"]
    if options["draft"]:
        told.insert(0, f"drafts by {options['draft']}, lengths {options['lengths']}")
    if options["agent"]:
        told.insert(0, f"agent {options['agent']}")
    address = f"http://{options['host']}:{listener.getsockname()[1]}/v1"
    click.echo(f"serving {ref} as {' and '.join(names)} at {address}  ({'; '.join(told)}; Ctrl-C ends)")
    asyncio.run(serve(server, listener))


def api_keys(file: str | None) -> tuple[str, ...]:
    """Keys of the file and of the environment; empty where neither has one.

    Raises:
        BadInput: the file is there and holds none, or one holds a colon, which separates a key from a run's name.
    """
    found = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    keys = [k.strip() for k in (*found, *os.environ.get("CLEW_SERVE_KEYS", "").split(",")) if k.strip()]
    if file and not keys:
        raise BadInput(f"{file} holds no key", remedy="Write one a line.")
    if any(":" in k or len(k) < 8 for k in keys):
        raise BadInput("a key with a colon, or of less than 8 characters", remedy="Use long random letters and digits.")
    return tuple(keys)


def limits(options: Mapping[str, Any]) -> Limits:
    """What the server takes."""
    from clew.serve.openai.questions import Limits

    return Limits(
        options["max_prompt"], options["max_output"], options["max_body"] << 20, options["max_queue"],
        options["timeout"], options["stall"], options["drain"],
    )  # fmt: skip


def load(ref: str, options: Mapping[str, Any]) -> Any:
    """The model, with what the options say of its weights."""
    given = common.json_object(options["model_options"], "--model-options")
    given |= {k: options[k] for k in ("context", "dtype", "device", "max_rows") if options[k] is not None}
    import json

    model: Any = run_options.load_model(ref, {**options, "model_options": json.dumps(given)})
    if options["threads"] and hasattr(model, "module"):
        import sys

        sys.modules["torch"].set_num_threads(options["threads"])
    return model


async def serve(server: Server, listener: socket.socket) -> None:
    """Serve until told to end, then answer what is in work."""
    import uvicorn

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
                click.echo(f"ending: {server.busy} in work, at most {server.limits.drain:g} s more", err=True)
            if not await server.drain():
                click.echo(f"{server.busy} were not done in time and are given up", err=True)
            self.should_exit = True

    loop = asyncio.get_running_loop()
    config = uvicorn.Config(server.application(), log_level="critical", server_header=False, proxy_headers=False,
                            lifespan="off", timeout_graceful_shutdown=2)  # fmt: skip
    async with server.running():
        await Draining(config).serve([listener])


__all__ = ["command"]
