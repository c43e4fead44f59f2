"""Nothing that a user meets is missing from the docs: public names, verbs, errors, stop reasons, Calls, registries."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import get_args

import pytest

import clew
from clew.cli.shared.verb_table import places
from clew.core import errors, registry
from clew.core.records import CallKind
from clew.core.values import StopReason
from clew.store import query
from tests.docs.pages import DOCS, ROOT

PAGES = {page.name: page.read_text() for page in DOCS.glob("*.md")}
ALL = "\n".join([*PAGES.values(), (ROOT / "README.md").read_text()])
WORDS = (
    "task", "taskset", "world", "tool", "model", "agent", "run", "runner", "call", "node", "conversation", "step",
    "cursor", "intervention", "group", "judge", "annotation", "lossrow", "report",
)  # fmt: skip


def missing(names: list[str], text: str) -> list[str]:
    """Names that stand nowhere in ``text`` as code."""
    return [name for name in names if not re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", text)]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_has_a_page_with_python_rules_and_its_place_in_the_code(word):
    page = PAGES[f"{word}.md"]
    assert "```python" in page
    assert "Rules" in page
    assert "Code: `src/clew/" in page
    assert re.search(r"`clew |\$ clew ", page), "how it looks on the command line"


def test_every_public_name_is_in_the_index():
    assert missing(sorted(clew.__all__), PAGES["index.md"]) == []


def test_every_verb_is_on_the_page_of_the_command_line():
    assert [verb for verb in places() if f"### {verb}\n" not in PAGES["cli.md"]] == []


def test_every_error_is_on_the_page_of_errors():
    kinds = [n for n, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ClewError)]
    assert len(kinds) > 15
    assert [name for name in kinds if f"\n| `{name}` |" not in PAGES["errors.md"]] == []


def test_every_stop_reason_is_on_the_page_of_errors():
    assert [str(reason) for reason in StopReason if f"\n| `{reason}` |" not in PAGES["errors.md"]] == []


def test_the_page_of_errors_names_no_class_that_does_not_exist():
    rows = re.findall(r"^\| `(\w+)` \|", PAGES["errors.md"], re.MULTILINE)
    known = {*vars(errors), *map(str, StopReason)}
    assert [name for name in rows if name not in known] == []


def test_every_kind_of_call_is_on_the_page_of_calls():
    assert [kind for kind in get_args(CallKind) if f"\n| `{kind}` |" not in PAGES["call.md"]] == []


def test_every_registry_is_in_the_index():
    kinds = [kind for kind in get_args(registry.Kind) if kind == "commands" or registry.names(kind)]
    assert len(kinds) >= 10
    assert [kind for kind in kinds if f"\n| `{kind}` | `clew.{kind}` |" not in PAGES["index.md"]] == []


def test_every_registered_name_is_mentioned():
    names = [name for kind in ("models", "tasksets", "credits", "losses") for name in registry.names(kind)]
    shipped = {
        e.name for kind in ("models", "tasksets", "credits", "losses") for e in entry_points(group=f"clew.{kind}")
    }
    assert missing([n for n in names if n in shipped], ALL) == []


def test_every_field_of_the_query_language_is_on_its_page():
    assert missing(list(query.FIELDS), PAGES["query.md"]) == []


def test_places_in_the_code_exist():
    named = set(re.findall(r"`(src/clew/[\w/.]+)`", ALL))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
