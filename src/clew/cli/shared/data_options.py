"""Options by which a verb takes the user's own data and rewards in the place of a world, and what they make.

The verbs that take ``--world`` add ``data_options``; ``run_options.world_of`` asks ``dataset_of``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option
from clew.core import registry
from clew.core.errors import BadInput
from clew.store.address import beside

if TYPE_CHECKING:
    from clew.core.protocols import Taskset
    from clew.exchange.dataset.tasks import Dataset

SHELF = "files"  # beside a store
REPAIRS = "repairs"  # the taskset that reads rows with SWE-bench's fields
PLAN = "plan"  # the reward that is put around others, and around a world's own
NOT_FOR_REPAIRS = "reward prompt answer id_column split_column system visible limits_column reward_seconds"
NAMES = "data reward prompt answer id_column split_column held_out system visible limits_column reward_seconds"
DATA_HELP = """Your own tasks instead of a world: a file (JSONL, JSON, Parquet, CSV) or a folder that Hugging Face's
datasets saved. Rows with SWE-bench's fields are tasks of repairs (docs/repairs.md), and judged by their tests."""
REWARD_HELP = """With --data: exact, numeric, regex, json_schema, mathematics, unit_tests, judge(model='...'),
observation (of `clew world turns`), or file.py:function; with a weight, as in 0.2*length.py:short. May be repeated: the
weighted sum counts. Beside these, and for a world alone, plan: 0 where the agent orchestrator got no plan, else half of
1 + the other reward."""
rows_options = common.options(
    option("--prompt", default="", only_with="--data", help="a template, as in '{question} Be brief.', or a column."),
    option("--answer", default="", only_with="--data", help="column of the known answers; the agent never sees it."),
    option(
        "--id-column", default="", only_with="--data", help="column of ids.  [default: id, else a hash of the prompt]"
    ),
    option("--split-column", default="", only_with="--data", help="column that says train, eval or test."),
    option("--held-out", default=0.1, only_with="--data", help="share held out for eval, and as much for test."),
    option("--system", default="", only_with="--data", help="the system prompt."),
)
data_options = common.options(
    option("--data", metavar="FILE", help=DATA_HELP),
    option("--reward", multiple=True, metavar="REWARD", help=REWARD_HELP),
    rows_options,
    option(
        "--visible",
        multiple=True,
        only_with="--data",
        help="a further column that the agent may read; may be repeated.",
    ),
    option("--limits-column", default="", only_with="--data", help="column of each task's limits, as an object."),
    option("--reward-seconds", default=60.0, only_with="--data", help="how long a function may take for one reward."),
)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of this group, for a line that goes on with what was made; none where the line names no data."""
    return {name: options[name] for name in NAMES.split() if name in options} if options.get("data") else {}


def dataset_of(options: Mapping[str, Any], *, judged: bool = False) -> Dataset | Taskset | None:
    """The user's own data as a taskset, told on stderr in a line; None where the line names none.

    Rows with SWE-bench's fields are repairs, whose snapshots lie beside the line's store.

    Args:
        judged: a reward is needed.

    Raises:
        BadInput: a world is named in the same place, or no reward where one is needed; see ``Dataset``.
    """
    context = click.get_current_context()
    line, default = click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT
    if not options.get("data"):
        given = tuple(options.get("reward") or ())
        if given not in ((), (PLAN,)) and context.get_parameter_source("reward") is line:
            raise BadInput("--reward is for --data", remedy="Add --data FILE, or leave it out.")
        return None
    world, data = map(context.get_parameter_source, ("world", "data"))
    if world is line and data is not line:  # the line goes before clew.toml
        plan = options.get("reward") == (PLAN,)
        common.refuse_others("--world", [name for name in NAMES.split() if not (plan and name == "reward")])
        return None
    if world not in (None, default) and world is data:
        raise BadInput("data and a world are named", remedy="Leave out --data or --world (or the one of clew.toml).")
    if are_repairs(options):
        made_repairs = _repairs(options)
        common.say(getattr(made_repairs, "about", ""))
        return made_repairs
    rewards = [one for one in options["reward"] if one != PLAN]
    if judged and not rewards:
        remedy = "Add --reward exact, numeric or another of `clew worlds --help`, or your own file.py:function."
        raise BadInput("the line names data and no reward", remedy=remedy)
    how = {"visible": options["visible"], "limits": options["limits_column"], "seconds": options["reward_seconds"]}
    made = rows_of(options, reward=rewards, **how)
    common.say(made.about)
    return made


def are_repairs(options: Mapping[str, Any]) -> bool:
    """Whether the data that a line names are tasks of repairs: its first row has SWE-bench's fields."""
    if not options.get("data"):
        return False
    if REPAIRS not in registry.names("tasksets"):
        return False
    return bool(registry.lookup("tasksets", REPAIRS).fits(Path(options["data"]).expanduser()))


def _repairs(options: Mapping[str, Any]) -> Taskset:
    """The tasks of repairs that a line names.

    Raises:
        BadInput: an option of rows is given, which repairs have no use for.
    """
    context = click.get_current_context()
    own = [p for p in context.command.params if p.name in NOT_FOR_REPAIRS.split()]
    lost = [
        p.opts[0] for p in own if context.get_parameter_source(str(p.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if lost and not (lost == ["--reward"] and tuple(options["reward"]) == (PLAN,)):
        told = f"{lost[0]} is for rows of other kinds: {options['data']} holds repairs, which their tests judge"
        raise BadInput(
            told, remedy="Leave it out, or name the file by --world \"repairs(file='...')\" with its arguments."
        )
    store = context.meta.get(common.STORE)
    shelf = str(shelf_beside(store)) if store else ""
    held_out = 0.0 if is_default(context, "held_out") else options["held_out"]
    made: Taskset = registry.lookup("tasksets", REPAIRS)(options["data"], held_out=held_out, shelf=shelf)
    return made


def shelf_beside(store: str) -> Path:
    """Where the snapshots of a store's files lie."""
    return beside(store).parent / SHELF


def is_default(context: click.Context, name: str) -> bool:
    """Whether neither the line nor clew.toml says an option."""
    return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def rows_of(options: Mapping[str, Any], **more: Any) -> Dataset:
    """The rows that ``rows_options`` and --data name; ``more`` are further arguments of Dataset.

    Raises:
        BadInput: see ``Dataset``.
    """
    from clew.exchange.dataset.tasks import Dataset

    how = common.pick(options, "prompt answer held_out system")
    return Dataset(options["data"], id=options["id_column"], split=options["split_column"], **{**how, **more})
