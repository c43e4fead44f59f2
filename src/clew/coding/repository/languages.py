"""Languages by file name, and which files are source, tests or documentation of a repository, or not its own. The
repository view calls it. It must never open a file: the path alone decides."""

from __future__ import annotations

import functools
import importlib
import os.path
from typing import Any, NamedTuple


class Grammar(NamedTuple):
    """How tree-sitter reads a language: the module of its grammar, and the nodes that define a name."""

    module: str
    factory: str
    defines: frozenset[str]


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JS = word_set("function_declaration generator_function_declaration class_declaration method_definition")
_TS = _JS | word_set("interface_declaration enum_declaration abstract_class_declaration function_signature")
_C = word_set("function_definition struct_specifier enum_specifier class_specifier")
_JAVA = {f"{kind}_declaration" for kind in ("class", "method", "interface", "enum", "constructor", "record")}
_RUST = word_set("function_item struct_item enum_item trait_item impl_item mod_item")
GRAMMARS = {
    "javascript": Grammar("tree_sitter_javascript", "language", _JS),
    "typescript": Grammar("tree_sitter_typescript", "language_typescript", _TS),
    "tsx": Grammar("tree_sitter_typescript", "language_tsx", _TS),
    "go": Grammar("tree_sitter_go", "language", word_set("function_declaration method_declaration type_spec")),
    "java": Grammar("tree_sitter_java", "language", frozenset(_JAVA)),
    "c": Grammar("tree_sitter_c", "language", _C),
    "cpp": Grammar("tree_sitter_cpp", "language", _C | {"namespace_definition"}),
    "rust": Grammar("tree_sitter_rust", "language", _RUST),
}
SUFFIXES = {
    "python": ".py .pyi",
    "javascript": ".js .jsx .mjs .cjs",
    "typescript": ".ts",
    "tsx": ".tsx",
    "go": ".go",
    "java": ".java",
    "c": ".c .h",
    "cpp": ".cc .cpp .cxx .hpp .hh",
    "rust": ".rs",
}
BY_SUFFIX = {suffix: language for language, suffixes in SUFFIXES.items() for suffix in suffixes.split()}
OTHER_SOURCE = word_set("""
    .rb .php .kt .kts .swift .scala .cs .m .mm .lua .pl .pm .r .jl .ex .exs .erl .hs .ml .clj .dart .vue .svelte .sh
    .bash .zsh .ps1 .sql .pyx .pxd .cu .cuh .f90 .zig .nim .groovy
""")
BINARY = word_set("""
    .png .jpg .jpeg .gif .ico .bmp .webp .pdf .zip .gz .bz2 .xz .zst .tar .whl .egg .jar .class .so .o .a .dll
    .dylib .exe .pyc .pyd .woff .woff2 .ttf .otf .eot .mo .npy .npz .pt .bin .db .sqlite .mp3 .mp4 .avi .mov .wav
    .ogg
""")
DOCUMENTS = word_set(".md .rst .adoc .tex .po .pot .svg .ipynb .log .lock .map .snap")
DOC_FOLDERS = word_set("doc docs documentation changelog changelogs changes news whatsnew examples example")
BUILT = word_set("build dist out target _build htmlcov coverage __pycache__ site")
BROUGHT = word_set("node_modules vendor vendored third_party thirdparty site-packages _vendor bower_components")
OWN = word_set(".git .hg .svn .clew .tox .nox .venv venv .mypy_cache .ruff_cache .pytest_cache .idea .vscode")
PATHS = 1 << 17  # whose kinds are remembered
TESTS = word_set("test tests testing testcases spec specs __tests__ fixtures")


@functools.lru_cache(maxsize=PATHS)
def left_out(path: str) -> str:
    """Why the filtered view drops a file, by its path; empty where it keeps it. A folder of source keeps its name:
    ``build`` or ``docs`` below a Python package, where modules may be called so, are seen."""
    *folders, name = path.lower().split("/")
    if any(f in OWN for f in folders):
        return "version control and tools"
    if any(f in BROUGHT for f in folders):
        return "dependencies"
    if folders[:1] and folders[0] in BUILT:
        return "build output"
    suffix = os.path.splitext(name)[1]
    if suffix in BINARY:
        return "binary"
    if suffix in DOCUMENTS or (folders[:1] and folders[0] in DOC_FOLDERS):
        return "documentation"
    return ""


@functools.lru_cache(maxsize=PATHS)
def language(path: str) -> str:
    """``python``, a language of tree-sitter, ``source`` for code without a grammar, or ``text``."""
    suffix = os.path.splitext(path)[1].lower()
    return BY_SUFFIX.get(suffix) or ("source" if suffix in OTHER_SOURCE else "text")


@functools.lru_cache(maxsize=PATHS)
def is_test(path: str) -> bool:
    *folders, name = path.lower().split("/")
    name = os.path.splitext(name)[0]
    if any(folder in TESTS for folder in folders):
        return True
    return name.startswith("test_") or name.endswith(("_test", ".test", ".spec", "_spec")) or name == "conftest"


@functools.cache
def parser(name: str) -> Any | None:
    """The tree-sitter parser of a language; None where the extra ``coding`` is not installed."""
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        module = importlib.import_module(GRAMMARS[name].module)
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(getattr(module, GRAMMARS[name].factory)()))


def read_as(path: str) -> str:
    """How a file is read here and now: its language, or ``text`` where its grammar is not installed."""
    name = language(path)
    return name if name not in GRAMMARS or parser(name) is not None else "text"
