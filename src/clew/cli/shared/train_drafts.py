"""`clew train --draft`: the drafter under which the rollouts of a training are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common

if TYPE_CHECKING:
    from clew.train.drafters.refresh import Drafting

draft_option = click.option(
    "--draft", metavar="lookup|FOLDER", help="Decode rollouts under prompt lookup, or a drafter of `clew draft train`, "
    "which is refreshed as the policy moves."
)  # fmt: skip


def drafting(model: Any, folder: Path | None, options: Mapping[str, Any]) -> Drafting | None:
    """The drafter that the options name, its costs on this machine measured where none are known; None where none is.

    Raises:
        UnknownName: no drafter there. BadInput: it is of another model or tokenizer, or the model is steady.
    """
    if options["draft"] is None:
        return None
    from clew.train.drafters.refresh import Drafting

    with common.progress() as bar:
        job = bar.add_task("costs of this machine", total=None, note="")

        def advance(what: str, done: int, all: int) -> None:
            bar.update(job, completed=done, total=all, note=what)

        rows = options["tasks"] * options["n"]
        return Drafting(model, options["draft"], kept=folder, rows=rows, advance=advance)
