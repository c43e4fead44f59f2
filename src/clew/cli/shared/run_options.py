"""What the verbs that run models share: their options, loading the model, progress, and what an interrupt says."""

from __future__ import annotations

import ast
import gc
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option
from clew.cli.shared.next_lines import command_line
from clew.cli.shared.programs import program_options
from clew.core.errors import BadInput
from clew.core.printable import DEFAULT_STORE

if TYPE_CHECKING:
    from rich.progress import Progress

    from clew.core.protocols import Model, Taskset
    from clew.core.records import Report
    from clew.core.values import Limits, Task
    from clew.harness import Runner
    from clew.harness.trees.grow import Growth
    from clew.models.remote.limits import Purse
    from clew.store import Groups, Run
    from clew.store.base import Keeper

TINY = 20_000_000  # parameters
BUNDLED = "clew.harness.agents:"  # where the agents are that have a bare name


NUCLEUS = common.Amount(float, 0, 1, above=True)
TEMPERATURE_HELP = "Sampling temperature; 0 always takes the likeliest token."
TOP_P_HELP = "Nucleus sampling: sample from the likeliest tokens of this total share."


def sampling_of(*, only_with: common.Words = (), not_with: common.Words = ()) -> common.Option:
    """The options of sampling; both as for ``FromProject``."""
    return common.options(
        option("--temperature", type=float, help=TEMPERATURE_HELP, only_with=only_with, not_with=not_with),
        option("--top-p", type=NUCLEUS, help=TOP_P_HELP, only_with=only_with, not_with=not_with),
        option("--max-tokens", type=int, help="Most tokens in one reply.", only_with=only_with, not_with=not_with),
    )


sampling_options = sampling_of()
limit_options = common.options(
    option("--run-tokens", type=int, help="Most tokens in one run, prompts included."),
    option("--max-steps", type=int, help="Most steps in one run."),
    option("--max-seconds", type=float, help="Most seconds for one run."),
    option("--run-cost", type=float, help="Most US dollars for one run."),
)
SPLIT_HELP = "train, eval (checks during a training) or test, as the world has."
task_options = common.options(
    option("--world", default="household", help="World to act in: a name of `clew worlds`, or file.py:Class."),
    option("--tasks", default=4, not_with="--task", help="How many tasks to draw."),
    option("--task", "task_ids", multiple=True, help="Id of a task, instead of --tasks; may be repeated."),
    option("--split", default="train", not_with="--task", help=SPLIT_HELP),
    option("--seed", default=0, help="Seed of tasks and sampling."),
)
TOOLS_HELP = """Tools for the agent beside the world's: file.py:NAME,NAME, a module, or "mcp:COMMAND ARGUMENTS" for an
MCP server; may be repeated."""
tools_option = option("--tools", multiple=True, metavar="REF", help=TOOLS_HELP)
MAX_COST_HELP = "Most US dollars to spend at an endpoint, in total."
SETTINGS_HELP = "More settings of the model, as JSON: price, stream, device, ..."


def models_of(*, only_with: common.Words = (), not_with: common.Words = ()) -> common.Option:
    """The options of loading models; both as for ``FromProject``."""
    return common.options(
        option("--max-cost", type=float, help=MAX_COST_HELP, only_with=only_with, not_with=not_with),
        option("--model-options", default="{}", help=SETTINGS_HELP, only_with=only_with, not_with=not_with),
    )


model_options = models_of()
SELECTOR_HELP = "With --rollouts tree: uucb, entropy, uct, random or flat; with settings, as in uucb(c=1.0)."
ALLOCATOR_HELP = "With --spare: give the tokens to all such trees alike, or to those forecast to become mixed."
SPARE_HELP = "With --rollouts tree: share of tokens held back, then given to trees whose runs all ended alike."
TOGETHER_HELP = "With --rollouts tree: forks of one tree that run side by side, none knowing how the others end."
OF_TREES = {"selector": "uucb", "budget": None, "spare": 0.0, "allocator": "even", "together": 1}
growing_options = common.options(
    option("--selector", default=OF_TREES["selector"], help=SELECTOR_HELP),
    option("--budget", type=int, help="With --rollouts tree: tokens decoded per task.  [default: -n whole runs]"),
    option("--spare", default=OF_TREES["spare"], help=SPARE_HELP),
    option("--allocator", choices="even learned", default=OF_TREES["allocator"], help=ALLOCATOR_HELP),
    option("--together", default=OF_TREES["together"], type=common.Amount(int, 1), help=TOGETHER_HELP),
)
tree_options = common.options(
    option("--rollouts", choices="flat tree", default="flat", help="Independent runs, or trees grown by forks."),
    growing_options,
)


def sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: options.get(name) for name in ("max_tokens", "top_p", "temperature")}
    return {name: value for name, value in given.items() if value is not None}


def limits(options: Mapping[str, Any]) -> Limits:
    from clew.core.values import Limits

    return Limits(options["max_steps"], options["run_tokens"], options["max_seconds"], options["run_cost"])


def world_of(options: Mapping[str, Any], agent: str, *, judged: bool = False) -> Taskset:
    """The world, or the data, that a line names. The default world suits bundled agents; an agent of the user's own
    plays what is named.

    Args:
        judged: of data, a reward is needed.

    Raises:
        BadInput: the agent is no bundled one, and no world is named; see ``data_options.dataset_of``.
    """
    if (data := data_options.dataset_of(options, judged=judged)) is not None:
        if hasattr(data, "load_model"):
            data.load_model = lambda ref: load_model(ref, options)  # of a judge: by the line's credential and bounds
        return program_options.in_program(_planned(data, options), options)
    if ":" in agent_reference(agent).removeprefix(BUNDLED) and is_default("world"):
        who = "a program is the agent" if agent == program_options.COMMANDED else f"{agent} is an agent of your own"
        remedy = "Name the world that it acts in with --world; `clew worlds` lists them."
        raise BadInput(f"{who}, and the line names no world", remedy=remedy)
    made = named_world(options["world"])
    if about := getattr(made, "about", ""):
        common.say(about)
    return program_options.in_program(_planned(made, options), options)


def named_world(ref: str) -> Taskset:
    """The world of a reference. The snapshots of one that keeps files lie beside the line's store, as those that the
    line's other verbs look for, unless the reference says where."""
    from clew.core.registry import build, lookup, make_ref, parse_ref

    name, arguments = parse_ref(with_names(ref))
    store = click.get_current_context().meta.get(common.STORE)
    if store not in (None, ":memory:") and "shelf" in inspect.signature(lookup("tasksets", name)).parameters:
        shelf = data_options.shelf_beside(store)
        if shelf != data_options.shelf_beside(DEFAULT_STORE):
            arguments.setdefault("shelf", str(shelf))
    made: Taskset = build("tasksets", make_ref(name, arguments))
    return made


def with_names(ref: str) -> str:
    """A world's reference in which arguments without a name, as in ``repairs('tasks.jsonl')``, have theirs."""
    from clew.core.registry import lookup

    name, bracket, rest = ref.partition("(")
    try:
        call = ast.parse(f"f({rest}", mode="eval").body if bracket else None
    except (SyntaxError, ValueError):
        call = None
    if not isinstance(call, ast.Call) or not call.args:
        return ref
    names = list(inspect.signature(lookup("tasksets", name)).parameters)
    if len(call.args) > len(names):
        return ref
    call.keywords[:0] = [ast.keyword(one, value) for one, value in zip(names, call.args, strict=False)]
    call.args = []
    return name + ast.unparse(call)[1:]


def _planned(world: Taskset, options: Mapping[str, Any]) -> Taskset:
    """The world, under the reward of plans where the line asks for it."""
    if data_options.PLAN not in options.get("reward", ()):
        return world
    from clew.core.registry import lookup

    planned: Taskset = lookup("tasksets", "planned")(world)
    return planned


def is_default(name: str) -> bool:
    """Whether neither the line nor clew.toml says the option."""
    return data_options.is_default(click.get_current_context(), name)


def agent_for(options: Mapping[str, Any], agent: str) -> str:
    """The agent of a line; where it names none, with tools the one that calls tools, with data the one that answers,
    or that repairs.

    Raises:
        BadInput: the line names an agent and a program, or tools for a program.
    """
    if options.get("command"):
        lost = "" if is_default("agent") else "an agent" if not options.get("tools") else "tools"
        if lost or options.get("tools"):
            told = f"the line names {lost or 'tools'} and a program that is the agent"
            raise BadInput(told, remedy="Leave out one of the two; a program has its own tools.")
        return program_options.COMMANDED
    if options.get("readable"):
        raise BadInput("--readable is for --command", remedy="Add --command 'PROGRAM ...', or leave it out.")
    if not is_default("agent"):
        return agent
    if data_options.are_repairs(options):
        return "coder"
    return "tool_user" if options.get("tools") else "answerer" if options.get("data") else agent


def draw(taskset: Taskset, tasks: int, task_ids: tuple[str, ...], split: str, seed: int) -> list[Task]:
    return [taskset.find(name) for name in task_ids] or taskset.sample(tasks, seed=seed, split=split)


def purse(options: Mapping[str, Any]) -> Purse | None:
    """The dollars of ``max_cost``, from which all models of a line spend together; None where nothing bounds them."""
    if options.get("max_cost") is None:
        return None
    from clew.models.remote.limits import Purse

    return Purse(options["max_cost"])


def load_model(ref: str, options: Mapping[str, Any] | None = None, purse: Purse | None = None) -> Model:
    """A model by name, path or URL. The credential goes to the client only, never into a reference or a record.

    Args:
        options: of the command; ``model_options`` and ``max_cost`` count.
        purse: what endpoints spend from, in place of a purse of their own with ``max_cost``.
    """
    import clew.models
    from clew.core.sources import file_of

    options = options or {}
    given = common.json_object(options.get("model_options") or "{}", "--model-options")
    if options.get("max_cost") is not None and ":" in ref:  # weights in this process cost nothing
        given.setdefault("max_cost", options["max_cost"] if purse is None or file_of(ref) else purse)
    model: Model = clew.models.load(ref, api_key=common.api_key(), keys=common.worker_keys(), **given)
    calm(model)
    return model


def named_models(options: Mapping[str, Any], purse: Purse | None = None) -> Callable[[str], Model]:
    """What loads the models that an agent or a world of a line names: by the line's credential, out of its purse. The
    line's model options are for its own model."""
    cost = {"max_cost": options.get("max_cost")}
    return lambda ref: load_model(ref, cost, purse)


def calm(model: object) -> None:
    """Settle a process that holds weights.

    One thread for tiny ones: more collapse where cores are shared, and cost the steadiness of bits. And what is loaded
    by now (torch brings half a million objects) is not walked by each full garbage collection any more.
    """
    if hasattr(model, "module"):
        gc.collect()
        gc.freeze()
    if "OMP_NUM_THREADS" not in os.environ and hasattr(model, "module"):
        torch: Any = sys.modules["torch"]  # loaded with the weights
        if sum(p.numel() for p in model.module.parameters()) < TINY:
            torch.set_num_threads(1)


class Watch:
    """Counts runs as they end: how many, how many succeeded, tokens in a second."""

    def __init__(self, bar: Progress, total: int, title: str) -> None:
        self.bar, self.began = bar, time.perf_counter()
        self.done = self.good = self.judged = self.tokens = 0
        self.job = bar.add_task(title, total=total, note="")

    def __call__(self, run: Run) -> None:
        reward = run.reward
        self.done += 1
        self.tokens += sum(len(c.logprobs) if c.logprobs is not None else c.usage.completion for c in run.calls)
        if reward is not None:
            self.judged, self.good = self.judged + 1, self.good + (reward > 0.5)
        self.bar.update(self.job, completed=self.done, note=self.note)

    @property
    def note(self) -> str:
        rate = self.tokens / max(time.perf_counter() - self.began, 1e-9)
        success = f"success {self.good / self.judged:.0%}  " if self.judged else ""
        return f"{success}{rate:,.0f} tok/s"


@contextmanager
def watching(total: int, title: str = "runs") -> Iterator[Watch]:
    """A progress bar that is handed to ``Runner.collect(on_run=...)``."""
    with common.progress() as bar:
        yield Watch(bar, total, title)


def numbers(report: Report) -> dict[str, Any]:
    """The figures of a Report."""
    return {name: getattr(report, name) for name in ("estimate", "low", "high", "n", "design", "caveats")}


def refuse_failure(groups: Groups) -> None:
    """Say it as an error when no run could be made because model or world failed every time.

    Raises:
        ModelError, WorldError: with the first run's error; the runs are in the store.
    """
    from clew.core.errors import ModelError, WorldError
    from clew.core.values import StopReason

    stops = {run.stop for run in groups.runs}
    for reason, error in ((StopReason.MODEL_ERROR, ModelError), (StopReason.WORLD_ERROR, WorldError)):
        if stops == {reason}:
            first, n = groups.runs[0], len(groups.runs)
            raise error(
                f"{f'all {n} runs' if n > 1 else 'the run'} ended in {reason}: {first.calls[-1].error}",
                remedy=f"Mend what the error names and run the line again; `clew show {first.id}` shows the record.",
            )


def resume_line(options: Mapping[str, Any], *runs: str, redo: bool = False) -> str:
    """The line that goes on with interrupted runs; it loads models as the interrupted one did."""
    kept = common.pick(options, "max_cost model_options") | {"embed": options.get("embed")}
    return command_line("resume", *runs, redo=redo, **kept)


def agent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """World or data, agent, tools and sampling of a line, for the line that goes on with what it made."""
    told = common.pick(options, "world agent tools config temperature top_p max_tokens") | data_options.given(options)
    if options.get("command"):  # which says the agent and its arguments
        told = {k: v for k, v in told.items() if k not in ("agent", "config")}
    return told | common.pick(options, "command readable")


def without(names: str | None) -> dict[str, Any] | None:
    """What recalls do without, from the items that --without-memory names."""
    return None if names is None else {"without": names if names == "all" else [it for it in names.split(",") if it]}


@contextmanager
def interruptible(hint: str) -> Iterator[None]:
    """Say how to go on when the user interrupts what is inside."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise common.Interrupted(hint) from error


def agent_reference(text: str) -> str:
    """An agent as the record names it: a file gets its absolute path, a bare name means one of ``clew.agents``."""
    from clew.harness import loading

    place, colon, name = text.rpartition(":")
    if text.endswith(".py"):
        raise BadInput(f"{text} is a file, and no function in it is named", remedy=f"Write {text}:FUNCTION.")
    if place.endswith(".py"):
        return f"{Path(place).resolve()}:{name}"
    return text if colon else loading.RECORDED.get(text, text)


def runner_maker(
    options: Mapping[str, Any], taskset: Taskset | None, **more: Any
) -> Callable[[Model | None, str | Keeper], Runner]:
    """What makes the runners of a line: of its agent with its arguments, tools, sampling and limits; the model and the
    store are given each time. ``more`` goes to each Runner.

    Raises:
        BadInput: the agent is named wrongly, or its arguments are no JSON.
    """
    from clew.harness import Runner

    agent, config = agent_reference(options["agent"]), program_options.config_of(options, sampling(options))
    kept = {"tools": options["tools"], "limits": limits(options), "sampling": sampling(options), **more}
    return lambda model, store: Runner(agent, taskset, model, store, config, **kept)


def short_reference(agent: str) -> str:
    """An agent of the record as one types it."""
    return agent.removeprefix(BUNDLED)


def growth_of(options: Mapping[str, Any]) -> Growth | None:
    """How trees grow, or None for flat rollouts.

    Raises:
        BadInput: an option of trees without --rollouts tree, or settings with which no tree can grow.
    """
    from clew.core.registry import parse_ref
    from clew.harness.trees.grow import Growth

    if options["rollouts"] == "flat":
        if any(options[name] != usual for name, usual in OF_TREES.items()):
            told = "--selector, --budget, --spare, --allocator and --together are for trees"
            raise BadInput(told, remedy="Add --rollouts tree, or leave them out.")
        return None
    name, settings = parse_ref(options["selector"])
    bound = {"leaves": options["n"]} if options["budget"] is None else {"tokens": options["budget"]}
    moved = {"spare": options["spare"], "allocator": options["allocator"], "together": options["together"]}
    return Growth(selector=name, settings=tuple(sorted(settings.items())), **moved, **bound)
