"""A search of agents and judges as figures: its history by its log, its page, its cards in the viewer."""

from __future__ import annotations

import asyncio
import json
import shutil
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.core.errors import BadRecord, UnknownName
from clew.methods.coevolve.archive import Archive, ChainedLog
from clew.methods.coevolve.archive.archive import LOG
from clew.view.evolution import search_figures, search_history, search_page, search_reports
from tests.evolve.studios import searched


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder of a search that replaced its judge, and how that search stood at its end."""
    folder = tmp_path_factory.mktemp("searches") / "numbers"
    archive, _ = asyncio.run(searched(Archive(folder), budget={"outcomes": 1024}))
    archive.close()
    return folder, archive


def test_a_history_says_what_the_archive_holds(ended):
    folder, archive = ended
    found = search_history.history(folder)
    assert found.archive.summary() == archive.summary()
    assert [twig.parent for twig in found.twigs] == archive.lineage.parents
    assert sum(epoch.replaced for epoch in found.epochs) == archive.judges["review"].epoch > 0
    assert sum(epoch.erased for epoch in found.epochs) == archive.evidence.erased > 0
    assert found.best == archive.ended["best"]
    accepted = found.accepted["writer"]
    assert len(accepted) <= search_history.WINDOWS
    assert accepted[-1][1] > accepted[0][1]
    assert found.right["review"][-1][1] == max(share for _, share in found.right["review"])


def test_a_search_that_goes_on_is_read_and_left_alone(ended, tmp_path):
    log = (ended[0] / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(log[: len(log) // 2])
    writer = ChainedLog(tmp_path / LOG)  # holds the file, having dropped the line that was cut
    before = (tmp_path / LOG).read_bytes()
    found = search_history.history(tmp_path)
    writer.close()
    assert found.archive.ended is None
    assert 0 < found.archive.outcomes < 1024
    assert dict(search_page.facts_of(found))["state"] == "going on, or stopped"
    assert (tmp_path / LOG).read_bytes() == before


def test_the_tree_draws_each_node_once_below_its_parent(ended):
    found = search_history.history(ended[0])
    root = ElementTree.fromstring(search_figures.tree(found))
    space = "{http://www.w3.org/2000/svg}"
    dots = [dot for dot in root.iter(f"{space}circle") if dot.find(f"{space}title") is not None]
    assert len(dots) == len(found.twigs)
    places = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in dots]
    assert len(set(places)) == len(places)
    for twig, (_, y) in zip(found.twigs[1:], places[1:], strict=True):
        assert y > places[twig.parent][1]
    rings = [dot.get("stroke") is not None for dot in dots]
    assert rings == [twig.stale > 0 for twig in found.twigs]
    assert any(rings)
    assert not all(rings)


def test_what_a_proposer_wrote_is_text_on_the_page(tmp_path):
    archive = Archive(tmp_path)
    evil = "<script>alert(1)</script>\x1b[31m"
    archive.begin({}, ["agent"], {}, {"outcomes": 8})
    archive.node(-1, {"agent": evil}, {})
    archive.close()
    html = search_page.page("Search <b>", search_history.history(tmp_path))
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html
    assert "<b>" not in html


def test_cards_of_the_viewer(ended, tmp_path):
    shutil.copytree(ended[0], tmp_path / "numbers")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / LOG).write_bytes(b"no chain\n")
    cards = search_reports.cards(tmp_path)
    assert {card["source"] for card in cards} == {"clew evolve numbers"}
    assert cards[0]["claim"].startswith("judge of review")
    assert cards[0]["n"] == 40
    assert all(card["low"] <= card["estimate"] <= card["high"] for card in cards)
    for kind in search_reports.FIGURES:
        root = ElementTree.fromstring(search_reports.figure(tmp_path, "numbers", kind))
        assert float(root.get("width")) > 0
    for name, kind in (("..", "tree"), ("numbers", "secret"), ("missing", "tree")):
        with pytest.raises(UnknownName):
            search_reports.figure(tmp_path, name, kind)
    assert search_reports.cards(None) == search_reports.cards(tmp_path / "missing") == []


def test_the_verb(ended, tmp_path):
    def clew(*words):
        return CliRunner().invoke(verbs, ["evolve", "show", *map(str, words)])

    shown = clew(ended[0], "--html", tmp_path / "new" / "search.html")
    assert shown.exit_code == 0
    assert "1,024 of 1,024 outcomes" in shown.output
    assert "--- judge" in shown.output
    assert (tmp_path / "new" / "search.html").read_text().startswith("<!doctype html>")
    told = json.loads(clew(ended[0], "--json").output)
    node = json.loads(clew(ended[0], "--node", told["best"]).output)
    assert node == ended[1].workspace(told["best"])
    assert f"Next: clew evolve show {ended[0]}" in clew(ended[0]).output
    assert "Nodes are 0 to" in clew(ended[0], "--node", 5000).output
    with pytest.raises(UnknownName, match="no search lies in"):
        search_history.history(tmp_path)
    (tmp_path / LOG).write_bytes(b"no chain\n")
    with pytest.raises(BadRecord, match="line 1"):
        search_history.history(tmp_path)


def test_a_search_for_theories_is_shown_with_its_noise_and_its_people(tmp_path):
    from clew.methods.theories.simulated_people import SimulatedPeople
    from clew.methods.theories.theory_loop import Rules, search
    from clew.methods.theories.theory_proposers import GrammarProposer
    from clew.view.evolution import theory_page

    folder = tmp_path / "worst"
    folder.mkdir()
    log = ChainedLog(folder / theory_page.LOG)
    rules = Rules(cycles=1, people=6, policy="blind")
    state = asyncio.run(search(log, SimulatedPeople("take_the_worst", 6), GrammarProposer(), rules))
    log.close()
    seen = theory_page.theories(folder)
    assert [form.told for form in seen.pool] == [form.told for form in state.pool]
    html = theory_page.page("Theories <b>", seen)
    assert "<b>" not in html
    assert theory_page.words(seen) in html
    for svg in (theory_page.bars(seen), theory_page.scatter(seen)):
        ElementTree.fromstring(svg)
    pairs = sum(len(one.share) for one in seen.observations)
    assert theory_page.scatter(seen).count("<circle") == pairs
    shown = CliRunner().invoke(verbs, ["evolve", "show", str(folder), "--html", str(tmp_path / "t.html")])
    assert shown.exit_code == 0
    assert "2 designs, 12 people, 1 revisions" in shown.output
    assert (tmp_path / "t.html").is_file()
    whole = (folder / theory_page.LOG).read_bytes().splitlines(keepends=True)
    (folder / theory_page.LOG).write_bytes(whole[0])
    assert theory_page.words(theory_page.theories(folder)) == "Nothing was observed yet."
    with pytest.raises(UnknownName, match="no search for theories"):
        theory_page.theories(tmp_path)
