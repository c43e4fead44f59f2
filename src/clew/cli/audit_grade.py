"""clew audit grade: grade tokens, steps and runs by two checkpoints with one tokenizer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from clew.harness.scoring import Plan
    from clew.methods.grade.graded import Reading

TOKENS = "sum mean last min max"
DEV = 0.3  # share of the tasks that --select chooses on


SELECT_HELP = f"Choose --token and --step on {DEV:.0%} of the tasks by AUROC or best-of-group success; report the rest."


@click.command(short_help="Grade tokens, steps and runs by two checkpoints of one model.")
@click.argument("runs", nargs=-1)
@option("--policy", required=True, help="The model after training: a name, folder or URL.")
@option("--reference", required=True, help="The model before training, with the same tokenizer.")
@option("--token", choices=TOKENS, default="sum", help="Aggregate tokens to steps.")
@option("--step", choices=f"{TOKENS} bottom10", default="sum", help="Aggregate steps to a run.")
@option("--separate", is_flag=True, help="Aggregate each model's logprobs, then subtract (as published).")
@option("--beta", default=1.0, help="KL coefficient, which scales the scores.")
@option("--all-replies", is_flag=True, help="Grade forced replies too, not only sampled tokens.")
@option("--pick", is_flag=True, help="Name the best run of each group.")
@option("--select", choices="auroc pick", help=SELECT_HELP)
@option("--budget", default=0.1, help="Warn above this many nats per token between the models.")
@option("--temperature", default=1.0, help="Temperature of the compared distributions.")
@option("--name", default="grade", help="Name under which the values are stored.")
@run_options.model_options
@common.output_options
def command(runs: tuple[str, ...], as_json: bool, store_path: str, **options: Any) -> None:
    """Grade how much better than expected each token, step and run went, by two models' logprobs of the same tokens.

    For a policy trained with a KL penalty, log(policy / reference) of an action is its advantage, up to a factor.
    Nothing is sampled: both models score the recorded tokens. Values are stored on tokens, calls and runs: `clew view`
    shades text by them, `clew fork --low grade` forks where a run is worst. Where runs have rewards, it is printed how
    often a success scores above a failure, within a task and over all, beside either model alone and the run's length.

    \b
    clew audit grade world=household --policy trainings/first/checkpoint --reference household-sft
    clew audit grade 'name=first/40/*' --policy P --reference R --select auroc --pick
    clew audit grade 4fzk2w --policy http://localhost:8000/v1#tuned --reference http://localhost:8001/v1#base
    """
    from clew.methods.grade import grade as g
    from clew.methods.grade import graded
    from clew.store.protocol import stamped

    store = common.open_store(store_path)
    chosen = common.some(store, runs)
    policy = run_options.load_model(options["policy"], options)
    reference = run_options.load_model(options["reference"], options)
    with run_options.interruptible("the same line again; scores so far are kept"):
        found, sizes, doubts = _read(chosen, (policy, reference), options)
    tested = _tested(found, chosen, options)
    token, step = tested.get("aggregation", f"{options['token']}/{options['step']}").split("/")
    mode, beta = "separate" if options["separate"] else "ratio", options["beta"]
    how = {"token": token, "step": step, "mode": mode, "beta": beta}
    kinds: dict[str, Any] = {"token_agg": token, "step_agg": step, "mode": mode}
    grades = g.grade(found.policy, found.ref, found.spans, found.owner, beta=beta, **kinds)
    names = {"policy": policy.ref, "reference": reference.ref, "temperature": options["temperature"]}
    store.annotate(stamped(graded.filed(found, grades, sizes, options["name"], {**names, **how})))
    store.commit()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apart = g.drift(found.policy, found.ref, options["budget"])
    doubts += [str(w.message) for w in caught]
    if found.lost:
        doubts.append(f"{found.lost} steps lie before a model's context or have no tokens; they count as 0")
    result = {**names, **how, "runs": len(found.runs), "steps": len(found.spans), "tokens": len(found.policy)}
    result |= {"nats per token": apart, **tested, "caveats": doubts}
    result["scores"] = {run: float(score) for run, score in zip(found.runs, grades.run, strict=False)}
    if options["pick"]:
        result["picked"] = _picked(chosen, grades.run)
    _print(result, options["name"], as_json)


def _read(
    runs: list[Any], models: tuple[Any, Any], options: dict[str, Any]
) -> tuple[Reading, dict[Any, int], list[str]]:
    """Score the runs by both models, with a forecast from the first chunk on, and join what they say."""
    from clew.harness import scoring
    from clew.methods.grade import graded

    plan = scoring.plan(runs)
    if not plan.rows:
        raise BadInput("no run has a reply to grade", remedy="Choose runs of agents that ask a model: `clew log`.")
    doubts = scoring.check(plan, models)
    common.say(_forecast(runs, plan, models))
    scores = []
    with common.progress() as bar:
        for model in models:
            job = bar.add_task(f"scoring by {model.ref}"[:60], total=plan.tokens, note="")
            how = {"temperature": options["temperature"], "found": plan, "on_tokens": partial(bar.advance, job)}
            scores.append(scoring.score(runs, model, **how))
    replies: Any = "all" if options["all_replies"] else "sampled"
    sizes = {ask: len(values) for ask, values in scores[0].items()}
    found = graded.read(runs, scores[0], scores[1], replies)
    if not len(found.policy):
        raise BadInput("no token of these runs was sampled", remedy="Grade forced replies too, with --all-replies.")
    return found, sizes, doubts


def _forecast(runs: list[Any], plan: Plan, models: tuple[Any, Any]) -> str:
    """What scoring costs: tokens, and seconds (from a timed row of median length) or dollars at an endpoint."""
    parts = []
    for model in models:
        if hasattr(model, "module"):
            row = sorted(plan.rows, key=lambda r: len(r.ids))[len(plan.rows) // 2].ids[: model.context]
            model.score([row])
            began = time.perf_counter()
            model.score([row] * 4)
            seconds = (time.perf_counter() - began) * plan.tokens / (4 * len(row))
            parts.append(f"{model.ref}: at most {seconds:.0f} s")
        else:
            price = getattr(model, "price", None)
            dollars = f", ${plan.tokens * price.prompt / 1e6:.2f}" if price else ""
            parts.append(f"{model.ref}: {len(plan.rows)} requests{dollars}")
    return f"{len(runs)} runs, {plan.tokens:,} tokens to read by each model; {'; '.join(parts)}"


def _tested(found: Reading, runs: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    """AUROC of the scores against success, with intervals over tasks; chosen on other tasks where that is asked for."""
    import numpy as np

    from clew.methods.grade import grade as g
    from clew.store.protocol import rewards

    verdicts = rewards(runs[0].store, [run.id for run in runs])
    judged = np.array([i for i, run in enumerate(runs) if run.id in verdicts and found.length[i]], dtype=int)
    won = np.array([verdicts[runs[i].id] > 0.5 for i in judged], dtype=bool)
    if won.all() or not won.any():
        if options["select"]:
            remedy = "Choose more runs, or name --token and --step."
            raise BadInput(f"nothing to select by: {int(won.sum())} of {len(won)} judged runs succeeded", remedy=remedy)
        return {"order": g.ordering({"score": np.zeros(len(won))}, won, np.zeros(len(won)))}
    task = np.unique([f"{runs[i].taskset} {runs[i].task_id}" for i in judged], return_inverse=True)[1]
    mode: Any = "separate" if options["separate"] else "ratio"
    zero = np.zeros(len(found.ref))
    tables = {
        "score": g.cells(found.policy, found.ref, found.spans, found.owner, mode),
        "policy alone": g.cells(found.policy, zero, found.spans, found.owner),
        "reference alone": g.cells(found.ref, zero, found.spans, found.owner),
    }
    tables = {arm: {k: v[judged] for k, v in table.items()} for arm, table in tables.items()}
    out: dict[str, Any] = {}
    kept = np.ones(len(judged), bool)
    names = dict.fromkeys(tables, f"{options['token']}/{options['step']}")
    if options["select"]:
        names, kept, out = _selected(tables, won, task, options["select"])
    scores = {arm: table[names[arm]][kept] for arm, table in tables.items()}
    length = found.length[judged][kept]
    scores |= {"shortness alone": -length.astype(float), "score without length": g.residual(scores["score"], length)}
    tasks = len(np.unique(task[kept]))
    out["auroc"] = {}
    for arm, score in scores.items():
        pooled = g.by_task(partial(g.auroc, score, won[kept]), task[kept])
        told = g.Share(*pooled) if tasks >= g.FEW else g.Share(pooled[0], None, None)
        out["auroc"][arm] = told._asdict() | {"aggregation": names.get(arm)}
    out |= {"judged": int(kept.sum()), "tasks": tasks, "succeeded": float(won[kept].mean())}
    return out | {"order": g.ordering(scores, won[kept], task[kept])}


def _selected(
    tables: dict[str, dict[str, Any]], won: np.ndarray, task: np.ndarray, by: Literal["auroc", "pick"]
) -> tuple[dict[str, str], np.ndarray, dict[str, Any]]:
    """Each arm's aggregation, the runs left to be reported on, and what the choosing was worth."""
    import numpy as np

    from clew.methods.grade import grade as g

    count = int(task.max()) + 1
    dev = np.isin(task, np.random.default_rng(0).permutation(count)[: max(1, round(DEV * count))])
    rest = won[~dev]
    if not len(rest) or rest.all() or not rest.any():
        remedy = "Choose more runs, or name --token and --step."
        raise BadInput(f"{count} tasks are too few to choose on some and report on others", remedy=remedy)
    found = {arm: g.select({k: v[dev] for k, v in t.items()}, won[dev], task[dev], by) for arm, t in tables.items()}
    best = found["score"]
    told: dict[str, Any] = {"chosen on": f"{int(dev.sum())} runs of {len(np.unique(task[dev]))} tasks", "by": by}
    told |= {"found there": best.found, "of that by choosing": best.optimism, "on unseen tasks": best.honest}
    return {arm: s.name for arm, s in found.items()}, ~dev, {"aggregation": best.name, "selection": told}


def _picked(runs: list[Any], scores: np.ndarray) -> dict[str, Any]:
    """The best run of each group, and what picking was worth where runs are judged."""
    import numpy as np

    from clew.methods.grade import grade as g
    from clew.store.protocol import rewards

    grouped = [i for i, run in enumerate(runs[: len(scores)]) if run.group]
    if not grouped:
        raise BadInput("none of these runs belongs to a group", remedy="Collect several runs per task: clew run --n 8.")
    names, group = np.unique([runs[i].group for i in grouped], return_inverse=True)
    best = [grouped[i] for i in g.pick(scores[grouped], group)]
    verdicts = rewards(runs[0].store, [run.id for run in runs])
    out: dict[str, Any] = {"runs": {str(n): runs[i].id for n, i in zip(names, best, strict=True)}}
    won = np.array([verdicts.get(runs[i].id, np.nan) for i in grouped])
    if not np.isfinite(won).all():
        return out
    each = [won[group == k] for k in range(len(names))]
    return out | {
        "success of the picked": float(np.mean([verdicts[runs[i].id] for i in best])),
        "of all": float(np.mean([x.mean() for x in each])),
        "of the best there is": float(np.mean([x.max() for x in each])),
        "gained": g.picking(scores[grouped], won, group),
    }


def _print_tested(result: Mapping[str, Any]) -> None:
    """How the score orders runs of a task, whether something simpler does so as well, and how it orders all runs."""
    from clew.methods.grade.grade import Share

    order = result["order"]
    for line in order.told:
        common.echo(line)
    if "auroc" in result:
        common.echo(f"share of pairs in the right order, {result['judged']} runs of {result['tasks']} tasks:")
        rows = [
            (
                arm,
                found["aggregation"] or "",
                order.within[arm].told() if arm in order.within else "not tested",
                Share(found["estimate"], found["low"], found["high"]).told(),
            )
            for arm, found in result["auroc"].items()
        ]
        common.print_table(("", "token/step", "within a task", "over all tasks (AUROC)"), rows)
        common.echo("over all tasks, a score is also right where it only tells hard tasks from easy ones")


def _as_json(result: dict[str, Any]) -> dict[str, Any]:
    """The result with plain values in place of what it found."""
    order = result.pop("order")
    told = {"comparisons": order.comparisons.json()}
    for name, shares in (("within a task", order.within), ("as good alone", order.as_good)):
        told[name] = {arm: share._asdict() for arm, share in shares.items()}
    if "gained" in result.get("picked", {}):
        gained = result["picked"].pop("gained")
        result["picked"] |= {"gain": gained.gain._asdict(), "comparisons": gained.comparisons.json()}
    return result | told


def _print(result: dict[str, Any], name: str, as_json: bool) -> None:
    if as_json:
        common.end_with_json(_as_json(result))
    common.echo(
        f"{result['runs']} runs, {result['steps']} steps, {result['tokens']} tokens graded "
        f"({result['token']} over tokens, {result['step']} over steps, {result['mode']}); "
        f"{result['nats per token']:+.3f} nats per token"
    )
    if "selection" in result:
        told = result["selection"]
        common.echo(
            f"chosen on {told['chosen on']}, by {told['by']}: {told['found there']:.3f}, of which "
            f"{told['of that by choosing']:.3f} by choosing; a choice on unseen tasks has {told['on unseen tasks']:.3f}"
        )
    _print_tested(result)
    scores = sorted(result["scores"].items(), key=lambda item: item[1])
    shown = scores if len(scores) <= 6 else [*scores[:3], *scores[-3:]]
    common.print_table(("run", name), shown)
    if "picked" in result:
        picked = result["picked"]
        for group, run in picked["runs"].items():
            common.echo(f"best of group {group}: {run}")
        if "of all" in picked:
            common.echo(
                f"success of the picked {picked['success of the picked']:.0%}, of all {picked['of all']:.0%}, "
                f"of the best there is {picked['of the best there is']:.0%}"
            )
            common.echo(picked["gained"].told)
    for caveat in result["caveats"]:
        common.say(f"note: {caveat}")
    common.echo("stored beside the runs, where the page shades by the values: " + command_line("view"))
    common.echo(
        f"the run with the lowest score, forked at its lowest step: {command_line('fork', scores[0][0], low=name)}"
    )
