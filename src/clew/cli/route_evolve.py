"""clew route evolve: stage 2 of the fast router, its head searched on whole tasks of a world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.route_fit import read_texts
from clew.cli.route_report import FOLDER, matrix_of, shown
from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.held_out import Compared, compared, rewards_of
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.values import Task
    from clew.harness import Runner
    from clew.methods.routing.evolution import Evolved, Search
    from clew.methods.routing.reward_matrix import F64, Matrix
    from clew.methods.routing.world_episodes import Change, WorldEpisodes
    from clew.models.compose.routed import Routed

OUT_HELP = "Folder of the evolved router; what lies there is replaced."


@click.command("evolve", short_help="Improve a fitted router on whole tasks of a world.")
@click.argument("router", metavar="ROUTER")
@click.argument("runs", nargs=-1, required=True, metavar="POOL...")
@option("-o", "--out", "folder", required=True, metavar="FOLDER", help=OUT_HELP)
@option("--agent", default="player", help="Agent, as `clew run` takes it.")
@option("--world", default="household", help="World to act in: a name of `clew worlds`, or file.py:Class.")
@option("--iterations", default=20, help="Iterations of the search.")
@option("--episodes", default=16, help="Tasks that each candidate performs in an iteration.")
@option("--tasks", default=256, help="Tasks to draw from, of the split train.")
@option("--fixed", default=64, help="Tasks of the split eval, by which the best mean is chosen.")
@option("--test", default=128, help="Tasks of the split test, at which both routers are compared.")
@option("--sigma", default=0.3, help="First step size, in units of the spread of the router's scores.")
@option("--seed", default=0, help="Seed of tasks, search and sampling.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@option("--anyway", is_flag=True, help="Write the router where no gain is shown.")
@option("--dry", is_flag=True, help="Print what would be performed, and perform nothing.")
@data_options.data_options
@run_options.tools_option
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(router: str, runs: tuple[str, ...], as_json: bool, store_path: str, folder: str, **options: Any) -> None:
    """Improve a router of `clew route fit` on whole tasks: what becomes of them, turn by turn, and not of one answer.

    The head is changed in 16 directions by sep-CMA-ES, a search without gradients. All candidates of an iteration
    perform the same tasks, and single answers of the measured POOL are rehearsed beside them, as a head that sees whole
    tasks alone forgets these. Both routers are then compared at held-out tasks, and where no gain is shown nothing is
    written. The same line continues where it stopped.

    \b
    clew route fit pool -o router
    clew route evolve router pool --world household -o evolved
    """
    from clew.methods.routing.evolution import Search, evolve
    from clew.methods.routing.world_episodes import Change, WorldEpisodes

    options |= {"path": "", "workers": "", "family": ""}
    found = matrix_of(runs, store_path, options)
    routed: Routed = run_options.load_model(f"route:{router}", options)  # type: ignore[assignment]
    h = read_texts(found.texts, routed.router.features)
    change = Change.of(routed.router, found.texts, options["seed"], h=h)
    options["agent"] = run_options.agent_for(options, options["agent"])
    taskset = run_options.world_of(options, options["agent"], judged=True)
    train, fixed, test = (
        taskset.sample(options[name], seed=options["seed"], split=split)
        for name, split in (("tasks", "train"), ("fixed", "eval"), ("test", "test"))
    )
    search = Search(options["iterations"], options["episodes"], options["sigma"], seed=options["seed"])
    make = run_options.runner_maker(options, taskset)
    store = common.open_store(store_path)
    each = WorldEpisodes(change, routed, lambda: make(None, ":memory:"), train, fixed)
    size = search.candidates(change.none.size)
    every = search.iterations * size * search.replications + search.looks() * len(fixed) + 2 * len(test)
    (common.say if as_json else common.echo)(
        f"{search.iterations} iterations of {size} candidates at {search.replications} tasks, "
        f"{search.looks()} looks at {len(fixed)} tasks, {len(test)} tasks twice at the end: {every:,} runs"
    )
    if options["dry"]:
        if as_json:
            plan = {"iterations": search.iterations, "candidates": size, "episodes": search.replications, "runs": every}
            common.end_with_json(plan)
        return
    single, kept = change.single(found, h), FOLDER / f"evolve-{_label(each, found, search)}"
    with run_options.interruptible("the same line again"), common.bar("runs", every) as move:
        each.ended = lambda: move(advance=1)
        how: Any = {"search": search, "single": single, "folder": kept, "told": lambda cost: move(advance=cost.done)}
        best = evolve(change.none, each, each.validate, **how)
        compared = _compared(each, best.head, make(None, store), test)
    _end(change, best, compared, [task.id for task in (*train, *fixed)], Path(folder), options, as_json)


def _label(each: WorldEpisodes, found: Matrix, search: Search) -> str:
    """A name of the search by all that its episodes hang on, so that the same line finds it again and no other does."""
    from clew.core.keys import value_digest

    row = each.runner().row(each.tasks[0])
    played = [row.agent, row.agent_digest, row.config, row.taskset, row.settings]
    tasks = [[task.id for task in part] for part in (each.tasks, each.fixed)]
    return value_digest([each.routed.weights_name, found.label, *played, tasks, str(search)]).hex()[:8]


def _compared(each: WorldEpisodes, best: F64, runner: Runner, test: list[Task]) -> Compared:
    """Both routers at the same held-out tasks and seeds; these runs are stored."""

    def rewards(head: F64) -> list[float]:
        routed = each.routed.by(each.change.router_of(head))
        return rewards_of(runner.collect(test, 1, model=routed, on_run=lambda run: each.ended()).runs, test)

    claims = ("mean reward of the router", "mean reward of the evolved router", "evolved less the router before")
    return compared(rewards(each.change.none), rewards(best), claims)


def _end(
    change: Change, best: Evolved, found: Compared, seen: list[str], out: Path, options: dict[str, Any], as_json: bool
) -> None:
    """``seen``: ids of the tasks that the search performed."""
    from clew.models.compose import fitted_tasks, router

    told = {"router": found.before, "evolved": found.after, "difference": found.gain}
    if not as_json:
        for name, report in told.items():
            common.echo(f"{name:<11}{shown(report)}")
        common.echo(
            f"best mean: iteration {best.at} of {options['iterations']}, {best.validation:.3f} on the split eval"
        )
    if found.gain.low <= 0 and not options["anyway"]:
        raise BadInput(
            f"no gain is shown: {found.gain}",
            remedy="Search longer (--iterations, --episodes), compare at more tasks (--test), or insist with --anyway.",
        )
    made, gain = change.router_of(best.head), found.gain
    about = dict(made.about) | {
        fitted_tasks.FIELD: fitted_tasks.told(seen, fitted_tasks.marks(made.about)),
        "evolved": {
            "method": "sep-CMA-ES (arXiv 2606.21228, 3.3)", "world": options["world"], "seed": options["seed"],
            "iteration": best.at, "gain": {"estimate": gain.estimate, "low": gain.low, "high": gain.high, "n": gain.n},
        }
    }  # fmt: skip
    router.save(out, made.workers, made.features, made.head, about)
    if as_json:
        common.end_with_json({"folder": str(out)} | {name: run_options.numbers(one) for name, one in told.items()})
    common.echo(f"Next: {command_line('serve', f'route:{out}')}")
