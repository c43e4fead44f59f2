"""Pages of features and of the commitment curve: all comes out of the store; what is gone is left out."""

from __future__ import annotations

import json

import pytest

from clew.core.errors import UnknownName
from clew.core.records import Annotation
from clew.methods.features.feature.feature_facts import read, row_of
from clew.store import MemoryStore
from clew.view.pages import curve_page, feature_page, reports, run_page
from tests.view.conftest import serving
from tests.view.features_made import CURVE, HOSTILE, LABEL, LATENT, NAME, QUESTION, commitment, facts, features


@pytest.fixture(scope="module")
def made():
    store = MemoryStore()
    run, places = features(store)
    commitment(store, (run.id,))
    return store, run, places


def test_a_comparison_lists_its_features_those_that_were_best_first(made):
    store, _, _ = made
    (one,) = feature_page.comparisons(store)
    assert (one["label"], one["b"], one["layer"]) == (LABEL, "./base", 1)
    assert [(row["latent"], row["whose"], row["parts"]) for row in one["features"]] == [
        (LATENT, "A", ["exclusive"]), (5, "both", []),
    ]  # fmt: skip
    assert one["features"][0]["often"] == pytest.approx(0.03)
    assert one["asked"] == [{"behaviour": QUESTION, "kind": "exclusive", "text": "feature 17 moves it"}]
    assert feature_page.comparison(store, LABEL) == one
    with pytest.raises(UnknownName, match="no comparison"):
        feature_page.comparison(store, "ffffffff")


def test_a_feature_has_its_contexts_from_the_record_and_the_reports_of_its_arms(made):
    store, run, places = made
    page = feature_page.feature(store, LABEL, str(LATENT))
    assert (page["said"], page["others"], page["counts"]) == (HOSTILE, [5], [0, 4, 0, 8])
    assert page["report"]["n"] == 30
    reply, prompt = page["places"][0], page["places"][-1]
    said = store.node(run.call(places[0].seq).node_out).message.text
    assert (reply["run"], reply["token"], reply["note"]) == (run.id, 0, "")
    assert said.startswith(reply["at"].strip())
    assert "count" in reply["before"]
    assert prompt["token"] is None
    (asked,) = page["asked"]
    assert [arm["stage"] for arm in asked["arms"]] == ["rate", "selection", "test", "control"]
    assert (asked["arms"][2]["estimate"], asked["arms"][2]["p"]) == (0.25, 0.004)
    for label, latent in ((LABEL, "99"), ("nothere0", "1"), (LABEL, "1x"), (LABEL, "17/../5")):
        with pytest.raises(UnknownName, match="no feature"):
            feature_page.feature(store, label, latent)


def test_reports_of_audits_lead_to_their_pages_and_a_run_names_its_features(made):
    store, run, _ = made
    rows = {row["id"]: row for row in reports.reports(store)}
    assert (rows[NAME]["source"], rows[NAME]["page"]) == (f"clew audit diff {LABEL}", f"feature/{LABEL}/{LATENT}")
    assert rows[f"diff-{LABEL}-00000000"]["more"] == f"features/{LABEL}"
    assert rows[f"early-{CURVE}-verdict"]["more"] == f"early/{CURVE}"
    assert (rows["r1"]["source"], rows["r1"]["more"]) == ("", "")
    assert run_page.head(store, run.id)["names"] == {NAME: f"feature {LATENT}: {HOSTILE}"}


def test_a_curve_is_put_together_from_its_reports(made):
    store, run, _ = made
    page = curve_page.curve(store, CURVE)
    assert [(p["at"], p["estimate"]) for p in page["curves"]["settled"]] == [(0.0, 0.0), (0.5, 0.4), (1.0, 1.0)]
    assert sorted(page["curves"]) == ["flip", "settled"]
    assert page["verdict"]["claim"].startswith("open until then")
    assert [it["claim"] for it in page["reports"]] == ["trace dependence"]
    assert page["runs"] == [run.id]
    with pytest.raises(UnknownName, match="no audit with a curve"):
        curve_page.curve(store, LABEL)


BAD = ["", "no json", "[]", "{}", "[" * 5000, json.dumps({"latent": "x"}), json.dumps({"latent": 1e999})]


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_fact_is_no_feature(data):
    store = MemoryStore()
    run, _ = features(store)
    store.annotate(Annotation("run", NAME, None, run.id, params=params, data=data) for params in ("", "abc"))
    assert read(store, NAME, store.reports()[NAME]) == (None, [])
    assert [row["latent"] for row in feature_page.comparisons(store)[0]["features"]] == [5]
    assert run_page.head(store, run.id)["names"] == {}


def test_what_was_redacted_is_shown_nowhere():
    store = MemoryStore()
    run, places = features(store)
    far = [places[0], places[1]._replace(run="gone"), places[2]._replace(position=10**6)]
    store.annotate([row_of(NAME, run.id, facts(far))])
    before = feature_page.feature(store, LABEL, str(LATENT))["places"]
    assert [bool(place["note"]) for place in before] == [False, True, True]
    store.redact(f"{run.id}@{places[0].seq}")
    after = feature_page.feature(store, LABEL, str(LATENT))["places"][0]
    assert after["note"] == "the text was taken out of the record"
    assert (after["before"], after["at"], after["after"]) == ("", "", "")


def test_the_addresses_answer_and_say_what_is_not_there(made):
    with serving(made[0]) as client:
        assert client.json("/api/features")[0]["label"] == LABEL
        assert client.json(f"/api/features/{LABEL}")["features"][0]["latent"] == LATENT
        assert client.json(f"/api/feature/{LABEL}/{LATENT}")["label"] == LABEL
        assert client.json(f"/api/early/{CURVE}")["label"] == CURVE
        for path in ("/api/features/x", f"/api/feature/{LABEL}/x", "/api/early/x"):
            assert client.json(path, status=404)["remedy"]
