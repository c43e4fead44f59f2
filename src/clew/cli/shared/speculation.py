"""Speculative decoding for `clew serve` and `clew train`: loading a drafter beside its model, and measuring costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.cli.shared import common
from clew.core.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from clew.models.engine.speculation.costs import Costs
    from clew.models.engine.speculation.proposal import Drafter
    from clew.models.local import Local


class Drafting(NamedTuple):
    """A drafter of one model (None: no drafter), the digest of its weights, and the folder that keeps costs."""

    drafter: Drafter | None
    digest: str
    folder: Path


def of(model: Local, ref: str, options: Mapping[str, Any]) -> Drafting:
    """The drafter that the options name, checked against the model.

    Raises:
        UnknownName: no drafter there. BadInput: it was made for another model or tokenizer, its calibration is stale,
            or the model has no weights here.
    """
    from clew.models import drafters
    from clew.models.drafters import calibration
    from clew.models.drafters import folder as folders
    from clew.models.engine.forwards.weights import weights_digest

    if not hasattr(model, "module"):
        raise BadInput(f"{ref} has no weights in this process to verify drafts", remedy="Serve a folder of weights.")
    name, tokenizer = options["draft"], model.tokenizer
    beside = Path(ref) if Path(ref).is_dir() else Path(name)
    if name is None:
        return Drafting(None, "", beside)
    if name == "lookup":
        return Drafting(drafters.load(name, model.module, tokenizer), name, beside)
    module = folders.read(name, model.module, tokenizer)
    table = calibration.find(name, module, options["draft_temperature"])
    if table is None:
        common.say(f"{name} was never calibrated: its confidence is taken as it is (see `clew draft calibrate`)")
    drafter = drafters.ready(module, table.temperatures if table is not None else None)
    return Drafting(drafter, weights_digest(module), beside)


def drafted(model: Local, ref: str, options: Mapping[str, Any]) -> Local:
    """The model with the drafter and the length policy that the options name.

    Raises:
        BadInput: what ``of`` refuses; a policy that needs costs where none were measured for this machine and model.
    """
    from clew.models.engine.speculation.lengths import policy
    from clew.models.local.model import Local

    it = of(model, ref, options)
    assert it.drafter is not None
    lengths = policy(options["lengths"], known_costs(model, it, options["lengths"]), it.drafter.block)
    like = {"tokenizer": model.tokenizer, "renderer": model.renderer, "ref": model.ref, **given(options)}
    return Local(model.module, draft=it.drafter, lengths=lengths, **like)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of Local that also apply to the model with its drafter."""
    more = common.json_object(options["model_options"], "--model-options")
    kept = {k: more[k] for k in ("steady", "fast", "max_rows", "context", "cache_bytes") if k in more}
    if (cache := options.get("cache_gb")) is not None:
        kept["cache_bytes"] = int(cache * 1e9)
    return kept | {k: options[k] for k in ("context", "max_rows") if options[k] is not None}


def known_costs(model: Local, it: Drafting, lengths: str) -> Costs | None:
    """The costs measured here of this model and drafter; ``auto`` does without costs that do not apply, and says so.

    Raises:
        BadInput, BadRecord: they are of other weights or another machine, and the policy needs them.
    """
    from clew.models.engine.speculation.costs import Costs

    try:
        return Costs.load(it.folder, model.digest(), it.digest, str(next(model.module.parameters()).device))
    except UnknownName:
        return None  # the policy says what that means
    except BadInput as error:
        if lengths != "auto":
            raise
        common.say(f"{error.message}: what pays is found while serving. {error.remedy}")
        return None


@contextmanager
def measuring() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for measuring costs."""
    with common.bar("costs of this machine") as move:
        yield lambda what, done, all: move(completed=done, total=all, note=what)


def profile(model: Local, ref: str, options: Mapping[str, Any]) -> None:
    """Measure how long the model and its drafter take on this machine, and keep the figures beside the model."""
    from clew.models.engine.speculation.profile import measure

    it = of(model, ref, options)
    if not it.folder.is_dir():
        raise BadInput(f"there is no folder of {ref} to keep costs in", remedy="Serve the model from a folder.")
    with measuring() as advance:
        costs = measure(model, it.drafter, it.digest, advance=advance)
    path = costs.save(it.folder)
    for size, seconds in zip(costs.sizes, costs.verify, strict=True):
        common.echo(f"{size:6d} tokens verified in {1e3 * seconds:8.2f} ms")
    common.echo(f"kept in {path}")
