"""Each option that a verb accepts changes what is done, or the line is refused with a sentence: alone, and in pairs.

What a line would do is read off the verb's function (``option_flow``), without doing it. An option is dropped where the
line with it would do just what the line without it does. Lines are the shortest of each verb and the examples of its
help. In the ordinary run all options stand alone in all lines, and a part of the pairs in the shortest one; with
CLEW_ALL_PAIRS=1 all pairs are tried, and their number is printed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import click
import pytest

from clew.cli.shared import common
from clew.core.errors import BadInput
from tests.cli.option_flow import command_of, outcome, read
from tests.cli.test_every_verb import every_verb

MODEL = "http://localhost:8000/v1#m"
SHORTEST: dict[str, str] = {
    "init": "mine", "gateway": "-- python x.py", "import": "talk.jsonl", "fork": "abc@3", "replay": "abc",
    "compare": "abc@3 --models a,b", "show": "abc", "diff": "abc def", "export": "out.jsonl", "credit": "grpo",
    "audit cliffs": "q", "audit coverage": "d.jsonl", "audit why": "abc --does x", "audit early": "q --does x",
    "audit grade": f"q --policy {MODEL} --reference {MODEL}2", "audit diff": f"{MODEL} {MODEL}2 --on q --does x",
    "audit judge": "--judge judge.py:x", "train": "--name t", "tune": "q --name t --model m --loss sft",
    "eval": "m", "route measure": "--models a,b", "route report": "pool", "route fit": "pool -o out",
    "route add": f"r {MODEL} -o out", "route evolve": "r pool -o out", "world tools": "w",
    "world fit": "q --model m -o out", "world eval": "d --against w", "world turns": "q", "world check": "q",
    "evolve show": "d", "evolve theories": "--people wadd", "store tag": "t abc", "store merge": "o.db",
    "store redact": "abc@1", "memory list": "m", "memory show": "m i", "memory edit": "m i", "memory retire": "m i",
    "memory add": "m --kind fact --text x --by ann", "memory delete": "m i", "memory export": "m f",
    "memory import": "m kernel.c", "memory learn": f"m --reflector {MODEL}", "memory craft": f"m --codifier {MODEL}",
    "memory audit": "m", "memory embed": "m e", "memory mcp": "m", "serve": "echo",
    "draft calibrate": "m d --data world=x", "draft train": "m --data world=x", "checkout": "abc", "repairs": ".",
    "diagnose calibrate": "shop", "diagnose report": "shop --report bug.txt", "gate": "m.py --critic c --oracle o",
    "kernels tune": "dot", "kernels explain": "kernel.c",
}  # fmt: skip
"""The arguments that a verb needs; nothing where it needs none."""
WORDS: dict[str, str] = {
    "--prefix-ids": "17,4", "--say": "0=x", "--reply-json": '{"content": "x"}',
    "--also": "small=w", "--users": "1,2", "--rate": "1,2", "--betas": "0.5,0.8", "--clip": "0.3", "--lr": "0.007",
    "--fork": "abc@3", "--command": "prog", "--rollouts": "tree", "--model": MODEL, "--doses": "1,2",
    "--rule": "2/4", "--temperatures": "0.1,0.2", "--ray": "auto", "--noise": "0.4", "--people": "wadd",
    "--sandbox": "rlimits", "--position": "-1", "--sweep": "0:12=>{}", "--change": "h=0:x", "--shares": ".2,.5",
    "--theta": "3", "--finish": "submit.answer", "--ref": "small=w", "--model-options": '{"x": 1}',
}  # fmt: skip
"""Values of options whose texts have a form; the others get a word or a number that is not their default."""
FILES = "shop.jsonl prompts.txt kernel.c kernel.o kernel.cubin remarks.txt profile.csv main.c my_kernel.c"
STANDS: dict[str, str] = {
    "--dry": "a line is looked at as it will be run: what only its run would use may stand in it",
    "--max-cost": "weights in this process cost nothing, so that the bound holds",
}
"""Options beside which others, or which beside others, may do nothing, and why."""
OF_A_VERB: dict[tuple[str, str], str] = {
    ("worlds", "--store"): "snapshots of repairs lie beside it, and what kind of rows --data holds, the file says",
    ("kernels tune", "--sandbox"): "what a line with --model takes anyway may be said",
}
PART = 8  # of the pairs of a verb with many options one in so many is tried in the ordinary run
MANY, MOST = 200, 40  # pairs of a verb, and options of a verb, of which all are tried
T = TypeVar("T")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch) -> Path:
    """A folder with the files that the lines name, without a store or settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("CLEW_STORE", "CLEW_VERDICTS", "CLEW_AUTHOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".clew/trainings").mkdir(parents=True)
    for name in FILES.split():
        (tmp_path / name).touch()
    return tmp_path


def shortest(verb: str) -> list[str]:
    return [*verb.split(), *shlex.split(SHORTEST.get(verb, ""))]


def examples(verb: str) -> list[list[str]]:
    """The lines of a verb's help, as far as they are of this verb alone."""
    said = (command_of(verb.split())[0].callback.__doc__ or "").replace("\\\n", " ").splitlines()
    lines = [line.split(" #")[0].split("; clew")[0].strip() for line in said]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"clew {verb}")]


def options_beside(line: list[str], verb: str) -> list[tuple[click.Option, list[str]]]:
    """The options that a line does not say, each with words that say it."""
    params = [it for it in command_of(verb.split())[0].params if isinstance(it, click.Option)]
    return [(it, words(it)) for it in params if not {*it.opts, *it.secondary_opts} & {*line}]


def words(option: click.Option) -> list[str]:
    """An option with a value that is not its default."""
    flag = option.opts[0]
    if option.is_flag:
        return [option.secondary_opts[0] if option.default is True and option.secondary_opts else flag]
    value = WORDS.get(flag) if not isinstance(option.type, click.Choice) else None
    value = value if value is not None else str(other_value(option))
    if option.nargs == 2:
        return [flag, "x7", "x8"]
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def other_value(option: click.Option) -> object:
    kind, usual = option.type, option.default if isinstance(option.default, int | float) else None
    if isinstance(kind, click.Choice):
        return next(one for one in kind.choices if one != option.default)
    if isinstance(kind, click.Path):
        return "kernel.c" if kind.file_okay else ".clew"
    if "integer" in kind.name:
        least = getattr(kind, "least", getattr(kind, "min", None)) or 1
        return int((usual or least) + 1)
    if isinstance(kind, common.Amount):
        low, high = kind.least, min(kind.most, kind.least + 1)
        return low + (high - low) * (0.5 if usual != (low + high) / 2 else 0.25)
    return 0.25 if kind.name == "float" else '{"x": 1}' if option.default == "{}" else "x7"


def said(line: list[str], *more: list[str]) -> list[str]:
    """A line with more options, before the words of a program."""
    at = line.index("--") if "--" in line else len(line)
    return [*line[:at], *itertools.chain(*more), *line[at:]]


def stands(*flags: str) -> bool:
    return any(flag in STANDS for flag in flags)


def dropped_alone(verb: str) -> Iterator[str]:
    for line in (shortest(verb), *examples(verb)):
        plain = outcome(line)
        assert not plain.refused, f"{line}: {plain.refused}"
        found = options_beside(line, verb)
        if len(found) > MOST and line != shortest(verb):
            found = part(found, line)
        for option, given in found:
            named = (verb, option.opts[0]) in OF_A_VERB
            if outcome(said(line, given)) == plain and not named and not stands(option.opts[0], *line):
                yield f"{' '.join(line)}: {given}"


def part(things: list[T], line: list[str]) -> list[T]:
    """A part of them, always the same; with CLEW_ALL_PAIRS=1 all of them."""
    if os.environ.get("CLEW_ALL_PAIRS"):
        return things
    return [it for i, it in enumerate(things) if hashlib.sha1(f"{line} {i}".encode()).digest()[0] % PART == 0]


def pairs(verb: str) -> Iterator[tuple[str, str]]:
    """Each pair of options that is tried: "refused", "used", or which is dropped beside which."""
    line = shortest(verb)
    found = options_beside(line, verb)
    alone = {option.name: outcome(said(line, given)) for option, given in found}
    both = list(itertools.combinations(found, 2))
    if len(both) > MANY:
        both = part(both, line)
    for (one, given), (other, more) in both:
        done = outcome(said(line, given, more))
        lost = [
            f"{verb}: {dropped.opts[0]} beside {beside.opts[0]}"
            for beside, dropped in ((one, other), (other, one))
            if not done.refused
            and done == alone[beside.name]
            and not stands(one.opts[0], other.opts[0], *line)
            and (verb, dropped.opts[0]) not in OF_A_VERB
        ]
        yield ("refused" if done.refused else "dropped" if lost else "used", "; ".join(lost))


@pytest.mark.whole
@pytest.mark.parametrize("verb", every_verb())
def test_no_option_is_dropped_alone(verb):
    assert list(dropped_alone(verb)) == []


@pytest.mark.whole
@pytest.mark.parametrize("verb", every_verb())
def test_no_option_is_dropped_beside_another(verb, capsys):
    found = list(pairs(verb))
    counts = Counter(what for what, _ in found)
    with capsys.disabled():
        if os.environ.get("CLEW_ALL_PAIRS"):
            print(f"\n{verb}: {len(found)} pairs, {counts['refused']} refused, {counts['dropped']} dropped", end="")
    assert [told for what, told in found if what == "dropped"] == []


def test_each_verb_has_a_line_that_is_accepted():
    assert {*SHORTEST} <= {*every_verb()}
    assert [verb for verb in every_verb() if outcome(shortest(verb)).refused] == []


# ---- the reader finds what is dropped --------------------------------------------------------------------------------


def ask(model: str, **how: object) -> object:
    """What a planted verb does, outside of what is read."""
    return (model, how)


@click.command()
@click.argument("runs", nargs=-1)
@click.option("--model")
@click.option("--summariser")
@click.option("--share", default=0.5)
@click.option("--seed", default=0)
@click.option("--noted", default="")
@click.option("--mode", default="a")
@click.option("--late", default=1)
@click.option("--inner", default=1)
def planted(runs: tuple[str, ...], model: str | None, **options: object) -> None:
    """A verb that drops options as `clew audit decay` did."""
    common.say(f"{options['noted']} is only told")
    tried = options["seed"]
    if model is not None:
        print(ask(model, seed=tried))
        return
    if runs:
        _compact(runs, options["share"])
        return
    if options["mode"] == "b" and options["share"] == 2.0:
        raise BadInput("refused", remedy="")
    print(ask("oracle", each=lambda text: ask(text, **common.pick(options, "inner"))))
    print(ask("later", late=options["late"]) if options["summariser"] is None else ask(str(options["summariser"])))


def _compact(runs: tuple[str, ...], share: object) -> None:
    if len(runs) > 1:
        raise BadInput(f"{share} of several", remedy="")
    print(ask("compact", runs=runs, share=share))


PLANTED = [
    ("--model m", "--summariser s", True),
    ("--model m", "--seed 3", False),
    ("--model m", "--share 0.7", True),
    ("r", "--summariser s", True),
    ("r", "--share 0.7", False),
    ("r", "--seed 3", True),
    ("", "--noted x", True),
    ("", "--mode b", True),
    ("", "--seed 3", True),
    ("", "--late 2", False),
    ("--summariser s", "--late 2", True),
    ("", "--inner 2", False),
    ("", "--summariser s", False),
]


@pytest.mark.parametrize(("line", "more", "dropped"), PLANTED)
def test_the_reader_finds_what_is_dropped_and_only_that(line, more, dropped):
    plain, given = (read(planted, shlex.split(text)) for text in (line, f"{line} {more}"))
    assert not given.refused
    assert (plain == given) is dropped


def test_what_is_refused_for_certain_is_seen_as_refused():
    assert read(planted, ["a", "b"]).refused
    assert read(planted, ["--mode", "b", "--share", "2.0"]).refused


# ---- the refusals ----------------------------------------------------------------------------------------------------

REFUSED = [
    ("tour --list --quick", "--quick does nothing with --list"),
    ("run --held-out 0.2", "--held-out does nothing without --data"),
    ("run --task a --tasks 3", "--tasks does nothing with --task"),
    ("fork abc@3 --step 2", "--step does nothing with abc@3"),
    ("show abc --files --full", "--full does nothing with --files"),
    ("import f.jsonl --host 0.0.0.0", "--host does nothing without --listen"),
    ("view other.db --store s.db", "--store does nothing with PATH"),
    ("audit cliffs q --hard", "--hard does nothing without --pairs"),
    ("audit cliffs released.jsonl --dry", "--dry does nothing with released rollouts"),
    ("audit early q --does x --rule 2/4", "--rule does nothing without --judge"),
    ("audit judge --temperature 1", "--temperature does nothing without --model"),
    ("tune q --name t --loss sft --beta 0.3", "--beta does nothing without --loss dpo or --loss cliff-dpo"),
    ("tune q --name t --loss sft --held-out 0.2", "--held-out does nothing without --data"),
    ("train --name t --muon-lr 0.1", "--muon-lr does nothing without --optimizer muon"),
    ("serve echo --lengths none", "--lengths does nothing without --draft"),
    ("serve echo --profile --port 0", "--port does nothing with --profile"),
    ("gate --from f --again", "--again does nothing without CHANGE or --run"),
    ("gateway --reply x -- python p.py", "--reply does nothing without --fork"),
    ("kernels tune dot --temperature 1", "--temperature does nothing without --model"),
    ("evolve theories --people wadd --publish", "--publish does nothing without --study"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSED)
def test_a_line_with_an_option_that_does_nothing_is_refused(line, sentence, clew, store, monkeypatch):
    monkeypatch.setenv("CLEW_STORE", str(store))
    said = clew(*shlex.split(line), code=2).output
    assert sentence in said
    assert "leave" in said.lower()


def test_an_option_that_clew_toml_gives_counts_as_said(clew, files):
    (files / "clew.toml").write_text('[tune]\ndata = "rows.jsonl"\n')
    (files / "rows.jsonl").write_text("{}\n")
    said = clew("tune", "--name", "t", "--loss", "sft", "--held-out", 0.2, code=None).output
    assert "does nothing" not in said
