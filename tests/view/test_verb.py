"""`clew view`: where it serves, what it refuses, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.cli.view import has_display
from clew.core.errors import BadInput
from clew.core.net import listen
from clew.view.serving import PORT


def test_it_refuses_what_others_can_reach_without_a_token(path):
    for host in ("0.0.0.0", "192.0.2.1", "::"):
        done = CliRunner().invoke(verbs, ["view", str(path), "--host", host, "--no-open"])
        assert done.exit_code == 2
        assert "there is no token" in done.output
        assert "CLEW_VIEW_TOKEN" in done.output


def test_it_says_what_is_wrong_with_the_store_before_it_serves(tmp_path):
    done = CliRunner().invoke(verbs, ["view", str(tmp_path / "none.db"), "--no-open"])
    assert done.exit_code == 2
    assert "there is no store at" in done.output


@pytest.mark.parametrize("page", ["../x y", "<script>", "/", "a" * 300, "feature/a?b"])
def test_a_page_that_no_address_has_is_refused(path, page):
    done = CliRunner().invoke(verbs, ["view", str(path), "--page", page, "--no-open"])
    assert done.exit_code == 2
    assert "names no page" in done.output


def test_a_taken_port_is_an_error_where_it_was_asked_for():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"127.0.0.1:{port} cannot be served"):
            listen("127.0.0.1", port)
    with socket.socket() as usual:
        usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it, which does as well
            usual.bind(("127.0.0.1", PORT))
            usual.listen()
        with listen("127.0.0.1", None, PORT) as free:
            assert free.getsockname()[1] != PORT


def test_no_browser_without_a_display(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_display()


def test_it_prints_its_address_serves_and_ends_quietly_while_a_page_listens(path):
    line = [sys.executable, "-m", "clew.cli", "view", str(path), "--port", "0", "--no-open"]
    environment = os.environ | {"CLEW_VIEW_TOKEN": "long and secret", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, env=environment, text=True, **pipes) as server:
        try:
            said = server.stdout.readline()
            address = next(word for word in said.split() if word.startswith("http://127.0.0.1:"))
            assert "token=long%20and%20secret" in address
            with httpx.Client(base_url=address.partition("?")[0], timeout=20) as client:
                assert client.get("api/store").status_code == 401
                client.get(address, follow_redirects=False)
                assert client.get("api/store").json()["runs"] == 8
                with client.stream("GET", "api/events") as stream:
                    lines = stream.iter_lines()
                    assert next(lines).startswith("retry")
                    server.send_signal(signal.SIGTERM)
                    assert list(lines)[-1] == ""
            assert server.wait(20) in (0, -signal.SIGTERM)
            assert server.stderr.read() == ""
        finally:
            server.kill()


def test_the_wheel_holds_the_page():
    root = Path(__file__).resolve().parents[2]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["src/clew"]}, "everything below it is in the wheel, the files of the page too"
    assert (root / "src" / "clew" / "view" / "static" / "index.html").is_file()
