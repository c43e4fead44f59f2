"""Options of the trainer, which `clew train` and `clew tune` share: optimiser, precision, adapters, trackers.

The verbs add the groups of options; ``trainer_settings`` makes arguments of ``Trainer`` of them, ``table`` prints each
field with where its value comes from. A default here is the trainer's own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from clew.cli.shared import common, option, run_options
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Tracker
    from clew.models.local import Local

ABOVE, SHARE = common.Amount(float, 0, above=True), common.Amount(float, 0, 1)
SCHEDULES = "constant linear cosine"
ADAPTER_HELP = "Begin from this LoRA adapter, a folder that peft or an earlier --lora training saved."
TRACK_HELP = "Send metrics to tensorboard, trackio, wandb or jsonl; with a place, as in wandb:PROJECT. May be repeated."
BATCH_HELP = "Tokens of a micro-batch, padding counted; more are accumulated."
SHARED_HELP = """Pack rows: no padding, and tokens at the beginning of several rows pass the model once. auto: where
that pays and the model can."""
RECOMPUTE_HELP = "Compute activations again in the backward pass: less memory for about a third more time."
STEADY_HELP = "One thread and deterministic kernels: a training taken up again ends with the same bits."

optimiser_options = common.options(
    option("--optimizer", choices="adamw muon", default="adamw", help="muon: Muon for the hidden matrices."),
    option(
        "--muon-lr", default=0.02, type=ABOVE, only_with="--optimizer muon", help="learning rate of Muon's matrices."
    ),
    option("--betas", default="0.9,0.95", help="AdamW's two betas."),
    option("--weight-decay", default=0.0, help="AdamW's weight decay."),
    option("--max-grad-norm", default=1.0, help="Largest norm of the gradient; 0: no limit."),
    option("--batch-tokens", default=16_384, help=BATCH_HELP),
    option("--precision", choices="auto float32 bfloat16", default="auto", help="auto: bfloat16 on a GPU."),
    option("--chunk", type=int, help="Logits held at once, in numbers.  [default: 16777216]"),
    option("--shared-prefixes", choices="auto on off", default="auto", help=SHARED_HELP),
    option("--recompute", is_flag=True, help=RECOMPUTE_HELP),
    option("--steady/--no-steady", default=True, help=STEADY_HELP),
)
adapter_options = common.options(
    option("--lora", type=int, help="Train only LoRA adapters of this rank."),
    option("--lora-alpha", type=ABOVE, help="LoRA's alpha: adapters count alpha / rank.  [default: 8]"),
    option("--lora-targets", help="Layers that get adapters, as in q_proj,v_proj.  [default: all linear ones]"),
    option("--lora-dropout", type=SHARE, help="Dropout in the adapters.  [default: 0]"),
    option("--adapter", metavar="FOLDER", help=ADAPTER_HELP),
)
track_option = option("--track", multiple=True, help=TRACK_HELP)

OF_OPTIMISER = (
    "optimizer muon_lr betas weight_decay max_grad_norm batch_tokens precision chunk shared_prefixes recompute steady"
)
OF_LORA = "lora lora_alpha lora_targets lora_dropout adapter"
SPEED = {"chunk", "recompute", "batch_tokens", "shared_prefixes", "tolerance"}  # change rounding at most: not recorded


def source(name: str) -> str:
    """Where the value of an option comes from: ``option``, ``file`` or ``default``."""
    from click.core import ParameterSource

    found = click.get_current_context().get_parameter_source(name)
    if found in (ParameterSource.COMMANDLINE, ParameterSource.PROMPT, ParameterSource.ENVIRONMENT):
        return "option"
    return "file" if found is ParameterSource.DEFAULT_MAP else "default"


def pair(text: str, name: str) -> tuple[float, float]:
    """One number twice, or two with a comma.

    Raises:
        BadInput: it is neither.
    """
    found = common.number_list(str(text), name, float)
    if len(found) not in (1, 2):
        raise BadInput(f"{name} {text!r} is not one number or two", remedy="Write 0.2, or LOW,HIGH as in 0.2,0.28.")
    return found[0], found[-1]


def check_adapters(options: Mapping[str, Any]) -> None:
    """Raises BadInput where the options of adapters contradict each other, or set nothing."""
    if options["adapter"] is not None and options["lora"] is not None:
        told = "--adapter and --lora contradict each other: an adapter has its own rank"
        raise BadInput(told, remedy="Leave one of them out.")
    alone = [name for name in ("lora_alpha", "lora_targets", "lora_dropout") if options[name] is not None]
    if alone and options["lora"] is None:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in alone)
        raise BadInput(f"{flags} without --lora sets nothing", remedy="Add --lora RANK, or leave them out.")


def has_adapters(options: Mapping[str, Any]) -> bool:
    return options["lora"] is not None or options["adapter"] is not None


def trainer_settings(o: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``Trainer``; its first weights and its noise follow from the seed.

    Raises:
        BadInput: --betas are not two numbers from 0 to below 1.
    """
    lora = None
    if o["lora"] is not None:
        names = ("lora_alpha", "lora_dropout")
        lora = {"r": o["lora"], **{name: o[name] for name in names if o[name] is not None}}
        if o["lora_targets"] is not None:
            targets = [word.strip() for word in o["lora_targets"].split(",") if word.strip()]
            lora["target_modules"] = targets if targets != ["all-linear"] else "all-linear"
    plain = "optimizer muon_lr weight_decay batch_tokens precision shared_prefixes recompute steady adapter seed"
    settings = common.pick(o, plain)
    betas = pair(o["betas"], "--betas")
    if not all(0 <= beta < 1 for beta in betas):
        raise BadInput(f"--betas {o['betas']!r} are not two numbers from 0 to below 1", remedy="Write 0.9,0.95.")
    settings |= {"chunk": o["chunk"]} if o["chunk"] is not None else {}
    return {**settings, "betas": betas, "clip": o["max_grad_norm"] or None, "lora": lora}


def frozen(model: str, adapter: str | None) -> Local:
    """The weights that a training begins with, with its adapter if it begins from one; nothing trains them."""
    from clew.fit.adapter_files import begin

    made = trainable(model)
    if adapter is not None:
        begin(made.module, adapter)
    made.module.requires_grad_(False)
    return made


def not_default(options: Mapping[str, Any], names: str) -> dict[str, Any]:
    """Those of the options that change a result and are not at their defaults, as a training records them."""
    defaults = {param.name: param.default for param in click.get_current_context().command.params}
    chosen = [name for name in names.split() if name not in SPEED]
    return {name: options[name] for name in chosen if options[name] not in (None, defaults[name])}


def trackers(options: Mapping[str, Any], name: str, folder: Path | None) -> Tracker | None:
    """What --track asks for; without a place: beside the checkpoints, or a project called clew."""
    from clew.fit.trackers import several, tracker

    made = []
    for spec in options["track"]:
        kind, colon, _ = spec.partition(":")
        places = {"tensorboard": f"{folder or '.'}/tensorboard", "jsonl": f"{folder or '.'}/metrics.jsonl"}
        place = "" if colon else ":" + places.get(kind, "clew")
        made.append(tracker(spec + place, run=name))
    return several(made) if made else None


def table(title: str, values: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Print every field with its value, those of one source together."""
    by: dict[str, list[str]] = {}
    for name, value in values.items():
        by.setdefault(sources[name], []).append(f"{name} {_short(value)}")
    common.say(title)
    for where, told in by.items():
        label = f"from {where}" if where in ("recipe", "option", "file", "default") else f"by {where}"
        start, margin = f"  {label + ':':<14} ", " " * 17
        text = textwrap.fill(
            ", ".join(told), 120, initial_indent=start, subsequent_indent=margin, break_long_words=False
        )
        common.say(text)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_short, value))
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def trainable(ref: str) -> Local:
    """Local weights, for training.

    Raises:
        BadInput: the model has no weights here.
    """
    model = run_options.load_model(ref)
    if not hasattr(model, "module"):
        raise BadInput(f"{ref!r} has no weights in this process", remedy="Name a folder of weights, or household-sft.")
    return cast("Local", model)
