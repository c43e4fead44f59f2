"""clew worlds: list worlds, and show tasks of one."""

from __future__ import annotations

import inspect

import click

from clew.cli.shared import common, option
from clew.core.registry import Kind


@click.command(short_help="List worlds (environments), and show tasks of one.")
@click.argument("ref", required=False)
@option("-n", default=3, help="How many tasks of REF to show.")
@option("--seed", default=0, help="Seed of the tasks.")
@option("--split", default="train", help="train or test, where the world has both.")
@common.json_option
def command(ref: str | None, n: int, seed: int, split: str, as_json: bool) -> None:
    """List the worlds (environments) that are installed, or show a few tasks of the world REF.

    \b
    clew worlds
    clew worlds 'household(rooms=2)' -n 5
    """
    from clew.core import registry

    if ref is None:
        rows = [describe("tasksets", name) for name in registry.names("tasksets")]
        if as_json:
            common.print_json(rows)
        else:
            common.print_table(("world", "parameters", "what"), [(r["name"], r["parameters"], r["what"]) for r in rows])
        return
    taskset = registry.build("tasksets", ref)
    tasks = taskset.sample(n, seed=seed, split=split)
    shown = []
    for task in tasks:
        world = taskset.open(task)
        seen = world.observe()
        shown.append({"task": task.id, "prompt": task.prompt, "first": seen.text, "legal": list(seen.legal)})
        world.close()
    if as_json:
        common.print_json(shown)
        return
    for row in shown:
        click.echo(
            f"{row['task']}: {row['prompt']}\n  sees: {row['first']}\n  may: {', '.join(row['legal']) or 'anything'}"
        )


def describe(kind: Kind, name: str) -> dict[str, str]:
    """Name, parameters and first sentence of what is registered; what keeps it from loading, where that fails."""
    from clew.core import registry

    try:
        thing = registry.lookup(kind, name)
        signature = inspect.signature(thing)
    except Exception as error:
        return {"name": name, "parameters": "", "what": f"not available: {error}"}
    parameters = ", ".join(str(p).split(":")[0].split(" =")[0] + _default(p) for p in signature.parameters.values())
    what = (inspect.getdoc(thing) or "").split("\n")[0]
    return {"name": name, "parameters": parameters, "what": what}


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else f"={parameter.default!r}"
