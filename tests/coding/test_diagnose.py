"""Where a report points: the view, the index, the ranking, findings, confidence and the history behind it."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clew.coding.repository.digest import WORD, Digest, digest, parts, term
from clew.coding.repository.git import Git
from clew.coding.repository.languages import left_out, parser
from clew.coding.repository.past_fixes import fixes
from clew.coding.repository.repository import Index, View
from clew.core.errors import BadInput
from clew.core.values import ToolCall
from clew.methods.diagnose.bug_report import identifiers
from clew.methods.diagnose.calibrate import calibrate
from clew.methods.diagnose.choose import Chooser
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.confidence import Calibration, features, fit, learnt, policy
from clew.methods.diagnose.finding import SCHEMA, answer, finding, markdown
from clew.methods.diagnose.rank import K1, B, Corpus, bm25, rank
from tests.coding.shop import FILES, REPORT, git, make


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def view(shop) -> View:
    return View(shop)


@pytest.fixture(scope="module")
def chooser(view) -> Chooser:
    return Chooser.over(Tools(view))


def test_the_view_is_filtered_and_says_what_it_left_out(view):
    assert set(view.files) == {n for n in FILES if n.split("/")[0] not in ("docs", "node_modules", "build")}
    assert view.dropped == {"documentation": 1, "dependencies": 1, "build output": 1, "binary": 2, "over 1 MB": 1}


def test_a_snapshot_and_the_working_tree_are_read_alike(shop, view):
    assert View(shop, "HEAD").digests.keys() == view.digests.keys()
    for path, found in View(shop, "HEAD").digests.items():
        assert found.chunks == view.digests[path].chunks
        assert (found.entries == view.digests[path].entries).all()


def test_chunks_are_innermost_definitions_and_cover_every_word_once(view):
    found = view.digests["shop/cart.py"]
    names = {c.name for c in found.chunks}
    assert {"Cart", "Cart.add_item", "Cart.apply_voucher", "Cart.total"} <= names
    spans = sorted((c.start, c.end) for c in found.chunks)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
    one = digest(FILES["shop/cart.py"].encode(), "text")
    counted = {int(t): int(found.entries[found.entries[:, 0] == t, 2].sum()) for t in set(found.entries[:, 0])}
    assert counted == {int(t): int(one.entries[one.entries[:, 0] == t, 2].sum()) for t in set(one.entries[:, 0])}


def test_a_digest_is_the_same_packed(view):
    for found in view.digests.values():
        again = Digest.of(found.lines, found.chunks, found.defines, found.imports, found.entries.T)
        assert again.packed == found.packed
        counted = [int(found.entries[found.entries[:, 1] == k, 2].sum()) for k in range(found.size)]
        assert found.lengths.tolist() == counted
        assert len(found.chunks) == found.size
    for cut in (3, 10, 40, len(found.packed) - 1):
        with pytest.raises(ValueError, match=r"buffer|not \d|Expecting|size"):
            Digest(found.packed[:cut])


def test_a_long_function_is_cut_and_broken_source_still_has_words():
    long = "def f():\n" + "    word = 1\n" * 450
    spans = [(c.start, c.end) for c in digest(long.encode(), "python").chunks]
    assert spans[0][0] == 1
    assert spans[-1][1] == 451
    assert max(b - a for a, b in spans) < 200
    assert digest(b"def broken(:\n  word\n", "python").entries.size


def test_the_index_is_keyed_by_content(shop, tmp_path, monkeypatch):
    import clew.coding.repository.workers as workers

    read = []
    real = workers.digest
    monkeypatch.setattr(workers, "digest", lambda content, how: read.append(content) or real(content, how))
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "-q", str(shop), str(copy))
    View(copy, index=Index(tmp_path / "i.db"))
    cold = len(read)
    View(copy, index=Index(tmp_path / "i.db"))
    View(copy, "HEAD", index=Index(tmp_path / "i.db"))
    assert len(read) == cold
    (copy / "shop/price.py").write_text(FILES["shop/price.py"] + "\n\ndef discount():\n    return 0\n")
    (copy / "new.py").write_text("def fresh(): pass\n")
    changed = View(copy, index=Index(tmp_path / "i.db"))
    assert len(read) == cold + 2
    assert "discount" in dict(changed.digests["shop/price.py"].defines)
    assert "new.py" in changed.files


def test_a_damaged_index_is_told_and_done_without(shop, tmp_path):
    (tmp_path / "i.db").write_bytes(b"no database" * 500)
    found = View(shop, index=Index(tmp_path / "i.db"))
    assert "no warm index" in found.index.note
    assert found.files


def test_several_processes_read_what_one_does(shop, monkeypatch):
    import clew.coding.repository.repository as module

    monkeypatch.setattr(module, "APART", 1)
    apart, alone = View(shop, index=Index()), View(shop, "HEAD", index=Index())
    assert all((apart.digests[p].entries == alone.digests[p].entries).all() for p in apart.digests)


@pytest.mark.parametrize(
    ("make_it", "says"),
    [
        (lambda p: p, "not a git repository"),
        (lambda p: p / "absent", "is not a folder"),
        (lambda p: (git(p, "init", "-q"), p)[1], "no file to look at"),
    ],
)
def test_what_cannot_be_looked_at_is_said(tmp_path, make_it, says):
    with pytest.raises(BadInput, match=says):
        View(make_it(tmp_path))


def test_only_binary_and_large_files(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\0")
    (tmp_path / "big.py").write_bytes(b"x = 1\n" * 900_000)
    git(tmp_path, "init", "-q")
    with pytest.raises(BadInput, match="over 1 MB"):
        View(tmp_path)


def test_left_out_by_path():
    assert left_out("docs/a.py") == "documentation"
    assert left_out("src/docs/a.py") == ""
    assert left_out("x/node_modules/a.js") == "dependencies"


def test_identifiers_of_a_report():
    said = "`Cart.apply_voucher()` with --no-tax raises PriceError in shop.price, see add_item and plain words"
    assert identifiers(said) == ["Cart", "apply_voucher", "no_tax", "shop", "price", "PriceError", "add_item"]


@pytest.mark.parametrize(
    ("identifier", "found"),
    [
        ("getURLs", ["get", "url"]),
        ("URLs", ["url"]),
        ("IDsOfUsers", ["id", "of", "user"]),
        ("HTTPServer", ["http", "server"]),
        ("parseHTTPHeader_value", ["parse", "http", "header", "value"]),
        ("größe", ["größe"]),
        ("имя_файла", ["имя", "файла"]),
        ("调用函数", ["调用", "用函", "函数"]),
    ],
)
def test_identifiers_are_split_as_programmers_write_them(identifier, found):
    assert parts(identifier) == found


def test_words_of_several_scripts_are_told_apart():
    assert WORD.findall("调用apply_voucher时 größe2 имя") == ["调用", "apply_voucher", "时", "größe2", "имя"]
    assert identifiers("调用Cart.apply_voucher时add_item()失败") == ["Cart", "apply_voucher", "add_item"]


def test_comments_of_another_script_are_matched(tmp_path):
    for name, said in (("a", "计算折扣"), ("b", "发送邮件")):
        (tmp_path / f"{name}.py").write_text(f"# {said}\ndef {name}():\n    return 0\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    assert rank(Corpus(View(tmp_path)), "折扣不对").paths[0] == "a.py"


def test_a_blob_that_is_absent_is_left_out(tmp_path):
    make(tmp_path)
    blob = git(tmp_path, "rev-parse", "HEAD:shop/mail.py")
    (tmp_path / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    assert "shop/cart.py" in View(tmp_path, "HEAD").files
    assert "shop/mail.py" not in View(tmp_path, "HEAD").files


def test_bm25_is_the_formula():
    counts, length = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.array([10.0, 5.0, 3.0])
    scores = bm25(counts, length)
    for d in range(3):
        for t, df in ((0, 2), (1, 1)):
            norm = K1 * (1 - B + B * length[d] / 6.0)
            idf = math.log(1 + (3 - df + 0.5) / (df + 0.5))
            assert scores[d, t] == pytest.approx(idf * counts[d, t] * (K1 + 1) / (counts[d, t] + norm))


def test_the_ranking_finds_the_planted_place(chooser):
    ranking = chooser.ranking(REPORT)
    assert ranking.paths[0] == "shop/cart.py"
    assert ranking.places["shop/cart.py"][0].chunk.name == "Cart.apply_voucher"
    assert all(ranking.scores[:-1] >= ranking.scores[1:])


def test_counts_agree_with_counting(chooser, view):
    wanted = ["voucher", "rounded", "nowhere"]
    files = chooser.corpus.counts([term("=" + w) for w in wanted]).files
    for i, path in enumerate(chooser.corpus.paths):
        said = [w.lower() for w in WORD.findall(view.text(path))]
        assert files[i].tolist() == [said.count(w) for w in wanted]


def test_scores_of_the_chunks_that_have_a_word_are_those_of_all(chooser):
    """The fast path leaves out chunks without any; the slow one has a row for each."""
    corpus = chooser.corpus
    terms = [term(w) for w in ("voucher", "cart", "nowhere", "round")]
    found = corpus.counts(terms)
    every = np.zeros((len(corpus.length), len(terms)))
    shifts = [np.array([0, first, 0]) for first in corpus.first[:-1]]
    entries = np.concatenate([d.entries + by for d, by in zip(corpus.digests, shifts, strict=True)])
    for k, t in enumerate(terms):
        every[entries[entries[:, 0] == t, 1], k] = entries[entries[:, 0] == t, 2]
    assert 0 < len(found.rows) < len(every)
    assert (every[found.rows] == found.chunks).all()
    dense = bm25(every, corpus.length)
    assert (dense[found.rows] == bm25(found.chunks, corpus.length, found.rows)).all()
    assert dense.sum() == pytest.approx(bm25(found.chunks, corpus.length, found.rows).sum())
    assert (corpus.best(dense.sum(1)[found.rows], found.rows) == corpus.best(dense.sum(1), np.arange(len(dense)))).all()


def test_names_that_differ_in_case_are_each_found_where_they_are_defined(tmp_path):
    (tmp_path / "a.py").write_text("def setUp():\n    pass\n\n\ndef größe():\n    pass\n")
    (tmp_path / "b.py").write_text("import a\n\ndef setup():\n    a.setUp()\n")
    git(tmp_path, "init", "-q")
    named = rank(Corpus(View(tmp_path)), "`setUp` is called by `setup`, and so is größe()").named
    assert named == {"setUp": (("a.py", 1),), "setup": (("b.py", 3),), "größe": (("a.py", 5),)}


def test_a_common_word_is_gated_unless_it_is_defined(tmp_path):
    for k in range(12):
        (tmp_path / f"m{k}.py").write_text(f"def only_{k}():\n    return shared_state\n")
    git(tmp_path, "init", "-q")
    corpus = Corpus(View(tmp_path))
    gated, free = (rank(corpus, "`shared_state` and `only_3`", gated=g) for g in (True, False))
    assert gated.paths[0] == free.paths[0] == "m3.py"
    assert gated.parts["search"][1:].max() == 0
    (tmp_path / "extra.py").write_text("x = 1\n" * 5)
    wider = rank(Corpus(View(tmp_path)), "`shared_state`", gated=False)
    assert wider.parts["search"].max() == 1  # ungated, the common word counts
    assert rank(Corpus(View(tmp_path)), "`shared_state`").parts["search"].max() == 0


def test_a_report_of_other_words_finds_nothing(chooser):
    assert chooser.findings("zyzzyva qwertz") == []


def test_imports_in_both_directions(chooser):
    links = chooser.tools.links
    assert links.imports["shop/cart.py"] == ("shop/__init__.py", "shop/price.py")
    assert links.importers["shop/cart.py"] == ("shop/mail.py", "tests/test_cart.py")
    assert links.imports["web/basket.js"] == ("web/money.js",)


def test_tools_are_bounded_and_forgiving(chooser):
    tools = chooser.tools
    assert "apply_voucher" in tools.view_file("cart.py", 15, 19)
    assert tools.view_file("shop/cart.py", 17, 19).splitlines()[0] == (
        "shop/cart.py lines 17-19 of 21; imports shop/__init__.py, shop/price.py"
    )
    first, *rest = tools.codebase_search("APPLY_VOUCHER").split("\n\n")
    assert first == "1 files contain 'APPLY_VOUCHER'"
    assert len(rest) == 1
    assert "shop/price.py 12 lines" in tools.repo_tree("shop")
    assert "is imported by: shop/mail.py, tests/test_cart.py" in tools.connected_tree("shop/cart.py")
    call = next(t for t in tools.all() if t.spec.name == "view_file").call(
        ToolCall("1", "view_file", '{"path": "crt.py"}')
    )
    assert call.text.startswith("error:")
    assert "shop/cart.py" in call.text


def test_long_files_and_many_hits_stay_bounded(tmp_path):
    (tmp_path / "long.py").write_text("needle = 1\n" + "pad = 2\n" * 3000)
    for k in range(40):
        (tmp_path / f"n{k}.py").write_text("x = 0\n" * 50 + "needle\n" + "x = 0\n" * 50)
    git(tmp_path, "init", "-q")
    tools = Tools(View(tmp_path))
    shown = tools.view_file("long.py")
    assert len(shown.splitlines()) == 402
    assert "2601 more lines" in shown
    found = tools.codebase_search("needle")
    assert found.startswith("41 files")
    assert sum(line.endswith(".py") for line in found.splitlines()) == 20


def test_findings_fit_the_schema_and_the_repository(chooser, view):
    jsonschema = pytest.importorskip("jsonschema", reason="did not run: jsonschema is not installed")
    found = chooser.findings(REPORT)
    assert found
    for f in found:
        jsonschema.validate(f.json(), dict(SCHEMA))
        assert finding(f.json()) == f
        assert f.problems(view) == []
    assert found[0].dependencies == ("shop/mail.py",)
    assert "tests/test_cart.py" in found[0].testing_impact


def test_what_is_not_so_is_found_out(chooser, view):
    said = chooser.findings(REPORT)[0].json()
    wrong = [
        ({"location": {"file": "shop/none.py", "start": 1, "end": 2}}, "does not exist"),
        ({"location": {"file": "shop/cart.py", "start": 1, "end": 99}}, "21 lines"),
        ({"dependencies": ["shop/gone.py"]}, "dependency shop/gone.py"),
        ({"testing_impact": "see tests/test_gone.py"}, "test tests/test_gone.py"),
    ]
    for change, says in wrong:
        assert says in finding({**said, **change}).problems(view)[0]
    for change in (
        {"matched": []},
        {"testing_impact": ""},
        {"location": {"file": "a"}},
        {"location": {"file": "a", "start": 3, "end": 2}},
    ):
        with pytest.raises(BadInput):
            finding({**said, **change})


def test_an_answer_is_read_tagged_fenced_or_bare(chooser):
    found = chooser.findings(REPORT)
    body = json.dumps([f.json() for f in found])
    for text in (f"so <findings>{body}</findings>", f"<findings>\n```json\n{body}\n```</findings>", body):
        assert answer(text) == found
    assert answer("let me look") is None
    with pytest.raises(BadInput, match="not JSON"):
        answer("<findings>[{]</findings>")


def test_markdown_tells_to_verify_and_hints_without_claims(chooser):
    found = chooser.findings(REPORT)[:2]
    text = markdown(found, [True, False])
    assert "Read and verify" in text
    assert f"Words of the report found there: {', '.join(found[0].matched)}" in text
    assert "Root cause" not in text  # a ranking knows none
    assert found[1].location_explanation not in text
    caused = replace(found[0], root_cause="a half is cut", solution_idea="round", matched=())
    assert "- Root cause: a half is cut\n- Direction of a fix: round\n" in markdown([caused])
    assert finding(caused.json()) == caused
    with pytest.raises(BadInput, match="lacks root_cause, solution_idea"):
        finding({k: v for k, v in caused.json().items() if k not in ("root_cause", "solution_idea")})
    assert found[1].file in text.splitlines()[-1] or found[1].file in text


def test_confidence_recovers_a_planted_rule_and_nothing_from_noise():
    dice = np.random.default_rng(0)
    x = dice.uniform(0, 1, (4000, 5))
    truth = np.array([4.0, 2.0, 0.0, 0.0, -1.0])
    p = 1 / (1 + np.exp(-(x @ truth - 2.5)))
    found = fit(x, dice.uniform(size=4000) < p, "planted")
    assert np.abs(np.array(found.weights) - truth).max() < 0.45
    noise = fit(x, dice.uniform(size=4000) < 0.5, "noise")
    assert np.abs(noise.weights).max() < 0.45
    share = np.mean([found(row) >= found.cut for row in x])
    assert share == pytest.approx(0.4, abs=0.01)
    with pytest.raises(BadInput, match="too few"):
        fit(x[:5], np.array([True] * 5), "few")


def test_features_speak_for_the_right_file(chooser):
    ranking = chooser.ranking(REPORT)
    right, wrong = (features(ranking, p) for p in ("shop/cart.py", "shop/price.py"))
    assert right[0] > 0 > wrong[0]
    assert right[1] > wrong[1]
    assert features(ranking, "not/there.py")[0] == -1


def test_policies(tmp_path):
    sure = Calibration((1.0,) * 5, 0.0, 0.7, 30, "x")
    assert policy("weak", sure).full([0.1, 0.9]) == [True, True]
    assert policy("strong", sure).full([0.1, 0.9]) == [False, True]
    logs = [(False, None, True)] * 6 + [(False, None, False)] * 4 + [(True, True, True)] * 9 + [(True, True, False)]
    logs += [(True, False, True)] * 2 + [(True, False, False)] * 8
    path = tmp_path / "logs.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(("injected", "right", "resolved"), x, strict=True))) for x in logs))
    assert policy(str(path), sure).threshold == pytest.approx(0.4 / 0.7)  # gain .3, loss .4
    assert learnt([{"injected": a, "right": b, "resolved": not c} for a, b, c in logs], "x").threshold > 1
    path.write_text('{"injected": true}\n')
    with pytest.raises(BadInput, match="line 1"):
        policy(str(path), sure)
    with pytest.raises(BadInput, match="no such file"):
        policy("mighty", sure)
    with pytest.raises(BadInput, match="without a finding"):
        learnt([{"injected": True, "right": True, "resolved": True}], "x")


def test_past_fixes_have_masked_reports_and_a_truth(tmp_path):
    repo = Git(make(tmp_path, history=6))
    found = fixes(repo)
    assert [f.report.partition(":")[0] for f in found] == [f"Fix #{k}" for k in reversed(range(6))]
    assert all(".py" not in f.report for f in found)
    assert list(found[0].gold) == ["shop/mail.py"]
    (span,) = found[0].gold["shop/mail.py"]
    assert span[0] == span[1]
    assert git(tmp_path, "status", "--porcelain") == ""


def test_news_fragments_are_reports(tmp_path):
    make(tmp_path)
    (tmp_path / "changelog").mkdir()
    (tmp_path / "changelog/7.bugfix.rst").write_text("Vouchers of ``Cart`` are rounded, in shop/cart.py too.\n")
    (tmp_path / "shop/cart.py").write_text(FILES["shop/cart.py"].replace("1 - voucher", "1.0 - voucher"))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "vouchers", day=3)
    (fix,) = fixes(Git(tmp_path))
    assert fix.report.startswith("Vouchers of ``Cart`` are rounded")
    assert fix.gold == {"shop/cart.py": ((18, 18),)}


@pytest.mark.whole
def test_calibration_reads_history_and_leaves_the_tree_alone(tmp_path):
    make(tmp_path, history=24)
    (tmp_path / "shop/cart.py").write_text("unsaved\n")
    found = calibrate(Git(tmp_path), Index())
    assert (found.n, found.held) == (24, 8)
    assert 0.5 < found.accuracy < 1
    assert (tmp_path / "shop/cart.py").read_text() == "unsaved\n"
    found.calibration.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == found.calibration
    with pytest.raises(BadInput, match="past fixes"):
        calibrate(Git(make(tmp_path / "few", history=3)), Index())


def test_other_languages_by_tree_sitter(view):
    if parser("javascript") is None:
        pytest.skip("did not run: the extra 'coding' is not installed")
    names = {c.name for c in view.digests["web/basket.js"].chunks}
    assert {"Basket.constructor", "Basket.renderVoucherBadge"} <= names
    cases = {
        "go": b"package a\n\nfunc (s *Shop) Total() int {\n  return 1\n}\n",
        "java": b"class Shop {\n  int total() {\n    return 1;\n  }\n}\n",
        "c": b"int total(int x) {\n  return x;\n}\n",
        "rust": b"impl Shop {\n  fn total(&self) -> i32 { 1 }\n}\n",
        "typescript": b"interface Shop {}\nfunction total(x: number) { return x }\n",
    }
    for language, source in cases.items():
        assert "total" in {name.lower() for name, _ in digest(source, language).defines}, language


def test_without_the_extra_other_languages_are_text():
    code = (
        "import sys\nsys.modules['tree_sitter'] = None\n"
        "from clew.coding.repository.languages import read_as\nprint(read_as('a.js'), read_as('a.py'), read_as('a.rb'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["text", "python", "source"]
