"""clew audit why on a run of the desk whose reason is known, from the command line alone."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.cli.audit_why import parsed
from clew.store import open_store
from clew.view.pages.reports import reports
from tests.audit.clerk import CAUSES, DOES, flagged

CHANGES = [f"quarter=0:{CAUSES[0]}", f"leave=0:{CAUSES[1]}", "plain=0:Write in plain words."]


@pytest.fixture
def desk(tmp_path):
    """A store with a run in which the clerk broke the rule, and that run."""
    path = tmp_path / "desk.db"
    store = open_store(path)
    run = flagged(store)[1].id
    store.close()

    def ask(*args, code: int = 0):
        done = CliRunner().invoke(verbs, ["audit", "why", run, *map(str, args), "--store", str(path)])
        assert done.exit_code == code, done.output
        return done

    return path, run, ask


@pytest.mark.whole
def test_a_redundant_cause_is_found_from_the_command_line(desk):
    path, run, ask = desk
    done = ask("--does", DOES, "-n", 60, "--json")
    told = json.loads(done.stdout)
    assert told["kind"] == "causes"
    assert told["rollouts"] <= 3000
    assert sorted(name[:1] for name in told["causes"]) == ["0", "0"], "both blocks are of the system message"
    assert "rollouts (budget 3000), each like run" in done.stderr, "the cost is told first"
    assert not [x for x in told["evidence"] if x["test"] == "single" and x["reads"] == "for"]
    store = open_store(path)
    shown = {row["id"]: row for row in reports(store)}
    verdict = shown[told["reports"][-1]]
    assert verdict["claim"].startswith(f"why does /{DOES}/: caused by")
    for sentence in CAUSES:
        assert any(sentence in note for note in verdict["caveats"]), "its whole text, where a name is cut"
    assert verdict["runs"], "examples of the arms are kept whole"
    assert {store.run(name).parent.run for name in verdict["runs"]} == {run}
    assert store.verify() == []
    store.close()
    again = json.loads(ask("--does", DOES, "-n", 60, "--json").stdout)
    assert again["found in the store"] == again["rollouts"] == told["rollouts"]
    assert again["reports"] == told["reports"]


@pytest.mark.whole
def test_declared_hypotheses_and_what_is_printed(desk):
    _, _, ask = desk
    text = ask("--does", DOES, *(x for change in CHANGES for x in ("--change", change)), "-n", 60).output
    assert "causes: caused by leave or quarter (either is enough)" in text
    assert "placebo" in text
    assert "clew view" in text
    assert "tested: " in text
    never = ask("--does", "set_audit", *("--change", CHANGES[2]), "-n", 30, "--rewind", "steps", code=2).output
    assert "does not show the behaviour from call 1 on: none of its actions and replies matches /set_audit/" in never


def test_refusals_name_a_remedy(desk):
    _, _, ask = desk
    for args, words in (
        ((), "no behaviour is named"),
        (("--does", DOES, "--change", "nonsense"), "NAME=I:OLD=>NEW"),
        (("--does", DOES, "--change", "x=0:not there"), "does not hold"),
        (("--does", DOES, "--sweep", "0:a=>{}"), "go together"),
        (("--does", DOES, "--rises", "nobody"), "is not the name of a change"),
        (("--does", DOES, "--budget", "10"), "budget"),
    ):
        assert words in ask(*args, code=2).output


def test_how_a_change_is_written():
    assert parsed("hurry=0:Finish today.") == ("hurry", (0, "Finish today.", ""))
    assert parsed("calm=1:now=>at leisure") == ("calm", (1, "now", "at leisure"))
    assert parsed("2:a=>b") == ("2: a", (2, "a", "b"))
