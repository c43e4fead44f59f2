"""The door to git: what a repository says is data. Nothing that lies in one runs, leads out, hangs or floods."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import clew
from clew.coding.repository import git as door
from clew.coding.repository.git import Git
from clew.coding.repository.past_fixes import fixes
from clew.coding.repository.repository import View
from clew.core.errors import BadInput
from clew.methods.diagnose.repository_world import Diagnosis
from clew.methods.gate.candidates import Checks, listed
from clew.sandbox.seccomp import refuse_children
from tests.coding.shop import git, make


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A repository with two fixes, whose attributes name drivers, and with a file that git has to look into."""
    folder = make(tmp_path_factory.mktemp("first") / "shop", history=2)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    git(folder, "add", ".gitattributes")
    git(folder, "commit", "-qm", "attributes")
    return folder


@pytest.fixture
def repo(shop, tmp_path):
    return copied(shop, tmp_path)


@pytest.fixture(scope="module")
def untouched(shop, tmp_path_factory):
    """What Clew reads of ``repo`` as long as nothing was done to it."""
    return everything(copied(shop, tmp_path_factory.mktemp("untouched")))


def copied(shop, place):
    folder = place / "shop"
    shutil.copytree(shop, folder, symlinks=True)
    cart = folder / "shop/cart.py"  # of the same size and not of the same time: git compares the contents
    os.utime(cart, (1, 1))
    (folder / "shop/mail.py").write_text("changed = 1\n")
    return folder


@pytest.fixture
def evil(tmp_path):
    """A program that leaves a trace whatever it is called with."""
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 0\n")
    (tmp_path / "evil").chmod(0o755)
    return tmp_path / "evil"


def everything(folder):
    """All that Clew asks of a repository."""
    repo = Git(folder)
    now, then = repo.entries(), repo.entries("HEAD")
    texts = [(e.path, hashlib.sha256(c).hexdigest()) for e, c in [*repo.contents(now), *repo.contents(then)]]
    view = View(folder)
    return {
        "now": [e[:3] for e in now],
        "then": then,
        "texts": texts,
        "head": repo.commit("HEAD"),
        "fixes": fixes(repo),
        "names": listed(Path(folder)),
        "view": sorted(view.files),
        "text": view.text("shop/cart.py"),
    }


def documented() -> list[str]:
    """Every configuration key that the installed git documents, placeholders filled in."""
    told = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout
    keys = [line for line in told.splitlines() if re.match(r"\w[\w-]*\.\S+$", line)]
    return [re.sub(r"<[^>]*>|\*", "evil", key) for key in keys]


def put(folder, *pairs):
    """Lines of configuration, written as a repository brings them: whether or not git would take them."""
    with (folder / ".git/config").open("a") as file:
        for key, value in pairs:
            section, _, name = key.rpartition(".")
            head, _, sub = section.partition(".")
            file.write(f"[{head} {sub!r}]\n".replace("'", '"') if sub else f"[{head}]\n")
            file.write(f'\t{name} = "{value}"\n')


def test_git_is_started_in_one_file_alone():
    source = Path(clew.__file__).parent
    starts = re.compile("run|Popen|call|check_output|create_subprocess|exec|spawn|system|popen")
    words, lines = set(), set()
    for path in [p for p in source.rglob("*.py") if re.search("[\"'/]git[\"' ]", p.read_text())]:
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        boxed = {id(n) for call in calls if ast.unparse(call.func) == "self.box.run" for n in ast.walk(call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == "git" and id(node) not in boxed:  # but in the sandbox
                words.add(path.name)
            if isinstance(node, ast.Call) and starts.search(ast.unparse(node.func)):
                first = ast.unparse(node.args[0]) if node.args else ""
                lines |= {path.name} if re.search(r"""['"](\S*/)?git """, first) else set()
    assert words == {"git.py", "code_stops.py"}  # which says of two stops of the tour that they need it
    assert not lines


def test_no_documented_key_is_read(repo, untouched, evil, tmp_path):
    keys = documented()
    assert len(keys) > 500
    put(repo, *((key, evil) for key in keys))
    plain = subprocess.run(["git", "ls-files"], cwd=repo, capture_output=True, check=False)
    assert plain.returncode  # git itself stumbles over the first value that it cannot take
    assert everything(repo) == untouched
    assert not (tmp_path / "ran").exists()


RUNNING = {  # key: the plain command that runs what it names
    "core.fsmonitor": "ls-files -m",
    "filter.evil.clean": "ls-files -m",
    "filter.evil.process": "ls-files -m",
    "diff.external": "diff",
    "diff.evil.command": "diff",
    "diff.evil.textconv": "show HEAD~1",
    "core.pager": "-p log -1",
    "pager.log": "-p log -1",
    "core.hooksPath": "commit --allow-empty -qm x",
    "core.editor": "commit --allow-empty",
    "core.sshCommand": "ls-remote ssh://host.invalid/x",
    "credential.helper": "credential fill",
    "gpg.program": "commit -S --allow-empty -qm x",
    "uploadpack.packObjectsHook": "-c protocol.file.allow=always clone -q . {out}",
    "core.alternateRefsCommand": "fetch -q .",
    "remote.evil.uploadpack": "fetch evil",
    "submodule.evil.update": "submodule update",
    "interactive.diffFilter": "add -p",
    "sequence.editor": "rebase -i HEAD~1",
    "alias.evil": "evil",
    "include.path": "ls-files -m",
    "includeIf.gitdir:/.path": "ls-files -m",
}
SURE = {
    "core.fsmonitor",
    "filter.evil.clean",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "alias.evil",
    "core.hooksPath",
    "include.path",
    "includeIf.gitdir:/.path",
    "core.sshCommand",
    "gpg.program",
}


@pytest.mark.whole
@pytest.mark.parametrize("key", RUNNING)
def test_a_key_that_runs_programs_in_git_runs_none_here(repo, untouched, evil, tmp_path, key):
    value = str(evil)
    if "include" in key:
        value = str(tmp_path / "more")
        Path(value).write_text(f"[core]\n\tfsmonitor = {evil}\n")
    elif key == "alias.evil":
        value = f"!{evil}"
    elif key == "core.hooksPath":
        value = str(tmp_path / "hooks")
        Path(value).mkdir()
        shutil.copy(evil, Path(value) / "pre-commit")
    put(repo, (key, value))
    assert everything(repo) == untouched
    assert not (tmp_path / "ran").exists()
    words = RUNNING[key].format(out=tmp_path / "out").split()
    given = {
        **os.environ,
        "HOME": str(tmp_path),
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a",
    }
    subprocess.run(
        ["git", *words],
        cwd=repo,
        env=given,
        input=b"url=https://host.invalid\n\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    if key in SURE:  # the control: plain git does run it
        assert (tmp_path / "ran").exists()


HOOKS = ["applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout"]
HOOKS += ["post-commit", "post-index-change", "post-merge", "post-receive", "post-rewrite"]
HOOKS += ["post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit"]
HOOKS += ["pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive"]
HOOKS += ["push-to-checkout", "reference-transaction", "sendemail-validate", "update"]


def test_hooks_do_not_run_and_nothing_is_written(repo, evil, tmp_path):
    (repo / ".git/hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        shutil.copy(evil, repo / ".git/hooks" / name)
    before = {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [repo, *repo.rglob("*")]}
    everything(repo)
    assert {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [repo, *repo.rglob("*")]} == before
    assert not (tmp_path / "ran").exists()


def test_the_environment_and_the_home_folder_say_nothing(repo, untouched, evil, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    said = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(evil),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{evil}'",
        "GIT_EXTERNAL_DIFF": str(evil),
        "GIT_PAGER": str(evil),
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_EXEC_PATH": str(tmp_path),
        "GIT_WORK_TREE": "/",
        "GIT_TRACE": str(tmp_path / "ran"),
        "GIT_SSH_COMMAND": str(evil),
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere",
        "GIT_CEILING_DIRECTORIES": "/",
        "LD_PRELOAD": "",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert everything(repo) == untouched
    assert not (tmp_path / "ran").exists()


def test_a_program_called_git_in_the_repository_is_not_the_one(repo, evil, tmp_path, monkeypatch):
    shutil.copy(evil, repo / "git")
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(repo)
    door._program.cache_clear()
    everything(repo)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    door._program.cache_clear()
    with pytest.raises(BadInput, match="not installed"):
        Git(repo).entries()
    door._program.cache_clear()


@pytest.mark.parametrize("wall", ["none", "kernel"])
def test_the_second_wall_holds_where_the_first_is_gone(repo, evil, tmp_path, monkeypatch, wall):
    """The repository's configuration lies in the view itself, as if by a way unknown: git finds the program, and the
    kernel does not let it start."""
    if wall == "none":
        monkeypatch.setattr(door, "refuse_children", lambda: lambda: None)
    lost = Git(repo)
    with (lost._view / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = {evil}\n[filter "evil"]\n\tclean = {evil}\n')
        file.write(f'[diff "evil"]\n\ttextconv = {evil}\n')
    for words in (["ls-files", "-m"], ["log", "-p", "-2"]):
        try:
            lost.run(*words)
        except BadInput:
            continue  # a filter that cannot start is git's own error
    assert (tmp_path / "ran").exists() == (wall == "none")


def test_a_process_without_children_still_reads_and_computes():
    code = (
        "import os, socket, threading\nt = threading.Thread(target=lambda: print('thread', flush=True))\nt.start()\n"
        "t.join()\n"
        "for call in (os.fork, lambda: os.posix_spawn('/bin/true', ['true'], {}), socket.socket):\n"
        "  try: call(); print('did')\n  except OSError as e: print(e.errno)\n"
        "print(len(open('/etc/passwd').read()) > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=refuse_children(), check=True
    )
    assert done.stdout.split() == ["thread", *[str(errno.EPERM)] * 3, "True"]


def redirected(folder, target):
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text(f"gitdir: {target}\n")


@pytest.mark.whole
def test_git_files_and_links_lead_to_data_alone(repo, untouched, evil, tmp_path):
    other = tmp_path / "elsewhere"
    put(repo, ("core.fsmonitor", evil), ("core.worktree", "/etc"))
    shutil.move(repo / ".git", other)
    (repo / ".git").symlink_to(other)
    assert everything(repo) == untouched
    (repo / ".git").unlink()
    (repo / ".git").write_text(f"gitdir: {other}\n")
    assert everything(repo) == untouched
    (repo / ".git").write_text("gitdir: ../elsewhere\n")
    assert everything(repo / "shop")["head"] == untouched["head"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/self/environ", "\x1b[2J/../..", "x" * 5000, "\0", "pipe", "."])
def test_a_git_file_that_leads_nowhere_is_refused_in_one_sentence(repo, tmp_path, target):
    if target == "pipe":
        shutil.rmtree(repo / ".git")
        os.mkfifo(repo / ".git")
    else:
        redirected(repo, target)
    with pytest.raises(BadInput, match="not a git repository"):
        Git(repo)
    assert "shop/cart.py" in listed(repo)


@pytest.mark.whole
def test_linked_trees_bare_shallow_and_sha256_repositories_are_read(repo, untouched, tmp_path):
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert everything(tmp_path / "linked")["then"] == untouched["then"]
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    assert Git(tmp_path / "bare.git").entries() == untouched["then"]
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    assert everything(tmp_path / "shallow")["then"] == untouched["then"]
    assert everything(tmp_path / "shallow")["fixes"] == []
    git(tmp_path, "clone", "-q", "--shared", str(repo), "shared")
    assert everything(tmp_path / "shared")["fixes"] == untouched["fixes"]
    git(repo, "update-index", "--split-index")
    assert everything(repo) == untouched
    git(repo, "pack-refs", "--all")
    git(repo, "gc", "-q")
    assert everything(repo) == untouched
    git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    (tmp_path / "long/a.py").write_text("a = 1\n")
    git(tmp_path / "long", "add", "-A")
    git(tmp_path / "long", "commit", "-qm", "a")
    for _ in range(2):
        found = Git(tmp_path / "long")
        assert [len(e.blob) for e in found.entries("HEAD")] == [64]
        assert len(found.commit("HEAD")) == 64
        git(tmp_path / "long", "gc", "-q")


def test_a_repository_of_another_owner_is_read(repo, untouched, monkeypatch):
    """Git refuses it for its configuration's sake, which is not read here."""
    if os.geteuid():
        pytest.skip("did not run: only root can give files to another owner")
    for path in [repo, *repo.rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    plain = subprocess.run(["git", "log", "-1"], cwd=repo, capture_output=True, check=False)
    assert b"dubious ownership" in plain.stderr
    assert everything(repo) == untouched


def test_head_moves_under_an_open_repository(repo):
    found = Git(repo)
    first = found.commit("HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "more")
    assert found.commit("HEAD~1") == first
    git(repo, "checkout", "-qf", "-b", "side", first)
    assert found.commit("HEAD") == first


def index(*names, mode=0o100644):
    """An index of version 2 with these names, as a hostile hand writes it."""
    body = struct.pack(">4sII", b"DIRC", 2, len(names))
    for name in names:
        raw = os.fsencode(name)
        entry = struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0, b"\x11" * 20, min(len(raw), 0xFFF)) + raw
        body += entry + b"\0" * (8 - len(entry) % 8)
    return body + hashlib.sha1(body).digest()


def test_names_that_lead_out_are_no_files(repo, tmp_path):
    (tmp_path / "secret.py").write_text("password = 1\n")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/id.py").write_text("password = 2\n")
    (repo / "linked").symlink_to(tmp_path / "keys")
    (repo / "alias.py").symlink_to(tmp_path / "secret.py")
    out = {"../secret.py", "alias.py", "linked/id.py", "shop/../../secret.py", str(tmp_path / "secret.py")}
    (repo / ".git/index").write_bytes(index(*sorted({*out, "shop/cart.py"})))
    found = Git(repo)
    assert "shop/cart.py" in {e.path for e in found.entries()}
    assert not out & {e.path for e in found.entries()}
    assert b"password" not in b"".join(c for _, c in found.contents(found.entries()))
    seen = listed(repo)
    assert "shop/cart.py" in seen
    assert not out & set(seen)
    entry = next(e for e in found.entries() if e.path == "shop/cart.py")
    (repo / "shop/cart.py").unlink()
    (repo / "shop/cart.py").symlink_to(tmp_path / "secret.py")  # between the look and the reading
    assert list(found.contents([entry])) == []


@pytest.mark.whole
def test_pipes_and_devices_do_not_hang(repo, monkeypatch):
    monkeypatch.setattr(door, "WALL", 2.0)
    (repo / "HEADS").symlink_to("/dev/zero")
    os.mkfifo(repo / "pipe.py")
    Path(repo / "shop/cart.py").unlink()
    os.mkfifo(repo / "shop/cart.py")
    names = [e.path for e in Git(repo).entries()]
    assert not {"pipe.py", "shop/cart.py", "HEADS"} & set(names)
    assert "pipe.py" not in listed(repo)
    for place in (".git/index", ".git/packed-refs", "web/.gitignore", ".git/info/exclude"):
        kept = repo / (place + ".kept")
        if (repo / place).exists():
            (repo / place).rename(kept)
        os.mkfifo(repo / place)
        with pytest.raises(BadInput):
            (Git(repo).entries(), Git(repo).commit("no-such-branch"))
        (repo / place).unlink()
        if kept.exists():
            kept.rename(repo / place)
    for place in ("HEAD", "commondir"):
        (repo / ".git" / place).unlink(missing_ok=True)
        os.mkfifo(repo / ".git" / place)
        with pytest.raises(BadInput):
            Git(repo).commit("HEAD")


def test_an_object_that_is_a_pipe_ends_the_reading(repo, monkeypatch):
    monkeypatch.setattr(door, "WALL", 2.0)
    found = Git(repo)
    entry = next(e for e in found.entries("HEAD") if e.path == "shop/cart.py")
    place = repo / ".git/objects" / entry.blob[:2] / entry.blob[2:]
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(BadInput, match="cannot be read"):
        list(found.contents([entry]))


def test_a_tree_that_never_ends_is_given_up(repo, tmp_path, monkeypatch):
    """Ten trees, each ten times in the next: a listing of 10^10 files from ten objects."""
    monkeypatch.setattr(door, "MOST", 1 << 22)
    item = f"100644 blob {git(repo, 'hash-object', '-w', 'shop/mail.py')}"
    for _ in range(10):
        lines = "".join(f"{item}\td{k}\n" for k in range(10))
        tree = subprocess.run(["git", "mktree"], input=lines.encode(), cwd=repo, capture_output=True, check=True)
        item = f"040000 tree {tree.stdout.decode().strip()}"
    commit = git(repo, "commit-tree", "-m", "bomb", item.split()[-1])
    with pytest.raises(BadInput, match="printed more than 4 MiB"):
        Git(repo).entries(commit)


def commit_of(folder, message):
    """A commit with any bytes as its message, on top of HEAD, with one changed source file."""
    head = git(folder, "rev-parse", "HEAD")
    tree = git(folder, "write-tree")
    body = f"tree {tree}\nparent {head}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n".encode() + message
    words = ["git", "hash-object", "--literally", "-t", "commit", "-w", "--stdin"]
    made = subprocess.run(words, input=body, cwd=folder, capture_output=True, check=True)
    return made.stdout.decode().strip()


@pytest.mark.whole
@pytest.mark.parametrize(
    "message",
    [
        b"Fix #9: a\x01b goes wrong\n",
        b"Fix #9: \x01" + b"a" * 40 + b" goes wrong",
        b"Fix #9: \xff\xfe\x1b[2J wrong\n",
        b"Fix #9: cut\0" + b"b" * 40 + b"\0\0\0",
        b"",
        b"\n\n",
    ],
)
def test_a_message_is_no_other_commit(repo, message):
    before = fixes(Git(repo))
    (repo / "shop/price.py").write_text((repo / "shop/price.py").read_text() + "\n\nMORE = 1\n")
    git(repo, "add", "shop/price.py")
    commit = commit_of(repo, message)
    found = fixes(Git(repo), before=commit)
    assert [f for f in found if f.commit != commit] == before
    assert {f.commit for f in found} <= {commit, *(f.commit for f in before)}


def said(ask):
    """The error of a call, empty where there is none."""
    try:
        ask()
    except BadInput as error:
        return str(error)
    return ""


NAMES = ["--help", "-h", "--output=x", "HEAD --git-dir=/", "@{u}", "a..b", "\x1b[2J", "", "x" * 9999, "$(touch ran)"]
NAMES += ["HEAD^{/(a+)+$}", "refs/heads/../../config", "a\nb", "\udcff"]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_of_a_commit_is_no_option(repo, name):
    error = said(lambda: Git(repo).commit(name))
    assert "there is no commit" in error
    assert "\x1b" not in error


HEADS = [b"", b"ref: refs/heads/../../../../etc/passwd\n", b"ref: /etc/passwd", b"ref: refs/heads/\x1b[2J"]
PACKED = [b"# pack-refs with: sorted\n" + b"a" * 40 + b" refs/heads/\x1b[2J\n", b"1" * 40 + b" refs/heads/-h\n"]
MODULES = '[submodule "x"]\n\tpath = shop\n\turl = ext::{0}/evil\n\tupdate = !touch {0}/ran\n'
GARBAGE = {
    ".git/packed-refs": [*PACKED, b"\xff" * 5000, b"x" * (1 << 22)],
    ".git/objects/info/alternates": [b"/dev/zero\n", b"../objects\n" * 50, b"/proc/self/root\n", b"\xff\0\n" * 99],
    ".git/index": [b"", b"DIRC", b"\xff" * 4096, index("x")[:-1], index("a" * 5000)],
    ".git/HEAD": [*HEADS, b"\xff" * 5000],
    ".git/shallow": [b"\xff" * 99, b"0" * 40 + b"\n"],
    ".git/info/grafts": [b"\xff" * 99],
    ".git/objects/info/commit-graph": [b"CGPH" + b"\xff" * 999],
    ".git/commondir": [b"/etc", b"\0", b"../../.."],
    ".gitattributes": [b"* filter=" + b"x" * 3000, b"[attr]binary text\n" * 999, b"\xff" * 5000],
    ".gitmodules": [MODULES.encode()],
    ".gitignore": [b"*" * 5000, b"**/" * 2000, b"[" * 5000, b"!\n" * 999],
}


@pytest.mark.whole
@pytest.mark.parametrize("place", GARBAGE)
def test_garbage_in_a_repository_is_one_sentence(repo, tmp_path, place):
    path = repo / place
    kept = path.read_bytes() if path.exists() else None
    for content in GARBAGE[place]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.replace(b"{0}", os.fsencode(tmp_path)))
        for ask in (lambda: Git(repo).entries(), lambda: fixes(Git(repo)), lambda: Git(repo).commit("main")):
            assert "\x1b" not in said(ask)
        assert isinstance(listed(repo), list)
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(kept)
    assert not (tmp_path / "ran").exists()
    assert everything(repo)["view"]


def test_a_repository_that_promises_objects_fetches_none(repo, evil, tmp_path):
    put(repo, ("extensions.partialClone", "evil"), ("remote.evil.url", f"ext::{evil}"))
    put(repo, ("remote.evil.promisor", "true"), ("protocol.ext.allow", "always"), ("remote.evil.uploadpack", evil))
    found = Git(repo)
    entry = next(e for e in found.entries("HEAD") if e.path == "shop/cart.py")
    (repo / ".git/objects" / entry.blob[:2] / entry.blob[2:]).unlink()
    assert list(found.contents([entry])) == []
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "cat-file", "blob", entry.blob], cwd=repo, capture_output=True, check=False)
    assert (tmp_path / "ran").exists()  # the control: plain git asks that program for the object


def test_repositories_within_a_repository_stay_closed(repo, evil, tmp_path):
    for name in ("inner", "inner/bare.git"):
        inner = repo / name
        inner.mkdir()
        git(inner, "init", "-q", *(["--bare"] if "bare" in name else []))
        with (inner / ("config" if "bare" in name else ".git/config")).open("a") as file:
            file.write(f"[core]\n\tfsmonitor = {evil}\n")
    (repo / "inner/a.py").write_text("a = 1\n")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},inner")
    everything(repo)
    listed(repo / "inner")
    assert not (tmp_path / "ran").exists()


def test_deep_folders_and_sockets_are_walked(repo, tmp_path):
    deep = tmp_path / "plain"
    deep.mkdir()
    here = os.getcwd()
    try:
        os.chdir(deep)
        for _ in range(1100):
            os.mkdir("d")
            os.chdir("d")
        Path("deep.py").write_text("x = 1\n")
    finally:
        os.chdir(here)
    (deep / "top.py").write_text("x = 1\n")
    server = socket.socket(socket.AF_UNIX)
    os.chdir(deep)
    try:
        server.bind("sock")
    finally:
        os.chdir(here)
        server.close()
    (deep / "loop").symlink_to(".")
    assert listed(deep)[-1] == "top.py"
    assert not {"sock", "loop"} & set(listed(deep))
    subprocess.run(["rm", "-rf", str(deep)], check=True)  # too deep for shutil


def test_the_verbs_run_nothing(repo, evil, tmp_path):
    put(repo, ("core.fsmonitor", evil), ("filter.evil.clean", evil))
    Diagnosis(str(repo), "", None)
    checks = Checks("true", ["true"], folder=str(repo), outside=False) if shutil.which("bwrap") else None
    if checks:
        checks.open(checks.find("shop/cart.py")).close()
    listed(repo)
    assert not (tmp_path / "ran").exists()
