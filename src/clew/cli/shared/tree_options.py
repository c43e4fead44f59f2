"""Trees of runs in place of independent ones: what `clew run` and `clew train` say of how they grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clew.cli.shared import common, option
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.trees.grow import Growth

SELECTOR_HELP = "With --rollouts tree: uucb, entropy, uct, random or flat; with settings, as in uucb(c=1.0)."
ALLOCATOR_HELP = "With --spare: give the tokens to all such trees alike, or to those forecast to become mixed."
SPARE_HELP = "With --rollouts tree: share of tokens held back, then given to trees whose runs all ended alike."
TOGETHER_HELP = "With --rollouts tree: forks of one tree that run side by side, none knowing how the others end."
DEFAULTS = {"selector": "uucb", "budget": None, "spare": 0.0, "allocator": "even", "together": 1}
tree_options = common.options(
    option("--rollouts", choices="flat tree", default="flat", help="Independent runs, or trees grown by forks."),
    option("--selector", default=DEFAULTS["selector"], help=SELECTOR_HELP),
    option("--budget", type=int, help="With --rollouts tree: tokens decoded per task.  [default: -n whole runs]"),
    option("--spare", default=DEFAULTS["spare"], help=SPARE_HELP),
    option("--allocator", choices="even learned", default=DEFAULTS["allocator"], help=ALLOCATOR_HELP),
    option("--together", default=DEFAULTS["together"], type=common.Amount(int, 1), help=TOGETHER_HELP),
)


def growth_of(options: Mapping[str, Any]) -> Growth | None:
    """How trees grow, or None for flat rollouts.

    Raises:
        BadInput: an option of trees without --rollouts tree, or settings with which no tree can grow.
    """
    from clew.core.registry import parse_ref
    from clew.harness.trees.grow import Growth

    if options["rollouts"] == "flat":
        if any(options[name] != usual for name, usual in DEFAULTS.items()):
            told = "--selector, --budget, --spare, --allocator and --together are for trees"
            raise BadInput(told, remedy="Add --rollouts tree, or leave them out.")
        return None
    name, settings = parse_ref(options["selector"])
    bound = {"leaves": options["n"]} if options["budget"] is None else {"tokens": options["budget"]}
    moved = {"spare": options["spare"], "allocator": options["allocator"], "together": options["together"]}
    return Growth(selector=name, settings=tuple(sorted(settings.items())), **moved, **bound)
