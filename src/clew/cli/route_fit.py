"""clew route fit: the fast router of a measured pool, written as a folder that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clew.cli.route_report import advised, matrix_of, shown, source_options
from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

OUT_HELP = "Folder of the router; what lies there is replaced."
REF_HELP = "Model of a worker, where its name in the file is not one: NAME=MODEL; may be repeated."
TAU_HELP = "Temperature of the soft targets: lower trusts few samples more."


@click.command("fit", short_help="Fit a router of a measured pool, where routing pays.")
@click.argument("runs", nargs=-1)
@source_options
@option("-o", "--out", "folder", required=True, metavar="FOLDER", help=OUT_HELP)
@option("--ref", "refs", multiple=True, metavar="NAME=MODEL", help=REF_HELP)
@option("--tau", default=0.3, help=TAU_HELP)
@option("--anyway", is_flag=True, help="Fit where the report says: do not route.")
@common.output_options
def command(runs: tuple[str, ...], as_json: bool, store_path: str, folder: str, **options: Any) -> None:
    """Fit the fast router to a measured pool: one call of one model for each question, no model of its own.

    A linear head over hashed n-grams is fitted to soft targets (the softmax of each model's mean reward over --tau) by
    a KL loss; it stops where the reward of its choices on a fifth of the questions is highest. What it is worth is told
    from held-out questions, beside the best single model. Where the report says "do not route", nothing is written,
    unless --anyway insists.

    \b
    clew route fit pool -o router
    clew route fit --from rewards.jsonl -o router --ref small=openai:gpt-5-mini --ref large=openai:gpt-5
    """
    from clew.route import fit_router

    refs = _refs(options["refs"])
    advice = advised(matrix_of(runs, store_path, options), options)
    ours, single = advice.ours, advice.arm("best single")
    if not as_json:
        common.echo(f"{len(advice.found)} questions, held-out {advice.held}; intervals at 95 %:")
        common.echo(f"router       {shown(ours.reward)}")
        common.echo(f"best single  {shown(single.reward)}")
        common.echo(f"difference   {shown(ours.gain)}")
    if advice.verdict == "do not route" and not options["anyway"]:
        best = advice.found.workers[int(advice.found.means.mean(0).argmax())]
        raise BadInput(f"do not route: {advice.why}", remedy=f"Ask {best} alone, or insist with --anyway.")
    if not ours.wins and not options["anyway"]:
        other = advice.winners[0].name
        raise BadInput(
            f"the router that is fitted here does not beat the best single worker, though {other} does",
            remedy="Measure more questions, try another --tau, or insist with --anyway.",
        )
    out = fit_router.write(advice, Path(folder), refs=refs, tau=options["tau"], seed=options["seed"])
    if as_json:
        said = {"folder": str(out), "verdict": advice.verdict, "why": advice.why}
        pairs = {"router": ours.reward, "best single": single.reward, "difference": ours.gain}
        common.end_with_json(said | {name: run_options.numbers(one) for name, one in pairs.items() if one is not None})
    common.echo(f"{advice.verdict}: {advice.why}")
    common.echo(f"router {out}: {', '.join(advice.found.workers)}")
    common.echo(f"Next: {command_line('serve', f'route:{out}')}")


def _refs(given: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for word in given:
        name, equals, ref = word.partition("=")
        if not (name and equals and ref):
            raise BadInput(f"--ref {word!r} is no pair", remedy="Write NAME=MODEL, as in small=openai:gpt-5-mini.")
        out[name] = ref
    return out
