"""The connector to Prolific against a stand-in of its documented routes: order, cost, tokens, hostile answers."""

import json

import pytest

from clew.core.aio import run_sync
from clew.core.errors import BadInput, Refused, Unreachable
from clew.methods.theories.prolific import Prolific, Study, dry_run
from tests.evolve.people_api import TOKEN, desk, token_of

STUDY = Study("Choices", "Choose between two products.", "https://lab.test/?s={{%SESSION_ID%}}", "C1EW7K2Q", 120, 8, 90)


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("PROLIFIC_API_TOKEN", TOKEN)


def test_a_study_is_priced_drafted_published_and_its_people_read(token):
    with desk() as server:
        api = Prolific(token_of, server.address)
        cost = run_sync(api.cost(STUDY))
        assert cost == round(120 * 90 * 1.4)
        known = run_sync(api.draft(STUDY))
        assert run_sync(api.status(known)) == "UNPUBLISHED"
        assert run_sync(api.find("Choices")) == known
        assert run_sync(api.find("another")) is None
        with pytest.raises(BadInput, match=r"costs 151\.20, more than the 100\.00"):
            run_sync(api.publish(known, cost=cost, most=10_000))
        assert run_sync(api.status(known)) == "UNPUBLISHED"
        run_sync(api.publish(known, cost=cost, most=20_000))
        assert run_sync(api.status(known)) == "ACTIVE"
        server.finish(known, 120)
        people = run_sync(api.submissions(known))  # two pages
        assert len(people) == 120
        assert {p.code for p in people} == {"C1EW7K2Q"}
        assert "secret" not in repr(people)
        run_sync(api.stop(known))
        sent = server.studies[known]
        assert sent["prolific_id_option"] == "url_parameters"
        assert sent["total_available_places"] == 120
        assert server.asked[0] == ("POST", "/study-cost-calculator/")


def test_a_dry_run_needs_no_token_and_tells_the_cost(monkeypatch):
    monkeypatch.delenv("PROLIFIC_API_TOKEN", raising=False)
    told = dry_run(STUDY)
    assert "108.00" in told
    assert "PUBLISH" in told
    assert json.dumps(STUDY.body()) in told
    with pytest.raises(BadInput, match="PROLIFIC_API_TOKEN is not set"):
        run_sync(Prolific(token_of).cost(STUDY))


def test_the_token_is_never_told_and_never_sent_in_clear_text(token, monkeypatch):
    with desk() as server:
        server.says = f"we got {TOKEN}\x1b[2J"
        with pytest.raises(Refused, match=r"400: we got \*\*\*") as caught:
            run_sync(Prolific(token_of, server.address).cost(STUDY))
        assert TOKEN not in str(caught.value)
        assert "\x1b" not in str(caught.value)
        server.says, address = "", server.address
        monkeypatch.setenv("PROLIFIC_API_TOKEN", "another")
        with pytest.raises(Refused, match="the token is not known"):
            run_sync(Prolific(token_of, address).cost(STUDY))
    with pytest.raises(Unreachable):
        run_sync(Prolific(token_of, address).cost(STUDY))
    for wrong in (
        "http://api.prolific.com/api/v1",
        "ftp://x",
        "nothing",
        "https://api.prolific.com.evil.test/api/v1",
        "https://me:pass@api.prolific.com",
    ):
        with pytest.raises(BadInput) as refused:
            Prolific(token_of, wrong)
        assert "pass@" not in str(refused.value)


def test_ids_that_would_change_the_next_address_are_refused(token):
    with desk() as server:
        server.studies["x"] = {"id": "../users", "internal_name": "known"}
        with pytest.raises(Refused, match="no id"):
            run_sync(Prolific(token_of, server.address).find("known"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reward": 70}, "less than Prolific's 600 an hour"),
        ({"url": "https://lab.test/"}, "whose choices"),
        ({"places": 0}, "places is 0"),
        ({"code": "a b"}, "completion code"),
        ({"name": " "}, "a name"),
    ],
)
def test_a_study_that_prolific_would_not_take_is_refused_here(change, why):
    fields = {name: getattr(STUDY, name) for name in Study.__slots__}
    with pytest.raises(BadInput, match=why):
        Study(**fields | change)
