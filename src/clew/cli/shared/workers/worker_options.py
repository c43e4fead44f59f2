"""Options that say by which processes the runs of a line are driven: ``--workers`` and ``--ray``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common, option
from clew.core import registry
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.executors import Executor

WORKERS_HELP = "Drive the runs in so many processes beside this one, each with a copy of the model.  [default: none]"
RAY_HELP = "Let a Ray cluster have the workers: its address, auto, or local. Without --workers one for each CPU."
worker_options = common.options(
    option("--workers", default=0, metavar="N", type=common.Amount(int, 0), help=WORKERS_HELP),
    option("--ray", default="", metavar="ADDRESS", help=RAY_HELP),
)


@contextmanager
def executor(options: Mapping[str, Any], beside: str = "") -> Iterator[Executor]:
    """Where the runs of a line are driven; workers end with it. ``beside``: something more that they cannot serve.

    Raises:
        BadInput: an option beside that workers cannot serve. MissingExtra: --ray without Ray.
    """
    from clew.harness.executors import IN_LOOP

    if not options["workers"] and not options["ray"]:
        yield IN_LOOP
        return
    named = [f"--{name.replace('_', '-')}" for name in ("draft", "memory", "max_cost") if options.get(name)]
    for one in [*named, *filter(None, [beside])]:
        told = f"{one} with {'--ray' if options['ray'] else '--workers'}"
        raise BadInput(f"{told}: workers cannot serve it", remedy="Leave one of the two out.")
    where = {"address": options["ray"]} if options["ray"] else {}
    ref = registry.make_ref("ray" if where else "workers", {"n": options["workers"], **where})
    with registry.build("executors", ref) as workers:
        yield workers
