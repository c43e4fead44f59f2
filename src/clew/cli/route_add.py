"""clew route add: a model joins a fitted router, asked at the router's probe questions alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.methods.routing.fit_router import Probes

FROM_HELP = "Read its rewards from this file instead of asking it: columns question, worker, reward."
REF_HELP = "With --from: the model that it is.  [default: its name in the file]"


@click.command("add", short_help="Add a model to a router, measured at its probe questions alone.")
@click.argument("router", metavar="ROUTER")
@click.argument("model", metavar="MODEL")
@option("-o", "--out", "folder", required=True, metavar="FOLDER", help="Folder of the larger router.")
@option("--from", "path", default="", metavar="FILE", help=FROM_HELP)
@option("--ref", default="", metavar="MODEL", help=REF_HELP)
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--world", default="household", help="World to act in: a name of `clew worlds`, or file.py:Class.")
@option("--tasks", default=600, help="Questions that the pool was measured at: as in that line.")
@option("--split", default="train", help="train, eval or test: as in that line.")
@option("--seed", default=0, help="Seed of questions and sampling: as in that line.")
@option("-n", "--n", "n", default=4, help="Samples of each probe question.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@option("--dry", is_flag=True, help="Print what would be asked, and ask nothing.")
@data_options.data_options
@run_options.tools_option
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(router: str, model: str, as_json: bool, store_path: str, folder: str, **options: Any) -> None:
    """Add MODEL to a router of `clew route fit --probe`, by what it does at the router's probe questions alone.

    Give the data, world and settings of the line that measured the pool: the probe questions are found among them.
    Each sample is a stored run, and what the store has is not asked again. The rest of the pool is not asked. What this
    is worth beside measuring everything was told by `clew route fit --probe`.

    \b
    clew route fit pool -o router --probe 60
    clew route add router openai:gpt-5-nano --data q.jsonl --reward numeric -o larger
    """
    from clew.methods.routing import fit_router
    from clew.models.compose import router as routers

    before = routers.load(Path(router))
    probes = fit_router.probes_of(Path(router), before)
    if model in [worker.ref for worker in before.workers]:
        raise BadInput(f"{model} is in the pool already", remedy="Name another model.")
    ref = options["ref"] or model
    if options["path"]:
        common.refuse_others("--from, which asks no model", ("path", "ref", "folder", "as_json"), only=True)
        given = _read(Path(options["path"]).expanduser(), model)
    else:
        asked = _asked(model, probes, options, store_path, as_json)
        if asked is None:
            return
        given = asked
    has = sum(name in given for name in probes.questions)
    (worker,) = fit_router.workers_of([model], {model: ref})
    fit_router.with_worker(Path(router), worker, given, Path(folder))
    mean = sum(given[name] for name in probes.questions if name in given) / max(1, has)
    if as_json:
        common.end_with_json({"folder": folder, "worker": worker.name, "probes": has, "reward": mean})
    pool = float(probes.middle.mean())
    common.echo(
        f"{worker.name}: reward {mean:.3f} at {has} of {len(probes.questions)} probe questions (pool {pool:.3f})"
    )
    common.echo(f"router {folder}: {', '.join([*before.names, worker.name])}")
    common.echo(f"Next: {command_line('serve', f'route:{folder}')}")


def _asked(
    model: str, probes: Probes, options: dict[str, Any], store_path: str, as_json: bool
) -> dict[str, float] | None:
    """Mean rewards at the probe questions by name, measured as `clew route measure` does; None where nothing is to be
    asked yet."""
    from clew.methods.routing import measuring

    options["agent"] = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, options["agent"], judged=True)
    named = {name.rpartition("\n")[2]: name for name in probes.questions}  # of several worlds, the world stands before
    every = taskset.sample(options["tasks"], seed=options["seed"], split=options["split"])
    tasks = [task for task in every if task.id in named]
    if 2 * len(tasks) < len(named):
        told = f"{len(tasks)} of {len(named)} probe questions are among these {len(every)}"
        raise BadInput(told, remedy="Give data, --tasks, --split and --seed as in the line that measured the pool.")
    store = common.open_store(store_path, create=True)
    make = run_options.runner_maker(options, taskset)
    it = measuring.wanted(model, make(run_options.load_model(model, options), store), tasks, options["n"])
    said = f"{len(tasks)} probe questions, {options['n']} samples each: {it.calls} runs to make"
    (common.say if as_json else common.echo)(said + (f", about ${it.dollars:,.2f}" if it.dollars > 0 else ""))
    if options["dry"]:
        return None
    with run_options.interruptible("the same line again"), run_options.watching(it.calls, model[-30:]) as watch:
        measuring.ask(it, options["seed"], watch)
    rewards = measuring.rewards_of(measuring.gathered([it], tasks))
    return {named[task]: reward for task, reward in rewards.items()}


def _read(path: Path, model: str) -> dict[str, float]:
    """Mean rewards of one worker by question, as ``from_rows`` names questions."""
    from clew.exchange.dataset.table import read
    from clew.methods.routing.reward_matrix import means_of

    found = means_of(read(path).rows, model)
    if not found:
        raise BadInput(f"{path} has no reward of {model}", remedy="Its columns are question, worker and reward.")
    return found
