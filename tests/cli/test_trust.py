"""clew.toml of a repository that somebody else wrote: it may name data and defaults; what runs, sends, listens, deletes
or overwrites is asked for once, and no file consents."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from clew.cli.shared import project
from tests.cli.shell import Shell, warm_line

GATEWAY = '[gateway]\nmodel = "echo"\nprogram = ["sh", "-c", "touch PWNED"]\n'


def write(text: str, name: str = project.NAME) -> None:
    Path(name).write_text(text)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (GATEWAY, "gateway", '[gateway] program = ["sh", "-c", "touch PWNED"]'),
        ('[gateway]\nupstream = "http://127.0.0.1:9/v1"\n', "gateway -- true", "[gateway] upstream = "),
        ('[view]\nhost = "0.0.0.0"\n', "view", "[view] host = "),
        ("[view]\nport = 9796\n", "view", "[view] port = 9796"),
        ('[export]\nfile = "../OVER.jsonl"\n', "export", '[export] file = "../OVER.jsonl"'),
        ('model = "evil.py:M"\n', "run --world counter", 'model = "evil.py:M"'),
        ('model = "http://127.0.0.1:9/v1#m"\n', "run --world counter", 'model = "http://127.0.0.1:9/v1#m"'),
        ('model = "clew"\n', "run --world counter", 'model = "clew"'),
        ('world = "evil.py:W"\nmodel = "echo"\n', "run", 'world = "evil.py:W"'),
        ('world = "program(command=\'x\')"\nmodel = "echo"\n', "run", "world = "),
        ('agent = "evil.py:a"\n', "run --world counter --model echo", 'agent = "evil.py:a"'),
        ('tools = ["mcp:touch PWNED"]\n', "run --world counter --model echo", 'tools = ["mcp:touch PWNED"]'),
        ('reward = "evil.py:r"\ndata = "d.jsonl"\n', "run --model echo", 'reward = "evil.py:r"'),
        ('data = "/etc/passwd"\n', "run --reward exact --model echo", 'data = "/etc/passwd"'),
        ('data = "out/passwd"\n', "run --reward exact --model echo", 'data = "out/passwd"'),
        ('model-options = {api_key = "x"}\n', "run --world counter --model echo", "model_options = "),
        ('store = "postgresql://u@127.0.0.1:9/d"\n', "log", 'store = "postgresql://u@127.0.0.1:9/d"'),
        ('store = "../other.db"\n', "log", 'store = "../other.db"'),
        ('store = "../other.db"\n', "audit methods", 'store = "../other.db"'),
        ('[audit.early]\nmodel = "http://127.0.0.1:9/v1"\n', "audit early x", "[audit early] model = "),
        ('[run]\ncommand = "touch PWNED"\n', "run --data d.jsonl", '[run] command = "touch PWNED"'),
        ("[run]\nagent = 'evil.py:a'\n", "run --world counter --model echo", '[run] agent = "evil.py:a"'),
        ("[import]\nlisten = true\n", "import", "[import] listen = true"),
        ("[moved]\n'old.py' = 'evil.py'\n", "log", 'old.py = "evil.py"'),
        ('[doctor]\nurls = ["http://127.0.0.1:9"]\n', "doctor", "not allowed yet: [doctor] urls = "),
    ],
)
def test_what_a_file_asks_for_is_refused_where_nobody_can_be_asked(clew, tmp_path, text, line, told):
    write(text)
    write("open('PWNED', 'w')\n", "evil.py")
    (tmp_path / "out").symlink_to("/etc")
    done = clew(*line.split(), code=None)
    assert told in " ".join(done.output.split()), done.output
    assert line == "doctor" or done.exit_code == 2
    assert "clew doctor --trust" in done.output
    assert "Traceback" not in done.output
    assert not Path("PWNED").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clew.toml", "evil.py", "out"], "nothing is written"
    assert not (tmp_path / "../other.db").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[store.gc]\nyes = true\n", "store gc"),
        ("[store.redact]\nyes = true\n", "store redact x@1"),
        ("[memory.delete]\nyes = true\n", "memory delete a b"),
        ('[view]\ntoken = "known-to-attacker-0123456789"\n', "view"),
        ("[route.fit]\nanyway = true\n", "route fit x"),
    ],
)
def test_no_file_gives_a_consent_or_a_secret(clew, text, line):
    write(text)
    clew("doctor", "--trust")
    said = clew(*line.split(), code=2).output
    assert "which no file can give" in said
    assert "say it on the line: --" in said


def test_data_and_defaults_need_no_word(clew, tmp_path):
    write(
        'store = "kept/runs.db"\nworld = "household(rooms=2, steps=3)"\nmodel = "echo"\nconfig = {window = 2}\n'
        'agent = "player"\ncredit = "bellman(gamma=0.9)"\n[run]\ntasks = 2\njson = true\n[train]\nclip = "0.2,0.3"\n'
        "[view]\nhost = '0.0.0.0'\n[export]\npairs = false\n"
    )
    assert '"run"' in clew("run").output
    assert "not allowed yet: [view] host" in " ".join(clew("doctor").output.split()), "only this one is asked for"


def test_the_line_goes_before_what_is_not_allowed(clew):
    write('model = "evil.py:M"\nworld = "counter"\n')
    assert '"run"' in clew("run", "--model", "echo", "--tasks", 1, "--json").output
    assert "[default: evil.py:M, by clew.toml]" in " ".join(clew("run", "--help").output.split())


def test_what_is_allowed_stays_so_until_it_changes_and_lies_outside_the_project(clew, tmp_path):
    write("""class M:
    ref = "m"
    async def complete(self, request):
        raise SystemExit(7)
""", "mine.py")  # fmt: skip
    text = 'model = "mine.py:M"\nworld = "counter"\nstore = ".clew/a.db"\n[run]\ntasks = 1\n'
    write(text)
    assert "mine.py:M" in clew("run", code=2).output
    assert 'model = "mine.py:M"' in clew("doctor", "--trust").output
    assert "only you may allow" not in clew("run", code=None).output
    write(text.replace("tasks = 1", "tasks = 2"))
    assert "only you may allow" not in clew("run", code=None).output, "a default of no consequence was changed"
    write(text.replace("mine.py:M", "mine.py:N"))
    assert "only you may allow" in clew("run", code=2).output
    there = tmp_path / "copy"
    there.mkdir()
    (there / project.NAME).write_text(text)
    os.chdir(there)
    assert "only you may allow" in clew("run", code=2).output, "the same words at another place"
    assert not list(tmp_path.rglob("trusted"))


def test_a_project_that_init_writes_is_the_users_own(tmp_path):
    shell = Shell(tmp_path)
    shell("clew init shop")
    assert "only you may allow" not in shell("clew run --tasks 1 -n 1", within="shop")
    shell("cp -r shop other")
    assert "other/clew.toml says what only you may allow" in shell("clew run", within="other", code=2)


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("y", 0)])
def test_on_a_terminal_it_asks_once(tmp_path, answer, code):
    shell = Shell(tmp_path)
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n")
    text = 'tools = "tools.py:add"\nmodel = "echo"\nworld = "counter"\n[run]\ntasks = 1\njson = true\n'
    (tmp_path / project.NAME).write_text(text)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [*warm_line(), "run"], cwd=tmp_path, env=shell.environment, stdin=theirs, stderr=theirs, timeout=120,
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        told = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert 'tools = "' in told
    assert "Allow this until it changes? [y/N]" in told
    assert done.returncode == code, told
    again = shell("clew run", code=code)
    assert ("was not allowed" in told) == (answer == "n")
    assert ("only you may allow" in again) == (answer == "n")
    assert ('"run"' in done.stdout) == (answer == "y")


def test_a_module_of_the_folder_is_looked_for_only_where_one_is_named(tmp_path):
    (tmp_path / "brotli.py").write_text("open('PWNED', 'w')\n")
    (tmp_path / "zstandard.py").write_text("open('PWNED', 'w')\n")
    (tmp_path / "mine.py").write_text("async def agent(run):\n    await run.act('done')\n")
    code = "from clew.cli import main; import httpx, sys; sys.argv[1:] = ['run', 'mine:agent', '--world', 'counter', "
    code += "'--model', 'echo', '--tasks', '1', '--json']; main()"
    for line in (code.replace("main()", ""), code):
        done = subprocess.run(
            [sys.executable, "-P", "-c", line], cwd=tmp_path, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert '"run"' in done.stdout
    assert not (tmp_path / "PWNED").exists()
