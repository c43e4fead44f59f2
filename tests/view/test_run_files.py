"""The files of runs as the viewer tells them: steps, patches, folders, contents; within bounds, and nothing erased."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import clew
from clew.cli import verbs
from clew.models.fakes import Scripted, tool_call
from clew.serve import noted_files
from clew.serve.gateway.run_files import noted
from clew.serve.history import Arrival
from clew.store import Keeper, Run
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from clew.view.files import changed_files, folder_page, patch_page, run_snapshots
from clew.view.files.run_snapshots import read, written
from clew.worlds.workspace import Scan, TreeShelf, Workspace
from tests.view.conftest import Client, serving
from tests.view.files_made import EVIL, HOSTILE, TASKSET, FolderRun, family, project, write


def ask(client: Client, address: str, status: int = 200, **query: Any) -> Any:
    """The JSON of an address; its query may hold a ``path``."""
    named = {"from" if name == "start_at" else name: value for name, value in query.items()}
    answer = client.get(f"/api/{address}", params=named)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    store = SQLiteStore(folder / "s.db")
    family(store, folder)
    Script(store, "plain").play()
    store.close()
    return folder


@pytest.fixture(scope="module")
def seen(place: Path) -> Any:
    with serving(place / "s.db") as client:
        yield client


def made(tmp_path: Path) -> tuple[Keeper, FolderRun]:
    store = SQLiteStore(tmp_path / "s.db")
    return store, FolderRun(store, tmp_path, "one")


def test_the_steps_that_changed_files_are_told_beside_their_calls(seen: Client) -> None:
    assert ask(seen, "run/first")["files"] is True
    assert ask(seen, "run/plain")["files"] is False
    told = ask(seen, "run/first/snapshots")
    assert [(one["place"], one["at"], one["changed"]) for one in told["places"]] == [
        ("first@1", 0, False),
        ("first@5", 4, True),
        ("first@7", 6, True),
        ("first@9", 8, True),
        ("first", 11, False),
    ]
    steps = {step["at"]: step for step in ask(seen, "run/first/changes")["steps"]}
    assert sorted(steps) == [4, 6, 8], "what changes nothing, or only a time, has no line"
    assert steps[4] | {"a": "first@3", "b": "first@5", "files": 1, "plus": 1, "minus": 1} == steps[4]
    assert steps[6] | {"files": 0, "folders": 0, "own": [".git"], "plus": 0} == steps[6]
    assert steps[8] | {"files": 4, "folders": 2, "plus": 0, "minus": 2, "more": False} == steps[8]
    assert steps[8]["names"] == ["link.py", "made/data.bin", "notes.txt", "run.sh"]
    some = ask(seen, "run/first/changes", start=5, stop=8)
    assert [step["at"] for step in some["steps"]] == [6]
    assert ask(seen, "run/plain/snapshots") == {"places": [], "more": False, "error": "", "remedy": ""}
    assert ask(seen, "run/plain/changes")["steps"] == []


def test_the_patch_of_a_step_has_a_piece_for_each_kind_of_change(seen: Client) -> None:
    found = {file["path"]: file for file in ask(seen, "files/patch", a="first@7", b="first@9")["files"]}
    assert found["run.sh"]["notes"] == ["mode 644 became 755"]
    assert found["link.py"]["notes"] == ["a link to ../src/total.py"]
    assert found["made"]["notes"] == ["folder"]
    assert found["made/data.bin"]["notes"] == ["0 bytes became 5,120, binary or too long to compare by lines"]
    assert found["notes.txt"] | {"sign": "-", "plus": 0, "minus": 2, "sizes": [8, None]} == found["notes.txt"]
    mend = ask(seen, "files/patch", a="first@3", b="first@5")["files"][0]
    (hunk,) = mend["hunks"]
    assert (hunk["old"], hunk["new"]) == (3, 3)
    assert [row for row in hunk["rows"] if row[0] != " "] == [
        ["-", "    return sum(numbers) + 1"],
        ["+", "    return sum(numbers)"],
    ]
    assert len(hunk["rows"]) == 8, "three lines around"
    whole = ask(seen, "files/patch", a="first@3", b="first@5", path="src/total.py", whole=1)
    assert len(whole["hunks"][0]["rows"]) == 18
    assert ask(seen, "files/patch", a="", b="first@9") == ask(seen, "files/patch", a="first@7", b="first@9")
    git = ask(seen, "files/patch", a="first@5", b="first@7")["files"]
    assert [(file["path"], file["kind"], file["hunks"]) for file in git] == [(".git", "own", [])]
    assert git[0]["note"] == "8 entries changed, which a program keeps for itself"
    assert ask(seen, "files/patch", a="first@5", b="first@7", path=".git")["note"] == git[0]["note"]
    inner = ask(seen, "files/patch", a="first@5", b="first@7", path=".git/HEAD")
    assert inner["hunks"][0]["rows"][0] == ["+", "x"]


def test_two_branches_are_compared_at_their_ends_and_at_a_call(seen: Client) -> None:
    found = ask(seen, "files/changed", a="first", b="second")
    rows = {row["path"]: (row["sign"], row["plus"], row["minus"]) for row in found["files"]}
    assert rows["src/total.py"] == ("*", 4, 1)
    assert rows["notes.txt"] == ("+", 3, 0)
    assert rows["made/data.bin"][0] == "-"
    assert (found["a"], found["b"], found["next"], found["more"]) == ("first", "second", None, False)
    assert ask(seen, "files/changed", a="first@2", b="second@2")["files"] == [], "what they share is equal"
    early = ask(seen, "files/changed", a="first@5", b="second@5")
    assert [row["path"] for row in early["files"]] == ["src/total.py"]
    same = ask(seen, "files/patch", 404, a="first", b="second", path="test.py")
    assert "is the same in both" in same["error"]


def test_a_folder_marks_what_changed_since_the_step_before(seen: Client) -> None:
    root = ask(seen, "files/folder", place="first@9")
    assert (root["since"], root["total"], root["next"]) == ("first@7", 7, None)
    marks = [(row["name"], row["kind"], row["sign"]) for row in root["entries"]]
    assert marks == [
        (".git", "d", ""),
        ("made", "d", "+"),
        ("src", "d", ""),
        ("link.py", "l", "+"),
        ("notes.txt", "f", "-"),
        ("run.sh", "f", "*"),
        ("test.py", "f", ""),
    ]
    by_name = {row["name"]: row for row in root["entries"]}
    assert by_name["run.sh"]["mode"] == 0o755
    assert by_name["link.py"]["target"] == "../src/total.py"
    inner = ask(seen, "files/folder", place="first@9", path="made")
    assert [(row["at"], row["size"]) for row in inner["entries"]] == [("made/empty", None), ("made/data.bin", 5120)]
    assert ask(seen, "files/folder", place="first@9", path="made/empty")["entries"] == []
    later = ask(seen, "files/folder", place="first@10")
    assert (later["place"], later["seq"], later["since"]) == ("first@10", 10, "first@7"), "asked for a later call"
    assert ask(seen, "files/folder", place="first@2")["since"] is None
    assert "there is no folder" in ask(seen, "files/folder", 404, place="first@9", path="notes.txt")["error"]
    assert "no files are known at call 0" in ask(seen, "files/folder", 400, place="first@0")["error"]
    assert "recorded without its files" in ask(seen, "files/folder", 404, place="plain")["error"]


def test_the_line_to_copy_brings_the_same_files_back(seen: Client, place: Path, tmp_path: Path) -> None:
    words = ask(seen, "files/folder", place="first@9")["command"].split()
    assert words[:4] == ["clew", "checkout", "first@9", "files-at-9"]
    words[3] = str(tmp_path / "back")
    done = CliRunner().invoke(verbs, words[1:])
    assert done.exit_code == 0, done.output
    assert os.readlink(tmp_path / "back" / "link.py") == "../src/total.py"
    assert not (tmp_path / "back" / "notes.txt").exists()


def test_a_text_is_read_by_pieces_that_join_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_page, "PIECE", 1000)
    store, run = made(tmp_path)
    texts = {
        "lines.txt": "".join(f"line {i} é€😀\n" for i in range(400)),
        "one-line.txt": "aé€😀" * 900,
        "latin.txt": b"caf\xe9\r\n" * 300,
        "short.txt": "end without newline",
        "empty.txt": "",
        "late-nul.txt": "x\n" * 900 + "\0",
    }

    def begin(folder: Path) -> None:
        for name, text in texts.items():
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        (folder / "data.bin").write_bytes(b"\0\1")
        os.symlink("/etc/passwd", folder / "link")

    run.begin(begin).end()
    with serving(tmp_path / "s.db") as client:
        for name, text in texts.items():
            pieces, start, count = "", 0, 0
            while start is not None:
                found = ask(client, "files/content", place="one", path=name, start_at=start)
                pieces += found["text"]
                start = found["next"]
                count += 1
            wanted = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
            assert pieces == wanted, name
            assert (count > 1) is (len(wanted) > 1000), "bounded pieces"
        binary = ask(client, "files/content", place="one", path="data.bin")
        assert (binary["note"], binary["text"], binary["size"]) == ("binary", None, 2)
        link = ask(client, "files/content", place="one", path="link")
        assert (link["kind"], link["target"], link["text"]) == ("l", "/etc/passwd", None)
        assert ask(client, "files/content", 404, place="one", path="link/x")["kind"] == "UnknownName"
    store.close()


@pytest.mark.parametrize("name", [*HOSTILE, "a/b", "\ud800", "%", "%u12", ""])
def test_a_path_in_an_address_is_read_back(name: str) -> None:
    assert read(written(name)) == name
    written(name).encode()  # it can be sent


def test_hostile_names_and_contents_are_found_and_stay_data(tmp_path: Path) -> None:
    store, run = made(tmp_path)

    def begin(folder: Path) -> None:
        for name in HOSTILE:
            (folder / name).write_text(EVIL)

    run.begin(lambda folder: None).step("make", begin).end()
    with serving(tmp_path / "s.db") as client:
        entries = ask(client, "files/folder", place="one")["entries"]
        assert sorted(row["name"] for row in entries) == sorted(HOSTILE)
        for row in entries:
            found = ask(client, "files/content", place="one", path=row["at"])
            assert (found["path"], found["text"]) == (row["name"], EVIL)
            patch = ask(client, "files/patch", a="one@1", b="one", path=row["at"])
            assert patch["hunks"][0]["rows"] == [["+", EVIL[:-1]]]
    store.close()


def test_many_changes_come_page_by_page_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = made(tmp_path)

    def many(folder: Path) -> None:
        for i in range(650):
            (folder / f"f{i:04}").write_text(f"{i}\n")

    run.begin(lambda folder: None).step("make", many).end()
    with serving(tmp_path / "s.db") as client:
        listed, patched, start = list[str](), list[str](), 0
        while start is not None:
            page = ask(client, "files/changed", a="one@1", b="one", start_at=start)
            listed += [row["path"] for row in page["files"]]
            start = page["next"]
        assert listed == [f"f{i:04}" for i in range(650)]
        start = 600
        while start is not None:
            page = ask(client, "files/patch", a="one@1", b="one", start_at=start)
            assert len(page["files"]) <= patch_page.PATCHES
            patched += [file["path"] for file in page["files"]]
            start = page["next"]
        assert patched == listed[600:]
        (step,) = ask(client, "run/one/changes")["steps"]
        assert (step["files"], step["plus"], len(step["names"])) == (650, None, 4), "so many are not counted by lines"
        folder = ask(client, "files/folder", place="one", start_at=500)
        assert ([folder["entries"][0]["name"], len(folder["entries"])], folder["next"]) == (["f0500", 150], None)
        assert ask(client, "files/folder", place="one")["next"] == 500
    monkeypatch.setattr(changed_files, "MOST", 100)
    with serving(tmp_path / "s.db") as client:
        page = ask(client, "files/changed", a="one@1", b="one")
        assert (page["total"], page["more"]) == (100, True)
        (step,) = ask(client, "run/one/changes")["steps"]
        assert (step["files"], step["more"]) == (100, True)
        beyond = ask(client, "files/patch", a="one@1", b="one", path="f0600")
        assert beyond["plus"] == 1, "a file that is named is found beyond the bound"
    monkeypatch.setattr(run_snapshots, "LISTING", 1000)
    with serving(tmp_path / "s.db") as client:
        assert "more entries than this page reads" in ask(client, "files/folder", 400, place="one")["error"]
        (step,) = ask(client, "run/one/changes")["steps"]
        assert "more entries" in step["note"]
    store.close()


def test_long_lines_long_patches_and_large_files_are_cut(tmp_path: Path) -> None:
    store, run = made(tmp_path)
    texts = {"a.txt": "x\n" * 3000, "wide.txt": "y" * 5000 + "\n", "zlarge.txt": "z\n" * 1_000_000}
    run.begin(lambda folder: None).step("make", lambda f: [(f / n).write_text(t) for n, t in texts.items()]).end()
    with serving(tmp_path / "s.db") as client:
        page = ask(client, "files/patch", a="one@1", b="one")
        long, wide, large = page["files"]
        assert (len(long["hunks"][0]["rows"]), long["rest"], long["plus"]) == (patch_page.FEW, 2600, 3000)
        assert wide["hunks"][0]["rows"] == [["+", "y" * patch_page.WIDE, 5000 - patch_page.WIDE]]
        assert large["notes"] == ["0 bytes became 2,000,000, binary or too long to compare by lines"]
        alone = ask(client, "files/patch", a="one@1", b="one", path="a.txt")
        assert (len(alone["hunks"][0]["rows"]), alone["rest"]) == (3000, 0)
    store.close()


def everything(client: Client, run: str) -> str:
    """All that pages of a run's files say."""
    places = ask(client, f"run/{run}/snapshots")["places"]
    told = [ask(client, f"run/{run}/changes")]
    for one in places:
        folder = ask(client, "files/folder", place=one["place"])
        told.append(folder)
        for row in folder["entries"]:
            if row["kind"] != "d" and row["sign"] != "-":
                told.append(ask(client, "files/content", place=one["place"], path=row["at"]))
        told += [ask(client, "files/patch", a=other["place"], b=one["place"]) for other in places]
    return json.dumps(told)


def test_what_was_erased_is_named_and_never_shown(tmp_path: Path) -> None:
    store, run = made(tmp_path)
    run.begin(write(secret_txt="hunter2 one\n", other_txt="stays\n"))
    run.step("change", write(secret_txt="hunter2 two\n")).step("more", write(other_txt="stays, changed\n")).end()
    store.close()
    with serving(tmp_path / "s.db") as client:
        assert "hunter2" in everything(client, "one")
        words = ["store", "redact", "one", "--files", "secret.txt", "--yes", "--store", str(tmp_path / "s.db")]
        done = CliRunner().invoke(verbs, words)
        assert done.exit_code == 0, done.output
        told = everything(client, "one")  # by the same server, which has shown it before
        assert "hunter2" not in told
        assert "stays, changed" in told
        found = ask(client, "files/content", place="one", path="secret.txt")
        assert (found["note"], found["text"], found["gone"]) == ("erased from all snapshots", None, found["note"])
        patch = ask(client, "files/patch", a="one@1", b="one@3", path="secret.txt")
        assert patch["notes"] == ["before: erased from all snapshots", "after: erased from all snapshots"]


def test_what_was_left_out_of_a_portable_run_is_never_shown_even_where_it_lies_here(tmp_path: Path) -> None:
    store, run = made(tmp_path)
    run.begin(write(secret_txt="hunter2\n", other_txt="stays\n")).step("more", write(other_txt="changed\n")).end()
    tree = noted_files.of_world(Run(store, "one"))[0].tree
    key = next(entry.key for path, entry in run.shelf.walk(tree) if path == "secret.txt")
    store.annotate([noted_files.without("one", {key: "secret.txt"})])
    store.close()
    with serving(tmp_path / "s.db") as client:
        told = everything(client, "one")
        assert "hunter2" not in told
        assert "left out when the run was exported, for a credential in it" in told
        assert "changed" in told


def test_without_a_shelf_one_sentence_says_so_and_none_is_made(tmp_path: Path) -> None:
    store, run = made(tmp_path)
    run.begin(project).step("mend", write(notes_txt="x")).end()
    store.close()
    (tmp_path / "files").rename(tmp_path / "elsewhere")
    with serving(tmp_path / "s.db") as client:
        told = ask(client, "run/one/snapshots")
        assert "there is no folder files/ beside this store" in told["error"]
        assert told["remedy"]
        assert ask(client, "files/folder", 404, place="one")["error"] == told["error"]
        assert not (tmp_path / "files").exists()
        TreeShelf(tmp_path / "files")  # one that holds none of these files
        told = ask(client, "run/one/snapshots")
        assert told["error"] == "these files are not on the shelf beside the store"
        assert ask(client, "files/folder", 404, place="one")["error"] == told["error"]


def test_nothing_is_written_and_a_content_that_the_disk_changed_is_refused(tmp_path: Path) -> None:
    store, run = made(tmp_path)
    run.begin(project).step("mend", write(notes_txt="changed\n")).end()
    store.close()
    key = next(entry.key for path, entry in run.shelf.walk(noted_files.of_world(run_of(tmp_path))[-1].tree)
               if path == "notes.txt")  # fmt: skip
    before = stamps(tmp_path / "files")
    with serving(tmp_path / "s.db", readonly=True) as client:
        assert "changed" in everything(client, "one")
        assert stamps(tmp_path / "files") == before
        victim = tmp_path / "files" / key[:2] / key[2:]
        victim.chmod(0o600)
        victim.write_text("forged!\n")
        found = ask(client, "files/content", place="one", path="notes.txt")
        assert (found["text"], "was changed on the disk" in found["note"]) == (None, True)
        assert "forged" not in everything(client, "one")


def run_of(place: Path) -> Run:
    return Run(SQLiteStore(place / "s.db", readonly=True), "one")


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_files_of_a_program_behind_the_gateway_stand_at_its_requests(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    work, shelf = tmp_path / "work", TreeShelf(tmp_path / "files")
    work.mkdir()
    scan, script = Scan(work, shelf), Script(store, "gate", taskset="")
    script.put("open", text="")

    def request(number: int, text: str) -> None:
        (work / "a.txt").write_text(text)
        arrival = Arrival(number, 0, -1, 0, (), "m", (), {"stop": []})
        script.put("act", action='["","receive","{}"]', text=arrival.text(), finish="tool")
        found = scan.snapshot()
        told = {"tree": found.tree, "state": found.state, "left": 2, "mode": 0o755, "mtime": 1}
        store.annotate([noted("gate", number, told)])
        script.ask("go", "on")

    request(0, "one\n")
    with serving(tmp_path / "s.db") as client:
        store.commit()
        assert [one["place"] for one in ask(client, "run/gate/snapshots")["places"]] == ["gate@1"]
        request(1, "two\n")
        script.end("returned")
        store.commit()
        told = ask(client, "run/gate/snapshots")
        assert [(one["place"], one["at"]) for one in told["places"]] == [("gate@1", 0), ("gate@3", 2)]
        (work / "a.txt").write_text("three\n")
        found = scan.snapshot()
        store.annotate([noted("gate", "end", {"tree": found.tree, "state": found.state, "left": 0})])
        store.commit()
        assert [one["place"] for one in ask(client, "run/gate/snapshots")["places"]] == ["gate@1", "gate@3", "gate"]
        steps = ask(client, "run/gate/changes")["steps"]
        assert [(step["at"], step["plus"], step["minus"]) for step in steps] == [(2, 1, 1), (5, 1, 1)]
        assert ask(client, "files/folder", place="gate@3")["left"] == 2
        assert ask(client, "files/content", place="gate@4", path="a.txt")["text"] == "two\n"
    store.close()


@pytest.mark.parametrize("named", ["", "nobody", "first@x", "first@-1", "first@1@2", "%"])
def test_a_place_that_is_none_is_refused_in_a_sentence(seen: Client, named: str) -> None:
    answer = seen.get("/api/files/folder", params={"place": named})
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]
    assert ask(seen, "files/folder", place="first@999999999999999999")["since"] == "first@7", "beyond the last call"
    assert "not a number" in ask(seen, "files/folder", 400, place="first", start_at="many")["error"]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_a_run_of_coder_and_its_fork_are_shown_as_they_were_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder)
    store = SQLiteStore(tmp_path / "s.db")
    taskset = Workspace(str(folder), shelf=str(tmp_path / "files"))
    fix = tool_call("bash", command="sed -i 's/ + 1//' src/total.py")
    made = clew.Runner("coder", taskset, Scripted([fix, "done"]), store)
    run = made.collect([taskset.find("fix total")], 1).runs[0]
    asked = next(call.seq for call in run.calls if call.kind == "ask")
    other = made.fork(run, asked, reply=tool_call("bash", command="sed -i 's/ + 1/ + 0/' src/total.py"))[0]
    store.close()
    with serving(tmp_path / "s.db") as client:
        assert ask(client, "diff", a=run.id, b=other.id)["files"] is True
        (step,) = ask(client, f"run/{run.id}/changes")["steps"]
        assert (step["names"], step["plus"], step["minus"]) == (["src/total.py"], 1, 1)
        found = ask(client, "files/patch", a=run.id, b=other.id, path="src/total.py")
        rows = [row for row in found["hunks"][0]["rows"] if row[0] != " "]
        assert rows == [["-", "    return sum(numbers)"], ["+", "    return sum(numbers) + 0"]]


def test_this_world_is_known_by_its_reference() -> None:
    assert TASKSET.startswith(noted_files.WORLDS)
