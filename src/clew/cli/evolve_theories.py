"""clew evolve theories: theories of how people choose, proposed, tested on designs that tell them apart, and judged."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Model
    from clew.methods.theories.choice_fits import Choices, HeldOut, Rule
    from clew.methods.theories.choice_forms import Form
    from clew.methods.theories.choice_trials import Trials
    from clew.methods.theories.labs import Lab
    from clew.methods.theories.theory_loop import Rules, State
    from clew.methods.theories.theory_proposers import Proposer
    from clew.methods.theories.verdict_words import Verdict

FOLDER = Path(".clew") / "evolve"
LOG = "theories.log"
FITTED = 4  # theories of the search that are fitted for the verdict, beside those that it began with
PEOPLE_HELP = """Simulated people who follow this theory: ttb, wadd, tally, power, diminishing, take_the_worst,
single_cue, cue_parity, alternating, perseveration or anti_majority."""
BANK_HELP = """Choices that people made, one {"experiment": "e1", "subject": 0, "a": [1, 0], "b": [0, 1], "chose_b": 0}
a line, plain or gzipped; "validities" of the cues may be named too, else they go evenly from .9 to .6."""
STUDY_HELP = """JSON file of a study on Prolific: name, description, url, code, places, minutes, reward, choices, most
(docs/theories.md). The token comes from PROLIFIC_API_TOKEN. Needs --publish to cost anything."""
FIRST_HELP = "The two theories that it begins with, of those of --people."
DESIGNS_HELP = """How a design is chosen: where the two rivals differ most, where a choice says most of all theories,
where two by lot differ, or by lot alone."""
LOSS_HELP = "vector: shares and switch rate; scalar: the one metric of the design, as published."
MODEL_HELP = "Model that proposes theories; without one the grammar does, by lot."
SOURCES_HELP = "theories that it writes as Python, which run in the sandbox, for the verdict."
NAME_HELP = "Name of the search and of its folder in .clew/evolve.  [default: by its settings]"


@click.command("theories", short_help="Search for a theory of how people choose.")
@option("--people", default="", help=PEOPLE_HELP)
@option("--noise", default=0.0, only_with="--people", help="share of choices that are drawn evenly.")
@option("--bank", type=click.Path(path_type=Path, dir_okay=False), default=None, help=BANK_HELP)
@option("--study", type=click.Path(path_type=Path, dir_okay=False), default=None, help=STUDY_HELP)
@option(
    "--publish", is_flag=True, only_with="--study", help="publish, which costs money; else print what would be sent."
)
@option("--first", default="", metavar="NAME,NAME", help=FIRST_HELP + "  [default: ttb,wadd]")
@option("--cycles", default=5, help="Cycles of two designs and one revision.")
@option("--asked", default=25, help="People on each design, and simulated ones for each gate.")
@option("--designs", choices="adversarial information neutral blind", default="adversarial", help=DESIGNS_HELP)
@option("--ratings", default=1, help="Highest rating that a drawn design shows; 1 is a binary cue.")
@option("--loss", choices="vector scalar", default="vector", help=LOSS_HELP)
@option("--model", default="", help=MODEL_HELP)
@option("--sources", default=0, only_with="--model", help=SOURCES_HELP)
@option("--seed", default=0, help="Seed of designs, proposals and simulated people.")
@option("--name", default="", help=NAME_HELP)
@run_options.models_of(only_with="--model")
@common.json_option
def command(as_json: bool, **options: Any) -> None:
    """Search for a theory of how people choose between two options that are rated on several cues.

    Two rival theories; a design on which they differ; people's choices on it; the worse rival is replaced; and again.
    At the end theories are fitted and measured on experiments left out, against the noise of so few people, and each
    mechanism against its twin that lacks it. The same line continues where it stopped.

    \b
    clew evolve theories --people wadd
    clew evolve theories --bank choices.jsonl --cycles 4
    clew evolve theories --bank choices.jsonl --model http://localhost:8000/v1#qwen3 --sources 3
    """
    from clew.methods.coevolve.archive import ChainedLog
    from clew.methods.theories.theory_loop import search

    rules = _rules(options)
    bank, about = _bank(options)
    folder = FOLDER / (options["name"] or _label(rules, about))
    lab = _lab(options, rules, bank, folder)
    if lab is None:
        return
    model = run_options.load_model(options["model"], options) if options["model"] else None
    proposer = _proposer(model)
    tell = common.say if as_json else common.echo
    offered = lab.offers()
    designs = 2 * rules.cycles if offered is None else min(2 * rules.cycles, len(offered))
    asked = "all" if bank else str(rules.people)
    if offered is not None:
        people = sum(trials.people for trials in bank.values())
        tell(f"bank: {len(bank)} experiments, {people} people, {len(offered)} different designs")
    tell(f"{rules.cycles} cycles, {designs} designs, {asked} people on each{_asks(options, rules)}")
    folder.mkdir(parents=True, exist_ok=True)
    log = ChainedLog(folder / LOG)
    try:
        with run_options.interruptible("the same line again"), common.bar("designs", designs) as move:

            def watch(state: State, event: str) -> None:
                best = min((state.loss(form) for form in state.pool), default=0.0)
                move(completed=len(state.observations), note=f"{len(state.pool)} theories, best loss {best:.4f}")

            state = asyncio.run(search(log, lab, proposer, rules, about=about, watch=watch))
    finally:
        log.close()
    with run_options.interruptible("the same line again"):
        verdict = _verdict(state, model, options)
    _end(state, verdict, folder, as_json, None if offered is None else len(offered))


def _rules(options: Mapping[str, Any]) -> Rules:
    from clew.methods.theories.theory_loop import Rules

    given = options["first"] or ("tally,wadd" if options["people"] == "ttb" else "ttb,wadd")
    if not options["first"] and options["people"] == "wadd":
        given = "ttb,tally"
    first = tuple(name.strip() for name in given.split(",") if name.strip())
    settings = common.pick(options, "cycles loss seed") | {"people": options["asked"], "policy": options["designs"]}
    return Rules(first=first, highest=options["ratings"], **settings)  # type: ignore[arg-type]  # Rules checks that they are two


def _bank(options: Mapping[str, Any]) -> tuple[dict[str, Trials], dict[str, Any]]:
    """The experiments of --bank, and what names the people of this search.

    Raises:
        BadInput: the line names no people, or two kinds.
    """
    from clew.core.keys import value_digest
    from clew.methods.theories.choice_trials import read_bank

    kinds = [name for name in ("people", "bank", "study") if options[name]]
    if len(kinds) != 1:
        remedy = "Give one of --people NAME (simulated), --bank FILE (asked before) and --study FILE (on Prolific)."
        raise BadInput(f"the line names {'several kinds of' if kinds else 'no'} people", remedy=remedy)
    about = {"model": options["model"], "people": options["people"], "noise": options["noise"]}
    bank: dict[str, Trials] = {}
    if options["bank"]:
        bank = read_bank(options["bank"])
        told = [[name, *(part.tolist() for part in trials)] for name, trials in bank.items()]
        about["bank"] = value_digest(told).hex()[:16]
    return bank, about


def _lab(options: Mapping[str, Any], rules: Rules, bank: Mapping[str, Trials], folder: Path) -> Lab | None:
    """Where choices come from; None where a study was only rehearsed."""
    import numpy as np

    from clew.methods.theories.choice_designs import random_design
    from clew.methods.theories.labs import lab_of
    from clew.methods.theories.prolific import TOKEN
    from clew.methods.theories.simulated_people import SimulatedPeople

    if options["people"]:
        return SimulatedPeople(options["people"], rules.people, options["noise"], rules.seed)
    if bank:
        return lab_of({"connector": "bank"}, list(bank.values()))
    try:
        told = json.loads(options["study"].read_text(encoding="utf-8"))
        assert isinstance(told, dict)
    except (OSError, ValueError, AssertionError, RecursionError):
        remedy = "Write a JSON object with the fields that docs/theories.md lists."
        raise BadInput(f"{options['study']} holds no study", remedy=remedy) from None
    token = functools.partial(os.environ.get, TOKEN)
    lab = lab_of({**told, "connector": "prolific", "folder": str(folder), "token": token})
    design = random_design(np.random.default_rng(0), rules.highest)
    if not options["publish"]:
        from clew.methods.theories.labs import PeopleOnProlific

        assert isinstance(lab, PeopleOnProlific)
        common.echo(f"a dry run: nothing is sent, and nothing is paid. Each of {2 * rules.cycles} designs would be:")
        common.echo(lab.rehearse(design))
        common.echo(lab.cost(design))
        common.echo("Add --publish to ask these people.")
        return None
    common.say(f"{2 * rules.cycles} designs; each: {lab.cost(design)}")
    return lab


def _proposer(model: Model | None) -> Proposer:
    from clew.methods.theories.theory_proposers import GrammarProposer, ModelProposer

    return GrammarProposer() if model is None else ModelProposer(model)


def _asks(options: Mapping[str, Any], rules: Rules) -> str:
    from clew.methods.theories.theory_loop import ITERATIONS

    if not options["model"]:
        return ""
    return f", {rules.cycles * ITERATIONS + options['sources']} requests to the model"


def _label(rules: Rules, about: Mapping[str, Any]) -> str:
    from clew.core.keys import value_digest

    return f"theories-{value_digest([str(rules), dict(about)]).hex()[:8]}"


def _verdict(state: State, model: Model | None, options: Mapping[str, Any]) -> Verdict | None:
    """Theories fitted and measured on experiments left out; None where fewer than three designs were asked."""
    import numpy as np

    from clew.methods.theories.choice_fits import guessed, leave_one_out
    from clew.methods.theories.mechanism_twins import FEWEST, claims
    from clew.methods.theories.noise_ceiling import noise_floor
    from clew.methods.theories.verdict_words import GUESS, named, verdict

    seen: list[Choices] = [one.trials for one in state.observations]
    if len(seen) < FEWEST:
        return None
    rules_of = _fitted(state)
    known: dict[str, HeldOut] = {}
    with common.bar("theories fitted", len(rules_of) + options["sources"]) as move:
        for name, one in rules_of.items():
            known[name] = leave_one_out(one, seen, restarts=3)
            move(advance=1)
        if model is not None and options["sources"]:
            known |= _sources(model, known, seen, options, lambda: move(advance=1))
    floor, guess = float(np.mean([noise_floor(one) for one in seen])), guessed(seen)
    best = named({**known, GUESS: guess}, floor)[0]
    claimed = claims(rules_of[best], seen, own=known[best], floor=floor, restarts=3) if best in rules_of else []
    return verdict(known, floor, claimed, guess=guess)


def _fitted(state: State) -> dict[str, Rule]:
    """The theories that are fitted for the verdict, by name: those that it began with, the best structures that the
    search found, and the canonical theories that are special cases of these."""
    from clew.methods.theories.choice_forms import BOUNDS, KNOWN, rule

    shaped: dict[str, Form] = {}  # one of each structure: the ranges are fitted anew
    for form, _ in state.ranked():
        free = replace(form, ranges={name: BOUNDS[name] for name in form.ranges})
        shaped.setdefault(free.structure, free)
    found = dict(list(shaped.items())[:FITTED])
    simple = [name for name in KNOWN if any(form.includes(KNOWN[name]) for form in found.values())]
    forms = {name: KNOWN[name] for name in dict.fromkeys((*state.rules.first, *simple))}
    forms |= {name: free for name, free in found.items() if free not in forms.values()}
    return {name: rule(form, name) for name, form in forms.items()}


def _sources(
    model: Model,
    known: Mapping[str, HeldOut],
    seen: Sequence[Choices],
    options: Mapping[str, Any],
    ended: Callable[[], None],
) -> dict[str, HeldOut]:
    """Theories that the model writes as Python, fitted in the sandbox; what was refused is told and counted."""
    from clew.methods.theories.code_search import search
    from clew.methods.theories.theory_code import TheoryFailed
    from clew.methods.theories.theory_writer import Known, TheoryWriter
    from clew.sandbox.sandbox import Sandbox

    writer, box, found = TheoryWriter(model), Sandbox(), dict[str, HeldOut]()
    told = [Known(name, one.mean) for name, one in sorted(known.items(), key=lambda pair: pair[1].mean)]
    for number in range(1, options["sources"] + 1):
        written = asyncio.run(writer.write(told, seen, options["seed"] + number))
        ended()
        if written.theory is None:
            common.say(f"source {number}: {written.why}")
            continue
        try:
            name = f"source {number}"
            found[name] = search(written.theory, box, seen, seed=options["seed"])
            told.append(Known(written.theory.source, found[name].mean))
        except TheoryFailed as error:
            common.say(f"source {number}: {error.message}")
    if writer.refused:
        common.say("refused: " + ", ".join(f"{kind} {n}" for kind, n in sorted(writer.refused.items())))
    return found


def _more_designs(offered: int | None) -> str:
    """What to do where too few designs were asked for a verdict."""
    from clew.methods.theories.mechanism_twins import FEWEST

    if offered is not None and offered < FEWEST:
        return f"The bank has {offered} different designs: add choices on {FEWEST - offered} more to get a verdict."
    return f"Ask on {FEWEST} designs or more (--cycles 2), to measure theories where they were not fitted."


def _end(state: State, verdict: Verdict | None, folder: Path, as_json: bool, offered: int | None) -> None:
    from clew.methods.compare.design import student
    from clew.methods.theories.theory_loop import sentence

    assert state.ended is not None
    words = [sentence(state.ended)] if verdict is None else list(verdict.words)
    told = {**{k: v for k, v in state.ended.items() if k != "event"}, "verdict": words}
    told |= {"folder": str(folder), "tokens": state.tokens, "refused": dict(state.refused)}
    if verdict is not None:
        error = student(verdict.best, verdict.held.errors, unit="experiments")
        told["error"] = {"theory": verdict.best, **run_options.numbers(error), "noise": verdict.floor}
        told["adequate"] = verdict.adequate
        told["compared"] = verdict.compared.json()
        told["mechanisms"] = [
            {"mechanism": one.mechanism, "gain": one.gain, "p": one.p, "borne_out": one.stands}
            | {"compared": one.compared.json()}
            for one in verdict.claims
        ]
    (folder / "verdict.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if as_json:
        common.end_with_json(told)
    gated = f"{state.ended['accepted']} through the gate"
    common.echo(f"{state.participants} people on {len(state.observations)} designs, {gated}")
    rows = [[f"{loss:.4f}", form.words] for form, loss in state.ranked()[:5]]
    common.print_table(["loss", "theory"], rows)
    for name, number in state.refused.items():
        common.echo(f"refused: {number} of the model's: {name}")
    for text in words:
        common.echo(text)
    common.echo(f"in {folder}: {LOG}, verdict.json")
    if verdict is None:
        common.echo(_more_designs(offered))
    elif not verdict.adequate:
        common.echo("A model may find a theory outside the grammar: --model NAME --sources 3.")
    else:
        common.echo("A theory worth keeping is found again with another --seed.")
    common.echo(f"Next: {command_line('evolve show', folder, html='theories.html')}")
