"""Published coding agents through the gateway: recorded, checked out at each step, forked, replayed without upstream.

    python benchmarks/coding_agents.py FOLDER [--only mini-swe-agent ...] [--keep FOLDER] [--json FILE]

FOLDER holds the agents as their registries give them, nothing of them is changed (CLEW_AGENTS names it too):

    python -m venv FOLDER/mini && FOLDER/mini/bin/pip install mini-swe-agent mcp
    npm install --prefix FOLDER/claude @anthropic-ai/claude-code
    npm install --prefix FOLDER/codex @openai/codex

Each works in a small repository, for a model that is scripted: list the files, read one, edit it, run a command that
fails, commit, say that it is done. All runs where there is no network but the loopback, in an empty environment, with a
home of its own and keys that are none. What is told of each agent, from what the command line prints and leaves:

recorded: ``clew store verify`` finds no fault. checked out: at each request, ``clew checkout`` gives a folder whose
digest is the recorded one and that holds what the script had done by then. forked: at the reply that runs the failing
command, given another command, in fresh files and a fresh home; the files at each recorded request equal those
recorded, the model is asked for what came later alone, the conversation goes on without a drift, the run notes what was
masked, and the first folder stays as it was. replayed: after the upstream has ended, in fresh files and a fresh home,
in a time zone in which it is another day; all requests are answered, the files equal at each, and the commit is the
same. stopped: replayed to the letter, without masks, each agent makes a request that the record does not have; it ends
by itself, without asking again. Then what was masked, and what else the command line named as different.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.records import Request
from clew.core.values import Message
from clew.models.fakes import Scripted, tool_call

HERE = Path(__file__).resolve().parent.parent
COMMIT = "git add -A && git -c user.name=a -c user.email=a@b.c commit -qm change && git log -1"
MARKS = ("recorded", "checked out", "forked", "replayed", "stopped")
STEPS = ("list", "read", "edit", "fail", "commit")
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
}


class Agent(NamedTuple):
    """A published agent. program: where it lies. words: its command line, with {base} for the address of the gateway.
    tool: the one that runs commands, its argument's name. quiet: variables that keep it from asking elsewhere."""

    name: str
    program: str
    words: tuple[str, ...]
    tool: str
    argument: str
    quiet: Mapping[str, str]


AGENTS = (
    Agent(
        "mini-swe-agent",
        "mini/bin/mini",
        ("-m", "openai/scripted", "-t", "change one to two", "-y", "--exit-immediately", "-l", "0"),
        "bash",
        "command",
        {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    Agent(
        "Claude Code",
        "claude/node_modules/.bin/claude",
        ("-p", "change one to two", "--allowedTools", "Bash", "Edit", "Read", "--model", "claude-sonnet-4-5"),
        "Bash",
        "command",
        QUIET,
    ),
    Agent(
        "Codex",
        "codex/node_modules/.bin/codex",
        (
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "scripted"),
            *("-c", 'model_provider="clew"', "-c"),
            'model_providers.clew={name="clew",base_url="{base}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}',
            *("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false", "change one to two"),
        ),
        "exec_command",
        "cmd",
        {},
    ),
)


def agent(name: str) -> Agent:
    return next(one for one in AGENTS if one.name == name)


def found(folder: Path | None) -> list[Agent]:
    """The agents that are installed in a folder."""
    return [one for one in AGENTS if folder is not None and (folder / one.program).exists()]


# ---- the model that is scripted --------------------------------------------------------------------------------------


def call(of: Agent, step: str, number: int) -> Message:
    """What the model says at a step: a call of the agent's own tools."""
    if of.name == "Claude Code" and step in ("read", "edit"):
        given = {"file_path": "a.txt"} | ({"old_string": "one", "new_string": "two"} if step == "edit" else {})
        return tool_call(step.capitalize(), id=f"call_{number}", text=f"I {step}.", **given)
    command = {"list": "ls -la", "read": "cat a.txt", "edit": "sed -i s/one/two/ a.txt", "fail": "false"}
    more = {"description": step} if of.name == "Claude Code" else {}
    given = {of.argument: command.get(step, COMMIT), **more}
    said = tool_call(of.tool, id=f"call_{number}", text=f"I {step}.", **given)
    return said._replace(text="", reasoning=f"I {step}.") if of.name == "Codex" else said


def says(of: Agent) -> Callable[[Request], Message]:
    def answer(request: Request) -> Message:
        if of.tool not in {tool.name for tool in request.tools}:
            return Message("assistant", "A change of one word")  # a title, which no tool is offered for
        done = sum(node.message.role == "tool" for node in request.path)
        if done < len(STEPS):
            return call(of, STEPS[done], done)
        if of.name == "mini-swe-agent":
            return tool_call(of.tool, id="end", text="Done.", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
        return Message("assistant", "Done.")

    return answer


@contextmanager
def upstream(of: Agent) -> Iterator[tuple[str, Scripted]]:
    """An endpoint in this process that speaks all dialects, and the model behind it, which counts its calls."""
    import uvicorn

    from clew.core.net import listen
    from clew.serve.gateway.proxy import Gateway
    from clew.store import open_store

    model, listener = Scripted({"": says(of)}), listen("127.0.0.1", 0)
    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: model)
    server = uvicorn.Server(uvicorn.Config(it.application(), lifespan="on", log_level="error"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", model
    finally:
        server.should_exit = True
        thread.join()


# ---- one agent -------------------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """What a line printed, and the exit code."""

    code: int
    text: str


class Drive:
    """One agent, driven in a folder of its own.

    Args:
        of: the agent. folder: where it is installed. place: a fresh folder.
    """

    def __init__(self, of: Agent, folder: Path, place: Path) -> None:
        self.of, self.folder, self.place = of, folder, place
        self.work, self.store = place / "work", place / "runs.db"
        self.run = ""
        self.told: dict[str, Any] = {"agent": of.name}
        place.mkdir(parents=True, exist_ok=True)
        self.work.mkdir()
        (self.work / "a.txt").write_text("one\n")
        (self.work / ".gitignore").write_text("cache/\n")
        (self.work / "cache").mkdir()
        (self.work / "cache" / "kept.bin").write_bytes(bytes(range(256)))
        start = ("init -q -b main .", "add -A", "-c user.name=a -c user.email=a@b.c commit -qm first")
        for words in start:
            subprocess.run(["git", *words.split()], cwd=self.work, check=True, env={"PATH": os.environ["PATH"]})

    def clew(self, *words: object, base: str = "", **more: str) -> Ran:
        """One command line of Clew, in an empty environment."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.place / "nobody"), "TERM": "dumb", "LANG": "C.UTF-8"}
        env |= {"CLEW_API_KEY": "no-key-at-all", "PYTHONPATH": str(HERE / "src"), **self.of.quiet, **more}
        line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *map(str, words)]
        done = subprocess.run(
            line, cwd=self.work, env=env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        with (self.place / "lines.txt").open("a") as log:
            log.write(f"$ clew {' '.join(map(str, words))}\n{done.stdout}{done.stderr}\n")
        return Ran(done.returncode, done.stdout + done.stderr)

    def program(self) -> list[str]:
        """The agent's command line; a shell puts in the gateway's address where it is an option."""
        words = [str(self.folder / self.of.program), *self.of.words]
        if not any("{base}" in word for word in words):
            return ["--", *words]
        quoted = " ".join(map(shlex.quote, words)).replace("{base}/v1", "'$OPENAI_BASE_URL'")
        return ["--", "sh", "-c", f"exec {quoted}"]

    # recorded

    def record(self) -> None:
        with upstream(self.of) as (address, model):
            words = ("gateway", "--workspace", ".", "--home", "fresh", "--upstream", address, "--name", "first")
            done = self.clew(*words, "--store", self.store, *self.program())
            assert done.code == 0, done.text
            self.told["requests"] = model.calls
        view = self._view("first")
        self.run = view.id
        faults = self.clew("store", "verify", "--store", self.store)
        self.told["recorded"] = faults.code == 0
        kept = json.loads(self.clew("checkout", self.run, "--json", "--store", self.store).text)
        self.states = [(row["call"], row["state"]) for row in kept]
        self.state = self._state(self.work)
        self.head = self._git(self.work, "rev-parse", "HEAD")

    # checked out

    def checkout(self) -> None:
        from clew.store import open_store

        store = open_store(self.store)
        at, good = 0, 0
        for at, (seq, state) in enumerate(self.states):
            into = self.place / f"at-{seq}"
            name = self.run if seq == "end" else f"{self.run}@{seq}"
            done = self.clew("checkout", name, into, "--store", self.store)
            equal = done.code == 0 and self._state(into).startswith(state)
            says = (into / "a.txt").read_text() if (into / "a.txt").is_file() else ""
            had = sum(node.message.role == "tool" for node in self._asked(store, at)) if seq != "end" else len(STEPS)
            edited = had > STEPS.index("edit")
            committed = self._git(into, "log", "--format=%s").split() == (["change", "first"] if had > 4 else ["first"])
            kept = (into / "cache" / "kept.bin").read_bytes() == bytes(range(256))
            good += equal and says == ("two\n" if edited else "one\n") and committed and kept
        self.told["checked out"] = f"{good} of {at + 1}" if good == at + 1 else False
        store.close()

    def _asked(self, store: Any, number: int) -> list[Any]:
        """The messages of a recorded request."""
        from clew.store import Run

        asks = [c for c in Run(store, self.run).calls if c.kind == "ask"]
        return list(store.thread(asks[number].node_in))

    # forked

    def fork(self) -> None:
        view = self._view(self.run)
        asks = [c.seq for c in view.calls if c.kind == "ask"]
        at = next(n for n, seq in enumerate(asks) if f"call_{STEPS.index('fail')}" in str(self._reply(seq)))
        other = call(self.of, "fail", STEPS.index("fail"))
        arguments = json.loads(other.calls[0].arguments) | {self.of.argument: "echo other > other.txt"}
        given = {"function": {"name": other.calls[0].name, "arguments": json.dumps(arguments)}, "id": "call_other"}
        reply = json.dumps({"content": "Another way.", "tool_calls": [given]})
        into = self.place / "branch"
        with upstream(self.of) as (address, model):
            words = ("gateway", "--fork", f"{self.run}@{asks[at]}", "--reply-json", reply, "--upstream", address)
            done = self.clew(*words, "--into", into, "--store", self.store, *self.program())
            later = model.calls
        told = self._compared(done.text)
        self.told["masked"] = masked = _masked(done.text)
        forks = [name for name in self._names() if name != self.run]
        notes = [json.loads(c.text) for c in self._view(forks[0]).calls if c.kind == "note" and c.action == "masked"]
        noted = {name for note in notes for name in note["masks"]}
        drifts = [c for c in self._view(forks[0]).calls if c.kind == "note" and c.action == "drift"]
        self.told["forked"] = (
            done.code == 0
            and (into / "other.txt").read_text() == "other\n"
            and (into / "a.txt").read_text() == "two\n"
            and not (self.work / "other.txt").exists()
            and self._state(self.work) == self.state
            and told == [f"request {n}" for n in range(at + 1)]
            and later == len(asks) - at - 1
            and noted >= set(masked)
            and not drifts
        )
        self.told["fork"] = f"@{asks[at]}: {len(told)} trees equal, {later} requests upstream"

    def _reply(self, seq: int) -> Message:
        from clew.store import Run, open_store

        store = open_store(self.store)
        view = Run(store, self.run)
        return next(store.node(c.node_out).message for c in view.calls if c.seq == seq)

    # replayed

    def replay(self) -> None:
        into = self.place / "again"
        words = ("gateway", "--replay", self.run, "--into", into, "--store", self.store)
        done = self.clew(*words, *self.program(), TZ=tomorrow())
        told = self._compared(done.text)
        self.told["replayed"] = (
            done.code == 0
            and not (self.place / "nobody").exists()
            and told == [*(f"request {n}" for n in range(len(self.states) - 1)), "the end"]
            and self._git(into, "rev-parse", "HEAD") == self.head
            and self._state(self.work) == self.state
        )
        masked = _masked(done.text)
        self.told["masked"] = {**self.told.get("masked", {}), **masked}
        self.told["named"] = re.findall(r"^note: .*|^.*differs? from the recorded files$", done.text, re.MULTILINE)

    # stopped

    def stop(self) -> None:
        words = (
            "gateway",
            "--replay",
            self.run,
            "--match",
            "exact",
            "--into",
            self.place / "off",
            "--store",
            self.store,
        )
        began = time.monotonic()
        done = self.clew(*words, *self.program(), TZ=tomorrow())
        refused = re.findall(r"^run \w+: the program's request is not among .*", done.text, re.MULTILINE)
        self.told["stopped"] = done.code != 0 and len(refused) == 1 and "asks on" not in done.text
        self.told["stop"] = {"seconds": round(time.monotonic() - began, 1), "why": refused}

    def _compared(self, text: str) -> list[str]:
        """The places at which the files were said to be equal."""
        return re.findall(r"^(request \d+|the end): equal files$", text, re.MULTILINE)

    def _state(self, folder: Path) -> str:
        from clew.worlds.workspace import Scan, TreeShelf

        with tempfile.TemporaryDirectory(dir=self.place) as shelf:
            return Scan(folder, TreeShelf(Path(shelf))).snapshot().state

    def _git(self, folder: Path, *words: str) -> str:
        line = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def _names(self) -> list[str]:
        from clew.store import open_store

        store = open_store(self.store)
        try:
            return store.run_ids()
        finally:
            store.close()

    def _view(self, name: str) -> Any:
        from clew.store import Run, open_store

        store = open_store(self.store)
        tagged = store.find(f"tag:{name}")
        return Run(store, tagged[0] if tagged else name)


def _masked(text: str) -> dict[str, int]:
    """What a fork or a replay said that it left out of the comparison."""
    line = re.search(r"left out of the comparison: (.*)", text)
    return {name: int(count) for name, count in re.findall(r"([^,(]+?) \((\d+)\)(?:, |$)", line[1])} if line else {}


def tomorrow() -> str:
    """A time zone in which it is another day."""
    return "Pacific/Kiritimati" if time.gmtime().tm_hour >= 10 else "Pacific/Niue"


def driven(of: Agent, folder: Path, place: Path) -> dict[str, Any]:
    one = Drive(of, folder, place)
    for step in (one.record, one.checkout, one.fork, one.replay, one.stop):
        print(f"{of.name}: {step.__name__}", file=sys.stderr, flush=True)
        step()
    return one.told


def isolated(argv: Sequence[str]) -> None:
    """Go on as a process that has no network but the loopback."""
    inner = [sys.executable, *argv, "--inside"]
    up = 'ip link set lo up && exec "$@"'
    line = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", up, "sh", *inner]
    os.execvpe(line[0], line, {**os.environ, "PYTHONPATH": str(HERE)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("CLEW_AGENTS"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    agents = [
        one for one in found(given.folder and Path(given.folder).resolve()) if not given.only or one.name in given.only
    ]
    if not agents:
        parser.error("name the folder in which agents are installed; the beginning of this file says how")
    if not given.inside:
        isolated([*sys.argv])
    kept = given.keep or Path(tempfile.mkdtemp())
    home = Path(given.folder).resolve()
    rows = [driven(one, home, kept.resolve() / one.name.split()[0].lower()) for one in agents]
    for row in rows:
        print(f"{row['agent']}: {row['requests']} requests")
        print("    " + ", ".join(f"{mark} {_said(row[mark])}" for mark in MARKS))
        print(f"    fork {row['fork']}; stopped after {row['stop']['seconds']} s")
        print(f"    masked: {', '.join(row['masked']) or 'nothing'}")
        print("".join(f"    named: {line}\n" for line in row["named"]), end="")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    if not given.keep:
        shutil.rmtree(kept)
    sys.exit(0 if all(row[mark] for row in rows for mark in MARKS) else 1)


def _said(value: object) -> str:
    return {True: "yes", False: "NO"}.get(value, str(value)) if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
