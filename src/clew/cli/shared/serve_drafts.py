"""What `clew serve` does with a drafter: it is loaded beside its model, and the costs that say how much to verify."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clew.cli.shared import common
from clew.core.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from clew.models.engine.speculation.costs import Costs


class Drafting(NamedTuple):
    """A drafter for one model: itself, the name of its weights, and where costs are kept."""

    drafter: Any
    digest: str
    folder: Path


def of(model: Any, ref: str, options: Mapping[str, Any]) -> Drafting:
    """The drafter that the options name, checked against the model.

    Raises:
        UnknownName: no drafter there. BadInput: it was made for another model or tokenizer, its calibration is stale,
            or the model has no weights here.
    """
    from clew.models import drafters
    from clew.models.drafters import calibration
    from clew.models.drafters import folder as folders
    from clew.models.engine.weights import weights_digest

    if not hasattr(model, "module"):
        raise BadInput(
            f"{ref} has no weights in this process to verify drafts", remedy="Serve a folder, or leave --draft."
        )
    name, tokenizer = options["draft"], model.tokenizer
    beside = Path(ref) if Path(ref).is_dir() else Path(name)
    if name is None:
        return Drafting(None, "", beside)
    if name == "lookup":
        return Drafting(drafters.load(name, model.module, tokenizer), name, beside)
    module = folders.read(name, model.module, tokenizer)
    table = calibration.find(name, module, options["draft_temperature"])
    if table is None:
        click.echo(f"{name} was never calibrated: its confidences count as they are (clew draft calibrate)", err=True)
    drafter = drafters.ready(module, table.temperatures if table is not None else None)
    return Drafting(drafter, weights_digest(module), beside)


def drafted(model: Any, ref: str, options: Mapping[str, Any]) -> Any:
    """The model with the drafter and the policy of lengths that the options name.

    Raises:
        BadInput: what ``of`` refuses; a policy that needs costs where there are none that hold.
    """
    from clew.models.engine.speculation.lengths import policy
    from clew.models.local.model import Local

    it = of(model, ref, options)
    lengths = policy(options["lengths"], known_costs(model, it, options["lengths"]), it.drafter.block)
    return Local(
        model.module, tokenizer=model.tokenizer, renderer=model.renderer, ref=model.ref, draft=it.drafter,
        lengths=lengths, **given(options),
    )  # fmt: skip


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Local that hold for the model with its drafter too."""
    more = common.json_object(options["model_options"], "--model-options")
    kept = {k: more[k] for k in ("steady", "fast", "max_rows", "context") if k in more}
    return kept | {k: options[k] for k in ("context", "max_rows") if options[k] is not None}


def known_costs(model: Any, it: Drafting, lengths: str) -> Costs | None:
    """The costs measured here of this model and drafter; without ones that hold ``auto`` does without, and says so.

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
        click.echo(f"{error.message}: drafts are verified whole. {error.remedy}", err=True)
        return None


def profile(model: Any, ref: str, options: Mapping[str, Any]) -> None:
    """Measure what the model and its drafter cost on this machine, and keep that beside the model."""
    from clew.models.engine.speculation.costs import measure

    it = of(model, ref, options)
    if not it.folder.is_dir():
        raise BadInput(f"there is no folder of {ref} to keep costs in", remedy="Serve the model from a folder.")
    with common.progress() as bar:
        job = bar.add_task("costs of this machine", total=None, note="")

        def advance(what: str, done: int, all: int) -> None:
            bar.update(job, completed=done, total=all, note=what)

        costs = measure(model, it.drafter, it.digest, advance=advance)
    path = costs.save(it.folder)
    for size, seconds in zip(costs.sizes, costs.verify, strict=True):
        click.echo(f"{size:6d} tokens verified in {1e3 * seconds:8.2f} ms")
    click.echo(f"kept in {path}")


def simulate(model: Any, ref: str, options: Mapping[str, Any]) -> None:
    """Say what this server would do with so many users at once, by the costs measured here."""
    from clew.models.engine.speculation.costs import Costs
    from clew.serve.load.simulate import POLICIES, simulate

    it = of(model, ref, options)
    try:
        users = [int(n) for n in options["simulate"].split(",")]
    except ValueError:
        users = []
    if not users or min(users) < 1:
        raise BadInput(f"{options['simulate']!r} are no numbers of users", remedy="Write --simulate 1,8,64.")
    costs = Costs.load(it.folder, model.digest(), it.digest, str(next(model.module.parameters()).device))
    policies = POLICIES if it.drafter is not None else ("none",)
    with common.progress() as bar:
        job = bar.add_task("simulated", total=len(users) * len(policies) * 5, note="")
        found = simulate(costs, users, policies=policies, advance=lambda: bar.update(job, advance=1))
    click.echo(
        f"{'users':>6} {'lengths':22} {'tokens/s':>10} {'per user':>10} {'verified':>9}  (means of 5 seeds, min to max)"
    )
    if it.drafter is not None:
        click.echo("(drafts accepted as those of 2607.05147, table 1; `clew bench` measures yours)")
    for many in users:
        for name in policies:
            rows = [load for load in found if (load.at, load.policy) == (many, name)]
            rate, low, high = _spread([load.throughput for load in rows])
            speed, verified = (_spread([getattr(load, k) for load in rows])[0] for k in ("speed", "verified"))
            click.echo(f"{many:6d} {name:22} {rate:10.0f} {speed:10.1f} {verified:9.2f}  [{low:.0f}, {high:.0f}]")


def _spread(values: list[float]) -> tuple[float, float, float]:
    return sum(values) / len(values), min(values), max(values)


__all__ = ["drafted", "profile", "simulate"]
