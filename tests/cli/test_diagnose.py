"""clew diagnose on the command line: formats, policies, calibration, the record, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.methods.diagnose.known import ELSEWHERE
from clew.store import Run, open_store
from tests.coding.shop import REPORT, git, make


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = make(tmp_path_factory.mktemp("shop"), history=24)
    (folder.parent / "bug.txt").write_text(REPORT)
    return folder


@pytest.fixture
def clew(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*words: str, given: str | bytes | None = None):
        where = ["--store", str(tmp_path / "s.db")] if "calibrate" not in words else []
        return CliRunner().invoke(verbs, ["diagnose", *words, *where], input=given)

    return run


def test_text_names_the_place_and_the_run_is_kept(clew, shop, tmp_path):
    done = clew(str(shop), "--report", str(shop.parent / "bug.txt"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("1. shop/cart.py:")
    assert "   place       `Cart.apply_voucher`." in done.stdout
    first = done.stdout.partition("\n2. ")[0]
    assert "apply_voucher" in first.partition("   matched     ")[2].partition("\n")[0]
    assert "   imported by 1 files: shop/mail.py\n   tests       tests/test_cart.py" in first
    assert "cause" not in done.stdout  # a ranking knows none
    (run,) = open_store(tmp_path / "s.db").find("")
    assert run in done.stderr
    assert Run(open_store(tmp_path / "s.db"), run).stop == "returned"
    assert len(list((tmp_path / "cache/clew/diagnose").glob("*.db"))) == 1
    assert git(shop, "status", "--porcelain") == ""


def test_json_and_markdown_say_the_same_and_the_policy_decides(clew, shop):
    said = json.loads(clew(str(shop), "--report", "-", "--format", "json", given=REPORT).stdout)
    first = said["findings"][0]
    assert first["location"]["file"] == "shop/cart.py"
    assert all(f["inject"] for f in said["findings"])
    assert said["calibration"]["source"].startswith("201 past fixes")
    shown = clew(str(shop), "--report", "-", "--format", "markdown", "--agent", "strong", given=REPORT).stdout
    assert "Read and verify" in shown
    sure = [f for f in said["findings"] if f.get("confidence", 0) >= ELSEWHERE.cut]
    assert shown.count("### ") == len(sure)
    assert ("worth a look" in shown) == (len(sure) < len(said["findings"]))


@pytest.mark.whole
def test_a_calibration_is_used_from_then_on(clew, shop):
    done = clew("calibrate", str(shop), "-n", "24")
    assert done.exit_code == 0, done.output
    assert "24 past fixes; held out, the newer 8" in done.stdout
    said = json.loads(clew(str(shop), "--report", "-", "--format", "json", given=REPORT).stdout)
    assert said["calibration"]["n"] == 24


def test_as_many_findings_as_asked_for(clew, shop):
    for n in (1, 2, 4):
        said = json.loads(clew(str(shop), "--report", "-", "--format", "json", "-n", str(n), given=REPORT).stdout)
        assert len(said["findings"]) == n
    assert clew(str(shop), "--report", "-", "-n", "0", given=REPORT).exit_code == 2


def test_nothing_is_left_in_the_repository(tmp_path, monkeypatch):
    folder = make(tmp_path / "shop")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLEW_STORE", raising=False)
    done = CliRunner().invoke(verbs, ["diagnose", ".", "--report", "-"], input=REPORT)
    assert done.exit_code == 0, done.output
    assert git(folder, "status", "--porcelain", "--ignored") == ""
    command = done.stderr.rpartition("clew ")[2].split()  # the line that is printed works as it is
    assert CliRunner().invoke(verbs, command).exit_code == 0


def test_a_report_in_another_script_is_matched_by_the_identifiers_in_it(clew, shop):
    report = "调用Cart.apply_voucher时金额错误，小数被截断"  # no spaces around what is named
    done = clew(str(shop), "--report", "-", given=report)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("1. shop/cart.py:16-18")


@pytest.mark.parametrize(
    ("words", "given", "says"),
    [
        (["{repo}"], None, "there is no bug report"),
        (["{repo}", "--report", "-"], "  \n", "is empty"),
        (["{repo}", "--report", "-"], b"\0\1", "is not text"),
        (["{repo}", "--report", "-"], b"\xff\xfe\x81abc", "is not text"),
        (["{repo}", "--report", "-"], "voucher " * 200_000, "has over 1000000 bytes"),
        (["{repo}", "--report", "-", "--agent", "{repo}/../outcomes.jsonl"], REPORT, "line 1: not an outcome"),
        (["{repo}", "--report", "-"], "zyzzyva qwertz", "nothing in the repository matches"),
        (["{repo}", "--report", "absent.txt"], None, "absent.txt"),
        (["{repo}/../nowhere", "--report", "-"], "x", "is not a folder"),
        (["{repo}/..", "--report", "-"], "x", "not a git repository"),
        (["{repo}", "--report", "-", "--commit", "none"], "x", "none"),
        (["{repo}", "--report", "-", "--agent", "mighty"], REPORT, "no such file"),
        (["calibrate", "{repo}/.."], None, "not a git repository"),
        (["calibrate", "{repo}/../fresh"], None, "there is no commit 'HEAD'"),
    ],
)
def test_bad_input_is_named_with_its_remedy(clew, shop, words, given, says):
    git(shop.parent, "init", "-q", "fresh")
    (shop.parent / "outcomes.jsonl").write_bytes(b"\xff\xfe\n")
    done = clew(*(w.format(repo=shop) for w in words), given=given)
    assert done.exit_code == 2, done.output
    assert says in done.output
    assert "This is an error in Clew" not in done.output
