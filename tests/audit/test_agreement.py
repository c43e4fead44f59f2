"""Agreement of a judge with people: published figures, planted judges, a shuffled control, and bad input."""

from __future__ import annotations

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.records import Annotation
from clew.methods.agreement.held import held
from clew.methods.agreement.rated import categories, rated, star_scale, verdict_scale
from clew.methods.agreement.raters import alpha, by_cluster, kappa
from clew.store import MemoryStore, Run
from clew.store.contract import Script

OBSERVERS = """1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 ."""  # four observers of twelve units, in Krippendorff's paper of 2011


def table(text):
    return np.array([[-1 if x == "." else int(x) - 1 for x in row.split()] for row in text.split("\n")]).T


@pytest.mark.parametrize(("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_the_published_one(metric, published):
    assert alpha(table(OBSERVERS), 5, metric)[0] == pytest.approx(published, abs=5e-4)


def test_kappa_is_the_one_of_statsmodels():
    raters = pytest.importorskip("statsmodels.stats.inter_rater", reason="did not run: statsmodels is not installed")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, 300)
    b = np.where(rng.random(300) < 0.5, a, rng.integers(0, 5, 300))
    counts = np.zeros((5, 5))
    np.add.at(counts, (a, b), 1)
    assert kappa(a, b, 5)[0] == pytest.approx(raters.cohens_kappa(counts).kappa)
    assert kappa(a, b, 5, "interval")[0] == pytest.approx(raters.cohens_kappa(counts, wt="quadratic").kappa)


def test_a_weight_counts_a_unit_so_often_and_one_category_is_not_defined():
    a, b = np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0])
    weight = np.array([[1.0, 2, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1]])
    found = kappa(a, b, 2, weight=weight)
    assert found[0] == pytest.approx(kappa(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 0]), 2)[0])
    assert found[1] == pytest.approx(0)
    assert np.isnan(found[2])
    pairs = np.column_stack([a, b])
    again = np.repeat(pairs, [1, 2, 0, 1], axis=0)
    assert alpha(pairs, 2, weight=weight[:1])[0] == pytest.approx(alpha(again, 2)[0])
    drawn = by_cluster(["x", "x", "y", "z"], 50)
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert (drawn[:, 1:].sum(1) == 3).all()


def planted(judge, *, tasks=40, each=4, people=("ann",), noise=0.0, seed=0, stars=False, length=False, worlds=("toy",)):
    """Runs whose worth is known: people say it (each errs with chance ``noise``), ``judge`` gives its value from it."""
    rng, store = np.random.default_rng(seed), MemoryStore()
    for t in range(tasks):
        for n in range(each):
            worth = int(rng.integers(1, 6)) if stars else int(rng.random() < 0.6)
            steps = (1 + 2 * worth) if length else int(rng.integers(1, 4))
            world = worlds[t % len(worlds)]
            run = Script(store, f"r{t:02}x{n}", task=f"t{t}", created=float(t), taskset=world).play(steps)
            for by in people:
                told = worth if rng.random() >= noise else (int(rng.integers(1, 6)) if stars else 1 - worth)
                store.label(run.id, by=by, **({"stars": told} if stars else {"verdict": ("bad", "good")[told]}))
            value = judge(worth, rng, steps)
            if value is not None:
                store.annotate([Annotation("run", "j", float(value), run.id)])
    return [Run(store, run) for run in store.run_ids()]


def compared(runs, scale=None, **more):
    scale = scale or verdict_scale()
    return held(rated(runs, "j", scale, **more), "j", scale)


def test_a_judge_that_is_right_beats_every_rule_and_shuffled_it_does_not():
    found = compared(planted(lambda worth, rng, steps: worth if rng.random() < 0.9 else 1 - worth))
    kept = found.parts["kept apart"]
    assert found.parts["all"].n == kept.n + found.parts["to tune on"].n == 160
    assert kept.kappa.low > 0.4
    assert kept.kappa.low < kept.kappa.estimate < kept.kappa.high
    assert abs(found.control.estimate) < 0.03
    assert found.control.low < 0 < found.control.high < 0.25
    assert found.beats.low > 0
    assert found.beyond.low > 0
    assert "The judge beats both" in found.verdict
    assert found.report.n == kept.n
    assert "kept apart" in found.report.design


def test_a_judge_by_chance_is_not_shown_to_beat_anything():
    found = compared(planted(lambda worth, rng, steps: rng.random() < 0.6))
    assert found.parts["all"].kappa.low < 0 < found.parts["all"].kappa.high
    assert "The judge is not shown to beat a rule of one line" in found.verdict


def test_a_judge_that_only_counts_is_found_out():
    found = compared(planted(lambda worth, rng, steps: steps > 2, length=True))
    assert found.parts["kept apart"].kappa.estimate == pytest.approx(1)
    assert found.best in (
        "more steps is better",
        "more tokens is better",
        "more characters of the last reply is better",
    )
    assert found.beats.estimate == pytest.approx(0)
    assert found.best in found.verdict


def test_a_judge_that_always_says_the_same_has_no_kappa_and_reaches_the_base_rate():
    found = compared(planted(lambda worth, rng, steps: 1))
    whole = found.parts["all"]
    assert whole.kappa.estimate == 0
    assert whole.agreement.estimate == pytest.approx(whole.base_rate)
    assert any("says good/" in c or "the judge says good of all 160" in c for c in found.caveats)


def test_stars_are_weighed_by_distance():
    near = compared(planted(lambda worth, rng, steps: min(worth + 1, 5), stars=True), star_scale())
    far = compared(planted(lambda worth, rng, steps: 6 - worth, stars=True), star_scale())
    assert near.parts["all"].kappa.low > 0.5
    assert far.parts["all"].kappa.high < 0
    assert near.parts["all"].agreement.estimate > near.parts["all"].base_rate


def test_several_people_and_things_they_disagree_on():
    runs = planted(lambda worth, rng, steps: worth, people=("ann", "bob"), noise=0.2)
    found = compared(runs)
    assert found.authors == ("ann", "bob")
    assert 0.1 < found.people.low < found.people.estimate < found.people.high < 0.7
    assert found.together.estimate > found.people.estimate
    assert found.tied + found.parts["all"].n == 160
    assert found.tied > 20
    alone = rated(runs, "j", verdict_scale(), by="ann")
    assert {tuple(one.people) for one in alone} == {("ann",)}


def test_halves_are_by_task_and_stay_the_same():
    runs = planted(lambda worth, rng, steps: worth)
    things = rated(runs, "j", verdict_scale())
    halves = {one.task: one.tune for one in things}
    assert all(halves[one.task] == one.tune for one in things)
    assert 10 < sum(halves.values()) < 30
    assert [one.tune for one in rated(runs[:50], "j", verdict_scale())] == [one.tune for one in things[:50]]
    assert all(one.tune for one in rated(runs, "j", verdict_scale(), share=1.0))
    whole = compared(runs, share=1.0)
    assert "kept apart" not in whole.parts
    assert "no task lies in the half kept apart" in whole.caveats[0]


def test_calls_are_compared_with_values_on_calls():
    runs = planted(lambda worth, rng, steps: None, tasks=12)
    store = runs[0].store
    for n, run in enumerate(runs):
        store.label(f"{run.id}@1", by="ann", verdict="good" if n % 3 else "bad")
        store.annotate([Annotation("call", "j", float(bool(n % 3)), run.id, 1)])
    found = compared(runs, on="call")
    assert found.parts["all"].kappa.estimate == pytest.approx(1)
    assert found.parts["all"].n == 48


def test_kinds_lie_side_by_side():
    found = compared(planted(lambda worth, rng, steps: worth, tasks=10, worlds=("toy", "maze(n=3)")))
    assert {kind: part.n for kind, part in found.kinds.items()} == {"maze": 20, "toy": 20}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (list, "no verdict by hand on these runs\n  Label some"),
        (lambda: planted(lambda *_: None, tasks=3), "none of the 12 labelled things has a value of 'j'"),
        (lambda: planted(lambda w, *_: w, tasks=1, each=9), "all labels are of one task"),
        (lambda: planted(lambda w, *_: w, tasks=1, each=1), "all 1 labelled things are called"),
    ],
)
def test_bad_input_is_one_sentence_and_a_remedy(make, told):
    with pytest.raises(BadInput) as caught:
        compared(make())
    assert told in str(caught.value)
    assert caught.value.remedy


def test_one_class_and_even_disagreement_are_said():
    runs = planted(lambda worth, *_: worth, tasks=3, people=())
    for run in runs:
        run.store.label(run.id, by="ann", verdict="good")
    with pytest.raises(BadInput, match=r"all 12 labelled things are called good\n  Label some that are not"):
        compared(runs)
    for run in runs:
        run.store.label(run.id, by="bob", verdict="bad")
    with pytest.raises(BadInput, match="people disagree evenly on all 12"):
        compared(runs)


def test_values_that_are_no_stars_are_refused():
    scale = star_scale()
    assert categories([1, 5, 3], scale, 0) == [0, 4, 2]
    assert categories([0.0, 0.2, 0.99, 1.0], scale, 0) == [0, 1, 4, 4]
    with pytest.raises(BadInput, match="reach from -3 to 7, which are no stars"):
        categories([-3, 7], scale, 0)
