"""Theories that a model wrote: what the whitelist refuses by name, what the sandbox stops, what a good one gives."""

import shutil

import numpy as np
import pytest

from clew.core.aio import run_sync
from clew.core.errors import ModelError
from clew.methods.theories.choice_fits import Rule
from clew.methods.theories.code_search import search
from clew.methods.theories.theory_code import BadTheory, TheoryCode, TheoryFailed
from clew.methods.theories.theory_writer import Known, TheoryWriter, ask
from clew.models.fakes import Scripted
from clew.sandbox.sandbox import Sandbox
from tests.evolve.choosers import choices

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="did not run: bubblewrap is not installed")
HEAD = 'PARAMETERS = {"beta": [0.1, 20]}\n\ndef choose_b(a, b, validities, history, p):\n'
GOOD = (
    '"""Weighs each expert."""\nPARAMETERS = {"beta": [0.1, 20], "gamma": [0, 10]}\n\n'
    "def worth(x, v, power):\n    return sum([r * w ** power for r, w in zip(x, v)])\n\n"
    "def choose_b(a, b, validities, history, p):\n"
    '    gain = worth(b, validities, p["gamma"]) - worth(a, validities, p["gamma"])\n'
    '    return 1 / (1 + exp(-p["beta"] * gain))\n'
)
TRICKS = {
    "import os\n" + HEAD + "    return 0.5": "import",
    HEAD + "    from os import system\n    return 0.5": "import",
    HEAD + "    return (0.5).__class__": "attribute",
    HEAD + "    return a.append(1)": "attribute",
    HEAD + "    return __builtins__": "hidden name",
    HEAD + '    return __import__("os")': "hidden name",
    HEAD + '    return eval("0.5")': "call",
    HEAD + '    return open("/etc/passwd")': "call",
    HEAD + "    return [abs][0](1)": "call",
    HEAD + "    return (lambda: 0.5)()": "call",
    HEAD + '    return f"{a.__class__}"': "formatted string",
    HEAD + "    try:\n        return 1\n    except Exception:\n        return 0": "try",
    HEAD + "    global x\n    return 0.5": "global",
    HEAD + "    exp = 3\n    return 0.5": "name",
    HEAD + "    return (x := 1)": "syntax",
    HEAD + "    yield 1": "syntax",
    HEAD + "    return b'x'": "constant",
    "@abs\n" + HEAD.split("\n\n")[1] + "    return 0.5": "function",
    "class A:\n    pass\n" + HEAD + "    return 0.5": "class",
    "x = [i for i in range(3)]\n" + HEAD + "    return 0.5": "outside a function",
    "for x in (1,):\n    pass\n" + HEAD + "    return 0.5": "outside a function",
    "PARAMETERS = {}\n": "missing",
    HEAD.replace("0.1, 20", "20, 0.1") + "    return 0.5": "missing",
    HEAD + "    return " + "(" * 300 + "1" + ")" * 300: "syntax",
    HEAD + "    return " + "-" * 7000 + "1": "",
    "#" * 9000: "length",
    HEAD + "    return 0.5\x00": "syntax",
}
PLAIN = Rule("plain", {}, lambda _, seen: 1 / (1 + np.exp(-3 * ((seen.b - seen.a) @ seen.validities**4))))


@pytest.mark.parametrize(("source", "kind"), TRICKS.items(), ids=range(len(TRICKS)))
def test_tricks_are_refused_by_name_and_nothing_runs(source, kind):
    with pytest.raises(BadTheory) as caught:
        TheoryCode.read(source)
    assert kind in caught.value.counted or not kind
    assert "line " in str(caught.value)


@needs_bubblewrap
def test_a_good_theory_gives_what_it_says_and_is_fitted_by_search():
    theory, box = TheoryCode.read(GOOD), Sandbox()
    assert not theory.memory
    seen = [choices(PLAIN, i, validities=v) for i, v in enumerate([(0.95, 0.8, 0.7, 0.6), (0.9, 0.85, 0.6, 0.5)])]
    (said,) = theory.ask(box, seen[0], [{"beta": 3.0, "gamma": 4.0}])
    assert said == pytest.approx(PLAIN.predict({}, seen[0]))
    found = search(theory, box, seen, draws=48)
    assert found.mean < 0.02
    assert all(0.1 <= one.parameters["beta"] <= 20 for one in found.fits)


@needs_bubblewrap
def test_memory_is_earlier_choices_alone():
    theory = TheoryCode.read(HEAD + "    return history[-1] if len(history) else 0.5")
    seen = choices(PLAIN, 1, people=4, each=2)
    (said,) = theory.ask(Sandbox(), seen, [{"beta": 1.0}])
    before = np.r_[0.5, seen.chose_b[:-1]]
    first = np.r_[True, seen.subject[1:] != seen.subject[:-1]]
    assert theory.memory
    assert said.tolist() == np.where(first, 0.5, before).tolist()


@needs_bubblewrap
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("    return 7", "raised"),
        ("    return [1] + 1", "raised"),
        ("    x = [0] * 10 ** 9\n    return 0.5", "raised"),
        ("    return choose_b(a, b, validities, history, p)", "raised"),
    ],
)
def test_a_theory_that_gives_no_probability_fails_by_kind(body, kind):
    with pytest.raises(TheoryFailed) as caught:
        TheoryCode.read(HEAD + body).ask(Sandbox(), choices(PLAIN, 1, people=4), [{"beta": 1.0}])
    assert caught.value.kind == kind


@needs_bubblewrap
def test_a_theory_that_never_ends_is_ended(monkeypatch):
    from clew.methods.theories import theory_code
    from clew.sandbox.sandbox import Limits

    monkeypatch.setattr(theory_code, "LIMITS", Limits(wall=5, cpu=0.5))
    with pytest.raises(TheoryFailed) as caught:
        TheoryCode.read(HEAD + "    while True:\n        pass").ask(Sandbox(), choices(PLAIN, 1, people=4), [{}])
    assert caught.value.kind in ("cpu", "wall")


def test_a_writer_reads_sources_and_counts_what_it_refused():
    answers = [
        f"Here:\n<theory>\n```python\n{GOOD}```\n</theory>",
        "<theory>import os\nimport sys\n</theory>",
        "I cannot.",
        ModelError("no model"),
    ]
    writer, seen = TheoryWriter(Scripted(answers, by="call")), [choices(PLAIN, 1, people=4)]
    found = [run_sync(writer.write([Known("weighing", 0.05)], seen, luck)) for luck in range(4)]
    assert found[0].theory is not None
    assert set(found[0].theory.ranges) == {"beta", "gamma"}
    assert [one.theory for one in found[1:]] == [None] * 3
    assert writer.refused == {"import": 1, "missing": 1, "outside a function": 1, "no source": 1, "no answer": 1}
    assert "import os" in found[1].why
    assert all(one.cost.get("tokens", 0) > 0 for one in found[:3])


def test_what_a_model_is_told_is_marked_and_bounded():
    told = ask([Known("x" * 50_000, 0.1), Known("ends [0 end] \x1b[2J", 0.2)], [choices(PLAIN, 1, people=4)])
    assert len(told) < 30_000
    assert "\x1b" not in told
    assert "error 0.2000" in told
