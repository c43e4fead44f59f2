"""E169: the committed results, their report, the marks' arithmetic, and the repair test's parts against slow twins."""

from __future__ import annotations

import ast
import json
import random

import numpy as np
import pytest

from clew.core.errors import BadInput, MissingExtra, WorldError
from clew.methods.diagnose.known import ELSEWHERE
from papers.E169_sherloc import clones, issues, mutants, report_l, report_r, report_u, tier_l, tier_r, tier_u
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E169 = Experiment.find("E169")


@pytest.fixture(scope="module")
def lines():
    return load(E169.here / "results" / "L.jsonl")


def test_the_committed_results_are_those_of_the_chosen_commits(lines):
    chosen = clones.chosen()
    assert len(chosen) == 3
    assert sum(len(c["test"]) for c in chosen.values()) >= 300
    assert {E169.key(x) for x in lines} == {E169.key(c) for c in tier_l.cells(False)}
    for x in lines:
        assert x["commit"] == chosen[x["project"]][x["split"]][x["seed"]]
    for name in chosen:  # split by date
        days = {s: [x["day"] for x in lines if (x["project"], x["split"]) == (name, s)] for s in ("dev", "test")}
        assert max(days["dev"]) <= min(days["test"])


def test_nothing_of_the_projects_but_names_is_committed(lines):
    kept = {"project", "split", "seed", "commit", "day", "files", "gold", "rank", "features", "first", "margin",
            "tokens", "read", "coverage", "precision", "tightness", "findings", "wrong", "cpu_s"}  # fmt: skip
    assert all(set(x) == kept for x in lines)
    assert all(len(json.dumps(x)) < 2500 for x in lines)


def test_the_report_is_that_of_the_results(lines):
    assert (E169.here / "results" / "summary_L.md").read_text() == report_l.report(lines)


def test_the_bundled_confidence_is_the_one_fitted_on_dev(lines):
    fitted = report_u.bundled(lines, load(E169.here / "results" / "U.jsonl"))
    assert ELSEWHERE.weights == pytest.approx(fitted.weights, abs=6e-4)
    assert (ELSEWHERE.bias, ELSEWHERE.cut) == pytest.approx((fitted.bias, fitted.cut), abs=6e-4)
    assert (ELSEWHERE.n, ELSEWHERE.source) == (fitted.n, fitted.source)


def test_a_planted_effect_is_found_and_none_where_there_is_none(lines):
    test = report_l.split(lines, "test")
    none = report_l.gap(report_l.at(test, "all"), report_l.at(test, "all"))
    assert (none.low, none.high) == (0, 0)
    planted = [{**x, "rank": {**x["rank"], "plain bm25": x["rank"]["plain bm25"] + 1}} for x in test]
    assert report_l.gap(report_l.at(test, "plain bm25"), report_l.at(planted, "plain bm25")).low > 0.3
    noise = np.random.default_rng(0).permutation(report_l.confidence(test, test))
    sure = report_l.among(report_l.at(test, "all"), report_l.top(noise, 0.25))
    overall = report_l.at(test, "all").mean()
    assert sure.low <= overall <= sure.high


def test_without_clones_quick_leaves_tier_l_out(tmp_path, capsys):
    assert list(tier_l.cells(True)) == []
    assert E169.parse(["--quick", "--tier", "L", "--out", str(tmp_path)]) == 0
    assert "--clones" in (tmp_path / "summary_L.md").read_text()
    with pytest.raises(BadInput, match="no clone of pytest"):
        clones.past("pytest")


def test_every_edit_has_an_inverse_and_is_another_program():
    source = "def f(a, b):\n    if a <= b and a is None:\n        return a + 2 * b\n    return [True, 0][a in b]\n"
    found = mutants.changes(source)
    assert {c.new for c in found} >= {"<", "or", "is not", "-", "//", "3", "1", "False", "not in"}
    for change in found:
        mutant = change.apply(source)
        assert ast.dump(ast.parse(mutant)) != ast.dump(ast.parse(source))
        assert source in {back.apply(mutant) for back in mutants.changes(mutant)}, change
        assert source.splitlines()[change.line - 1] != mutant.splitlines()[change.line - 1]


def test_a_plan_takes_told_spans_first_then_their_files_and_keeps_the_budget():
    options = {(m, k): [(m, mutants.Change(k, k, k + 1, "x"))] for m in "ab" for k in range(1, 61)}
    order = sorted(options)
    random.Random(0).shuffle(order)
    plan = tier_r._plan(order, [("b", 5, 7)], options)
    assert len(plan) == tier_r.BUDGET
    assert {(m, c.line) for m, c in plan[:3]} == {("b", 5), ("b", 6), ("b", 7)}
    assert {m for m, _ in plan} == {"b"}
    assert tier_r._plan(order, [], options) == [options[p][0] for p in order[:60]]


def test_one_bug_in_the_sandbox():
    try:
        tier_r.sandbox()
    except (MissingExtra, WorldError) as error:
        pytest.skip(f"did not run: {error.message}")
    if "textwrap" not in mutants.sources():
        pytest.skip("did not run: the standard library's tests are not installed")
    sound, source = tier_r._healthy("textwrap"), mutants.sources()["textwrap"]
    assert len(sound) > 20
    changes = [c for c in mutants.changes(source) if c.new in ("True", "False")][:6]
    jobs = [{"source": text, "test": ""} for text in (source, *(c.apply(source) for c in changes))]
    whole, *mutated = tier_r.tried("textwrap", jobs)
    assert not any(whole["outcomes"][test] for test in sound)
    broken = [any(said for said in (x["outcomes"] or {"": "none"}).values()) for x in mutated]
    assert any(broken)
    (traced,) = tier_r.tried("textwrap", [{"source": source, "test": ""}], trace=True)
    covered = {tuple(place) for places in traced["covered"].values() for place in places}
    assert len({line for module, line in covered if module == "textwrap"}) > 50


def test_the_committed_results_of_users_issues_are_those_of_the_rule():
    found, chosen = load(E169.here / "results" / "U.jsonl"), issues.chosen()
    assert {E169.key(x) for x in found} == {E169.key(c) for c in tier_u.cells(False)}
    kept = {"project", "split", "seed", "issue", "commit", "files", "gold", "rank", "features", "cpu_s"}
    for x in found:
        told = chosen[x["project"]][x["split"]][x["seed"]]
        assert (x["issue"], x["commit"], x["gold"]) == (told["id"], told["parent"], told["gold"])
        assert set(x) == kept
        assert 1 <= len(x["gold"]) <= issues.FILES
    split = {
        name.split("/")[1]: kind for kind, names in (("dev", issues.DEV), ("test", issues.HELD_OUT)) for name in names
    }
    assert split == {name: next(iter(of)) for name, of in chosen.items()}  # no repository is in both
    assert sum(x["split"] == "test" for x in found) >= 40
    assert (E169.here / "results" / "summary_U.md").read_text() == report_u.report(found)


def test_the_rule_lets_in_issues_of_both_collections_and_no_others(tmp_path, monkeypatch):
    patch = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
    lite = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "c", "problem_statement": "It fails\n",
            "patch": patch.format("b/x.py") + patch.format("tests/test_x.py") + patch.format("docs/x.rst")}  # fmt: skip
    told = {"title": "Slow", "body": None}
    multi = {"org": "a", "repo": "c", "number": 2, "base": {"sha": "d"}, "resolved_issues": [told],
             "fix_patch": patch.format("src/x.rs")}  # fmt: skip
    several = "".join(patch.format(f"b/{k}.py") for k in range(4))
    rows = [multi, {**multi, "resolved_issues": [told, told]}, {**multi, "fix_patch": patch.format("README.md")}]
    (tmp_path / "lite.json").write_text(json.dumps([lite, {**lite, "patch": several}]))
    (tmp_path / "rust.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(issues, "where", [tmp_path])
    assert list(issues._issues()) == [
        issues.Issue("a__b-1", "a/b", "c", "It fails", ("b/x.py",)),
        issues.Issue("a__c-2", "a/c", "d", "Slow", ("src/x.rs",)),
    ]


def test_the_repair_report_is_that_of_its_results():
    path = E169.here / "results" / "R.jsonl"
    found = load(path)
    assert len(found) >= 10
    assert (E169.here / "results" / "summary_R.md").read_text() == report_r.report(found)
    for x in found:
        for result in x["results"].values():
            assert 0 <= result["before"] <= result["runs"] <= tier_r.BUDGET
            assert not result["resolved"] or result["passed"]
