"""Stack traces in bug reports: five languages, which frames are the repository's, what the ranking makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.coding.repository.repository import View
from clew.methods.diagnose.bug_report import LONGEST, BugReport
from clew.methods.diagnose.choose import Chooser
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.rank import Corpus, rank
from clew.methods.diagnose.traces import FRAMES, spots, traces
from tests.coding.shop import git, make

PYTHON = """
Traceback (most recent call last):
  File "/home/me/run.py", line 3, in <module>
    invoice_letter("Ann", cart)
  File "/usr/lib/python3.11/site-packages/shop/mail.py", line 9, in invoice_letter
    total = cart.total()
  File "/usr/lib/python3.11/site-packages/shop/price.py", line 8, in of
    return TABLE[name]
KeyError: 'cup'
"""
IPYTHON = """
KeyError                                  Traceback (most recent call last)
<ipython-input-3-f> in <module>
----> 1 invoice_letter("Ann", cart)

~/venv/lib/python3.8/site-packages/shop/mail.py in invoice_letter(customer, cart)
      7     lines = []
----> 9     total = cart.total()

~/venv/lib/python3.8/site-packages/shop/price.py in of(name)
----> 8     return TABLE[name]
"""
PYTEST = """
    def test_x():
>       invoice_letter("Ann", cart)
tests/test_x.py:4:
shop/mail.py:9: in invoice_letter
    total = cart.total()
shop/price.py:8: KeyError
"""
JAVASCRIPT = """
TypeError: x.toFixed is not a function
    at money (/app/node_modules/shop/web/money.js:1:42)
    at Basket.renderVoucherBadge (file:///app/node_modules/shop/web/basket.js:6:12)
    at async Object.<anonymous> (/app/index.js:3:1)
"""
FIREFOX = """
money@http://localhost/web/money.js:1:42
renderVoucherBadge@http://localhost/web/basket.js?v=3:6:12
"""
GO = """
panic: runtime error: invalid memory address

goroutine 1 [running]:
example.com/shop/price.(*Table).Of(0x0, {0x1, 0x3})
\t/root/go/pkg/mod/example.com/shop@v1.2.0/price/price.go:14 +0x1d
example.com/shop/mail.Invoice(...)
\t/root/go/pkg/mod/example.com/shop@v1.2.0/mail/mail.go:22
main.main()
\t/home/me/main.go:9 +0x20
"""
RUST = """
thread 'main' panicked at src/price.rs:14:9:
index out of bounds
stack backtrace:
   0: rust_begin_unwind
             at /rustc/abc/library/std/src/panicking.rs:647:5
   1: shop::price::of
             at ./src/price.rs:14:9
   2: shop::mail::invoice
             at ./src/mail.rs:22:5
"""
JAVA = """
Exception in thread "main" java.lang.RuntimeException: no letter
\tat com.shop.Mail.invoice(Mail.java:22)
\tat me.Main.main(Main.java:5)
Caused by: java.util.NoSuchElementException: cup
\tat java.base/java.util.Optional.get(Optional.java:143)
\tat com.shop.price.Table.of(Table.java:14)
\t... 2 more
"""


@pytest.mark.parametrize(
    ("report", "paths", "inside", "ends"),
    [
        (PYTHON, ["shop/mail.py", "shop/price.py", "run.py"], ["shop/price.py", "shop/mail.py"], ("of", 8)),
        (IPYTHON, ["shop/mail.py", "shop/price.py"], ["shop/price.py", "shop/mail.py"], ("of", 8)),
        (PYTEST, ["shop/mail.py", "shop/price.py"], ["shop/price.py", "shop/mail.py"], ("", 8)),
        (
            JAVASCRIPT,
            ["web/money.js", "web/basket.js", "lib/index.js"],
            ["web/money.js", "web/basket.js"],
            ("money", 1),
        ),
        (FIREFOX, ["web/money.js", "web/basket.js"], ["web/money.js", "web/basket.js"], ("money", 1)),
        (GO, ["price/price.go", "mail/mail.go", "main.go"], ["price/price.go", "mail/mail.go"], ("Of", 14)),
        (RUST, ["src/price.rs", "src/mail.rs"], ["src/price.rs", "src/mail.rs"], ("of", 14)),
        (
            JAVA,
            ["core/src/main/java/com/shop/Mail.java", "core/src/main/java/com/shop/price/Table.java"],
            ["core/src/main/java/com/shop/Mail.java", "core/src/main/java/com/shop/price/Table.java"],
            ("invoice", 22),
        ),
    ],
    ids=["python", "ipython", "pytest", "javascript", "firefox", "go", "rust", "java"],
)
def test_the_frames_of_the_repository_are_found(report, paths, inside, ends):
    defines = {path: frozenset({"of", "invoice"}) for path in paths}
    found = spots(traces(report), paths, defines)
    assert list(dict.fromkeys(spot.path for spot in found)) == inside
    last = next(spot for spot in found if spot.name or report is PYTEST)
    assert (last.name, last.line) == ends
    assert found[0].depth == 0
    assert found[-1].entry


def test_what_caused_and_what_was_caused_each_end_somewhere():
    found = spots(traces(JAVA), ["com/shop/Mail.java", "com/shop/price/Table.java"], {})
    assert [(s.path, s.depth, s.entry) for s in found] == [
        ("com/shop/Mail.java", 0, True), ("com/shop/price/Table.java", 0, True),
    ]  # fmt: skip


def test_the_reporters_own_files_and_those_of_others_are_not_taken_for_the_repositorys():
    report = PYTHON.replace("/home/me/run.py", "/home/me/proj/price.py")
    paths = ["shop/price.py", "shop/mail.py"]
    assert [s.line for s in spots(traces(report), paths, {})] == [8, 9]
    twice = ["a/shop/price.py", "b/shop/price.py"]  # of two that fit alike, neither
    assert spots(traces(report), twice, {}) == []
    assert spots(traces("at f (/x/util.py:3:1)\nnot a trace, line 3, in f"), ["util.py"], {}) == []


def test_a_report_is_read_within_bounds():
    frame = 'File "/x/shop/price.py", line 8, in of\n'
    assert sum(map(len, traces(frame * 5000))) == FRAMES
    assert traces("at " * 100_000 + "(" * 100_000) == []
    assert traces('File "' + "a" * 100_000) == []
    assert traces(f'File "/x/a.py", line {"9" * 800}, in f')[0][0].line == 999_999_999
    blob = BugReport.of("colour " + "x" * 250 + "." * 50 + "shape.py")  # 300 characters without a space are enough
    assert blob.prose[0] == "colour"
    assert blob.files == ()
    assert BugReport.of("<!--" * 1000 + " colour").prose == ("colour",)  # a comment that never ends is none
    said = BugReport.of("".join(f"word{k:x}zz some_name_{k} " for k in range(40_000)) + "!" * LONGEST)
    assert len(said.prose) == 400
    assert len(said.names) == 200
    assert len(said.weight) == 600


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("shop"))


def test_the_innermost_frame_comes_first_whatever_the_words_say(shop):
    """Every word but the trace's is of the cart and the letter."""
    report = "No letter for a cart with a cup: `invoice_letter` fails after `add_item`\n" + PYTHON
    corpus = Corpus(View(shop))
    ranking = rank(corpus, report)
    assert ranking.paths[0] == "shop/price.py"
    assert ranking.places["shop/price.py"][0].chunk.name == "of"
    assert rank(corpus, report.replace(PYTHON, "")).paths.index("shop/price.py") > 1
    first, second, *_ = Chooser.over(Tools(corpus._view)).findings(report)
    assert "The stack trace ends here" in first.location_explanation
    assert (first.start, first.end) == (6, 7)
    by_file = {f.file: f.location_explanation for f in Chooser.over(Tools(corpus._view), 5).findings(report)}
    assert "1 files outside of where it ends. Here the caller's program comes in." in by_file["shop/mail.py"]
    assert second.file != first.file


def test_lines_of_a_trace_are_no_words(shop):
    assert "invoice" not in BugReport.of("prices\n" + PYTHON.replace('    invoice_letter("Ann", cart)\n', "")).prose
    hidden = BugReport.of("<!-- describe the voucher\nhere -->\nthe price")
    assert hidden.prose == ("price",)


def test_a_file_that_the_report_names_counts_unless_any_program_has_one(tmp_path):
    for name in ("app/main.py", "app/colour.py", "app/shape.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def draw():\n    return 1\n")
    git(tmp_path, "init", "-q")
    corpus = Corpus(View(tmp_path))
    assert rank(corpus, "draw in shape.py is wrong").mentioned == ("app/shape.py",)
    assert rank(corpus, "draw in shape.py is wrong").paths[0] == "app/shape.py"
    assert rank(corpus, "my main.py calls draw").mentioned == ()
    assert rank(corpus, "draw in app/main.py").mentioned == ("app/main.py",)


def test_files_that_like_commits_changed_before_count(tmp_path):
    folder = make(tmp_path)
    for k, name in enumerate(("mail", "mail", "price")):
        place = folder / f"shop/{name}.py"
        place.write_text(place.read_text() + f"\n\nLAST_{k} = {k}\n")
        said = "Umlauts of the addressee are garbled" if name == "mail" else "Ink is dearer\n\n\x01" + "0" * 40
        git(folder, "commit", "-qam", said, day=k + 2)
    corpus = Corpus(View(folder))
    ranking = rank(corpus, "the addressee's umlauts look garbled")
    assert ranking.paths[0] == "shop/mail.py"
    assert [change.subject for change in ranking.past["shop/mail.py"]] == ["Umlauts of the addressee are garbled"] * 2
    assert "shop/price.py" not in ranking.past
    older = Corpus(View(folder, "HEAD~3"))  # the past of a snapshot ends with it
    assert rank(older, "the addressee's umlauts look garbled").past == {}
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/a.py").write_text("umlauts = 1\n")
    git(tmp_path / "bare", "init", "-q")
    assert Corpus(View(tmp_path / "bare")).changes == []
