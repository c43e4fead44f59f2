"""clew route report: whether choosing the model by question pays, for a measured pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput
from clew.core.printable import short
from clew.store.address import is_address

if TYPE_CHECKING:
    from clew.methods.routing.advice import Advice
    from clew.methods.routing.contest import Arm, Read
    from clew.methods.routing.frontier import Frontier
    from clew.methods.routing.reward_matrix import Matrix
    from clew.methods.routing.whole_runs import Way

FOLDER = Path(".clew") / "route"
FROM_HELP = "Read given rewards from this file: a row a sample, columns question, worker, reward; family, cost, answer."
WITH_HELP = "Whole runs of the same tasks by a router or an orchestrator, to be judged too."
WORKERS_HELP = "With --from: columns that hold each worker's reward, where a row is a question."
FAMILY_HELP = "Field of the tasks' data that names a question's family.  [default: family, subject or category]"
HOLD_HELP = "What is held out: questions, or whole families (what becomes of a new kind of question?)."
SHOWN = 40  # families in the table

source_options = common.options(
    option("--from", "path", default="", metavar="FILE", help=FROM_HELP),
    option("--workers", default="", metavar="A,B,...", help=WORKERS_HELP),
    option("--family", default="", metavar="FIELD", not_with="--from", help=FAMILY_HELP),
    option("--hold", choices="questions families", default="questions", help=HOLD_HELP),
    option("--seed", default=0, help="Seed of halves, folds and intervals."),
)


@click.command("report", short_help="Find whether choosing the model by question pays.")
@click.argument("runs", nargs=-1)
@source_options
@option("--with", "others", multiple=True, metavar="RUNS", help=WITH_HELP)
@option("--figure", default="", metavar="PNG", help="File of the figure.  [default: .clew/methods/routing/NAME.png]")
@common.output_options
def command(
    runs: tuple[str, ...], others: tuple[str, ...], as_json: bool, store_path: str, figure: str, **options: Any
) -> None:
    """Find whether choosing the model by question pays: for measured runs, or for rewards in a file.

    RUNS are runs that `clew route measure` made, by their tag or a query. First the headroom: what an oracle gains over
    the best single model if it chooses on one half of the samples and is scored on the other. Then routers and
    baselines on held-out questions, at equal calls and with their cost. With whole runs of a router or an orchestrator
    at the same tasks, these too. The verdict is "do not route", "route by question", "route by turn" or "orchestrate";
    "not tested" where no choice could matter.
    Figures are kept as reports of the store, where there is one.

    \b
    clew route report pool
    clew route report held --with model=route:evolved
    clew route report --from rewards.jsonl --hold families
    clew route report --from mmlu.jsonl.gz --workers mixtral-8x7b,gpt-4
    """
    found = matrix_of(runs, store_path, options)
    advice = advised(found, options)
    if others:
        advice.ways = _ways(advice, runs, others, store_path, options)
    picture = draw(advice.frontier, advice.arms, Path(figure) if figure else FOLDER / f"{found.label}.png")
    ids = _file(advice, store_path, bool(options["path"]))
    if as_json:
        common.end_with_json(_json(advice, ids, picture))
    _told(advice)
    common.echo(f"figure {picture or 'not drawn: pip install clew[plot]'}")
    common.echo(f"\n{advice.verdict}: {advice.why}\n{advice.compared}")
    if ids:
        common.echo(f"reports: {command_line('view')}")
    common.echo(f"Next: {_next(advice, runs, options)}")


def matrix_of(runs: Sequence[str], store_path: str, options: dict[str, Any]) -> Matrix:
    """The matrix that a line names, of stored runs or of a file.

    Raises:
        BadInput: it names both or neither; see ``from_rows`` and ``of_runs``.
    """
    from clew.exchange.dataset.table import read
    from clew.methods.routing import measuring, reward_matrix

    if options["path"]:
        if runs:
            raise BadInput("runs and a file are named", remedy="Leave out the runs, or --from.")
        columns = [name.strip() for name in options["workers"].split(",") if name.strip()]
        return reward_matrix.from_rows(read(Path(options["path"]).expanduser()).rows, columns)
    if options["workers"]:
        raise BadInput("--workers is for --from", remedy="Add --from FILE, or leave it out.")
    if not runs:
        remedy = "Name the runs of `clew route measure`, by tag or query, or a file with --from."
        raise BadInput("no pool is named", remedy=remedy)
    chosen = common.some(common.open_store(store_path), runs)
    with common.bar("runs read", len(chosen)) as move:
        return measuring.of_runs(chosen, family=options["family"], told=lambda: move(advance=1))


def advised(found: Matrix, options: dict[str, Any], read: Read | None = None) -> Advice:
    """The whole answer, with a bar over its folds; ``tau`` of the options counts where it is there.

    Args:
        read: how questions become vectors; default: n-grams.
    """
    from clew.methods.routing import advice
    from clew.methods.routing.contest import FOLDS, REPEATS
    from clew.methods.routing.soft_targets import TAU

    with common.bar("folds", FOLDS * (REPEATS if read is None else read.repeats)) as move:
        how = {"held": options["hold"], "seed": options["seed"], "tau": options.get("tau", TAU)}
        return advice.advise(found, **how, told=lambda: move(advance=1), read=read)


def _ways(
    advice: Advice, runs: Sequence[str], others: Sequence[str], store_path: str, options: dict[str, Any]
) -> list[Way]:
    from clew.methods.routing import whole_runs

    if options["path"]:
        raise BadInput("--with needs measured runs", remedy="Measure the pool with `clew route measure`.")
    store = common.open_store(store_path)
    pool, whole = common.some(store, runs), common.some(store, others)
    return whole_runs.ways(advice.found, advice.made, whole, pool, advice.by_question, options["seed"])


def draw(found: Frontier, arms: Sequence[Arm], path: Path) -> Path | None:
    """Reward against cost as a picture; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    fig, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for line, label, style in (
        (found.curve, plain_text(f"{found.strong} or {found.weak}, by question"), "-"),
        (found.mixture, "the same two, at random", "--"),
    ):
        axis.plot(*zip(*line, strict=True), style, label=label, linewidth=1.4)
    for name, place in found.points.items():
        axis.plot(*place, "o", markersize=4, color="0.35")
        axis.annotate(plain_text(name), place, fontsize=7, xytext=(3, 3), textcoords="offset points")
    axis.set(xlabel=plain_text(found.unit), ylabel="reward on held-out questions")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8)
    fig.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(fig)
    return path


def plain_text(name: str) -> str:
    """A name in a picture, which must not be read as a formula."""
    return short(name, 40).replace("$", r"\$")


def _file(advice: Advice, store_path: str, given: bool) -> list[str]:
    """Keep the figures in the store; given rewards need none, and make none."""
    from clew.methods.routing.advice import filed

    if given and not (is_address(store_path) or Path(store_path).exists()):
        return []
    return filed(advice, common.open_store(store_path))


def shown(report: Any, digits: int = 3) -> str:
    """A figure with its interval; empty where there is none."""
    if report is None:
        return ""
    return f"{report.estimate:.{digits}f} [{report.low:.{digits}f}, {report.high:.{digits}f}]"


def _told(advice: Advice) -> None:
    found = advice.found
    samples = found.counts
    each = f"{samples.min()}" if samples.min() == samples.max() else f"{samples.min()} to {samples.max()}"
    plural = "" if each == "1" else "s"
    common.echo(f"{len(found.workers)} workers, {len(found)} questions, {each} sample{plural} each")
    if advice.headroom is not None:
        room = advice.headroom.report
        common.echo(f"headroom over the best single worker: at least {shown(room)}, n={room.n}: {room.design}")
    families = advice.families
    if len(families) > 1:
        common.echo()
        rows = [(one.name or "(none)", one.n, *(f"{mean:.2f}" for mean in one.means)) for one in families[:SHOWN]]
        common.print_table(("family", "questions", *found.workers), rows)
        if len(families) > SHOWN:
            common.echo(f"and {len(families) - SHOWN} more families")
    common.echo(f"\nheld-out {advice.held}, n={len(found)}; intervals at 95 %:")
    table = []
    for arm in (*advice.arms, *(way.arm for way in advice.ways)):
        cost = "" if arm.cost is None else f"{arm.cost:.4g}"
        p = "" if arm.p is None else f"{arm.p:.2g}"
        table.append((arm.name, shown(arm.reward), f"{arm.calls:g}", cost, shown(arm.gain), p))
    common.print_table(("", "reward", "calls", "US dollars", "less best single", "p (Holm)"), table)
    common.echo()
    for way in advice.ways:
        common.echo(f"{way.arm.name}: {way.short or 'proven'}")
    for line in (*advice.frontier.words, *(f"note: {note}" for note in advice.notes)):
        common.echo(line)


def _next(advice: Advice, runs: Sequence[str], options: dict[str, Any]) -> str:
    given = common.pick(options, "path workers family hold seed")
    if advice.way:
        if advice.way.kind == "workflow":
            return command_line("serve", advice.way.model, agent=advice.way.agent, config=advice.way.config)
        return command_line("serve", advice.way.model)
    if advice.verdict == "not tested":
        return "measure questions on which the workers differ, and more of them"
    if advice.verdict == "route by question" and not advice.ours.wins:
        winner = advice.winners[0].name
        return f"`clew route fit` writes soft targets, and these do not win here: measure more, or choose by {winner}"
    if advice.verdict == "route by question":
        return command_line("route fit", *runs, **given, folder="router")
    best = advice.found.workers[int(advice.found.means.mean(0).argmax())]
    if options["path"]:
        return f"ask {best} alone, or measure more questions and workers"
    return command_line("serve", best)


def _json(advice: Advice, ids: list[str], picture: Path | None) -> dict[str, Any]:
    def plain(report: Any) -> Any:
        return None if report is None else run_options.numbers(report)

    found, room, edge = advice.found, advice.headroom, advice.frontier
    said: dict[str, Any] = {"verdict": advice.verdict, "why": advice.why, "workers": list(found.workers)}
    said |= {"questions": len(found), "held out": advice.held}
    said["compared"] = advice.compared.json()
    said["headroom"] = None if room is None else {"by": room.way, **plain(room.report)}
    said["families"] = [one._asdict() for one in advice.families]
    said["arms"] = [
        {"name": arm.name, "calls": arm.calls, "cost": arm.cost, "p": arm.p, "wins": arm.wins}
        | {"reward": plain(arm.reward), "gain": plain(arm.gain), "hindsight": plain(arm.hindsight)}
        for arm in advice.arms
    ]
    said["ways"] = [
        {"name": way.arm.name, "kind": way.kind, "calls": way.arm.calls, "p": way.arm.p, "proven": way.proven}
        | {"short": way.short, "reward": plain(way.arm.reward), "gain": plain(way.arm.gain)}
        | {"over": plain(way.over), "equal": plain(way.equal)}
        for way in advice.ways
    ]
    said["frontier"] = {
        "unit": edge.unit, "strong": edge.strong, "weak": edge.weak, "by question": edge.curve,
        "at random": edge.mixture, "saving": plain(edge.saving), "dominated": edge.dominated, "words": edge.words,
    }  # fmt: skip
    return said | {"notes": advice.notes, "reports": ids, "figure": str(picture) if picture else None}
