"""The options of verbs whose agent may be a program that Clew did not write, and the world that it then works in.

``run_options`` reads them. No program is started here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common, option
from clew.core.errors import BadInput, need

if TYPE_CHECKING:
    from clew.core.protocols import Taskset

COMMANDED = "clew.serve.programs.commanded:commanded"  # the agent of runs in which a program of the user's asks
COMMAND_HELP = """A program of your own as the agent, one for each run, in the sandbox: its requests to OPENAI_BASE_URL
or ANTHROPIC_BASE_URL are the run's. {task} stands for the prompt, which also comes on standard input."""
READABLE_HELP = "With --command: a folder or file that the program sees, read-only; may be repeated."
command_options = common.options(
    option("--command", metavar="COMMAND", default="", help=COMMAND_HELP),
    option("--readable", metavar="PATH", multiple=True, help=READABLE_HELP),
)


def in_program(world: Taskset, options: Mapping[str, Any]) -> Taskset:
    """The world with a program at work in its files, where the line names one.

    Raises:
        BadInput: the world keeps no files that a program could work in, and is no data.
    """
    if not options.get("command"):
        return world
    need("uvicorn", "serve")
    from clew.core.registry import lookup

    if not options.get("data") and not hasattr(world, "begins"):
        remedy = (
            "Programs work in files or on data: --world workspace, --world \"repairs('tasks.jsonl')\" or --data FILE."
        )
        raise BadInput(f"no program can work in {options['world']}", remedy=remedy)
    program: Taskset = lookup("tasksets", "program")(world, options["command"], readable=options["readable"])
    return program


def config_of(options: Mapping[str, Any], held: Iterable[str]) -> dict[str, Any]:
    """The arguments of a line's agent.

    Args:
        held: settings of sampling that are the line's, whatever a program asks for.

    Raises:
        BadInput: --config is no JSON object.
    """
    config = common.json_object(options["config"], "--config")
    return {"held": sorted(held), **config} if options.get("command") else config
