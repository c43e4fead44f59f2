"""The scorers in the box: what they take for equal, and that no reply of a model makes them raise, hang or run it."""

from __future__ import annotations

import asyncio
import math
import shutil
from fractions import Fraction
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput
from clew.worlds.scorers.json_schema import json_schema
from clew.worlds.scorers.mathematics import Mathematics
from clew.worlds.scorers.numeric import last_number, numeric
from clew.worlds.scorers.texts import exact, regex
from clew.worlds.scorers.unit_tests import unit_tests

SANDBOX = pytest.mark.skipif(not shutil.which("bwrap"), reason="did not run: bubblewrap is not installed")
MATH = pytest.mark.skipif(find_spec("math_verify") is None, reason="did not run: math-verify is not installed")
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("reply", "answer", "how", "value"),
    [
        ("  Paris \n", "paris", {}, 1),
        ("Paris", "paris", {"case": True}, 0),
        ("It is Paris", "Paris", {}, 0),
        ("I think so.\n\nParis\n ", "Paris", {"last_line": True}, 1),
        ("NYC", ["New York", "nyc"], {}, 1),
        ("42", 42, {}, 1),
        ("", "x", {}, 0),
    ],
)
def test_exact(reply, answer, how, value):
    assert exact(reply, answer, **how) == value


@pytest.mark.parametrize(
    ("reply", "answer", "how", "value"),
    [
        ("so the answer: 7, no, the answer: 8", "8", {"pattern": r"answer: (\d)", "group": 1}, 1),
        ("so the answer: 8, no, the answer: 7", "8", {"pattern": r"answer: (\d)", "group": 1}, 0),
        ("the ANSWER: (?P<x>", "", {"pattern": "answer"}, 1),
        ("the ANSWER", "", {"pattern": "answer", "case": True}, 0),
        ("ab12", r"\d+", {}, 1),
        ("nothing", "8", {"pattern": r"answer: (\d)", "group": 1}, 0),
    ],
)
def test_regex(reply, answer, how, value):
    assert regex(reply, answer, **how) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3), ("\u22127", -7), ("5-3", 3), ("a-3", 3), ("x = -3.5", Fraction(-7, 2)), ("3.", 3),
        ("$1,000.", 1000),
        ("1,234.5 km", Fraction(2469, 2)), ("12,34", 34), ("3/4 cup", Fraction(3, 4)), ("1 1/2 cups", Fraction(3, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)), ("2e-3", Fraction(1, 500)), ("#### 72", 72), ("first 3 then 4", 4),
        ("1/0", None), ("none", None), ("", None), (7, 7), (0.5, Fraction(1, 2)), (True, None), (math.nan, None),
        ("9" * 401, None), (".5", Fraction(1, 2)),
    ],
)  # fmt: skip
def test_the_last_number(text, value):
    assert last_number(text) == value


def test_numeric_has_a_tolerance_and_reads_percent_where_asked():
    assert numeric("about 3.14", "3.14159", tolerance=0.01) == 1
    assert numeric("about 3.1", "3.14159", tolerance=0.01) == 0
    assert numeric("101", "100", relative=0.02) == 1
    assert numeric("12 %", "0.12") == 0
    assert numeric("12 %", "0.12", percent=True) == 1
    assert numeric("0.1 + 0.2 = 0.3", "0.3") == 1
    with pytest.raises(BadInput, match="holds no number") as error:
        numeric("3", "three")
    assert error.value.remedy


@given(st.decimals(-(10**9), 10**9, places=3), st.sampled_from(["{}", "{:,}", "is {} kg", "${}", "= {}."]))
def test_numeric_reads_what_python_writes(number, form):
    assert last_number(form.format(number)) == Fraction(number)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"a": 1}', 1), ('```json\n{"a": 1}\n```', 1), ('Here:\n```\n{"a": 2}\n```\ndone', 1), ('{"a": "1"}', 0),
        ("no", 0), ("", 0), ("[" * 200_000, 0), ('{"a":' * 5_000, 0), ('{"a": NaN}', 0), ('{"a": 1', 0),
    ],
)  # fmt: skip
def test_json_schema(reply, value):
    assert json_schema(reply, SCHEMA) == value
    assert json_schema(reply, None, schema=SCHEMA) == value


def test_bad_schemas_and_patterns_are_named():
    for call in (
        lambda: json_schema("{}", {"type": 5}),
        lambda: json_schema("{}", "no JSON"),
        lambda: regex("x", "", pattern="("),
        lambda: regex("x", "x", pattern="x", group="there"),
    ):
        with pytest.raises(BadInput) as error:
            call()
        assert error.value.remedy


@settings(max_examples=200)
@given(st.text())
def test_no_reply_makes_a_scorer_raise(reply):
    assert exact(reply, "a") in (0, 1)
    assert numeric(reply, "3") in (0, 1)
    assert json_schema(reply, SCHEMA) in (0, 1)
    assert regex(reply, "b", pattern="a(b)", group=1) in (0, 1)


@SANDBOX
@pytest.mark.parametrize(
    ("reply", "how", "value"),
    [
        ("Here:\n```python\ndef f(x):\n    return x + 1\n```\nDone.", {}, 1),
        ("def f(x):\n    return 2", {}, 0),
        ("def f(x):\n    return 2", {"share": True}, 0.5),
        ("import os\nos._exit(0)", {}, 0),
        ("import sys\nsys.exit(0)", {}, 0),
        ("def f(x:", {}, 0),
        ("", {}, 0),
        ("def f(x):\n    while True: pass", {"seconds": 1.0}, 0),
    ],
)
def test_unit_tests(reply, how, value):
    assert asyncio.run(unit_tests(reply, ["assert f(1) == 2", "assert f(2) == 3"], **how)) == value


@SANDBOX
def test_a_check_that_the_tests_never_call_is_called_or_refused():
    test = "def check(candidate):\n    assert candidate(1) == 2\n"
    good, bad = "def f(x): return x + 1", "def f(x): return x"
    assert asyncio.run(unit_tests(good, test, {"entry_point": "f"})) == 1
    assert asyncio.run(unit_tests(bad, test, {"entry_point": "f"})) == 0
    assert asyncio.run(unit_tests(bad, test, {"name": "f"}, entry="name")) == 0
    assert asyncio.run(unit_tests(bad, test + "check(f)\n")) == 0
    for columns in ({}, {"entry_point": "f); import os; (0"}):
        with pytest.raises(BadInput, match="never call it"):
            asyncio.run(unit_tests(good, test, columns))


@SANDBOX
def test_unit_tests_cannot_write_where_they_are_judged(tmp_path):
    code = f"open({str(tmp_path / 'here')!r}, 'w').write('x')\ndef f(x): return 2"
    assert asyncio.run(unit_tests(code, "assert f(1) == 2")) == 0
    assert not (tmp_path / "here").exists()
    with pytest.raises(BadInput, match="no test code"):
        asyncio.run(unit_tests("x = 1", 5))


@pytest.mark.whole
@MATH
def test_mathematics_knows_equal_expressions_and_survives_what_never_ends():
    scorer = Mathematics(seconds=20.0)

    def score(reply, answer):
        return asyncio.run(scorer(reply, answer))

    assert score(r"so it is $\frac{1}{2}$", "0.5") == 1
    assert score(r"\boxed{x^2+2x+1}", "(x+1)^2") == 1
    assert score("it is 4", "3") == 0
    scorer.seconds = 1.0
    assert score("$9^{9^{9^{9}}}$", "3") == 0
    scorer.seconds = 60.0
    assert score("it is 3", "#### 3") == 1, "the next reply is judged by a fresh process"
