"""Every verb is run once in a prepared folder, and each line that it prints for going on is run as it is printed.

The verbs are those that the command line lists. One that has no lines here fails, unless ``LEFT_OUT`` says why it has
none. Lines run in a real shell, each as a process of its own; what serves is stopped once it says where. CLEW_STORE
names the store, as for people who keep one; lines that name it by --store are followed in test_next_lines.py.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from clew.cli import verbs
from clew.store import open_store
from tests.cli.shell import Shell, printed

pytest.importorskip("transformers", reason="did not run: transformers is not installed")

STORE = "runs/my store.db"
WORLD = "household(goals=('open',), rooms=2, steps=4)"
HOW = f'--world "{WORLD}" --model "tiny one"'
AGENT = """
async def agent(run, luck=0.5):
    chat = run.chat(max_tokens=4)
    while not run.done:
        reply, goal = await chat.ask(run.view), run.view.text.split(" ; ")[0]
        await run.act(goal if await run.draw("luck") < luck else reply)
"""
PROGRAM = """
import json, os, urllib.request
body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "go"}], "max_tokens": 5}).encode()
key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, key)).read()
"""
KERNEL = "void scale(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }\n"
JUDGE = "async def short(task, run, world):\n    return {'short': 1 / len(run.steps)}\n"

LINES: dict[str, list[str]] = {
    "init": ["clew init mine"],
    "tour": ["clew tour --quick --only theory --folder walked"],
    "doctor": ["clew doctor"],
    "worlds": ["clew worlds", f'clew worlds "{WORLD}" -n 1'],
    "models": ["clew models"],
    "run": [f'clew run "my agent.py:agent" {HOW} --tasks 6 -n 4 {{store}}'],
    "gateway": [f"clew gateway {{store}} --model 'markov(tokens=True)' -- {sys.executable} program.py"],
    "import": ["clew import talk.jsonl {store}"],
    "fork": ["clew fork {run}@1 -n 2 --reply go {store}"],
    "replay": ["clew replay {run} {store}"],
    "resume": ["clew resume {store}"],
    "stop": ["clew stop {store}"],
    "view": ["clew view {store} --port 0"],
    "log": ["clew log {store}", "clew log tag:nothing {store}", "clew log --zero-variance {store}"],
    "show": ["clew show {run} {store}"],
    "diff": ["clew diff {run} {other} {store}", "clew diff 'seed>=0 return>0.5' 'return<=0.5' {store}"],
    "label": ["clew label {run} --stars 4 --by ann {store}", "clew label {other} {store}"],
    "export": ["clew export out.jsonl {store}", "clew export list.csv {store}", "clew export bug.clew {run} {store}"],
    "credit": ["clew credit grpo+g2po {store}"],
    "audit cliffs": ["clew audit cliffs {run} --at steps -n 8 {store}"],
    "audit coverage": ["clew export --sft demos.jsonl 'return>0.5' {store} && clew audit coverage demos.jsonl {store}"],
    "audit grade": ['clew audit grade {run} --policy "tiny one" --reference "tiny one" {store}'],
    "audit why": ["clew audit why {opened} --does open --change 'end=0:open=>close' -n 4 --budget 40 {store}"],
    "audit decay": ["clew audit decay --stack clew-truncate {store}"],
    "audit judge": ["clew audit judge {store}", "clew audit judge --judge judge.py:short --threshold 0.3 {store}"],
    "audit methods": ["clew credit grpo+bellman {store} && clew audit methods {store}"],
    "train": [
        f'clew train --name t {HOW} --agent "my agent.py:agent" --iterations 1 --tasks 2 -n 4 {{store}}',
        f"clew train --name silent {HOW} --iterations 1 --tasks 1 -n 2 --max-tokens 1 {{store}}",
    ],
    "tune": [
        'clew tune world=household --loss sft --name s --model "tiny one" {store}',
        'clew tune --data rows.jsonl --loss sft --name d --model "tiny one" {store}',
    ],
    "eval": [f'clew eval "tiny one" --world "{WORLD}" --tasks 4 {{store}}'],
    "store tag": ["clew store tag keep {run} {store}", "clew store tag {store}"],
    "store merge": ["clew store merge other.db {store}"],
    "store verify": ["clew store verify {store}"],
    "store redact": ["clew store redact {run}@1 --yes {store}"],
    "store gc": ["clew store gc {store}"],
    "store mcp": ["clew store mcp {store} < /dev/null"],
    "memory mcp": ["clew memory mcp shop {store} < /dev/null"],
    "serve": ["clew serve echo --port 0"],
    "draft train": ['clew draft train "tiny one" --data world=household --steps 2 --batch 2 {store}'],
    "draft calibrate": [
        'clew draft train "tiny one" --data world=household --steps 2 --batch 2 --out drafter {store} && '
        'clew draft calibrate "tiny one" drafter --data world=household {store}'
    ],
    "diagnose report": ["clew diagnose report shop --report bug.txt {store}"],
    "diagnose calibrate": ["clew diagnose calibrate shop -n 20"],
    "gate": [f"clew gate m.py --critic 'grep -q def {{{{file}}}}' --oracle '{sys.executable} m.py' {{store}}"],
    "kernels tune": ["clew kernels tune dot --budget 2 {store}"],
    "kernels explain": ["clew kernels explain kernel.c"],
}
LEFT_OUT = {
    "audit diff": "it needs runs of two models and a judge of differences; test_audit_diff.py makes them",
    "audit early": "it needs runs that think and end both ways; test_audit_early.py makes them, and follows its line",
    "quickstart": "it trains for minutes, and its lines are of fork, show and eval; `make quickstart` runs it",
    **{
        f"memory {name}": "it names items, whose ids are not known before; test_memory.py follows its lines"
        for name in ("list", "show", "add", "edit", "retire", "delete", "export", "import")
    },
    "memory audit": "it needs runs that were given items; test_memory_audit.py makes them, and follows its lines",
    "memory embed": "it needs an endpoint that embeds; test_memory_embed.py has one, and follows its line",
    "memory learn": "it needs judged runs and a reflector; test_memory_learn.py makes them, and follows its lines",
    "memory craft": "it needs runs that followed a plan, and a codifier; test_memory_craft.py follows its lines",
    "checkout": "it needs a run with its files; test_checkout.py records one, and follows its line",
    "compare": "it needs models of known success; test_compare.py plants them, and follows its lines",
    "evolve agents": "test_evolve_agents.py makes a search, and follows its line",
    "evolve theories": "test_evolve_theories.py makes a search, and follows its line",
    "evolve show": "it needs a search; tests/view/test_searches.py makes one, and follows its line",
    "repairs": "it needs a repository with tests; test_repairs_cli.py makes one, and follows its line",
    "route add": "it needs a router with probe questions; test_route_backbone.py makes one",
    "route evolve": "it needs a fitted router; test_route_evolve.py makes one",
    "route fit": "it needs a measured pool; test_route.py makes one, and follows the line that led here",
    "route measure": "test_route.py measures a pool, and follows its line",
    "route report": "test_route.py follows its line",
    "world eval": "it needs a fitted model; test_world_fit.py makes one",
    "world fit": "it needs many runs of one world; test_world_fit.py follows its line",
    "world turns": "it needs runs that acted; test_world_fit.py follows its line",
    "world check": "it needs simulated runs; test_world.py makes them, and follows its line",
    "world tools": "it prints no line; test_world.py calls it",
    "reproduce": "it needs a checkout with papers, and the line that it prints runs an experiment of minutes",
}
NEEDS = {"gate": "bwrap", "kernels tune": "gcc", "kernels explain": "gcc"}
SERVES = ("clew view", "clew serve")  # they end when they are interrupted
GOING_ON = (
    "init", "tour", "run", "gateway", "import", "stop", "log", "diff", "label", "credit", "audit grade",
    "audit why", "audit judge", "audit methods", "train", "tune", "store gc", "draft train", "draft calibrate",
    "diagnose report", "kernels tune",
)  # fmt: skip
"""Verbs that print such lines here; any other that does is followed too."""


def every_verb() -> list[str]:
    """The verbs that the command line lists, those of groups by both words."""

    def walk(command: click.Command, name: str) -> list[str]:
        if not isinstance(command, click.Group):
            return [name]
        context = click.Context(command)
        inner = ((one, command.get_command(context, one)) for one in command.list_commands(context))
        return [found for one, it in inner if it and not it.hidden for found in walk(it, f"{name} {one}".strip())]

    return walk(verbs, "")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with weights, an agent, data, a repository and a store, whose names need quoting; made once."""
    from clew.models.local import small
    from clew.worlds.household import Household
    from tests.coding.shop import REPORT, make

    folder = tmp_path_factory.mktemp("prepared")
    shape = {"d": 16, "layers": 2, "heads": 2, "kv_heads": 1, "context": 256, "seed": 1}
    small(Household(rooms=2).vocabulary(), **shape).save(folder / "tiny one")
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    rows = [{"question": f"go {i}", "answer": "open"} for i in range(40)]
    shell = Shell(folder)
    shell.write(program_py=PROGRAM, kernel_c=KERNEL, judge_py=JUDGE, m_py="def one():\n    return 1\n")
    shell.write(talk_jsonl=json.dumps({"messages": said}), rows_jsonl="\n".join(map(json.dumps, rows)))
    (folder / "my agent.py").write_text(AGENT)
    (folder / "bug.txt").write_text(REPORT)
    make(folder, history=24)
    at = f"--store {shlex.quote(STORE)}"
    shell(f'clew run "my agent.py:agent" {HOW} --tasks 6 -n 4 {at}')
    shell(f"clew run {HOW} --tasks 1 -n 2 --store other.db")
    store = open_store(folder / STORE)
    for number, run in enumerate(store.runs("sort:task sort:id")):
        assert run.reward is not None
        store.label(run.id, by="ann", verdict="good" if (run.reward > 0.5) != (number % 7 == 0) else "bad")
    store.close()
    return folder


def said_by(shell: Shell, line: str, codes: tuple[int, ...] = (0,)) -> str:
    """What a line prints; one that serves is interrupted once it says where."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    where = {"cwd": shell.folder, "env": shell.environment, "start_new_session": True}
    with subprocess.Popen(line, shell=True, **pipes, **where) as process:
        assert process.stdout is not None
        if not line.startswith(SERVES):
            said = process.communicate(timeout=300)[0].decode("utf-8", "replace")
            assert process.returncode in codes, f"{line}\n{said}"
            return said
        said, until, ready = b"", time.monotonic() + 120, select.poll()
        ready.register(process.stdout, select.POLLIN)
        while b"http://" not in said and time.monotonic() < until and process.poll() is None:
            if ready.poll(1000):
                said += os.read(process.stdout.fileno(), 65_536)
        assert b"http://" in said, f"{line}\n{said.decode()}"
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        return said.decode()


def test_every_verb_has_lines_here_or_a_reason():
    listed = every_verb()
    assert len(listed) > 40
    assert sorted({*LINES, *LEFT_OUT}) == sorted(listed)
    assert not LINES.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize("verb", LINES)
def test_what_a_verb_prints_for_going_on_runs_as_printed(verb, prepared, tmp_path):
    if verb in NEEDS and shutil.which(NEEDS[verb]) is None:
        pytest.skip(f"did not run: {NEEDS[verb]} is not installed")
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder)
    shell = Shell(folder)
    shell.environment["CLEW_STORE"] = str(folder / STORE)
    with open_store(folder / STORE) as store:
        failed = store.runs("return<=0.5 sort:id")
        run, other = (one.id for one in failed[:2])
        opened = next(one.id for one in failed if any(c.kind == "act" and "open" in c.action for c in one.calls))
    lines: list[str] = []
    for line in LINES[verb]:
        whole = line.format(store="", run=run, other=other, opened=opened)
        found = said_by(shell, whole, (0, 1) if verb == "gate" else (0,))
        at = folder / "mine" if verb == "init" else folder  # it says to go there first
        lines += printed(found)
        for following in printed(found):
            shell.folder = at
            said_by(shell, following)
        shell.folder = folder
    assert lines or verb not in GOING_ON
