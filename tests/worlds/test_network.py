"""The network of a sandboxed command: the named hosts and ports are reached, and nothing else whatever is asked."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile

import pytest

import clew
from clew.core.errors import BadInput
from clew.core.registry import build
from clew.models.fakes import Scripted, tool_call
from clew.sandbox import network as network_module
from clew.sandbox.hosts import Hosts, plain, public
from clew.sandbox.network import Network
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from clew.worlds.contract import perform
from clew.worlds.workspace import Workspace
from clew.worlds.workspace.workspace import verified
from tests.worlds.test_sandbox import USERS, as_user, here, needs_bubblewrap

OTHER = "127.0.0.2"  # this machine, by an address that no program takes for local
pytestmark = pytest.mark.allow_hosts(["127.0.0.1", OTHER, "::1"])


class Told(http.server.SimpleHTTPRequestHandler):
    """Serves files, and tells at /told what it was asked and how; a POST gets its body back."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if not self.path.startswith("/told"):
            return super().do_GET()
        return self._say(json.dumps([self.path, dict(self.headers)]).encode())

    def do_POST(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self._say(self.rfile.read(int(self.headers["content-length"])))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return self._say(body)

    def _say(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(address=OTHER, folder="/usr/share/doc"):
    """The port of a server of HTTP at an address."""
    handler = lambda *given: Told(*given, directory=str(folder))  # noqa: E731
    with http.server.ThreadingHTTPServer((address, 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def reach(command, *hosts, most=1 << 30, box=None, **limits):
    """The verdict on a command that may reach these, and what is told of it."""
    box = box or Sandbox(readable=())
    bounds = Limits(**{"wall": 120.0, "cpu": 60.0, "memory": 1024 * MIB, **limits})
    with Network(Hosts(hosts), most) as network:
        return box.run(command, limits=bounds, doors=network.doors, env=network.env), network.told()


def python(code):
    return ["python3", "-c", f"import http.client, json, os, socket, time, urllib.request as u\n{code}"]


PROXY = "s = socket.create_connection(('127.0.0.1', 3128)); f = s.makefile('rb')\n"


def test_pairs_are_read_and_bad_ones_named():
    hosts = Hosts(["Example.org.:443", "[::1]:80", "[0:0::1]:80", "10.0.0.1:1", "a_b-c.example:65535"])
    assert hosts.pairs == (("example.org", 443), ("::1", 80), ("10.0.0.1", 1), ("a_b-c.example", 65535))
    assert str(hosts) == "example.org:443, [::1]:80, 10.0.0.1:1, a_b-c.example:65535"
    assert Hosts("localhost:8000").pairs == (("localhost", 8000),)
    assert not Hosts()
    bad = [
        "example.org",
        "example.org:",
        ":443",
        "https://example.org:443",
        "example.org:0",
        "example.org:65536",
        "example.org:٤",
        "*:443",
    ]
    for text in (*bad, "::1:80", "[example.org]:443", "[127.0.0.1]:80", "a b:1", "a\r\nb:1", "-a:1", "user@host:1", ""):
        with pytest.raises(BadInput, match="no host and port"):
            Hosts([text])


def test_a_name_leads_to_the_open_internet_or_where_it_was_named():
    for address in ("93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "2002:5db8:d822::1"):
        assert public(plain(address)), address
    inner = "127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255"
    inner += " ::1 :: fe80::1 fe80::1%lo fc00::1 ff02::1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe"
    for address in (*inner.split(), "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "64:ff9b:1::1"):
        assert not public(plain(address)), address
        assert not Hosts(["example.org:443"]).may(("example.org", 443), address)
    named = Hosts(["corp.example:443", "10.0.0.5:443", "localhost:8000"])
    assert named.may(("corp.example", 443), "10.0.0.5")
    assert named.may(("corp.example", 443), "::ffff:10.0.0.5")
    assert not named.may(("corp.example", 444), "10.0.0.5")
    assert not named.may(("corp.example", 443), "10.0.0.6")
    assert named.may(("localhost", 8000), "127.0.0.1")
    assert not named.may(("localhost", 8000), "93.184.216.34")  # a hosts file that lies


@pytest.mark.whole
@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
def test_programs_reach_the_named_hosts_by_tunnel_and_by_address_and_nothing_else(who):
    with served() as port, served(OTHER) as other, served("127.0.0.1") as own:
        command = python(
            f"ask = lambda at, **how: json.load(u.urlopen(u.Request(f'http://{{at}}/told?a=b', **how)))\n"
            f"path, heard = ask('{OTHER}:{port}', headers={{'X-Own': '1', 'Proxy-Authorization': 'x'}})\n"
            f"print(path, heard['Host'] == '{OTHER}:{port}', heard['X-Own'], heard['Connection'])\n"
            "print('Proxy-Authorization' in heard)\n"
            f"print(u.urlopen('http://{OTHER}:{port}/', b'x' * 3000000).read() == b'x' * 3000000)\n"
            f"pieces = u.Request('http://{OTHER}:{port}/', (b'y' * 10 for _ in range(500)))\n"
            "print(u.urlopen(pieces).read() == b'y' * 5000)\n"
            f"c = http.client.HTTPConnection('127.0.0.1', 3128); c.set_tunnel('{OTHER}', {port})\n"
            "for _ in range(3): c.request('GET', '/told'); print(json.load(c.getresponse())[0])\n"
            f"print(ask('localhost:{own}')[0], ask('127.0.0.1:{own}')[1]['Host'] == '127.0.0.1:{own}')\n"
            f"for at in ('{OTHER}:{other}', 'example.org', '169.254.169.254'):\n"
            "  try: ask(at)\n  except u.HTTPError as e: print(e.code, e.read().decode())\n"
            f"c = http.client.HTTPConnection('127.0.0.1', 3128); c.set_tunnel('evil.example', 443)\n"
            "try: c.request('GET', '/')\nexcept OSError as e: print(e)\n"
            f"for at in ('127.0.0.1', '{OTHER}'):\n"
            f"  try: socket.create_connection((at, {other}), 5)\n  except OSError as e: print(e.errno)\n"
        )
        hosts = (f"{OTHER}:{port}", f"localhost:{own}")

        def run():
            if not os.access(os.path.realpath(sys.executable), os.X_OK):
                sys.executable = "/usr/bin/python3"
            return reach(command, *hosts, box=here())

        verdict, told = as_user(who, run)
    allowed = f"allowed: {', '.join(hosts)}"
    lines = verdict.stdout.decode().split("\n")
    assert lines[:9] == [
        "/told?a=b True 1 close", "False", "True", "True", "/told", "/told", "/told", "/told?a=b True",
        f"403 error: {OTHER}:{other} is not allowed; {allowed}",
    ], verdict  # fmt: skip
    assert lines[10] == f"403 error: example.org:80 is not allowed; {allowed}"
    assert lines[12] == f"403 error: 169.254.169.254:80 is not allowed; {allowed}"
    assert lines[14:16] == [f"Tunnel connection failed: 403 evil.example:443 is not allowed; {allowed}", "111"]
    assert lines[16] == "111"  # all of 127.0.0.0/8 is the sandbox's own
    assert told == (
        f"(network: {OTHER}:{port} was reached; localhost:{own} was reached; {OTHER}:{other} is not allowed; "
        f"example.org:80 is not allowed; 169.254.169.254:80 is not allowed; evil.example:443 is not allowed; {allowed})"
    )


@needs_bubblewrap
def test_a_name_that_leads_inside_is_refused_and_the_checked_address_is_the_one_reached(monkeypatch):
    """The names of a hostile zone: one leads to this machine, one to another answer each time, one to both."""
    real, asked = socket.getaddrinfo, []

    def zone(host, port, *rest, **more):
        known = {
            "inside.example": [["127.0.0.1"]],
            "metadata.example": [["169.254.169.254"]],
            "corp.example": [[OTHER]],
        }
        known |= {"turning.example": [["10.255.255.1", OTHER], ["127.0.0.1"]], "none.example": [[]]}
        if host not in known:
            return real(host, port, *rest, **more)
        asked.append(host)
        places = known[host][min(asked.count(host), len(known[host])) - 1]
        if not places:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in places]

    monkeypatch.setattr(socket, "getaddrinfo", zone)
    with served() as port, served("127.0.0.1") as own:
        names = ("inside.example", "metadata.example", "turning.example", "none.example", "corp.example")
        code = "for at in {}:\n  try: print(json.load(u.urlopen(f'http://{{at}}/told'))[1]['Host'])\n".format(
            [f"{name}:{own if name == 'inside.example' else port}" for name in (*names, "turning.example")]
        )
        code += "  except u.HTTPError as e: print(e.code, e.reason)\n"
        pairs = [f"{name}:{p}" for name in names for p in (port, own)]
        verdict, _ = reach(python(code), *pairs, f"{OTHER}:{port}")
    said = [line.partition(";")[0] for line in verdict.stdout.decode().splitlines()]
    inner = "which is no address of the open internet"
    assert said == [
        f"403 inside.example:{own} leads to 127.0.0.1, {inner}",
        f"403 metadata.example:{port} leads to 169.254.169.254, {inner}",
        f"turning.example:{port}",
        f"502 none.example:{port} cannot be found",
        f"corp.example:{port}",
        f"403 turning.example:{port} leads to 127.0.0.1, {inner}",
    ], verdict
    assert asked.count("turning.example") == 2  # once for each request: what was checked is what was reached


@needs_bubblewrap
def test_nonsense_is_answered_and_held_within_its_bounds():
    with served() as port:
        good = f"GET http://{OTHER}:{port}/told HTTP/1.1\\r\\nHost: elsewhere.example\\r\\n"
        tries = [
            ("GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("GET https://x/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("GET http://[x/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("GET http://u:p@:80/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("CONNECT nowhere HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("CONNECT a:1:2 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "400"),
            ("\\x16\\x03\\x01 TLS\\r\\n\\r\\n", "400"),
            ("GET http://x/ HTTP/1.1\\r\\nHost: x\\r\\nA: " + "' + 'a' * 40000 + '" + "\\r\\n\\r\\n", "400"),
            (good + "Content-Length: 1\\r\\nContent-Length: 2\\r\\n\\r\\n", "400"),
            (good + "X: a\\nHost: evil\\r\\n\\r\\n", "400"),
            (good + "Connection: close, X-Own\\r\\n\\r\\n", "200"),
        ]
        code = "".join(
            f"{PROXY}s.sendall(('{text}').encode('latin-1')); s.shutdown(1)\nprint(f.readline().split()[1].decode())\n"
            for text, _ in tries
        )
        code += f"{PROXY}s.sendall(b'GET ht'); s.shutdown(1); print(f.read())\n{PROXY}s.shutdown(1); print(f.read())\n"
        code += f"print(json.load(u.urlopen('http://{OTHER}:{port}/told'))[0])\n"
        verdict, told = reach(python(code), f"{OTHER}:{port}")
    lines = verdict.stdout.decode().splitlines()
    assert lines[: len(tries)] == [status for _, status in tries], verdict
    assert lines[len(tries) + 1 :] == ["b''", "/told"]
    assert "elsewhere" not in told


@pytest.mark.whole
@needs_bubblewrap
def test_bytes_and_connections_are_bounded_and_nothing_is_left(monkeypatch):
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with served() as port, socket.create_server((OTHER, 0)) as silent:
        closed = silent.getsockname()[1]
        ask = f"json.load(u.urlopen('http://{OTHER}:{port}/told'))[0]"
        code = "import threading\ngood = []\n"
        code += f"them = [threading.Thread(target=lambda: good.append({ask})) for _ in range(60)]\n"
        code += "[t.start() for t in them]; [t.join() for t in them]\nprint(len(good))\n"
        with monkeypatch.context() as patch:
            patch.setattr(network_module, "MOST", 4)
            assert reach(python(code), f"{OTHER}:{port}")[0].stdout == b"60\n"
        flood = (
            "kept, good = [], []\nfor _ in range(40):\n"
            "  s = socket.create_connection(('127.0.0.1', 3128), 5); kept.append(s)\n"
            f"  s.sendall(b'CONNECT {OTHER}:{closed} HTTP/1.0\\r\\n\\r\\n'); s.settimeout(0.5)\n"
            "  try: good.append(s.recv(99))\n  except OSError: pass\nprint(len(good))\n"
        )
        verdict, _ = reach(python(flood), f"{OTHER}:{closed}")
        assert verdict.stdout == b"32\n", verdict
        code = f"try: u.urlopen('http://{OTHER}:{port}/', b'x' * 3000000).read()\nexcept OSError: print('broken')"
        verdict, told = reach(python(code), f"{OTHER}:{port}", most=1_000_000)
    assert verdict.stdout == b"broken\n", verdict
    assert "ended after 1,000,000 bytes, which is the most that a command may move" in told
    until = time.monotonic() + 20
    while (threading.active_count(), len(os.listdir("/proc/self/fd"))) > before and time.monotonic() < until:
        time.sleep(0.05)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) <= before


@needs_bubblewrap
def test_git_and_pip_work_through_it(tmp_path):
    """A repository and a package, served as plain files."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path / "repo")]
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    (tmp_path / "repo" / "file.txt").write_text("from git\n")
    for words in (["add", "."], ["commit", "-qm", "one"], ["update-server-info"]):
        subprocess.run([*git, *words], check=True)
    index = tmp_path / "simple" / "tiny"
    index.mkdir(parents=True)
    about = {"METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(index / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "said = 'from pip'\n")
        for name, text in about.items():
            wheel.writestr(f"tiny-1.0.dist-info/{name}", text)
    (index / "index.html").write_text("<a href='tiny-1.0-py3-none-any.whl'>tiny-1.0-py3-none-any.whl</a>")
    own = os.path.join(sys.base_prefix, "bin", "python3")
    with served(folder=tmp_path) as port:
        at = f"http://{OTHER}:{port}"
        command = f"git clone -q {at}/repo/.git got && cat got/file.txt"
        verdict, _ = reach(command, f"{OTHER}:{port}")
        assert verdict.stdout == b"from git\n", verdict
        pip = f"PIP_INDEX_URL={at}/simple {own} -m pip --no-cache-dir --disable-pip-version-check install -q"
        pip += f" --target got --trusted-host {OTHER}"
        command = f"{pip} tiny && PYTHONPATH=got {own} -c 'import tiny; print(tiny.said)'"
        verdict, told = reach(command, f"{OTHER}:{port}", box=Sandbox())
        if b"No module named pip" in verdict.stderr:
            pytest.skip("the interpreter has no pip")
        assert verdict.stdout == b"from pip\n", verdict
        assert told == f"(network: {OTHER}:{port} was reached; allowed: {OTHER}:{port})"


@needs_bubblewrap
def test_a_workspace_tells_its_agent_what_is_allowed_and_what_was_refused(tmp_path):
    (tmp_path / "project").mkdir()
    with served() as port:
        how = {"shelf": str(tmp_path / "files"), "verify": f"curl -sf http://{OTHER}:{port}/told"}
        taskset = Workspace(str(tmp_path / "project"), hosts=[f"{OTHER}:{port}"], **how)
        world = taskset.open(taskset.find("x"))
        assert f"reaches {OTHER}:{port} alone, by the proxy that HTTPS_PROXY names" in world.tools[0].description
        said = perform(
            world, f"curl -s http://{OTHER}:{port}/told > a; cut -c 1-8 a; curl -s http://evil.example/"
        ).text
        allowed = f"allowed: {OTHER}:{port}"
        assert said.splitlines() == [
            '["/told"', f"error: evil.example:80 is not allowed; {allowed}", "(exit status 0)",
            f"(network: {OTHER}:{port} was reached; evil.example:80 is not allowed; {allowed})",
        ]  # fmt: skip
        assert perform(world, "cut -c 1-8 a").text == '["/told"\n(exit status 0)'
        world.close()
        assert not asyncio.run(verified(taskset, world.tree, taskset.verify)).ok  # what judges reaches nothing
        assert build("tasksets", taskset.ref).hosts.pairs == ((OTHER, port),)
    assert "hosts" not in Workspace(str(tmp_path / "project"), shelf=how["shelf"]).ref
    with pytest.raises(BadInput, match="no host and port"):
        Workspace(str(tmp_path / "project"), hosts=["example.org"], shelf=how["shelf"])


@needs_bubblewrap
def test_a_replay_asks_nobody_and_a_fork_reaches_the_network_again(tmp_path):
    (tmp_path / "project").mkdir()
    store = clew.open_store(":memory:")
    with served() as port:
        ask = f"curl -sS http://{OTHER}:{port}/told | cut -c 1-8 >> a; cat a"
        taskset = Workspace(str(tmp_path / "project"), hosts=[f"{OTHER}:{port}"], shelf=str(tmp_path / "files"))
        answers = [tool_call("bash", id=f"call_{i}", command=ask) for i in range(2)]
        runner = clew.Runner("coder", taskset, Scripted([*answers, "done"]), store)
        run = runner.collect([taskset.find("x")], 1).runs[0]
        asks = [call.seq for call in run.calls if call.kind == "ask"]
        fork = runner.fork(run, asks[1], reply=answers[1])[0]
    assert runner.replay(run).calls == len(run.calls)  # nobody is there any more
    later = runner.fork(run, asks[1], reply=answers[1])[0]
    texts = [[call.text for call in one.calls if call.kind == "act"] for one in (run, fork, later)]
    reached = f"(network: {OTHER}:{port} was reached; allowed: {OTHER}:{port})"
    assert (
        texts[0]
        == texts[1]
        == ['["/told"\n(exit status 0)\n' + reached, '["/told"\n' * 2 + "(exit status 0)\n" + reached]
    )
    assert f"(network: nobody answers at {OTHER}:{port};" in texts[2][1]
