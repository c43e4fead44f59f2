"""Imports run downward only, heavy packages stay where tensors are, and the library keeps quiet (DESIGN.md 4)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "clew"
FLOORS = [
    {"core"},
    {"sandbox"},
    {"store", "models", "worlds"},
    {"harness", "fit"},
    {"credit", "train", "serve", "coding"},
    {"methods"},
    {"exchange", "view"},
    {"integrations"},
    {"cli"},
]
FLOOR = {layer: height for height, floor in enumerate(FLOORS) for layer in floor}
TENSORS = (
    "models/local/",
    "models/sampling.py",
    "models/engine/",
    "models/drafters/",
    "fit/",
    "train/",
    "methods/features/",
    "integrations/trl.py",
)
CORE_MAY = {"numpy"} | set(sys.stdlib_module_names)


def layer(module: str) -> str:
    """``clew.store.run`` -> ``store``; a module directly in the package -> ``""``, the facade."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR else ""


def breach(importer: str, imported: str) -> str | None:
    """Why ``importer`` may not import ``imported`` (dotted names), or None if it may."""
    if imported.split(".")[0] == "papers":
        return "nothing in clew imports papers"
    if imported.split(".")[0] != "clew":
        return None
    above, below = layer(importer), layer(imported)
    if not above:
        return None  # the facade gathers names from every layer
    if not below:
        return "a layer does not import the facade" if above != "cli" else None
    if above == below or FLOOR[below] < FLOOR[above]:
        return None
    return f"{above} is {'blind to' if FLOOR[below] == FLOOR[above] else 'below'} {below}"


def imports(tree: ast.AST, module: str) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, only for type checkers) of every import, in functions too."""
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(module.split(".")[: -node.level] + ([base] if base else []))
            if base == "clew":
                for alias in node.names:
                    yield node.lineno, f"clew.{alias.name}", id(node) in typing_only
            else:
                yield node.lineno, base, id(node) in typing_only


@pytest.fixture(scope="module")
def sources() -> list[tuple[str, str, ast.AST]]:
    """Name of each file, name of its module, and its syntax."""
    found: list[tuple[str, str, ast.AST]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        module = "clew." + name.removesuffix(".py").replace("/", ".")
        found.append((name, module, ast.parse(path.read_text())))
    return found


def test_imports_run_downward_only(sources):
    found = []
    for name, module, tree in sources:
        for line, imported, _ in imports(tree, module):
            if why := breach(module, imported):
                found.append(f"{name}:{line} {imported}: {why}")
    assert found == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("clew.harness.runner", "clew.store.run", True),
        ("clew.store.sqlite.store", "clew.harness.runner", False),
        ("clew.store.sqlite.store", "clew.models.fakes", False),
        ("clew.credit.g2po", "clew.train.rows", False),
        ("clew.cli.log", "clew.view.terminal", True),
        ("clew.view.terminal", "clew.cli.log", False),
        ("clew.train.loop", "papers.E165_g2po", False),
        ("clew.core.keys", "clew", False),
    ],
)
def test_the_rule_itself(importer, imported, allowed):
    assert (breach(importer, imported) is None) is allowed


def test_core_needs_only_numpy(sources):
    found = [
        f"{name}:{line} {imported}"
        for name, module, tree in sources
        if name.startswith("core/")
        for line, imported, _ in imports(tree, module)
        if imported.split(".")[0] not in CORE_MAY | {"clew"}
    ]
    assert found == []


def test_tensors_only_where_they_are_used(sources):
    heavy = {"torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate"}
    found = [
        f"{name}:{line} {imported}"
        for name, module, tree in sources
        if not name.startswith(TENSORS)
        for line, imported, only_types in imports(tree, module)
        if imported.split(".")[0] in heavy and not only_types
    ]
    assert found == []


def test_only_the_command_line_prints_and_reads_the_environment(sources):
    found = []
    for name, _, tree in sources:
        apart = ("integrations/pytest_plugin.py", "coding/repairs/pytest_inside.py")  # programs of their own
        if name.startswith("cli/") or name in apart:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                found.append(f"{name}:{node.lineno} print")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv", "sys.argv"):
                found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    assert found == []


PROBE = """
import json, sys
opened = []
def hook(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        opened.append(str(args[0]))
    if event.startswith("socket.") or event in ("subprocess.Popen", "os.system", "sqlite3.connect"):
        opened.append(event)
sys.dont_write_bytecode = True
before = set(sys.modules)
sys.addaudithook(hook)
import clew
names = sorted({m.split(".")[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))
sys.stdout.write(json.dumps({"modules": names, "opened": opened}))
"""


def test_import_clew_is_quiet_and_light():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True)
    seen = json.loads(done.stdout)
    assert done.stderr == ""
    assert seen["opened"] == []
    assert set(seen["modules"]) <= {"clew", "numpy"} | {m for m in seen["modules"] if m.startswith("__editable__")}


SERVERS = """
import sys
import clew.serve.openai.server, clew.serve.openai.weight_routes
sys.stdout.write(" ".join(sorted({"torch", "transformers"} & set(sys.modules))))
"""


def test_a_server_over_an_endpoint_needs_no_pytorch():
    pytest.importorskip("starlette", reason="did not run: the server needs clew[serve]")
    done = subprocess.run([sys.executable, "-c", SERVERS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
