"""clew run: an agent on tasks of a world, with any model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from clew.cli.checkout import check_shelf
from clew.cli.shared import common, data_options, embedding, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.programs import program_options
from clew.cli.shared.workers import worker_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.store import Groups
    from clew.store.base import Keeper

WON = 0.5  # a run succeeded where its reward exceeds this
MEMORY_HELP = "Tell the agent what this memory of the store has for each task; see `clew memory`."
SELECT_HELP = "With --memory: the model chooses at most N of the items first.  [default: all that fit]"


@click.command(short_help="Run an agent on tasks of a world, with any model.")
@click.argument("agent", default="player")
@run_options.task_options
@data_options.data_options
@option("--model", default="household-sft", help="Model to ask: a name, folder or URL; see `clew models`.")
@option("-n", "--n", "n", default=1, help="Runs of each task.")
@option("--config", default="{}", help="Arguments of the agent, as JSON.")
@run_options.tree_options
@option("--memory", default="", metavar="NAME", help=MEMORY_HELP)
@option("--select", default=0, metavar="N", type=common.Amount(int, 0), help=SELECT_HELP)
@embedding.embed_option
@run_options.tools_option
@program_options.command_options
@option("--name", default="", help="Name of this collection; the same line continues it where it stopped.")
@option("--concurrency", default=256, help="Most runs at the same time; a world may allow fewer.")
@worker_options.worker_options
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(agent: str, model: str, n: int, as_json: bool, store_path: str, **options: Any) -> None:
    """Run an agent on tasks of a world. Every model call, tool call and action is recorded in the store.

    AGENT is a bundled agent (player, tool_user, coder, chatter, answerer, orchestrator, demonstrator),
    module:function, or file.py:function. With --tools it is tool_user where none is named, with --data alone answerer.

    \b
    clew run --world household --tasks 8 --n 4
    clew run coder --world workspace --task 'fix the failing test' --model http://localhost:8000/v1#qwen3
    clew run coder --world workspace --task 'fix the failing test' --model M --n 16 --rollouts tree --together 4
    clew run --data questions.jsonl --reward numeric --model ./weights
    clew run --world 'household(rooms=2)' --model ./weights --temperature 0
    clew run --world 'mine.py:Tasks(n=20)' --tools tools.py:search,add --model http://localhost:8000/v1#qwen3
    clew run --world shop --memory shop --select 3 --model http://localhost:8000/v1#qwen3
    clew run --world shop --memory shop --embed openai:text-embedding-3-small --model openai:gpt-5-mini
    clew run my_agent.py:agent --world shop --model http://localhost:8000/v1#qwen3 --config '{"hints": true}'
    """
    options["agent"] = run_options.agent_for(options, agent)
    growth = run_options.growth_of({**options, "n": n})
    taskset = run_options.world_of(options, options["agent"])
    tasks = run_options.draw(taskset, options["tasks"], options["task_ids"], options["split"], options["seed"])
    check_shelf(taskset, store_path)
    store = common.open_store(store_path, create=True)
    _remember(options, store)
    if options["embed"] and options["memory"]:
        with run_options.interruptible("the same line again"):
            embedding.warmed(store, options["memory"], options["embed"])
    purse = run_options.purse(options)
    more = {"concurrency": options["concurrency"], "resolve_model": run_options.named_models(options, purse)}
    more["embedder"] = embedding.embedder(options["embed"])
    runner = run_options.runner_maker(options, taskset, **more)(run_options.load_model(model, options, purse), store)
    on = "the same line again" if growth and options["name"] else run_options.resume_line(options)
    where, bar = worker_options.executor(options), run_options.watching(len(tasks) * n)
    with run_options.interruptible(on), where as runner.executor, bar as watch:
        if growth is None:
            groups = runner.collect(tasks, n, options["seed"], name=options["name"], on_run=watch)
        else:
            from clew.harness.trees import grow

            groups = grow.collect(runner, tasks, growth, options["seed"], name=options["name"], on_run=watch)
    run_options.refuse_failure(groups)
    report(groups, as_json)


def _remember(options: dict[str, Any], store: Keeper) -> None:
    """Put the agent of a line with --memory into one that recalls for it.

    Raises:
        BadInput: --select without --memory; the store holds no such memory.
    """
    if not options["memory"]:
        if options["select"]:
            raise BadInput("--select chooses among the items of a memory", remedy="Name one with --memory.")
        return
    if options["memory"] not in store.memories():
        remedy = "`clew memory list` lists those there are; `clew memory add` begins one."
        raise BadInput(f"the store has no memory {options['memory'][:80]!r}", remedy=remedy)
    within = run_options.agent_reference(options["agent"])
    config = common.json_object(options["config"], "--config")
    told = {"agent": within, "memory": options["memory"], "select": options["select"], "config": config}
    options |= {"agent": "remembering", "config": json.dumps(told)}


def report(groups: Groups, as_json: bool) -> None:
    """Print each run in a line, the success rate with its interval, and where to look next."""
    from clew.store.protocol import undecided
    from clew.view.terminal import headline

    judged = [run for run in groups.runs if run.reward is not None]
    grown = any(group.kind == "tree" for group in groups)
    success = groups.success() if judged and not grown else None
    if as_json:
        rows = [
            {"run": r.id, "task": r.task_id, "reward": r.reward, "stop": r.stop, "group": r.group} for r in groups.runs
        ]
        common.end_with_json({"runs": rows, "success": None if success is None else run_options.numbers(success)})
    for run in groups.runs[:20]:
        common.echo(headline(run))
    if len(groups.runs) > 20:
        common.echo(f"and {len(groups.runs) - 20} more: {command_line('log', limit=0)}")
    if len(judged) < len(groups.runs) and (why := undecided(groups.runs[0].store, [run.id for run in groups.runs])):
        common.say(f"note: {len(groups.runs) - len(judged)} of {len(groups.runs)} runs have no reward: {why}")
    if success is not None:
        common.echo(f"success {success}")
    elif judged:
        won = sum((run.reward or 0) > WON for run in judged)
        common.echo(f"{won} of {len(judged)} leaves succeeded; they share beginnings, and estimate no rate of success")
    if judged:
        common.echo(f"look at the worst: {command_line('show', groups.worst().id)}")
