"""clew doctor: what is installed, what is missing, how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common, option, project

VERSIONS = "weight versions of tokens"
EXTRAS = {
    "local": (("torch", "transformers", "tokenizers", "safetensors", "peft"), "local weights, training, quickstart"),
    "view": (("starlette", "uvicorn", "mpld3"), "the viewer, `clew view`"),
    "serve": (("starlette", "uvicorn", "prometheus_client"), "serving models, and the gateway"),
    "stats": (("scipy", "statsmodels"), "ratios with intervals, and dose curves of `clew audit why`"),
    "memory": (("bm25s",), "recalling from a memory"),
    "frames": (("pandas", "pyarrow"), "data frames, Parquet"),
    "plot": (("matplotlib",), "figures of experiments"),
    "textworld": (("textworld",), "TextWorld games; needs a C compiler to install"),
    "gymnasium": (("gymnasium",), "Gymnasium environments"),
    "inspect": (("inspect_ai",), "Inspect .eval logs"),
    "mcp": (("mcp",), "tools of MCP servers, and a store that agents can ask: `clew store mcp`"),
    "otel": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "OpenTelemetry spans to an endpoint"),
    "coding": (("tree_sitter", "mcp"), "diagnosis of other languages than Python, its tools by MCP"),
    "postgres": (("psycopg",), "a store in a PostgreSQL server"),
    "trackers": (("tensorboard", "trackio", "wandb"), "metrics elsewhere"),
    "trl": (("trl", "datasets"), "Clew's worlds and estimators in TRL's trainer"),
    "ray": (("ray",), "workers on many machines, `--ray`"),
}


@click.command(short_help="Check this machine, or inference servers.")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@option("--trust", is_flag=True, help="Allow what clew.toml asks for, until it changes; print it.")
@common.json_option
@common.store_of(not_with="URLS")
def command(urls: tuple[str, ...], trust: bool, as_json: bool, store_path: str) -> None:
    """Check this machine: packages, threads, accelerator, store. Exit code 1 if the store cannot be used.

    With the URLs of inference servers, check instead what each has that a training needs (docs/fleet.md): token ids,
    logprobs, masks, versions of the weights, and the routes that replace them or load adapters. Exit code 1 if one
    does not answer.

    \b
    clew doctor
    clew doctor --trust
    clew doctor http://localhost:8000 http://localhost:8001
    """
    if trust:
        _allow(as_json)
    rows = servers(urls) if urls else [*packages(), machine(), *project_row(), *store_row(store_path)]
    if as_json:
        common.print_json(rows)
    else:
        marks = {True: "ok", False: "MISSING", None: "-"}
        table = [(marks[r["ok"]], r["what"], r["found"], r["remedy"]) for r in rows]
        common.print_table(("", "what", "found", "remedy"), table)
    if any(row["what"].rpartition(" ")[2] in ("store", "server") and row["ok"] is False for row in rows):
        raise SystemExit(1)


def _allow(as_json: bool) -> None:
    """Remember that the user allows what the clew.toml in force asks for.

    Raises:
        BadInput: there is no clew.toml, or it cannot be read.
    """
    from clew.core.errors import BadInput

    if (path := project.find()) is None:
        raise BadInput("there is no clew.toml here or above", remedy="Go to the folder of the project.")
    asked = project.Project(path).trust(_group())
    if asked.asked and not as_json:
        common.echo(f"{asked.question()}\nAllowed until one of them changes.\n")
    asked.give()


def _group() -> click.Group:
    group = click.get_current_context().find_root().command
    assert isinstance(group, click.Group)
    return group


def servers(urls: Sequence[str]) -> list[dict[str, Any]]:
    """What each server can do for a training, and whether they serve the same weights."""
    from clew.core.aio import run_sync
    from clew.models.fleet.probe import probe

    rows, states = list[dict[str, Any]](), set[str]()
    for url in urls:
        for one in run_sync(probe(url, common.api_key())):
            where = f"{url.rpartition('@')[2]} " if len(urls) > 1 else ""
            rows.append({"what": where + one.what, "ok": one.ok, "found": one.found, "remedy": one.remedy})
            states |= {one.found} if one.what == VERSIONS else set()
    if len(states) > 1:
        told = "the servers tell different versions of their weights"
        rows.append({"what": "versions", "ok": None, "found": told, "remedy": "the first push makes them equal"})
    return rows


def packages() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"what": "clew", "ok": True, "found": importlib.metadata.version("clew"), "remedy": ""},
        {"what": "python", "ok": True, "found": platform.python_version(), "remedy": ""},
    ]
    for extra, (names, purpose) in EXTRAS.items():
        missing = [name for name in names if not _there(name)]
        found = " ".join(_version(name) for name in names if name not in missing)
        remedy = f"pip install 'clew[{extra}]'   for {purpose}; missing: {', '.join(missing)}" if missing else ""
        rows.append({"what": f"extra {extra}", "ok": not missing, "found": found, "remedy": remedy})
    return rows


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that it lies in
        return False


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(re.sub('[_.]', '-', name))}"
    except importlib.metadata.PackageNotFoundError:
        return name


def machine() -> dict[str, Any]:
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerator = "nvidia-smi" if shutil.which("nvidia-smi") else "no GPU"
    threads = os.environ.get("OMP_NUM_THREADS", "")
    remedy = "" if threads == "1" else "set OMP_NUM_THREADS=1 for small models: more threads collapse on shared cores"
    found = f"{cores} cores, {accelerator}, OMP_NUM_THREADS={threads or 'unset'}"
    return {"what": "machine", "ok": None if remedy else True, "found": found, "remedy": remedy}


def project_row() -> list[dict[str, Any]]:
    """Which clew.toml is in force, what it says, and what is wrong with it."""
    from clew.core.errors import ClewError

    if (path := project.find()) is None:
        return [{"what": project.NAME, "ok": None, "found": "none", "remedy": "clew init writes a project"}]
    try:
        found = project.Project(path)
        found.check_moved()
        found.check(_group())
        trust = found.trust(_group())
    except ClewError as error:
        return [{"what": project.NAME, "ok": False, "found": error.message, "remedy": error.remedy}]
    keys = [*found.top, *(f"[{name}]" for name in found.tables)]
    told, remedy = f"{path}: {' '.join(keys)}", ""
    if not trust.given:
        told += f"; not allowed yet: {'; '.join(map(str, trust.asked))}"
        remedy = "read these, then clew doctor --trust"
    return [{"what": project.NAME, "ok": None if remedy else True, "found": told, "remedy": remedy}]


def store_row(path: str) -> list[dict[str, Any]]:
    from clew.core.errors import ClewError, UnknownName
    from clew.store.address import is_address

    try:
        store = common.open_store(path)
        runs = len(store.run_ids())
        store.close()
    except UnknownName:
        return [{"what": "store", "ok": None, "found": f"none at {path}", "remedy": "clew quickstart makes one"}]
    except ClewError as error:
        return [{"what": "store", "ok": False, "found": f"{path}: {error.message}", "remedy": error.remedy}]
    size = "" if is_address(path) else f", {Path(path).stat().st_size / 1e6:.1f} MB"
    return [{"what": "store", "ok": True, "found": f"{path}: {runs} runs{size}", "remedy": ""}]
