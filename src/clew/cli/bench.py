"""clew bench: load-test a server, and draw per-user speed against total throughput."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from clew.cli.shared import common, option, run_options
from clew.core.errors import BadInput, ModelError, Unreachable

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.serve.load.clients import Demand, Seen

Line = dict[str, Any]
FRONTIER = ("none", "fixed(k=1)", "fixed(k=3)", "fixed", "threshold(least=0.7)", "scheduler")
STARTS = 300  # seconds a server may take to load its weights
FIELDS = ("throughput", "speed", "first", "between")  # results of a measurement, lists of numbers
ADDRESS = re.compile(r" at (http://\S+)")
PROMPTS = (
    "Say what a queue is, in two sentences.",
    "Write a function that returns the n-th Fibonacci number, and explain each line of it.",
    "What is 17 * 24? Show every step.",
    "List ten facts about the sea.",
    "Write a letter to a friend who moved to another town. Tell what changed since then, whom you met, what you read.",
    "Make a table of the planets: name, diameter, moons, length of a year.",
    "Summarise the story of Theseus and the maze.",
    "Why is the sky blue?",
)


SECONDS_HELP = "Seconds of each measurement; the first fifth does not count."
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(exists=True, dir_okay=False)
POSITIVE = click.IntRange(1)


@click.command(short_help="Load-test a server: per-user speed against total throughput.")
@click.argument("target", metavar="URL|MODEL")
@option("--users", default="", help="Closed loop: numbers of users at once, as in 1,8,32.  [default: 1,4,16]")
@option("--rate", "rates", default="", help="Open loop: random arrivals per second, as in 0.5,2.")
@option("--seconds", type=common.Amount(float, 0.1), default=20.0, help=SECONDS_HELP)
@option("--repeats", type=POSITIVE, default=1, help="Rounds; each measures every load once.")
@option("--prompts", type=FILE, metavar="FILE", help="File of prompts, one per line.  [default: eight bundled ones]")
@option("--max-tokens", type=click.IntRange(2), default=128, help="Most tokens in one reply.")
@option("--temperature", default=1.0, help="Sampling temperature.")
@option("--name", help="The model's name at the endpoint.  [default: the first that the endpoint lists]")
@option("--draft", metavar="DRAFTER", help="For a MODEL: serve it with this drafter.")
@option("--lengths", multiple=True, help="With --draft: how much of each draft is verified; may be repeated.")
@option("--frontier", is_flag=True, help=f"With --draft: all of {', '.join(FRONTIER)}.")
@option("--serve", "extra", default="", help="For a MODEL: more options of `clew serve`, as in '--threads 1'.")
@option("--seed", default=0, help="Seed of arrivals and sampling.")
@option("--out", default=".clew/bench", type=FOLDER, help="Folder of results, table and figure.")
@common.json_option
def command(target: str, as_json: bool, **options: Any) -> None:
    """Load-test a server: per-user speed against total throughput, with waiting times and errors.

    A URL is measured as it is; the credential comes from CLEW_API_KEY or OPENAI_API_KEY. For a MODEL, a server is
    started and ended here, one for each of --lengths. Replies are streamed. Measurements are kept: the same line
    continues where it stopped, also with more --users or --repeats.

    \b
    clew bench http://localhost:8422/v1 --users 1,8,32
    clew bench http://localhost:8000/v1 --rate 0.5,2,8 --prompts prompts.txt
    clew bench ./weights --draft ./drafter --frontier --users 1,2,4,8,16,32
    """
    cells = list(plan(target, options))
    folder: Path = options["out"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "serve.jsonl"
    have = {key(line): line for line in read(path)}
    todo = [cell for cell in cells if key(cell) not in have]
    if not as_json:
        seconds = len(todo) * options["seconds"]
        told = f"{len(cells)} measurements, {len(todo)} to do, about {seconds / 60:.1f} minutes"
        common.say(f"{told} -> {path}")
    with run_options.interruptible("the same line again"), common.bar("measurements", max(len(todo), 1)) as move:
        move(completed=int(not todo))

        def done(cell: Line, found: Line) -> None:
            have[key(cell)] = cell | found
            with path.open("a") as file:
                file.write(json.dumps(cell | found) + "\n")
            mean = sum(found["throughput"]) / len(found["throughput"])
            move(advance=1, note=f"{at(cell)}: {mean:.0f} tok/s")

        measure(target, todo, options, done)
    _report([have[key(cell)] for cell in cells], folder, as_json)


def plan(target: str, options: Mapping[str, Any]) -> Iterator[Line]:
    """The measurements, ordered by server, so that each server is started once.

    Raises:
        BadInput: a load is no number, or a drafter's options are given where no model is served here.
    """
    url = "://" in target
    lengths = [*(FRONTIER if options["frontier"] else ()), *options["lengths"]]
    if url and (options["draft"] or lengths or options["extra"]):
        remedy = "Name a model instead of the URL, or leave them out."
        raise BadInput("--draft, --lengths, --frontier and --serve are for a server started here", remedy=remedy)
    if lengths and not options["draft"]:
        raise BadInput("--lengths and --frontier set how much of a draft is verified", remedy="Name a --draft.")
    asked = options["users"] or ("" if options["rates"] else "1,4,16")
    users = common.number_list(asked, "--users", int, above=0)
    rates = common.number_list(options["rates"], "--rate", float, above=0)
    kept = ("draft", "extra", "seconds", "max_tokens", "temperature", "prompts", "name")
    shared = {"target": target} | {k: "" if options[k] is None else options[k] for k in kept}
    for name in dict.fromkeys(lengths or [""]):
        for repeat in range(options["repeats"]):
            for many in users:
                yield shared | {"lengths": name, "users": many, "rate": 0.0, "seed": options["seed"] + repeat}
            for rate in rates:
                yield shared | {"lengths": name, "users": 0, "rate": rate, "seed": options["seed"] + repeat}


def key(cell: Line) -> str:
    return json.dumps({k: v for k, v in cell.items() if k not in (*FIELDS, "errors")}, sort_keys=True)


def read(path: Path) -> list[Line]:
    """Lines of the results; a last line that was cut short by a kill is removed from the file."""
    if not path.exists():
        return []
    whole, _, torn = path.read_text(encoding="utf-8").rpartition("\n")
    if torn:
        path.write_text(whole + "\n" if whole else "", encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def at(cell: Line) -> str:
    return f"{cell['users']} users" if cell["users"] else f"{cell['rate']:g}/s"


def measure(target: str, todo: Sequence[Line], options: Mapping[str, Any], done: Callable[[Line, Line], None]) -> None:
    """Measure every missing cell, one server at a time."""
    prompts: tuple[str, ...] = PROMPTS
    if options["prompts"]:
        from clew.exchange.files import text_lines

        prompts = tuple(line for _, line in text_lines(Path(options["prompts"])))
        if not prompts:
            raise BadInput(f"{options['prompts']} holds no prompt", remedy="Put one on each line.")
    secret = (common.api_key() or "") if "://" in target else ""
    for lengths in dict.fromkeys(cell["lengths"] for cell in todo):
        with endpoint(target, options, lengths) as base:
            name = options["name"] or listed(base, secret)
            for cell in todo:
                if cell["lengths"] == lengths:
                    asked = {k: cell[k] for k in ("users", "rate", "seconds", "max_tokens", "temperature", "seed")}
                    done(cell, outcome(base, name, prompts, asked, secret))


def outcome(base: str, name: str, prompts: tuple[str, ...], asked: Line, secret: str) -> Line:
    """What the clients measured, as numbers to keep.

    Raises:
        ModelError: no request was answered.
    """
    import numpy as np

    from clew.serve.load.clients import Demand, drive

    demand: Demand = Demand(name, prompts, **asked)
    seen: Seen = asyncio.run(drive(base, demand, secret))
    if not seen.ended:
        why = ", ".join(f"{n} x {kind}" for kind, n in seen.errors.items()) or "no reply ended in time"
        remedy = "Mend what the errors name, or give more --seconds."
        raise ModelError(f"no request to {base} was answered: {why}", remedy=remedy)
    found = (seen.throughput(), seen.speeds(), seen.first(), seen.between())
    kept = {field: np.round(values, 6).tolist() for field, values in zip(FIELDS, found, strict=True)}
    return kept | {"errors": seen.errors}


def listed(base: str, secret: str) -> str:
    """The first model an endpoint lists.

    Raises:
        Unreachable: it does not answer.
    """
    import httpx

    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    try:
        return str(httpx.get(f"{base}/models", headers=headers, timeout=10).raise_for_status().json()["data"][0]["id"])
    except (httpx.HTTPError, KeyError, IndexError, ValueError, TypeError) as error:
        remedy = "Check the URL, as in http://host/v1, or give --name."
        raise Unreachable(f"{base}/models: {error}", remedy=remedy) from error


@contextmanager
def endpoint(target: str, options: Mapping[str, Any], lengths: str) -> Iterator[str]:
    """The base URL of the target; a model is served in a process of its own meanwhile.

    Raises:
        ModelError: the server ends, or does not begin in time.
    """
    if "://" in target:
        yield target.rstrip("/")
        return
    line = [sys.executable, "-m", "clew.cli", "serve", target, "--port", "0", *options["extra"].split()]
    if options["draft"]:
        line += ["--draft", options["draft"], "--lengths", lengths or "auto"]
    with tempfile.TemporaryFile("w+") as said:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        server = subprocess.Popen(line, stdout=said, stderr=subprocess.STDOUT, env=environment)
        try:
            yield _address(server, said)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _address(server: subprocess.Popen[bytes], said: TextIO) -> str:
    """Where a server that was started listens, from what it says."""
    late = time.monotonic() + STARTS
    while True:
        ended = server.poll() is not None or time.monotonic() > late
        said.seek(0)
        text = said.read()
        if found := ADDRESS.search(text):
            return found[1]
        if ended:
            told = " ".join(text.split())[-500:]
            raise ModelError(f"the server did not begin: {told}", remedy="Start the server by hand with `clew serve`.")
        time.sleep(0.1)


def _interval(values: Sequence[float], unit: str) -> Report:
    from clew.audit.design import student
    from clew.core.records import Report

    if len(values) > 1:
        return student("", values, unit=unit)
    return Report(claim="", estimate=values[0], low=values[0], high=values[0], n=1, design="one, no interval")


def summary(lines: Sequence[Line]) -> list[Line]:
    """One line for each server and load: reports over all repeats, and errors by kind."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault((line["lengths"], line["users"], line["rate"]), []).append(line)
    out = []
    for (lengths, users, rate), group in found.items():
        row: Line = {"lengths": lengths, "users": users, "rate": rate}
        for field in FIELDS:
            values = [x for line in group for x in line[field]]
            unit = "tenths of the time" if field == "throughput" else "requests"
            row[field] = _interval(values, unit) if values else None
        kinds = sorted({kind for line in group for kind in line["errors"]})
        row["errors"] = {kind: sum(line["errors"].get(kind, 0) for line in group) for kind in kinds}
        out.append(row)
    return out


def _report(lines: Sequence[Line], folder: Path, as_json: bool) -> None:
    rows = summary(lines)
    picture = figure(rows, folder / "serve.svg")
    if as_json:
        common.end_with_json([{**r, **{k: run_options.numbers(r[k]) for k in FIELDS if r[k]}} for r in rows])

    def cell(report: Report | None, scale: float = 1.0) -> str:
        if report is None:
            return ""
        low, middle, high = (f"{scale * x:.3g}" for x in (report.low, report.estimate, report.high))
        return f"{middle} [{low}, {high}]"

    units = ("total tok/s", "tok/s per user", "first token, s", "between tokens, ms")
    table = []
    for r in rows:
        shown = [cell(r[field], 1e3 if field == "between" else 1.0) for field in FIELDS]
        errors = ", ".join(f"{n} {kind}" for kind, n in r["errors"].items())
        table.append((r["lengths"] or "as served", at(r), *shown, r["speed"].n, errors))
    common.print_table(("lengths", "load", *units, "requests", "errors"), table)
    common.echo(f"\nmeans with 95 % intervals; figure {picture or 'not drawn: pip install clew[plot]'}")


def figure(rows: Sequence[Line], path: Path) -> Path | None:
    """Draw per-user speed against total throughput, a line for each server; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    lines: dict[str, list[Line]] = {}
    for row in rows:
        name = (row["lengths"] or "as served") + ("" if row["users"] else ", random arrivals")
        lines.setdefault(name, []).append(row)
    for name, points in lines.items():
        x, y = ([p[field] for p in points] for field in ("throughput", "speed"))
        wide, high = ([[r.estimate - r.low for r in z], [r.high - r.estimate for r in z]] for z in (x, y))
        at_x, at_y = ([r.estimate for r in z] for z in (x, y))
        axis.errorbar(at_x, at_y, high, wide, fmt="o-", label=name, capsize=2, linewidth=1, markersize=4)
        for p, place in zip(points, zip(at_x, at_y, strict=True), strict=True):
            text = f"{p['users'] or p['rate']:g}"
            axis.annotate(text, place, fontsize=7, xytext=(3, 3), textcoords="offset points")
    axis.set(xlabel="total tokens per second", ylabel="tokens per second per user")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)
    return path
