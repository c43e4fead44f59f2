"""Labs: a bank whose experiments are drawn once, and people on a stand-in of Prolific, with an interruption."""

import json

import numpy as np
import pytest

from clew.core.aio import run_sync
from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import Rule, cells
from clew.methods.theories.labs import Bank, Design, PeopleOnProlific, Unfinished, lab_of
from clew.methods.theories.prolific import Prolific, Study
from tests.evolve.choosers import choices
from tests.evolve.people_api import TOKEN, desk, token_of

EVEN = Rule("even", {}, lambda _, seen: np.full(len(seen.a), 0.5))
DESIGN = Design(np.array([[1.0, 0], [0, 1]]), np.array([[0.0, 1], [1, 1]]), np.array([0.9, 0.6]), 2)
STUDY = Study("Choices", "Choose between two products.", "https://lab.test/?s={{%SESSION_ID%}}", "C1EW7K2Q", 3, 5, 60)


def test_a_bank_gives_each_experiment_once():
    lab = Bank([choices(EVEN, i, people=4) for i in range(3)])
    first = lab.offers()[1]
    found = run_sync(lab.collect(first))
    assert cells(found).a.tolist() == first.a.tolist()
    assert len(lab.offers()) == 2
    assert "nothing" in lab.cost(first)
    with pytest.raises(BadInput, match="no such experiment left"):
        run_sync(lab.collect(first))
    with pytest.raises(BadInput, match="empty"):
        Bank([])


def test_people_of_several_batches_on_one_design_are_all_in_the_bank():
    batches = [choices(EVEN, 7, people=4 + i) for i in range(3)]
    other = choices(EVEN, 8, people=5)
    shuffled = batches[1]._replace(**{k: getattr(batches[1], k)[::-1] for k in ("a", "b", "subject", "chose_b")})
    lab = Bank([batches[0], other, shuffled, batches[2]])
    assert len(lab.offers()) == 2
    first, second = (run_sync(lab.collect(one)) for one in lab.offers())
    assert first.people == 4 + 5 + 6
    assert len(first.chose_b) == sum(len(one.chose_b) for one in batches)
    pooled = cells(first)
    assert (pooled.share * pooled.counts).sum() == sum(one.chose_b.sum() for one in batches)
    assert len(np.unique(second.subject)) == 5


def test_people_are_asked_once_though_the_wait_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PROLIFIC_API_TOKEN", TOKEN)
    page, folder = tmp_path / "choices.jsonl", tmp_path / "lab"
    with desk() as server:

        async def wait(seconds):
            server.finish("study0", 1)

        def lab(**more):
            api = Prolific(token_of, server.address)
            return PeopleOnProlific(api, STUDY, folder, page, most=1000, every=60, wait=wait, **more)

        with pytest.raises(Unfinished, match="1 of 3 people"):
            run_sync(lab(patience=60).collect(DESIGN))
        rows = [{"session": f"s{who}", "pair": pair, "chose_b": pair} for who in (2, 0, 1, 9) for pair in (0, 1, 1)]
        page.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = run_sync(lab().collect(DESIGN))
        assert len(server.studies) == 1
        (folder / f"study-{DESIGN.key}.json").unlink()
        assert len(run_sync(lab().collect(DESIGN)).chose_b) == 9
        assert len(server.studies) == 1
        assert server.asked.count(("POST", "/studies/study0/transition/")) == 1
    assert found.subject.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found.chose_b.tolist() == [0, 1, 1] * 3
    assert found.b[:2].tolist() == DESIGN.b.tolist()
    kept = "".join(path.read_text() for path in folder.iterdir())
    assert TOKEN not in kept
    assert "secret" not in kept
    assert "s0" not in kept


def test_a_page_that_wrote_nothing_or_nonsense_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PROLIFIC_API_TOKEN", TOKEN)
    page = tmp_path / "choices.jsonl"
    with desk() as server:
        lab = PeopleOnProlific(Prolific(token_of, server.address), STUDY, tmp_path / "lab", page, most=1000)
        assert "1.80" in lab.cost(DESIGN)
        assert "PUBLISH" in lab.rehearse(DESIGN)
        dear = PeopleOnProlific(Prolific(token_of, server.address), STUDY, tmp_path / "lab", page, most=200)
        with pytest.raises(BadInput, match=r"2\.52, more than the 2\.00"):
            run_sync(dear.collect(DESIGN))
        server.finish("study0", 3)
        for text, why in (
            ("", "3 of 3 people who finished have no choices"),
            ('{"session": "s0", "pair": 5, "chose_b": 1}\n', "line 1 of choices.jsonl"),
            ("[" * 5000 + "\n", "line 1"),
        ):
            page.write_text(text)
            with pytest.raises(BadInput, match=why):
                run_sync(lab.collect(DESIGN))
        page.unlink()
        with pytest.raises(BadInput, match="is absent"):
            run_sync(lab.collect(DESIGN))


def test_a_lab_is_made_of_the_options_of_a_line(tmp_path):
    assert isinstance(lab_of({}, [choices(EVEN, 1, people=4)]), Bank)
    fields = {name: getattr(STUDY, name) for name in Study.__slots__ if name != "known"}
    told = {"connector": "prolific", "folder": tmp_path, "choices": tmp_path / "page.jsonl", "most": 900, **fields}
    assert "9.00 in all" in lab_of(told).cost(DESIGN)
    with pytest.raises(BadInput, match="needs url, most"):
        lab_of({**told, "url": None, "most": None})
    with pytest.raises(BadInput, match="reward of the study is no whole number"):
        lab_of({**told, "reward": "90"})
    with pytest.raises(BadInput, match="name of the study is no text"):
        lab_of({**told, "name": ["x"]})
    with pytest.raises(BadInput, match="no connector 'x'"):
        lab_of({"connector": "x"})
