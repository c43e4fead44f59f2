"""clew audit diff: what training added to a model, as features of a crosscoder over two checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.harness.fork.continuations import Continuations
    from clew.methods.features.comparison import Comparison, Feature
    from clew.methods.features.crosscoder import Crosscoder
    from clew.methods.features.diff_verdict import Finding
    from clew.methods.features.mixture import Mixture
    from clew.methods.features.steered_behaviour import Plan
    from clew.methods.features.subjects import Prompt, Subject, Taps
    from clew.models.local import Local
    from clew.store import Keeper, Run

FOLDER = Path(".clew") / "diff"
LABELLED = 8  # features that get a label
METHOD_HELP = """reseated: fit a plain crosscoder, then give what one model alone has a part of its own; dedicated: such
a part from the start; handicap: the same, preferred at first; plain: no parts."""
TOLD_HELP = "A sentence that asks for the behaviour: how often does BASE show it, told so in its system message?"


class Made(NamedTuple):
    """What a comparison came to. features: as they are told, by part; others: tried on the selection prompts alone.
    unexplained: share of the variance of A and of B that the crosscoder leaves."""

    found: Finding | None
    features: dict[str, list[Feature]]
    others: list[Feature]
    unexplained: list[float]
    module: Crosscoder

    @property
    def every(self) -> list[Feature]:
        """Each feature once, those that are told first."""
        told = [f for part in ("tried", "A", "B") for f in self.features.get(part, ())]
        return list({f.latent: f for f in (*told, *self.others)}.values())


behaviour_options = common.options(
    option("--on", required=True, metavar="QUERY", help="Runs whose tokens are read and whose prompts are tried."),
    option("--does", metavar="REGEX", help="Behaviour: the reply to a prompt, or a tool call in it, matches."),
    option("--reward", is_flag=True, help="Behaviour: the run, continued from its first prompt, succeeds."),
    option("--told", default="", metavar="TEXT", help=TOLD_HELP),
    option("--aside", metavar="QUERY", help="Runs at whose prompts the behaviour must not come."),
    option("--way", choices="auto raise remove", default="auto", help="Write a feature, or take it away."),
)
fit_options = common.options(
    option("--layer", type=common.Amount(int, 0), help="Layer to compare, from 0.  [default: the middle]"),
    option("--method", choices="reseated plain dedicated handicap", default="reseated", help=METHOD_HELP),
    option("--kind", choices="topk batchtopk l1", default="topk", help="Which latents stay active."),
    option("--latents", type=int, help="Latents of the crosscoder.  [default: 16 times the width]"),
    option("-k", "k", default=16, help="Active latents a token."),
    option("--steps", default=1500, help="Steps of the fit."),
    option("--tokens", default=100_000, help="Most tokens to read."),
    option("--keep-states", is_flag=True, help="Keep the states that were read, for other settings of the fit."),
)
arm_options = common.options(
    option("--prompts", default=60, help="Most prompts in each half: selection and test."),
    option("--tried", default=4, help="Features of each part that are tried."),
    option("--random", default=50, help="Random directions beside each part."),
    option("--top", default=5, help="Features of each model alone that are shown."),
    option("--labels", metavar="MODEL", help="Let this model name the features shown; its answers are recorded."),
)


@click.command("diff", short_help="Find the features that training added to a model.")
@click.argument("a", metavar="TRAINED")
@click.argument("b", metavar="BASE")
@behaviour_options
@fit_options
@arm_options
@option("--dry", is_flag=True, help="Print the plan and its cost, and read nothing.")
@option("--seed", default=0, help="Seed of the fit, of the halves and of the replies.")
@run_options.model_options
@common.output_options
def command(a: str, b: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Compare two checkpoints of one tokenizer: which features did training add, and does one of them make the
    behaviour?

    TRAINED and BASE are folders of weights, or models by name; TRAINED may be a LoRA adapter of BASE. Hidden states of
    both are read at every token of the chosen runs, and a crosscoder (one sparse dictionary of both) is fitted to
    them. With --does or --reward the best features are written into TRAINED while it answers, beside random directions
    and other controls. The verdict is exclusive (TRAINED alone has the feature), shared, nothing, or cannot tell.

    The same line continues where it stopped, and costs nothing the second time.

    \b
    clew audit diff trainings/first/checkpoint household-sft --on world=household
    clew audit diff ./child ./base --on tag:mine --does 'search' --aside tag:smalltalk
    clew audit diff ./adapter ./base --on world=household --reward
    """
    if options["does"] and options["reward"]:
        raise BadInput("--does and --reward are two behaviours", remedy="Give one of them.")
    store = common.open_store(store_path)
    runs = common.some(store, [options["on"]])
    model_b: Any = run_options.load_model(b, options)
    model_a: Any = _trained(a, model_b, b, options)
    job = _job(model_a, model_b, runs, options)
    prompts, aside = _prompts(store, runs, options)
    if options["told"]:
        prompts[0].told(options["told"], model_b.renderer)  # refused before anything is read
    plan = _plan(options)
    _forecast(job, plan, prompts, options, as_json)
    if options["dry"]:
        if as_json:
            known = {"tokens": job.tokens, "layer": job.layer, "prompts": len(prompts), "latents": job.how.latents}
            common.print_json(known)
        return
    with run_options.interruptible("the same line again"):
        made = _worked(job, plan, store, runs, (prompts, aside), options)
        labels = _labels(store, made.features, job.label, options)
        reports, values = _file(made, store, job, labels)
        if not options["keep_states"]:
            job.forget()
    told = _json(job, made, labels, reports, values)
    if as_json:
        common.end_with_json(told)
    _told(job, made, labels)
    _next(job, made, runs, values)


def _trained(ref: str, base: Local, base_ref: str, options: dict[str, Any]) -> Any:
    """Model A: by name or folder, or the base with the LoRA adapter of a folder."""
    folder = Path(ref).expanduser()
    if not (folder / "adapter_config.json").is_file() or (folder / "config.json").is_file():
        return run_options.load_model(ref, options)
    from clew.fit.adapter_files import begin

    if not hasattr(base, "module"):
        raise BadInput(f"{base_ref} has no weights here, and {ref} is an adapter", remedy="Name a folder of weights.")
    model: Any = run_options.load_model(base_ref, options)
    if model is base:
        raise BadInput(f"{base_ref} cannot be loaded twice", remedy="Name its folder.")
    begin(model.module, folder)
    model.ref = str(ref)
    model.publish()
    return model


def _job(a: Any, b: Any, runs: list[Run], options: dict[str, Any]) -> Comparison:
    from clew.methods.features.comparison import Comparison
    from clew.methods.features.learning import Learning

    how = Learning(
        latents=options["latents"] or 0, lr=2e-3, batch=512, dead=100,
        **common.pick(options, "k kind method steps seed"),
    )  # fmt: skip
    return Comparison(a, b, runs, how, FOLDER, layer=options["layer"], most=options["tokens"])


def _plan(options: dict[str, Any]) -> Plan:
    from clew.methods.features.steered_behaviour import Plan

    return Plan(most=options["prompts"], **common.pick(options, "way tried random seed"))


def _prompts(store: Keeper, runs: list[Run], options: dict[str, Any]) -> tuple[list[Prompt], list[int]]:
    """The prompts that are tried, those aside last, and the numbers of these; none where no behaviour is named."""
    import numpy as np

    from clew.core.keys import derive
    from clew.methods.features.steered_behaviour import FEWEST
    from clew.methods.features.subjects import prompts_of

    if not (options["does"] or options["reward"]):
        for name in ("aside", "told"):
            if options[name]:
                raise BadInput(f"--{name} needs a behaviour", remedy="Name one with --does or --reward.")
        return [], []
    found = prompts_of(runs, firsts=options["reward"])
    if len(found) < 2 * FEWEST:
        raise BadInput(
            f"{options['on']!r} finds {len(found)} prompts, and {2 * FEWEST} are needed at least",
            remedy=f"Record runs of {2 * FEWEST} tasks or more with `clew run --tasks {2 * FEWEST}`.",
        )
    most = 6 * options["prompts"]
    if len(found) > most:
        order = np.random.default_rng(derive(options["seed"], "prompts")).permutation(len(found))[:most]
        found = [found[i] for i in sorted(order.tolist())]
    known = {tuple(p.ids) for p in found}
    beside = prompts_of(common.some(store, [options["aside"]]), firsts=options["reward"]) if options["aside"] else []
    beside = [p for p in beside if tuple(p.ids) not in known][: options["prompts"]]
    return [*found, *beside], list(range(len(found), len(found) + len(beside)))


def _forecast(job: Comparison, plan: Plan, prompts: list[Prompt], options: dict[str, Any], as_json: bool) -> None:
    from clew.store.run import pace

    how, tell = job.how, common.say if as_json else common.echo
    a: Any = job.a
    weights = sum(p.numel() for p in a.module.parameters())
    flops = 4 * job.tokens * weights + sum(how.stages) * how.batch * 12 * how.latents * job.width
    tell(
        f"layer {job.layer} of {job.a.ref} and {job.b.ref}: {job.tokens:,} tokens, "
        f"{how.latents} latents ({how.method}, {how.kind}, k={how.k}), {sum(how.stages):,} steps; "
        f"about {max(flops / 1e10 / 60, 0.1):.1f} minutes at 10 GFLOP a second"
    )
    until = f"kept in {job.states}" if options["keep_states"] else "removed once the crosscoder is fitted"
    tell(f"the states take {job.size / 1e6:,.1f} MB on disk, {until}")
    if prompts:
        what, most = "replies" if options["does"] else "runs", _cost(plan, prompts, options)
        per = sum(call.kind == "ask" for run in job.runs for call in run.calls) if options["does"] else len(job.runs)
        seconds = most * pace(job.runs) * sum(run.tokens for run in job.runs) / max(per, 1)
        time = f"; about {max(seconds / 60, 0.1):.1f} minutes at the speed of these runs" if seconds else ""
        tell(f"{len(prompts)} prompts, at most {most:,} {what}{time}")


def _cost(plan: Plan, prompts: list[Prompt], options: dict[str, Any]) -> int:
    return plan.cost(len(prompts), bool(options["does"]), bool(options["told"]))


def _worked(
    job: Comparison, plan: Plan, store: Keeper, runs: list[Run], asked: tuple[list[Prompt], list[int]],
    options: dict[str, Any],
) -> Made:  # fmt: skip
    import numpy as np

    from clew.methods.features import steered_behaviour
    from clew.methods.features.comparison import shown

    prompts, aside = asked
    known = job.known()
    if known is None:
        mixed = _states(job)
        with common.bar("crosscoder", sum(job.how.stages)) as move:
            fitted = job.fit(mixed, lambda step: move(completed=step.step, note=f"error {step.loss['error']:.4f}"))
        known = fitted, job.seen(mixed, fitted)
    module, seen = known
    inside = job.inside(seen, module, prompts)
    found = None
    if prompts:
        what = "replies" if options["does"] else "runs"
        with common.bar(what, _cost(plan, prompts, options)) as move:
            subjects = [
                _subject(job, store, runs, prompts, lambda n: move(advance=n), options, sentence)
                for sentence in ("", options["told"])[: 1 + bool(options["told"])]
            ]
            behaviour = f"does /{options['does']}/" if options["does"] else "success"
            beside = np.array(aside, int) if aside else None
            found = steered_behaviour.ask(subjects[0], inside, plan, behaviour, beside, *subjects[1:])
    told = shown(inside.latents, options["top"])
    if found is not None:
        told["tried"] = [one.cell.direction.latent for one in found.tried.values()]
    features = {name: [job.feature(seen, j) for j in which] for name, which in told.items()}
    chosen = {j for which in told.values() for j in which}
    cells = dict.fromkeys(cell.direction.latent for cell in (found.cells if found is not None else ()))
    others = [job.feature(seen, j) for j in cells if j not in chosen]
    return Made(found, features, others, seen.unexplained.tolist(), module)


def _states(job: Comparison) -> Mixture:
    with common.bar("hidden states", 2 * job.tokens) as move:
        return job.read(lambda done, total: move(completed=done, total=total))


def _subject(
    job: Comparison, store: Keeper, runs: list[Run], prompts: list[Prompt], advance: Callable[[int], None],
    options: dict[str, Any], told: str = "",
) -> Subject:  # fmt: skip
    """Who answers the prompts, with a sentence besides in the system message where one is ``told``."""
    from clew.core.values import Sampling
    from clew.methods.features.subjects import Replies, Whole
    from clew.methods.why.rewind import pattern

    models = {"A": job.a, "B": job.b}
    if options["does"]:
        wanted = pattern(options["does"])
        first = next((c for c in runs[0].calls if c.kind == "ask" and c.setup is not None), None)
        sampling = first.setup.in_force or Sampling() if first is not None and first.setup is not None else Sampling()

        def shows(message: Any) -> bool:
            return bool(wanted.search("\n".join([message.text, *(f"{c.name} {c.arguments}" for c in message.calls)])))

        renderer: Any = job.b.renderer
        asked = [prompt.told(told, renderer) for prompt in prompts] if told else prompts
        name = f"{options['does']} told {told}" if told else options["does"]
        return Replies(models, asked, shows, sampling, name=name, seed=options["seed"], store=store, advance=advance)
    return Whole(models, prompts, _hands(job, store, runs, options, told), advance=advance)


def _hands(
    job: Comparison, store: Keeper, runs: list[Run], options: dict[str, Any], told: str
) -> Callable[[str, Taps], Continuations]:
    from clew.harness import Runner
    from clew.harness.fork.continuations import Continuations

    kinds = {(run.row.agent, run.row.config, run.row.taskset) for run in runs}
    if len(kinds) > 1:
        told = f"these runs are of {len(kinds)} agents or tasksets"
        raise BadInput(told, remedy="Choose runs of one, as in --on world=household.")

    @lru_cache(maxsize=2)
    def runner(who: str) -> Runner:
        return Runner.of(store, runs[0], model=job.a if who == "A" else job.b)

    return lambda who, taps: Continuations(runner(who), seed=options["seed"], taps=taps, told=told)


def _labels(
    store: Keeper, features: dict[str, list[Feature]], label: str, options: dict[str, Any]
) -> dict[int, tuple[str, str]]:
    if not options["labels"]:
        return {}
    from clew.methods.features.feature.feature_labels import labelled

    every = {f.latent: [(c[0], c[1]) for c in f.contexts] for part in features.values() for f in part if f.contexts}
    some = dict(list(every.items())[:LABELLED])
    return labelled(store, run_options.load_model(options["labels"], options), some, f"diff-{label}")


def _file(
    made: Made, store: Keeper, job: Comparison, labels: dict[int, tuple[str, str]]
) -> tuple[list[str], list[str]]:
    """Keep what was found; gives the ids of the Reports, and the names of the features' values."""
    from clew.methods.features.diff_verdict import filed
    from clew.methods.features.feature.feature_filing import cost, file_effects, file_features, missing

    lacking = missing(store, job.label, made.every)
    mixed = _states(job) if lacking else None
    with common.bar("values of features", cost(job.tokens, lacking)) as move:
        values = file_features(store, job, mixed, made.module, made.every, labels, lambda count: move(advance=count))
    if made.found is None:
        return [], values
    ids = filed(made.found, store, job.label)
    file_effects(store, job.label, made.found, ids, made.every)
    return list(ids.values()), values


def _json(
    job: Comparison, made: Made, labels: dict[int, tuple[str, str]], reports: list[str], values: list[str]
) -> dict[str, Any]:
    found, features, unexplained = made.found, made.features, made.unexplained
    said: dict[str, Any] = {"layer": job.layer, "tokens": job.tokens, "crosscoder": str(job.folder / "crosscoder")}
    said["unexplained"] = dict(zip("AB", unexplained, strict=True))
    fields = ("latent", "share", "fitted", "often", "high", "contexts")
    said["features"] = {
        name: [{x: getattr(f, x) for x in fields} | {"label": labels.get(f.latent, ("",))[0]} for f in part]
        for name, part in features.items()
    }
    if found is not None:
        lines = [*found.rates, *found.claims, *found.lines]
        said |= {"behaviour": found.behaviour, "verdict": found.kind, "text": found.text, "caveats": found.caveats}
        said["evidence"] = [{"about": x.about, "p": x.p, **run_options.numbers(x.report)} for x in lines]
        said["comparisons"] = found.comparisons().json()
        said["shrinkage"] = {name: one.shrinkage for name, one in found.tried.items()}
    return said | {"reports": reports, "values": values}


def _told(job: Comparison, made: Made, labels: dict[int, tuple[str, str]]) -> None:
    found, features, unexplained = made.found, made.features, made.unexplained
    common.echo(
        f"crosscoder {job.folder / 'crosscoder'}: it leaves {unexplained[0]:.3f} of the variance of A unexplained and "
        f"{unexplained[1]:.3f} of that of B (held-out tokens)"
    )
    heads = {"A": "Features that A alone has", "B": "Features that B alone has", "tried": "Features that were tried"}
    for name, part in features.items():
        common.echo(f"\n{heads[name]}: {'' if part else 'none'}")
        for f in part:
            _feature(f, labels.get(f.latent, ("", ""))[0])
    if found is None:
        return
    common.echo(f"\nWhat they do to the behaviour ({found.behaviour}):\n")
    rows = []
    for line in (*found.rates, *found.claims, *found.lines):
        r, p = line.report, "" if line.p is None else f"{line.p:.2g}"
        rows.append([line.about, f"{r.estimate:+.2f}", f"[{r.low:.2f}, {r.high:.2f}]", r.n, p])
    common.print_table(("arm", "rate, or its change", "95 % interval", "n", "p"), rows)
    for name, one in found.tried.items():
        common.echo(
            f"note: selection told {one.cell.effect.moved:+.2f} of the {name} feature, test {one.test.moved:+.2f}"
        )
    for caveat in found.caveats:
        common.echo(f"note: {caveat}")
    common.echo(f"\n{found.kind}: {found.text}")
    common.echo(f"tested: {found.comparisons()}")


def _feature(f: Feature, label: str) -> None:
    named = f"  {label}" if label else ""
    common.echo(
        f"  feature {f.latent}{named}: decoder-norm share {f.share:.2f}, fitted share {f.fitted:.2f}, "
        f"active at {f.often:.1%} of the tokens"
    )
    for before, token, cursor in f.contexts[:3]:
        common.echo(f"      ...{' '.join(before.split())[-60:]} >>{token.strip()}<<   {cursor}")


def _next(job: Comparison, made: Made, runs: list[Run], values: list[str]) -> None:
    best = next((f for f in made.every if f.places), None)
    if best is not None:
        every = command_line("view", page=f"features/{job.label}")
        common.echo(f"{len(values)} features shade the tokens of these runs: {every}")
        common.echo(f"feature {best.latent}: {command_line('view', page=f'feature/{job.label}/{best.latent}')}")
    common.echo(f"Next: {command_line('show', best.places[0].run if best is not None else runs[0].id)}")
