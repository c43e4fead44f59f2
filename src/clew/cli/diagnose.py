"""clew diagnose: find the code that a bug report is about, for an agent that will repair it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.coding.repository.git import Git
    from clew.methods.diagnose.confidence import Calibration, Policy
    from clew.methods.diagnose.localise import Diagnosed


class Diagnoses(click.Group):
    """A group whose verb may be left out: ``clew diagnose REPO`` is ``clew diagnose report REPO``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["report", *args]
        return super().parse_args(ctx, args)


HELP = """Find the code that a bug report is about, in a git repository. Each finding has a place, the report's words
found there, what imports the file, its tests and a calibrated confidence; a model's finding has a root cause and an
idea of a fix too.

\b
clew diagnose REPO --report FILE       the same as `clew diagnose report REPO --report FILE`
clew diagnose calibrate REPO
"""
command = Diagnoses("diagnose", help=HELP, short_help="Find the code that a bug report is about.")
STORE_HELP = f"{common.STORE_HELP}  [default: beside the index]"
INDEX_HELP = "File of the index.  [default: in the user's cache folder]"
LONGEST = 1_000_000  # bytes of a report
AGENT_HELP = "Who will repair: decides which findings are shown whole. FILE: JSONL of past outcomes."
repo_options = common.options(
    click.argument("repo", type=click.Path(path_type=Path)),
    option("--index", type=click.Path(path_type=Path), help=INDEX_HELP),
)


@command.command("report", short_help="Diagnose a bug report; the default verb.")
@repo_options
@option("--report", metavar="FILE", help="File of the bug report; - reads standard input.")
@option("-n", "--n", "n", default=3, type=click.IntRange(1, 50), help="Most findings.")
@option("--commit", default="", help="Snapshot to search.  [default: the working tree]")
@option(
    "--format",
    "form",
    choices="text json markdown",
    default="text",
    not_with="--json",
    help="markdown fits an agent's prompt; json is --json.",
)
@option("--agent", default="weak", metavar="weak|strong|FILE", help=AGENT_HELP)
@option("--model", help="Let this model search, instead of a ranking without a model; see `clew models`.")
@option("--turns", default=20, type=click.IntRange(2), only_with="--model", help="most replies.")
@option("--mcp", is_flag=True, help="Instead, serve the tools by MCP on the standard streams.")
@run_options.models_of(only_with="--model")
@common.json_option
@option("--store", "store_path", envvar="CLEW_STORE", default="", help=STORE_HELP)
def report(repo: Path, form: str, as_json: bool, store_path: str, **options: Any) -> None:
    """Find the code that a bug report is about.

    Stack traces of Python, JavaScript, Go, Rust and Java in the report are read. Nothing in the repository is changed
    or run. The index keeps what was read, so that later only changed files are read. The diagnosis is a run in a store:
    `clew show`, `clew replay` and `clew fork` work on it with the --store that is printed.

    \b
    clew diagnose . --report bug.txt
    gh issue view 7 | clew diagnose . --report - --format markdown --agent strong
    clew diagnose . --report bug.txt --model http://localhost:8000/v1#qwen3
    clew diagnose . --mcp
    """
    from clew.methods.diagnose.repository_world import Diagnosis

    if options["mcp"]:
        common.refuse_others("--mcp", ("index", "commit", "mcp"), only=True)
    text = "" if options["mcp"] else read_report(options["report"])
    git, index = opened(repo, options["index"])
    taskset = Diagnosis(str(git.folder), options["commit"], str(index))
    gc.disable()  # a large repository is a million objects; the collector would walk them again and again
    try:
        with reading() as progress:
            tools = taskset.tools(progress=progress)
        gc.freeze()
    finally:
        gc.enable()
    if tools.view.index.note:
        common.say(f"note: {tools.view.index.note}")
    calibration = known(index)
    if options["mcp"]:
        from clew.harness.tool_server import serve
        from clew.methods.diagnose.mcp import Present, server

        asyncio.run(serve(server(Present(tools, calibration))))
        return
    from clew.methods.diagnose.confidence import policy
    from clew.methods.diagnose.localise import localise

    chosen = policy(options["agent"], calibration)
    model = run_options.load_model(options["model"], options) if options["model"] else None
    store_path = store_path or str(index.with_suffix(".runs.db"))
    store = common.open_store(store_path, create=True)
    config = {"turns": options["turns"]} if options["model"] else {}
    done = localise(taskset, text, model, store=store, calibration=calibration, n=options["n"], **config)
    show(done, chosen, "json" if as_json else form, calibration, store_path)


@command.command("calibrate", short_help="Calibrate the confidence on past fixes of the repository.")
@repo_options
@option("-n", "--n", "n", default=100, type=click.IntRange(20), help="Number of past fixes to read.")
@option("--before", default="HEAD", help="Newest commit to use.")
@common.json_option
def calibrate(repo: Path, index: Path | None, n: int, before: str, as_json: bool) -> None:
    """Calibrate the confidence on past fixes: commits whose message names a fix, or that add a news fragment of a bug.

    Snapshots are read from the history; nothing is checked out. The calibration is kept beside the index and used from
    then on. After an interrupt, the same line continues with what has been read.

    \b
    clew diagnose calibrate . -n 200
    """
    from dataclasses import asdict

    from clew.coding.repository.repository import Index
    from clew.methods.diagnose.calibrate import calibrate as fit

    git, place = opened(repo, index)
    if not as_json:
        common.say(f"up to {n} past fixes, about {0.3 * n:.0f} s the first time")
    with reading("fixes") as progress, run_options.interruptible("the same line"):
        found = fit(git, Index(place), n, before, progress)
    found.calibration.save(beside(place))
    if as_json:
        common.end_with_json(asdict(found))
    common.echo(
        f"{found.n} past fixes; held out, the newer {found.held}: the right file came first in {found.accuracy:.0%}, "
        f"in {found.surest:.0%} of the surest 40 %\n"
        f"Brier score {found.brier:.3f}, of a constant {found.constant:.3f}"
        f"\nkept in {beside(place)}"
    )


def read_report(name: str | None) -> str:
    """The report's text.

    Raises:
        BadInput: none is named, it is empty, too long or not text.
    """
    if name is None:
        raise BadInput("there is no bug report", remedy="Give --report FILE, or --report - and pipe it in.")
    with ExitStack() as held:
        data = (sys.stdin.buffer if name == "-" else held.enter_context(Path(name).open("rb"))).read(LONGEST + 1)
    if len(data) > LONGEST:
        remedy = "Give what the reporter wrote, and of a log the part with the error."
        raise BadInput(f"--report {name} has over {LONGEST} bytes", remedy=remedy)
    text = data.decode("utf-8", "replace").strip()
    if b"\0" in data or 10 * text.count("\ufffd") > len(text):
        raise BadInput(f"--report {name} is not text", remedy="Give the report as plain text or Markdown.")
    if not text:
        raise BadInput(f"--report {name} is empty", remedy="Describe what happens and what should happen instead.")
    return text


def opened(repo: Path, index: Path | None) -> tuple[Git, Path]:
    """The repository, and the file of its index: as given, or in the user's cache folder, named by the repository."""
    from clew.coding.repository.git import Git

    git = Git(repo)
    if index is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        name = hashlib.blake2b(os.fsencode(git.home), digest_size=8).hexdigest()
        index = cache / "clew" / "diagnose" / f"{git.folder.name}-{name}.db"
    return git, index


def beside(index: Path) -> Path:
    """The file of the calibration that belongs to an index."""
    return index.with_suffix(".calibration.json")


def known(index: Path) -> Calibration:
    """The repository's calibration, or the bundled one of other projects."""
    from clew.methods.diagnose.confidence import Calibration
    from clew.methods.diagnose.known import ELSEWHERE

    return Calibration.load(beside(index)) if beside(index).exists() else ELSEWHERE


@contextmanager
def reading(title: str = "files to read") -> Iterator[Callable[[int, int], None]]:
    """A progress bar that appears with the first step."""
    with ExitStack() as held:
        made: list[Callable[..., None]] = []

        def step(done: int, total: int) -> None:
            if not made:
                made.append(held.enter_context(common.bar(title, total)))
            made[0](completed=done)

        yield step


def show(done: Diagnosed, policy: Policy, form: str, calibration: Calibration, store_path: str) -> None:
    """Print a diagnosis."""
    from clew.methods.diagnose.finding import markdown

    full = policy.full([f.confidence for f in done.findings])
    if form == "markdown":
        common.echo(markdown(done.findings, full))
        return
    if form == "json":
        told: dict[str, Any] = {"policy": {"threshold": policy.threshold, "why": policy.why}}
        told["calibration"] = {"source": calibration.source, "n": calibration.n}
        told |= {
            "run": done.run.id,
            "store": store_path,
            "recoveries": list(done.recoveries),
            "fallback": done.fallback,
        }
        findings = [{**f.json(), "inject": whole} for f, whole in zip(done.findings, full, strict=True)]
        common.end_with_json({"findings": findings, **told})
    if done.fallback:
        common.say("note: the model gave no usable finding; these come from the ranking")
    for k, (f, whole) in enumerate(zip(done.findings, full, strict=True), 1):
        hint = "" if whole else "  (hint only)"
        common.echo(f"{k}. {f.file}:{f.start}-{f.end}  {f.sureness}{hint}")
        near = f"{len(f.dependencies)} files: {', '.join(f.dependencies[:4])}" if f.dependencies else "none"
        lines = {"place": f.location_explanation, "matched": ", ".join(f.matched), "cause": f.root_cause}
        lines |= {"idea": f.solution_idea, "imported by": near, "tests": f.testing_impact}
        for name, said in lines.items() if whole else ():
            if said:
                common.echo(f"   {name:<12}{said}")
    show_it = command_line("show", done.run.id, store_path=store_path)
    common.say(f"{policy.why}; confidence from {calibration.source}; {show_it}")
