"""clew worlds: list worlds, show tasks of one, or serve one as an OpenEnv environment."""

from __future__ import annotations

import inspect
from typing import Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.protocols import Taskset
from clew.core.registry import Kind

OPENENV_HELP = """Serve REF, or your data, as an OpenEnv environment at this port: a client of OpenEnv is the policy,
and each episode is a run in the store.  (pip install openenv-core)"""

NAMED = ("REF", "--data")


@click.command(short_help="List worlds (environments), and show tasks of one.")
@click.argument("ref", required=False)
@option("-n", default=3, only_with=NAMED, not_with="--openenv", help="How many tasks of REF to show.")
@option("--seed", default=0, only_with=NAMED, not_with="--openenv", help="Seed of the tasks.")
@option("--split", default="train", only_with=NAMED, help=run_options.SPLIT_HELP)
@data_options.data_options
@option("--openenv", metavar="PORT", type=click.IntRange(0, 65535), help=OPENENV_HELP)
@option("--json", "as_json", is_flag=True, not_with="--openenv", help="Print JSON instead of text.")
@common.store_of(only_with=NAMED)
def command(
    ref: str | None, n: int, seed: int, split: str, openenv: int | None, as_json: bool, store_path: str, **options: Any
) -> None:
    """List the worlds (environments) that are installed, or show a few tasks of the world REF or of
    your own data.

    \b
    clew worlds
    clew worlds 'household(rooms=2)' -n 5
    clew worlds --data questions.jsonl --prompt '{question} Be brief.'
    clew worlds 'household(rooms=2)' --openenv 8000
    """

    data = data_options.dataset_of(options)
    if data is not None and ref is not None:
        raise BadInput(f"the line names data and the world {ref}", remedy="Leave out one of them.")
    if data is not None:
        taskset: Taskset = data
    elif ref is not None:
        taskset = run_options.named_world(ref)
    elif openenv is not None:
        raise BadInput("--openenv without a world", remedy="Name one of `clew worlds`, or --data FILE.")
    else:
        print_registered("tasksets", "world", as_json)
        return
    if openenv is not None:
        _serve(taskset, openenv, split, store_path)
        return
    tasks = taskset.sample(n, seed=seed, split=split)
    shown = []
    for task in tasks:
        row: dict[str, Any] = {"task": task.id, "prompt": task.prompt}
        world = taskset.open(task)
        if world is not None:
            seen = world.observe()
            row |= {"first": seen.text, "legal": list(seen.legal)}
            world.close()
        shown.append(row)
    if as_json:
        common.end_with_json(shown)
    for row in shown:
        common.echo(f"{row['task']}: {row['prompt']}")
        if "first" in row:
            common.echo(f"  sees: {row['first']}\n  may: {', '.join(row['legal']) or 'anything'}")
        else:
            common.echo("  no world: the agent answers, and the judge reads the answer")


def _serve(taskset: Taskset, port: int, split: str, store: str) -> None:
    """Serve it to OpenEnv clients of this machine until Ctrl-C."""
    import uvicorn

    from clew.core.net import listen
    from clew.integrations.openenv_app import app

    made, listener = app(taskset, split=split, store=store), listen("127.0.0.1", port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    common.echo(f"serving {taskset.ref} as an OpenEnv environment at {address}  (runs into {store}; Ctrl-C ends)")
    ask = f'GenericEnvClient("{address}").reset(seed=0)'
    common.echo(f"\nNext, in another program:\n  {ask}\n  {command_line('log', 'model=openenv')}")
    quiet = "critical"  # openenv-core 0.3.0 fails, harmlessly, at each client that leaves; a step's errors it sends
    uvicorn.Server(uvicorn.Config(made, log_level=quiet)).run([listener])


def print_registered(kind: Kind, title: str, as_json: bool) -> None:
    """Print what is registered under a kind, as JSON or as a table whose first column has the title."""
    from clew.core import registry

    rows = [describe(kind, name) for name in registry.names(kind)]
    if as_json:
        common.end_with_json(rows)
    common.print_table((title, "parameters", "what"), [row.values() for row in rows])


def describe(kind: Kind, name: str) -> dict[str, str]:
    """Name, parameters and first sentence of what is registered; what keeps it from loading, where that fails."""
    from clew.core import registry

    try:
        thing = registry.lookup(kind, name)
        signature = inspect.signature(thing)
    except Exception as error:
        return {"name": name, "parameters": "", "what": f"not available: {error}"}
    parameters = ", ".join(_name(p) + _default(p) for p in signature.parameters.values())
    what = (inspect.getdoc(thing) or "").split("\n")[0]
    return {"name": name, "parameters": parameters, "what": what}


def _name(parameter: inspect.Parameter) -> str:
    many, named = parameter.kind is parameter.VAR_POSITIONAL, parameter.kind is parameter.VAR_KEYWORD
    return "*" * (many + 2 * named) + parameter.name


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else f"={parameter.default!r}"
