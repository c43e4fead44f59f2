"""clew evolve agents: an agent's prompt or policy and the judge of its work improve together."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, data_options, option, run_options
from clew.cli.shared.held_out import compared
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.protocols import Model
    from clew.core.values import Task
    from clew.methods.coevolve import Proposer
    from clew.methods.coevolve.agents import Labelled, RecordedRuns
    from clew.methods.coevolve.agents.search_end import SearchEnd
    from clew.methods.coevolve.archive import Archive

FOLDER = Path(".clew/evolve")
CLERK = "clew.evolve.agents.policy_clerk:policy_clerk"
LINES, REWARD = "lines", "reward"
SHOWN_TASKS = 8  # of the split train, which a proposer is shown and nothing is measured at
AGENT_HELP = """Agent, as `clew run` takes it.  [default: policy_clerk, which needs no model, for the desk without
--model; chatter with --data; else tool_user]"""
ARGUMENT_HELP = "Argument of the agent that evolves.  [default: policy of policy_clerk, else system]"
MODEL_HELP = "Model of the agent: a name, folder or URL; see `clew models`."
JUDGE_HELP = """Who judges the work: a model, lines (of the desk, no model), or reward: the world's verdict or --reward
decides, and no judge evolves.  [default: --model, else lines]"""
PROPOSER_HELP = """Who writes new texts: a model, or lines, which changes them line by line.  [default: --model, else
lines]"""
ANCHOR_HELP = """Labelled work, a JSON object a line: {"task": "...", "work": "...", "accept": true}. It stays private.
[default: made on --labelled tasks of the split eval, labelled by the world's verdict or --reward]"""


JUDGE_START_HELP = "File with the judge's first text."
OUTCOMES_HELP = """Budget: runs of agents and verdicts on labelled work, together.  [default: 1024, or 8192 where no
model is asked]"""


@click.command("agents", short_help="Improve an agent's prompt and the judge of its work together.")
@option("--world", default="desk", help="World to act in: a name of `clew worlds`, or file.py:Class.")
@data_options.data_options
@option("--agent", default="", help=AGENT_HELP)
@option("--argument", default="", help=ARGUMENT_HELP)
@option("--model", default="", help=MODEL_HELP)
@option("--judge", default="", help=JUDGE_HELP)
@option("--proposer", default="", help=PROPOSER_HELP)
@option("--style", default="plain", choices="plain gepa", help="In whose words a model is asked for a new text.")
@option("--anchor", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE", help=ANCHOR_HELP)
@option("--start", default="", metavar="FILE", help="File with the agent's first text.")
@option("--judge-start", default="", metavar="FILE", not_with="--judge reward", help=JUDGE_START_HELP)
@option(
    "--lines", "bank", default="", metavar="FILE", help="Lines that the proposer lines may add to the agent's text."
)
@option("--judge-lines", "judge_bank", default="", metavar="FILE", help="The same for the judge's text.")
@option("--outcomes", type=int, default=None, help=OUTCOMES_HELP)
@option("--tokens", default=0, help="Budget: tokens of all models together; 0 for no cap.")
@option("--tasks", default=64, help="Tasks of the split train.")
@option("--test", default=100, help="Held-out tasks at which the first and the best agent are compared.")
@option("--labelled", default=150, not_with="--anchor", help="Tasks on which labelled work is made.")
@option(
    "--repeats", default=1, help="How often one agent performs a task; above 1 where it does not do the same again."
)
@option(
    "--gate", default="bb", choices="bb paired confirm none never", help="When a judge is replaced; never: it stays."
)
@option("--batch", default=8, help="Outcomes that are had at once.")
@option("--seed", default=0, help="Seed of tasks, search and sampling.")
@option("--folder", default="", help="Folder of the search.  [default: one of .clew/evolve for each line]")
@option("-o", "--out", default="", metavar="FILE", help="File for the best text, beside best.txt in the folder.")
@option("--config", default="{}", help="Further arguments of the agent, as JSON.")
@option("--dry", is_flag=True, help="Print what would be performed, and perform nothing.")
@run_options.tools_option
@run_options.model_options
@run_options.sampling_options
@run_options.limit_options
@common.output_options
def command(as_json: bool, store_path: str, **options: Any) -> None:
    """Improve the system prompt or policy of an agent under a judge that improves too (arXiv 2606.26294).

    The agent performs tasks; a judge says which work is accepted, and that alone guides the search. At checkpoints a
    better judge may take over, by private labelled work (the anchor) which no proposer sees. At the end the first and
    the best agent are compared by the world's own reward at held-out tasks. Every run and verdict is in the store; the
    same line continues where it stopped.

    \b
    clew evolve agents --world desk
    clew evolve agents --world desk --model http://localhost:8000/v1#qwen3 --tokens 2000000
    clew evolve agents --data tasks.jsonl --reward check.py:right --anchor labelled.jsonl --model openai:gpt-5-mini
    clew evolve agents --data tasks.jsonl --reward exact --judge reward --model openai:gpt-5-mini
    """
    line = _Line(options, store_path)
    (common.say if as_json else common.echo)(line.plan)
    if options["dry"]:
        if as_json:
            common.end_with_json({"folder": str(line.folder), "budget": line.budget, "plan": line.plan})
        return
    with run_options.interruptible("the same line again"):
        _end(line, *asyncio.run(line.search()), as_json)


class _Line:
    """A line of the verb, settled: who acts, judges and proposes, at which tasks, from which texts."""

    def __init__(self, options: dict[str, Any], store_path: str) -> None:
        from clew.core.keys import value_digest
        from clew.methods.coevolve import Rules

        self.options, self.seed = options, options["seed"]
        model = options["model"]
        self.judge = options["judge"] or model or LINES
        self.proposes = options["proposer"] or model or LINES
        named = options["agent"] or ("" if model or options["data"] else "policy_clerk")
        agent = named or ("chatter" if options["data"] and not options["tools"] else "tool_user")
        clerk = agent == "policy_clerk"
        options["agent"] = CLERK if clerk else agent
        self.taskset = run_options.world_of(options, "tool_user" if clerk else agent, judged=True)
        self.asks = bool(model) or self.judge not in (LINES, REWARD) or self.proposes != LINES
        options["outcomes"] = options["outcomes"] or (1024 if self.asks else 8192)
        self.desk = self.taskset.ref.partition("(")[0] == "desk"
        self.argument = options["argument"] or ("policy" if clerk else "system")
        self._refuse(clerk)
        self.bank, self.judge_bank = self._banks(clerk)
        self.start = self._start(clerk)
        self.purse = run_options.purse(options)
        self.models: dict[str, Model] = {}
        self.store = common.open_store(":memory:" if options["dry"] else store_path, create=True)
        make = run_options.runner_maker(options, self.taskset, resolve_model=self._model)
        self.runner = make(self._model(model) if model else None, self.store)
        self._takes_argument()
        self.training, self.tasks, self.test = self._drawn()
        self.rules = Rules(gate=options["gate"], batch=options["batch"], seed=self.seed)
        self.budget = {"outcomes": options["outcomes"]}
        self.budget |= {"tokens": options["tokens"]} if options["tokens"] else {}
        self.budget |= {"dollars": options["max_cost"]} if options["max_cost"] else {}
        told = [self.about, self.start, self.budget, str(self.rules), str(options["anchor"] or options["labelled"])]
        name = Path(options["data"]).stem if options["data"] else self.taskset.ref.partition("(")[0]
        self.name = f"{name.rpartition(':')[2] or name}-{value_digest(told).hex()[:8]}"
        self.pace = 0.0  # seconds an outcome, of those that this call had
        self.folder = Path(options["folder"]) if options["folder"] else FOLDER / self.name

    @property
    def judged(self) -> bool:
        """Whether a judge decides, and not the reward itself."""
        return self.judge != REWARD

    @property
    def about(self) -> dict[str, Any]:
        """What names the search beside its settings (JSON)."""
        row = self.runner.row(self.tasks[0])
        played = [row.agent, row.agent_digest, row.config, row.taskset, row.settings, row.model, self.argument]
        return {
            "played": played,
            "judge": self.judge,
            "proposer": [self.proposes, self.options["style"]],
            "repeats": self.options["repeats"],
            "tasks": [task.id for task in self.tasks],
            "lines": [self.bank, self.judge_bank],
        }

    @property
    def plan(self) -> str:
        """What will be performed, in a sentence or two."""
        o = self.options
        checkpoints = self.rules.checkpoints(o["outcomes"])
        parts = [f"{o['outcomes']:,} outcomes at {len(self.tasks)} tasks, {checkpoints} checkpoints"]
        if self.judged:
            parts.append("a run of the agent and a verdict for each, or a verdict on labelled work")
            if o["anchor"] is None:
                parts.append(f"{o['labelled']} runs before, for labelled work")
        held_out = f"2 x {len(self.test) * o['repeats']} runs at held-out tasks at the end"
        parts.append(held_out + (", and the last judge's verdict on each" if self.judged else ""))
        caps = [f"at most {o['tokens']:,} tokens"] if o["tokens"] else []
        caps += [f"at most ${o['max_cost']:g}"] if o["max_cost"] else []
        bound = (
            f"The search spends {' and '.join(caps)}." if caps else "Nothing caps tokens: add --tokens or --max-cost."
        )
        return "; ".join(parts) + "." + (f" {bound}" if self.asks else " No model is asked.")

    # ---- settling --------------------------------------------------------------------------------------------------

    def _refuse(self, clerk: bool) -> None:
        o = self.options
        if not o["model"] and not clerk:
            remedy = "Add --model, or evolve the agent policy_clerk of the desk, which needs none."
            raise BadInput(f"the agent {o['agent']} needs a model, and the line names none", remedy=remedy)
        if (clerk or self.judge == LINES) and not self.desk:
            what = "the agent policy_clerk" if clerk else "the judge lines"
            raise BadInput(f"{what} knows the desk alone", remedy="Add --model (and --judge), or take --world desk.")
        if not self.judged and o["anchor"]:
            remedy = "Leave --anchor out, or name a judge."
            raise BadInput("an anchor is for judges, and the reward itself decides", remedy=remedy)
        if self.proposes == LINES and not clerk and not o["bank"]:
            remedy = "Name a file of lines with --lines, or a model with --proposer."
            raise BadInput("the proposer lines has no lines to write", remedy=remedy)

    def _banks(self, clerk: bool) -> tuple[list[str], list[str]]:
        from clew.methods.coevolve.agents.line_judge import judge_lines
        from clew.methods.coevolve.agents.policy_clerk import policy_lines

        rules = getattr(self.taskset, "rules", ())
        own = _lines_of(self.options["bank"]) if self.options["bank"] else policy_lines(rules) if clerk else []
        if self.options["judge_bank"]:
            return own, _lines_of(self.options["judge_bank"])
        return own, judge_lines(rules) if self.judge == LINES else []

    def _start(self, clerk: bool) -> dict[str, object]:
        from clew.methods.coevolve.agents import line_judge, policy_clerk, prompted_judge

        given = self.options["start"], self.options["judge_start"]
        agent = _text_of(given[0]) if given[0] else policy_clerk.FIRST if clerk else "You are a careful agent."
        if not self.judged:
            return {"agent": agent}
        first = line_judge.FIRST if self.judge == LINES else prompted_judge.FIRST
        return {"agent": agent, "judge": _text_of(given[1]) if given[1] else first}

    def _model(self, ref: str) -> Model:
        if ref not in self.models:
            own = ref == self.options["model"]
            load = (
                (lambda r: run_options.load_model(r, self.options, self.purse))
                if own
                else (run_options.named_models(self.options, self.purse))
            )
            self.models[ref] = load(ref)
        return self.models[ref]

    def _takes_argument(self) -> None:
        known = inspect.signature(self.runner.agent).parameters
        if self.argument not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            remedy = f"Name one with --argument; it takes {', '.join(list(known)[1:]) or 'none'}."
            raise BadInput(f"the agent {self.options['agent']} takes no argument {self.argument!r}", remedy=remedy)

    def _drawn(self) -> tuple[list[Task], list[Task], list[Task]]:
        o, more = self.options, SHOWN_TASKS if self.proposes != LINES else 0
        drawn = self.taskset.sample(o["tasks"] + more, self.seed, "train")
        shown = min(more, len(drawn) // 5)
        tasks, test = drawn[shown:], self.taskset.sample(o["test"], self.seed, "test")
        if len(tasks) < 2 or len(test) < 2:
            remedy = "Give more rows, or hold out another share (--held-out)."
            raise BadInput(f"{len(tasks)} tasks to train at and {len(test)} to compare at are too few", remedy=remedy)
        return drawn[:shown], tasks, test

    # ---- searching -------------------------------------------------------------------------------------------------

    async def search(self) -> tuple[SearchEnd, dict[str, float], str]:
        """Make or read labelled work, search, compare; what the search came to, what it spent, what ended it."""
        from clew.methods.coevolve import evolve
        from clew.methods.coevolve.agents import AgentsWork, Counted, RecordedRuns
        from clew.methods.coevolve.agents.agents_work import SLOT
        from clew.methods.coevolve.agents.search_end import search_end
        from clew.methods.coevolve.archive import Archive

        runs = RecordedRuns(self.runner, self.argument, self.name)
        labelled = await self._labelled(runs) if self.judged else None
        judging = self._judging() if self.judged else None
        work = AgentsWork(runs, self.tasks, self.training, labelled, judging, self.options["repeats"])
        anchors = {SLOT: labelled.anchor} if labelled is not None else {}
        archive = Archive(self.folder)
        begun, had = time.perf_counter(), archive.outcomes
        try:
            with common.bar("outcomes", self.options["outcomes"]) as move:

                def watch(seen: Archive, event: str) -> None:
                    epochs = "".join(f", epoch {judges.epoch}" for judges in seen.judges.values())
                    move(completed=seen.outcomes, note=f"{len(seen.lineage.parents)} nodes{epochs}")

                end = await evolve(
                    archive,
                    work,
                    self.start,
                    Counted(self._proposer(), work),
                    anchors,
                    self.rules,
                    self.budget,
                    about=self.about,
                    watch=watch,
                )
            self.pace = (time.perf_counter() - begun) / max(1, archive.outcomes - had)
            with common.bar("held-out runs", 2 * len(self.test) * self.options["repeats"]) as move:
                runs.on_run = lambda run: move(advance=1)
                found = await search_end(archive, work, self.start, self.test, self.options["repeats"], self.seed)
            return found, dict(archive.budget.spent), str(end["budget"])
        finally:
            archive.close()

    def _judging(self) -> Any:
        from clew.harness import Runner
        from clew.methods.coevolve.agents import PromptedJudge, RecordedRuns
        from clew.methods.coevolve.agents.agents_work import by_lines
        from clew.methods.coevolve.agents.line_judge import accepts_by
        from clew.methods.coevolve.agents.prompted_judge import AGENT

        if self.judge == LINES:
            return by_lines(accepts_by)
        sampling = {"temperature": 0.0, "max_tokens": 1024}
        runner = Runner(AGENT, None, self._model(self.judge), self.store, sampling=sampling)
        return PromptedJudge(RecordedRuns(runner, "prompt", self.name))

    def _proposer(self) -> Proposer:
        from clew.methods.coevolve import PromptRewriter, SymbolicChanges, lines_from

        if self.proposes != LINES:
            return PromptRewriter(self._model(self.proposes), list(self.start), style=self.options["style"])
        banks = {"agent": self.bank, "judge": self.judge_bank}
        return SymbolicChanges(
            {role: [lines_from(bank)] for role, bank in banks.items() if bank and role in self.start}
        )

    async def _labelled(self, runs: RecordedRuns) -> Labelled:
        """The user's labelled work, or what is made once and kept in the folder."""
        from clew.methods.coevolve.agents import labelled_from, refuse_overlap
        from clew.methods.coevolve.agents.labelled_work import written
        from clew.methods.coevolve.agents.made_labels import made_labels

        given: Path | None = self.options["anchor"]
        path = given or self.folder / "anchor.jsonl"
        if given is None and not path.exists():
            tasks = self.taskset.sample(self.options["labelled"], self.seed, "eval")
            with common.bar("labelled work", len(tasks)) as move:
                runs.on_run = lambda run: move(advance=1)
                bank = self.bank if self.options["agent"] == CLERK else []
                made = await made_labels(runs, tasks, str(self.start["agent"]), bank, self.seed)
                runs.on_run = lambda run: None
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(written(made), encoding="utf-8")
            os.replace(part, path)
        labelled = labelled_from(path)
        refuse_overlap(labelled, {t.id: t.prompt for t in (*self.training, *self.tasks, *self.test)}, path.name)
        return labelled


def _text_of(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as text", remedy="Name a text file.") from error
    if not text:
        raise BadInput(f"{path} is empty", remedy="Write the first text into it.")
    return text


def _lines_of(path: str) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in _text_of(path).splitlines() if line.strip()))


def _fresh(found: SearchEnd) -> dict[str, Any]:
    """What held-out work says of the last judge, and how often the anchor was asked (JSON)."""
    seen = found.held_out
    told: dict[str, Any] = {"comparisons": {"gain": found.gain.json()}}
    if seen is not None:
        told["comparisons"]["judge"] = seen.comparisons.json()
        tested = seen.comparisons.tested
        told["judge_held_out"] = seen._asdict() | {"right": seen.right if tested else None, "comparisons": None}
        del told["judge_held_out"]["comparisons"]
    return told | ({"anchor_use": found.use._asdict()} if found.use is not None else {})


def _tell_judges(found: SearchEnd) -> None:
    """The last judge on held-out work first: the anchor chose it, and flatters it."""
    if (seen := found.held_out) is not None:
        right = seen.comparisons.verdict(f"right on {seen.right:.0%} of {seen.comparisons.made}")
        best = f"of the best agent's {seen.pieces} it accepts {seen.accepted}, and {seen.good} earn a reward above 0.5"
        common.echo(f"last judge on held-out work: {right}; {best}")
    for name, judge in zip(("first", "last"), found.judges, strict=False):
        chosen = ""
        if name == "last" and found.use is not None and found.use.comparisons:
            among = found.use.comparisons + 1
            chosen = f"; chosen by this anchor among {among}, so up to {found.use.bound:.0%} too high"
        common.echo(f"{name} judge on the anchor: right on {judge.right:.0%}, accepts {judge.accepted:.0%}{chosen}")


def _end(line: _Line, found: SearchEnd, spent: dict[str, float], ended_by: str, as_json: bool) -> None:
    """Write the best text, and tell what the search came to."""
    claims = ("mean reward of the first agent", "mean reward of the best agent", "best less first")
    told = compared(*found.rewards, claims)._asdict()
    best = found.texts["agent"][1]
    path = line.folder / "best.txt"
    for place in (path, *([Path(line.options["out"])] if line.options["out"] else [])):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(best + "\n", encoding="utf-8")
    judges = dict(zip(("first", "last"), found.judges, strict=False))
    if as_json:
        reports = {name: run_options.numbers(one) for name, one in told.items()}
        texts = {role: pair[1] for role, pair in found.texts.items()}
        common.end_with_json(
            {
                "folder": str(line.folder),
                "best": texts,
                **reports,
                **found.facts,
                "spent": spent,
                "ended_by": ended_by,
                "judges": {name: judge._asdict() for name, judge in judges.items()},
                **_fresh(found),
                "notes": found.notes,
            }
        )
    good, bad = found.seen
    common.echo(", ".join(f"{value:,} {name}" for name, value in found.facts.items()) + f"; ended by {ended_by}")
    each = f"{spent.get('tokens', 0) / max(1, spent.get('outcomes', 0)):,.0f} tokens and {line.pace:.3f} s an outcome"
    common.echo("spent: " + ", ".join(f"{value:,.6g} {name}" for name, value in spent.items()) + f"; {each}")
    who = "accepted by the judge that guided it" if judges else "with a reward above 0.5"
    common.echo(f"the best agent's work in the search: {good} of {good + bad} {who}")
    _tell_judges(found)
    for name, report in told.items():
        shown = f"{report.estimate:.3f} [{report.low:.3f}, {report.high:.3f}]"
        common.echo(f"held-out {name:<7}{shown}  {report.n} tasks")
    if told["gain"].low <= 0:
        common.echo(found.gain.verdict("no gain is shown at held-out tasks"))
    for note in found.notes:
        common.say(f"note: {note}")
    common.echo(f"\n{best}\n\nwrote {path}")
    common.echo(f"Next: {command_line('evolve show', line.folder)}")
