"""clew route fit: the fast router of a measured pool, written as a folder that serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clew.cli.route_report import FOLDER, advised, matrix_of, shown, source_options
from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.methods.routing.advice import Advice
    from clew.methods.routing.reward_matrix import F64, Matrix
    from clew.models.compose.router import Features

OUT_HELP = "Folder of the router; what lies there is replaced."
REF_HELP = "Model of a worker, where its name in the file is not one: NAME=MODEL; may be repeated."
TAU_HELP = "Temperature of the soft targets: lower trusts few samples more."
BACKBONE_HELP = "Read questions by the hidden state of this local model, a folder of weights.  [default: n-grams]"
LAYER_HELP = "With --backbone: block whose output is read, counted from 0, or norm: the last state."
POSITION_HELP = "With --backbone: token that is read, from 0 or back from the end."
TOKENS_HELP = "With --backbone: most tokens that are read of a conversation; the middle of a longer one is left out."
SCALES_HELP = "With --backbone: train scales of singular values of its last block too; kept where they gain."
PROBE_HELP = "Know workers by this many probe questions, up to 100, so that `clew route add` can add one by them alone."


class Way(NamedTuple):
    """How questions become vectors, what that earned on held-out questions, and what else is told of it."""

    advice: Advice
    features: Features | None
    h: F64 | None
    told: dict[str, Report]


@click.command("fit", short_help="Fit a router of a measured pool, where routing pays.")
@click.argument("runs", nargs=-1)
@source_options
@option("-o", "--out", "folder", required=True, metavar="FOLDER", help=OUT_HELP)
@option("--ref", "refs", multiple=True, metavar="NAME=MODEL", help=REF_HELP)
@option("--tau", default=0.3, help=TAU_HELP)
@option("--backbone", default="", metavar="FOLDER", help=BACKBONE_HELP)
@option("--layer", default="norm", metavar="N", help=LAYER_HELP)
@option("--position", type=click.INT, default=-2, help=POSITION_HELP)
@option("--tokens", default=1024, help=TOKENS_HELP)
@option("--scales", is_flag=True, help=SCALES_HELP)
@option("--steps", default=400, only_with="--scales", help="most steps of each training.")
@option("--probe", default=0, metavar="N", help=PROBE_HELP)
@option("--anyway", is_flag=True, help="Fit where the report says: do not route.")
@common.json_option
@common.store_of(not_with="--from")
def command(runs: tuple[str, ...], as_json: bool, store_path: str, folder: str, **options: Any) -> None:
    """Fit the fast router to a measured pool: one call of one model for each question.

    A linear head is fitted to soft targets (the softmax of each model's mean reward over --tau) by a KL loss; it stops
    where the reward of its choices on a fifth of the questions is highest. It reads hashed n-grams, or the hidden
    state of a --backbone after one pass. What it is worth is told from held-out questions, beside the best single
    model. Where the report says "do not route", nothing is written, unless --anyway insists.

    \b
    clew route fit pool -o router
    clew route fit pool -o router --backbone ./weights
    clew route fit --from rewards.jsonl -o router --ref small=openai:gpt-5-mini --ref large=openai:gpt-5
    """
    from clew.methods.routing import fit_router

    refs, found = _refs(options["refs"]), matrix_of(runs, store_path, options)
    say: Callable[[str], None] = common.say if as_json else common.echo
    with run_options.interruptible("the same line again"):
        way = _by_backbone(found, options, say) if options["backbone"] else _by_ngrams(found, options)
        if options["probe"]:
            way.told.update(_joining(found, way, options))
    advice = way.advice
    ours, single = advice.ours, advice.arm("best single")
    if not as_json:
        common.echo(f"{len(found)} questions, held-out {advice.held}; intervals at 95 %:")
        wide = max(len(name) for name in (*way.told, "best single"))
        for name, report in {"router": ours.reward, "best single": single.reward, "difference": ours.gain}.items():
            common.echo(f"{name:<{wide}}  {shown(report)}")
        for name, report in way.told.items():
            common.echo(f"{name:<{wide}}  {shown(report)}")
    if advice.verdict in ("do not route", "not tested") and not options["anyway"]:
        best = found.workers[int(found.means.mean(0).argmax())]
        raise BadInput(f"{advice.verdict}: {advice.why}", remedy=f"Ask {best} alone, or insist with --anyway.")
    if not ours.wins and not options["anyway"]:
        other = advice.winners[0].name
        raise BadInput(
            f"the router that is fitted here does not beat the best single worker, though {other} does",
            remedy="Measure more questions, try another --tau, or insist with --anyway.",
        )
    how = {"tau": options["tau"], "seed": options["seed"], "probes": options["probe"]}
    out = fit_router.write(advice, Path(folder), refs=refs, features=way.features, h=way.h, **how)
    if as_json:
        said = {"folder": str(out), "verdict": advice.verdict, "why": advice.why}
        pairs = {"router": ours.reward, "best single": single.reward, "difference": ours.gain, **way.told}
        common.end_with_json(said | {name: run_options.numbers(one) for name, one in pairs.items() if one is not None})
    common.echo(f"{advice.verdict}: {advice.why}")
    common.echo(f"router {out}: {', '.join(found.workers)}")
    common.echo(f"Next: {command_line('serve', f'route:{out}')}")


def _by_ngrams(found: Matrix, options: dict[str, Any]) -> Way:
    for name, usual in (("layer", "norm"), ("position", -2), ("tokens", 1024), ("scales", False), ("steps", 400)):
        if options[name] != usual:
            raise BadInput(f"--{name} is of a backbone", remedy="Add --backbone FOLDER, or leave it out.")
    return Way(advised(found, options), None, None, {})


def _by_backbone(found: Matrix, options: dict[str, Any], say: Callable[[str], None]) -> Way:
    """Hidden states, beside n-grams over the same questions; with scales where these gain on held-out questions."""
    from clew.methods.routing.contest import Read, earned_by, gain_of
    from clew.models.compose.backbone import Backbone

    layer = int(options["layer"]) if options["layer"].isdecimal() else options["layer"]
    backbone = Backbone.of(options["backbone"], layer, options["position"], options["tokens"])
    h = read_texts(found.texts, backbone)
    plain, frozen = advised(found, options), advised(found, options, Read.fixed(h, backbone.centred))

    def earned(advice: Advice) -> F64:
        return earned_by(found, advice.made, "soft targets")

    told = {
        "n-grams": plain.ours.reward,
        "hidden state less n-grams": gain_of(
            "router over hidden states less one over n-grams", earned(frozen), earned(plain), options["seed"]
        ),
    }
    if not options["scales"]:
        return Way(frozen, backbone, h, told)
    scaling, total = _scaling(found, backbone, h, options, say)
    with common.bar("steps of training", total) as move:
        scaling.told = lambda: move(advance=1)
        scaled = advised(found, options, scaling.read)
        gain = gain_of("scaled less frozen backbone", earned(scaled), earned(frozen), options["seed"])
        told |= {"with scales": scaled.ours.reward, "scaled less frozen": gain}
        if gain.low <= 0:
            say("scales show no gain on held-out questions: the backbone stays as it is")
            return Way(frozen, backbone, h, told)
        better = scaling.scaled()
    return Way(scaled, better, read_texts(found.texts, better), told)


def _scaling(found: Matrix, backbone: Any, h: F64, options: dict[str, Any], say: Callable[[str], None]) -> Any:
    """Scales to be trained, what enters their block read; and the most steps that training can take."""
    from clew.fit.scaled_head import Rates
    from clew.methods.routing.contest import FOLDS
    from clew.methods.routing.scale_gain import Scaling

    rates = Rates(options["steps"])
    total = (FOLDS + 1) * rates.steps
    made = Scaling(
        found, backbone, h, folder_of("scales", backbone, found.texts), options["tau"], options["seed"], rates
    )
    say(f"scales: {FOLDS + 1} trainings of at most {rates.steps} steps of {rates.batch} questions")
    with common.bar("tokens read", None) as move:
        made.read_states(lambda done, total: move(completed=done, total=total))
    return made, total


def _joining(found: Matrix, way: Way, options: dict[str, Any]) -> dict[str, Report]:
    """What it is worth that each worker in turn joins by its probe answers alone."""
    from clew.methods.routing import probe_head
    from clew.methods.routing.contest import FOLDS, Read
    from clew.methods.routing.question_space import vectors

    centred = way.features is not None and way.features.centred
    read = Read.fixed(vectors(found.texts) if way.h is None else way.h, centred)
    with common.bar("workers left out", FOLDS * len(found.workers)) as move:
        how = {"held": options["hold"], "tau": options["tau"], "seed": options["seed"]}
        made = probe_head.joining(found, read, options["probe"], **how, told=lambda: move(advance=1))
    later = {"one joins later": made.joined, "one is left out": made.ignored}
    return {"by probe questions": made.known, **later, "gain of joining": made.gain, "full fit less it": made.regret}


def read_texts(texts: tuple[str, ...], features: Features) -> F64:
    """Vectors of texts by a router's features, float64 [Q, dim]; a backbone's are kept, so that each is read once."""
    from clew.methods.routing.question_space import vectors
    from clew.models.compose.backbone import Backbone

    if not isinstance(features, Backbone):
        return vectors(texts, features)
    with common.bar("questions read", len(set(texts))) as move:
        place = folder_of("states", features, texts)
        return vectors(texts, features, place, lambda done, total: move(completed=done, total=total))


def folder_of(what: str, features: Features, texts: tuple[str, ...]) -> Path:
    """Where hidden states of these texts are kept."""
    from clew.core.keys import value_digest

    return FOLDER / f"{what}-{value_digest([dict(features.said()), list(texts)]).hex()[:12]}"


def _refs(given: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for word in given:
        name, equals, ref = word.partition("=")
        if not (name and equals and ref):
            raise BadInput(f"--ref {word!r} is no pair", remedy="Write NAME=MODEL, as in small=openai:gpt-5-mini.")
        out[name] = ref
    return out
