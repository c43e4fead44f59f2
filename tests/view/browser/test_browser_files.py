"""The files of runs on the page: beside each step, as a tree, two branches side by side; hostile ones do nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.store import open_store
from tests.view.browser.browsing import Watched, served, until
from tests.view.files_made import EVIL, HOSTILE, FolderRun, family, project, write

pytestmark = pytest.mark.whole

DESK, PHONE = (1280, 800), (390, 844)
LOOKS = pytest.mark.parametrize(
    ("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk in light", "phone in dark"]
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("files")
    store = open_store(place / "s.db")
    family(store, place)
    hostile(store, place)
    store.close()
    with served(place / "s.db") as address:
        yield address


def hostile(store: Any, place: Path) -> None:
    """Names and contents that mean harm; many files; a large one; then most of them changed."""

    def evil(folder: Path) -> None:
        for name in HOSTILE:
            (folder / name).write_text(EVIL)
        os.symlink("javascript:window.hit=4", folder / "link")
        deep = folder.joinpath(*["d" * 200] * 15)
        deep.mkdir(parents=True)
        (deep / "file.txt").write_text("deep\n")

    def many(folder: Path) -> None:
        (folder / "many").mkdir()
        for i in range(5000):
            (folder / "many" / f"f{i:04}").write_text(f"{i}\n")
        (folder / "large.txt").write_text("".join(f"line {i} of a long text\n" for i in range(300_000)))
        (folder / "one-line.txt").write_text("word " * 100_000)

    def more(folder: Path) -> None:
        for i in range(5000):
            with (folder / "many" / f"f{i:04}").open("a") as file:
                file.write("more\n")

    run = FolderRun(store, place, "evil").begin(project)
    run.step("evil", evil).step("many", many).step("more", more).end()


def broken(look: Watched) -> Any:
    return look.page.evaluate((Path(__file__).parent / "rules.js").read_text())


def shows(look: Watched, selector: str, text: str) -> Any:
    """Wait for an element that says something."""
    found = look.page.locator(selector, has_text=text).first
    found.wait_for()
    return found


def tab(look: Watched, name: str) -> None:
    """Turn to a part of the page where there is not room for all."""
    if look.page.locator(".tabs").is_visible():
        look.page.get_by_role("tab", name=name).click()


def lines(look: Watched, kind: str) -> list[str]:
    """Lines that were added or removed, as they are to be seen."""
    return [text.rstrip() for text in look.page.locator(f".dl.{kind} .tx").all_inner_texts()]


@LOOKS
def test_what_a_step_changed_stands_beside_it_and_opens_by_key_and_by_pointer(
    chrome: Any, base: Any, size: Any, scheme: str
) -> None:
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/first@4")
    line = shows(look, "[data-seq='4'] .stepfiles", "1 file changed")
    assert line.inner_text().split() == ["▸", "1", "file", "changed", "+1", "−1", "src/total.py", "All", "files"]
    assert look.page.locator(".stepfiles").count() <= 3
    assert not look.page.locator("[data-seq='2'] .stepfiles").count()
    toggle = look.page.locator("[data-seq='4'] .changed")
    assert toggle.get_attribute("aria-expanded") == "false"
    look.press("u")
    look.page.locator("[data-seq='4'] .dl.add").wait_for()
    assert lines(look, "del") == ["    return sum(numbers) + 1"]
    assert lines(look, "add") == ["    return sum(numbers)"]
    assert look.page.locator("[data-seq='4'] .dl").count() == 8
    look.page.get_by_role("button", name="2 equal lines").click()
    assert until(lambda: look.page.locator("[data-seq='4'] .dl").count() == 18)
    assert look.fits()
    look.shot(f"files-step-{size[0]}-{scheme}")
    assert broken(look) == []
    look.press("i", "i")
    assert until(lambda: look.route == "#/run/first@8")
    shows(look, "[data-seq='8'] .stepfiles", "4 files and 2 folders changed").locator(".changed").click()
    shows(look, ".patchfile", "mode 644 became 755")
    shows(look, ".patchfile", "a link to ../src/total.py")
    assert look.page.get_by_label("notes.txt, deleted").locator(".dl.del").count() == 2
    look.press("I")
    assert until(lambda: look.route == "#/run/first@6")
    assert "▸ .git changed" in shows(look, "[data-seq='6'] .stepfiles", ".git").inner_text()
    look.press("I")
    assert look.page.locator("[data-seq='4'] .dl").count() == 18, "what was opened stays open"
    look.press("u")
    assert until(lambda: not look.page.locator("[data-seq='4'] .dl").count())
    look.press("j", "u")
    shows(look, "#toast", "changed no files")
    look.close()


def test_the_outline_lists_the_steps_that_changed_files(chrome: Any, base: Any) -> None:
    look = Watched(chrome, base, *DESK).open("#/run/first")
    shows(look, ".facets button", "files changed").click()
    assert until(lambda: look.page.locator(".row.line").count() == 3)
    assert [text.split()[0] for text in look.texts(".row.line")] == ["@4", "@6", "@8"]
    look.close()


@LOOKS
def test_the_tree_marks_what_changed_and_shows_files(chrome: Any, base: Any, size: Any, scheme: str) -> None:
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/first@9")
    shows(look, ".actions button", "Files").click()
    shows(look, ".entry", "run.sh")
    assert until(lambda: look.route == "#/files/first@9")
    rows = [" ".join(text.split()) for text in look.texts(".entry")]
    assert rows[:3] == ["▸.git/", "▸made/ A added", "▸src/"]
    assert "link.py → ../src/total.py A added" in rows
    assert "notes.txt 8 B D deleted" in rows
    assert "run.sh x 5 B M changed" in rows
    tab(look, "File")
    shows(look, ".filehead", "6 paths changed")
    shows(look, ".patchfile", "mode 644 became 755")
    assert look.fits()
    assert broken(look) == []
    tab(look, "Tree")
    look.page.locator(".list").focus()
    assert broken(look) == []
    look.shot(f"files-tree-{size[0]}-{scheme}")
    look.press("j", "j", "j", "l")  # .git, made, src: opened
    look.page.locator(".entry[aria-label='total.py']").wait_for()
    look.press("j", "j", "Enter")
    shows(look, ".filehead", "src/total.py")
    assert until(lambda: look.route == "#/files/first@9?path=src/total.py")
    assert until(lambda: look.texts(".cl .tx")[5:6] == ["return sum(numbers)"])
    assert look.page.locator(".cl .no").nth(5).get_attribute("data-n") == "6"
    assert "321 B, mode 644" in look.page.locator(".filehead").inner_text()
    look.press("[", "[")
    assert until(lambda: look.route == "#/files/first@5?path=src/total.py"), "the same file, two changes before"
    shows(look, ".filehead", "Changes")
    look.press("u")
    assert until(lambda: lines(look, "del") == ["    return sum(numbers) + 1"])
    assert until(lambda: look.route == "#/files/first@5?path=src/total.py&show=changes")
    look.shot(f"files-file-{size[0]}-{scheme}")
    assert look.fits()
    look.press("s")
    assert until(lambda: look.route == "#/run/first@5")
    look.close()


def test_an_address_leads_to_a_file_and_the_line_to_copy_names_its_place(chrome: Any, base: Any) -> None:
    look = Watched(chrome, base, *DESK, permissions=["clipboard-read", "clipboard-write"])
    look.open("#/files/first@9?path=src/total.py")
    shows(look, ".cl", "return sum(numbers)")
    assert look.page.locator(".entry[aria-selected=true]").inner_text().split()[0] == "total.py"
    shows(look, ".shell button", "Copy").click()
    shows(look, "#toast", "Copied")
    copied = look.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("clew checkout first@9 files-at-9 --store ")
    assert copied == look.page.locator(".command").inner_text()
    look.open("#/files/first@9?path=made/data.bin")
    shows(look, ".filenote", "A binary file of 5.1 kB (5,120 bytes): it is not shown.")
    look.open("#/files/first@9?path=notes.txt")
    assert until(lambda: lines(look, "del") == ["one", "two"]), "what is gone is shown by what it held"
    look.open("#/files/first@9?path=no/where.py")
    shows(look, ".filesgone", "There is no no/where.py in these files, before call 9.")
    look.open("#/files/first@1")
    shows(look, ".filepane", "These are the first files that are known of this run")
    look.open("#/files/first@8")
    shows(look, ".prompt", "as they stood before call 8, marked: what changed since @5")
    assert look.page.get_by_label("Files as they stood").input_value() == "first@8"
    look.page.get_by_label("Files as they stood").select_option("first")
    shows(look, ".prompt", "as they stood at the end")
    look.page.get_by_label("Compare with", exact=True).select_option("second")
    assert until(lambda: look.route.startswith("#/files/second/first"))
    look.close()


def pairs(look: Watched) -> list[tuple[str, str]]:
    """Lines that stand beside each other, with their numbers and signs."""
    script = """rows => rows.map(row => {
      const parts = [...row.children].map(el => el.dataset.n ?? el.textContent);
      return [parts.slice(0, 3).join('|'), parts.slice(3).join('|')];
    })"""
    return [tuple(row) for row in look.page.locator(".dl.two").evaluate_all(script)]


@LOOKS
def test_two_branches_files_stand_side_by_side(chrome: Any, base: Any, size: Any, scheme: str) -> None:
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/diff/first/second")
    shows(look, ".actions button", "Files").click()
    shows(look, ".entry", "src/total.py")
    assert until(lambda: look.route.startswith("#/files/first/second"))
    assert "paths differ" in look.page.locator(".prompt").inner_text()
    rows = [" ".join(text.split()) for text in look.texts(".entry")]
    assert {"src/total.py +4 −1 M changed", "notes.txt +3 A added", "link.py D deleted"} <= set(rows)
    look.page.locator(".list").focus()
    shows(look, ".entry", "src/total.py").click()
    assert until(lambda: look.route == "#/files/first/second?path=src/total.py")
    tab(look, "File")
    look.page.locator(".dl").first.wait_for()
    if size == DESK:
        side = pairs(look)
        assert ("6|−|    return sum(numbers)", "6|+|    result = 0") in side
        assert ("||", "7|+|    for number in numbers:") in side
        assert ("7| |", "10| |") in side, "equal lines are beside each other again"
        equal = [(left.split("|", 1)[1], right.split("|", 1)[1]) for left, right in side if "| |" in left]
        assert equal
        assert all(left == right for left, right in equal)
        look.press("v")
        assert until(lambda: not look.page.locator(".dl.two").count())
    assert lines(look, "add")[0] == "    result = 0"
    look.shot(f"files-diff-{size[0]}-{scheme}")
    assert look.fits()
    assert broken(look) == []
    look.press("v", "x")
    assert until(lambda: look.route == "#/files/second/first?path=src/total.py")
    shows(look, ".entry", "src/total.py")
    look.page.get_by_label("Side B: files as they stood").select_option("first@5")
    assert until(lambda: look.route == "#/files/second/first@5?path=src/total.py")
    shows(look, ".prompt", "2 paths differ")
    look.open("#/files/first@2/second@2")
    shows(look, ".prompt", "equal: both have the same files there")
    assert broken(look) == []
    look.close()


@LOOKS
def test_hostile_names_and_contents_do_nothing(chrome: Any, base: Any, size: Any, scheme: str) -> None:
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/evil@2")
    shows(look, "[data-seq='2'] .stepfiles", "13 files and 15 folders changed")
    look.press("u")
    shows(look, ".patchfile", "⟨RLO⟩")
    assert look.fits()
    look.open("#/files/evil@3")
    shows(look, ".entry", "<script>window.hit=1<")
    names = " ".join(look.texts(".entry"))
    for shown in (
        "new␊line.txt",
        "bidi⟨RLO⟩txt.exe",
        "tab␉here",
        "zero⟨ZWSP⟩width",
        "latin-⟨U+DCE9⟩",
        "100%25 ?a=b&c#d",
    ):
        assert shown in names
    look.page.locator(".list").focus()
    for name in ("100%25", "latin-", "bidi", "<img"):
        tab(look, "Tree")
        shows(look, ".entry", name).click()
        tab(look, "File")
        shows(look, ".filehead", name)
        assert until(lambda: look.texts(".cl .tx") == ["<script>window.hit=3</script>⟨RLO⟩␛[31mred⟨LRI⟩"])
        address = look.route
        look.open("#/runs").open(address)
        shows(look, ".filehead", name)
    look.open("#/files/evil@3?path=link")
    shows(look, ".filenote", "It leads to javascript:window.hit=4")
    assert look.fits()
    assert broken(look) == []
    assert not look.page.locator(".filepane a").count()
    assert look.page.evaluate("window.hit") is None
    look.close()


def test_five_thousand_changed_files_and_a_large_text_are_shown_piece_by_piece(chrome: Any, base: Any) -> None:
    look = Watched(chrome, base, *DESK).open("#/run/evil@6")
    shows(look, "[data-seq='6'] .stepfiles", "5,000 files changed")
    look.press("u")
    more = shows(look, "[data-seq='6'] .patchrest button", "Show 20 more files")
    assert look.page.locator("[data-seq='6'] .patchfile").count() == 20
    more.click()
    assert until(lambda: look.page.locator("[data-seq='6'] .patchfile").count() == 40)
    look.open("#/files/evil@5/evil")
    shows(look, ".prompt", "5,000 paths differ")
    shows(look, ".entry", "many/f0000")
    look.page.locator(".list").evaluate("el => el.scrollTop = el.scrollHeight")
    shows(look, ".entry", "many/f4999").click()
    assert until(lambda: lines_right(look) == ["more"])
    assert look.page.locator(".entry").count() < 200, "only what is near is in the document"
    look.open("#/files/evil@5?path=large.txt")
    shows(look, ".filehead", "MB, mode 644")
    shows(look, ".cl", "line 0 of a long text")
    first = look.page.locator(".cl").count()
    assert first < 10_000
    shows(look, ".patchrest button", "Show more").click()
    assert until(lambda: look.page.locator(".cl").count() > first)
    numbers = look.page.locator(".cl .no").evaluate_all("all => all.map(el => Number(el.dataset.n))")
    assert numbers == list(range(1, len(numbers) + 1))
    said = look.page.locator(".cl .tx").evaluate_all("all => all.map(el => el.textContent)")
    assert said == [f"line {i} of a long text" for i in range(len(said))], "no line is lost or cut between two pieces"
    look.open("#/files/evil@5?path=one-line.txt")
    shows(look, ".cl", "word word")
    shows(look, ".patchrest button", "Show more").click()
    shows(look, ".patchrest", "262 kB of 500 kB shown")
    assert look.page.locator(".cl").count() == 1, "a line goes on where it was cut"
    assert look.fits()
    look.close()


def lines_right(look: Watched) -> list[str]:
    return look.texts(".dl.two .tx.add")


def test_what_was_erased_is_named_and_without_its_shelf_a_run_says_so(chrome: Any, tmp_path: Path) -> None:
    store = open_store(tmp_path / "s.db")
    run = FolderRun(store, tmp_path, "one").begin(write(secret_txt="hunter2\n", other_txt="stays\n"))
    run.step("change", write(secret_txt="hunter3\n", other_txt="changed\n")).end()
    store.close()
    words = ["store", "redact", "one", "--files", "secret.txt", "--yes", "--store", str(tmp_path / "s.db")]
    assert CliRunner().invoke(verbs, words).exit_code == 0
    with served(tmp_path / "s.db", "--read-only") as address:
        look = Watched(chrome, address, *DESK).open("#/run/one@2")
        shows(look, "[data-seq='2'] .stepfiles", "2 files changed")
        look.press("u")
        shows(look, ".patchfile", "before: erased from all snapshots")
        look.open("#/files/one?path=secret.txt")
        shows(look, ".filenote", "Erased from all snapshots.")
        assert "gone" in shows(look, ".entry", "secret.txt").inner_text()
        assert "hunter" not in look.page.content()
        shutil.move(tmp_path / "files", tmp_path / "elsewhere")
        look.open("#/run/one@2")
        said = "there is no folder files/ beside this store, so that no file of its runs can be shown"
        shows(look, ".filesgone", said)
        assert not look.page.locator(".stepfiles").count()
        for route in ("#/files/one", "#/files/one@2/one"):
            look.open(route)
            shows(look, ".notice.error", said)
            assert look.page.locator(".notice.error").count() == 1
        assert not (tmp_path / "files").exists()
        look.close()
