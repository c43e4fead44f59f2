"""References: name(key=literal), there and back, and what is said of a wrong one."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.credit import presets

keys = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(lambda k: k.isidentifier() and not _keyword(k))
literals = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def _keyword(name: str) -> bool:
    import keyword

    return keyword.iskeyword(name)


@given(st.dictionaries(keys, literals | st.lists(literals, max_size=3), max_size=3))
def test_references_read_what_they_write(arguments):
    name, read = registry.parse_ref(registry.make_ref("household", arguments))
    assert name == "household"
    assert read == arguments


def test_names_may_be_paths_urls_and_packages():
    for ref in ("Qwen/Qwen3-0.6B", "http://127.0.0.1:8000/v1", "./weights", "household-sft", "it's"):
        assert registry.parse_ref(ref) == (ref, {})
    assert registry.parse_ref("house(rooms=3, size=(1, 2))") == ("house", {"rooms": 3, "size": (1, 2)})
    assert registry.parse_ref("household-sft(seed=3)") == ("household-sft", {"seed": 3})
    assert registry.make_ref("house", {"rooms": 3, "seed": 0}, {"rooms": 3, "seed": 1}) == "house(seed=0)"
    assert registry.make_ref("house", {"rooms": 3}, {"rooms": 3}) == "house"


@pytest.mark.parametrize(
    "ref",
    ["house(3)", "house(rooms=", "house(rooms=x)", "house(rooms=open('f'))", "house()+1", "(x=1)", "house(**{'a': 1})"],
)
def test_what_is_no_reference_is_refused(ref):
    with pytest.raises(BadInput, match="reference") as caught:
        registry.parse_ref(ref)
    assert "name(key=value)" in caught.value.remedy


def test_lookup_names_near_ones():
    registry.register("tasksets", "lighthouse-for-tests", lambda lamps=1: ("lit", lamps))
    assert registry.build("tasksets", "lighthouse-for-tests(lamps=2)") == ("lit", 2)
    assert "lighthouse-for-tests" in registry.names("tasksets")
    with pytest.raises(UnknownName, match="lighthous-for-tests") as caught:
        registry.lookup("tasksets", "lighthous-for-tests")
    assert "lighthouse-for-tests" in caught.value.remedy
    with pytest.raises(BadInput, match="wicks"):
        registry.build("tasksets", "lighthouse-for-tests(wicks=2)")


def test_every_published_estimator_has_a_name():
    """Read from the project file: entry points are those of the last install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["clew.credits"]
    estimators = {name for name in vars(presets) if inspect.isfunction(getattr(presets, name))}
    assert {"grpo", "gagpo", "g2po", "graded"} <= estimators
    assert estimators - named.keys() == set()
    for ref in named.values():
        module, _, name = ref.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_a_taskset_of_a_file_is_built_again_by_its_ref_and_nothing_else_is(tmp_path, monkeypatch):
    methods = "".join(f"    def {name}(self): pass\n" for name in ("sample", "find", "open", "judge"))
    (tmp_path / "mine.py").write_text(
        f"class Tasks:\n    def __init__(self, n=1): self.ref, self.n = 'short', n\n{methods}"
        "class Half:\n    def sample(self): pass\n"
        "def call(**more): raise SystemExit('called')\n"
    )
    monkeypatch.chdir(tmp_path)
    made = registry.build("tasksets", "mine.py:Tasks(n=3)")
    assert made.ref == f"{tmp_path / 'mine.py'}:Tasks(n=3)"
    monkeypatch.chdir("/")
    assert registry.build("tasksets", made.ref).n == 3
    for wrong in ("Half", "call", "call(command='rm')"):
        with pytest.raises(BadInput, match="is no taskset"):
            registry.build("tasksets", f"{tmp_path}/mine.py:{wrong}")
    for wrong in ("nowhere.py:Tasks", f"{tmp_path}/mine.py:Absent", "os:system", "subprocess:run(args='true')"):
        with pytest.raises(UnknownName):
            registry.build("tasksets", wrong)
