"""Doors of a sandbox: a port inside leads to a socket outside, whole and as it comes, and to nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from clew.core.errors import BadInput, WorldError
from clew.sandbox import doors, room
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from worlds.test_sandbox import USERS, as_user, here, needs_bubblewrap, running

pytestmark = needs_bubblewrap
PORT = 8123
DIAL = f"""
import hashlib, os, socket, threading, time
def dial(): return socket.create_connection(('127.0.0.1', {PORT}))
"""


@contextmanager
def outside(serve):
    """A unix socket that everybody may use, each of whose connections is served by ``serve`` in a thread."""
    folder = Path(tempfile.mkdtemp(prefix="clew-door-", dir="/tmp"))
    folder.chmod(0o755)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    server.listen(64)

    def one(connection):
        with connection:
            serve(connection)

    def accept():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        with pytest.MonkeyPatch.context() as patch:  # by its path the process that keeps the door is found
            patch.setattr(doors, "PROGRAM", shutil.copy(doors.PROGRAM, folder))
            yield folder / "socket"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        shutil.rmtree(folder)
    until = time.monotonic() + 10
    while running(str(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    assert running(str(folder)) == []  # the process that held the door open


def through(who, path, code, **limits):
    """The verdict on a Python program with a door to ``path``."""
    bounds = Limits(**{"wall": 120.0, "cpu": 60.0, "memory": 2048 * MIB, **limits})  # room for stacks of threads

    def run():
        if not os.access(os.path.realpath(sys.executable), os.X_OK):  # that of root, to another user
            sys.executable = "/usr/bin/python3"
        return here().run(["python3", "-c", DIAL + code], limits=bounds, doors={PORT: path})

    if who != "root" and os.geteuid() == 0 and not os.path.exists("/usr/bin/python3"):
        pytest.skip("an ordinary user can read no Python here")
    return as_user(who, run)


def echo(connection):
    while data := connection.recv(1 << 16):
        connection.sendall(data)


@pytest.mark.parametrize("who", USERS)
def test_many_connections_and_their_halves_lead_to_the_socket(who):
    """Each sends, closes its half, and only then reads what comes back, and the end."""
    code = """
def one(i):
    with dial() as s:
        s.sendall(b'%d ' % i * 1000)
        s.shutdown(socket.SHUT_WR)
        got = b''
        while piece := s.recv(1 << 16): got += piece
        good.append(got == b'%d ' % i * 1000)
good = []
them = [threading.Thread(target=one, args=(i,)) for i in range(40)]
[t.start() for t in them]; [t.join() for t in them]
print(good.count(True))
"""
    with outside(echo) as path:
        verdict = through(who, path, code)
    assert (verdict.code, verdict.stdout) == (0, b"40\n"), verdict


@pytest.mark.parametrize("who", USERS)
def test_large_bodies_pass_whole_in_little_memory(who):
    most = 0

    def serve(connection):
        nonlocal most
        digest, size = hashlib.sha256(), 0
        while data := connection.recv(1 << 16):
            digest.update(data)
            size += len(data)
        for folder in Path("/proc").iterdir():
            try:
                if str(path.parent).encode() in (folder / "cmdline").read_bytes():
                    high = next(x for x in (folder / "status").read_text().splitlines() if x.startswith("VmHWM"))
                    most = int(high.split()[1])
            except OSError:
                pass
        connection.sendall(f"{size} {digest.hexdigest()}\n".encode())
        for _ in range(100):
            connection.sendall(b"y" * (1 << 20))

    code = """
s, sent, came = dial(), hashlib.sha256(), 0
for _ in range(100):
    piece = os.urandom(1 << 20); sent.update(piece); s.sendall(piece)
s.shutdown(socket.SHUT_WR)
file = s.makefile('rb')
print(file.readline().split() == [b'%d' % (100 << 20), sent.hexdigest().encode()])
while piece := file.read(1 << 20): came += piece.count(b'y')
print(came)
"""
    with outside(serve) as path:
        verdict = through(who, path, code)
    assert verdict.stdout.split() == [b"True", b"%d" % (100 << 20)], verdict
    assert 0 < most < 64 << 10  # kB, Python's own 10 MB included


@pytest.mark.parametrize("who", USERS)
def test_a_stream_comes_piece_by_piece(who):
    """Each piece is only sent when the one before has arrived: nothing may wait for more."""

    def serve(connection):
        for i in range(50):
            connection.sendall(b"data: %d\n\n" % i)
            if connection.recv(1) != b"k":
                return

    code = """
s = dial(); f = s.makefile('rb')
for i in range(50): print(f.readline().strip() == b'data: %d' % i, f.readline()); s.sendall(b'k')
"""
    with outside(serve) as path:
        verdict = through(who, path, code)
    assert verdict.stdout == b"True b'\\n'\n" * 50, verdict


@pytest.mark.whole
@pytest.mark.parametrize("who", USERS)
def test_a_door_to_nowhere_is_reset_at_once_and_one_that_breaks_off_too(who, tmp_path):
    code = """
for _ in range(3):
    s = dial()
    try: s.settimeout(60); print(s.recv(1))
    except OSError as e: print(type(e).__name__)
"""
    for path in (Path("/tmp/clew-no-such-socket"), tmp_path / "x"):
        verdict = through(who, path, code)
        assert verdict.stdout == b"ConnectionResetError\n" * 3, verdict

    def serve(connection):
        connection.recv(1)  # more than this came, and is never read: the kernel breaks the connection off
        connection.sendall(b"half")

    code = """
s = dial(); s.sendall(b'x' * 1000); time.sleep(.3)
try:
  while s.recv(100): pass
  print('whole')
except OSError: print('broken')
"""
    with outside(serve) as path:
        assert through(who, path, code).stdout == b"broken\n"


@pytest.mark.parametrize("who", USERS)
def test_a_door_leads_nowhere_else_and_its_keeper_is_not_there(who):
    code = f"""
for host, port in (('127.0.0.1', {PORT + 1}), ('127.0.0.2', {PORT}), ('192.0.2.1', {PORT})):
    try: socket.create_connection((host, port), 3)
    except OSError as e: print(e.errno)
print([n for n in os.listdir('/proc') if n.isdigit() and 'door_' + 'program' in open(f'/proc/{{n}}/cmdline').read()])
print(os.path.exists('PATH'), dial().getpeername() == ('127.0.0.1', {PORT}))
"""
    with outside(echo) as path:
        verdict = through(who, path, code.replace("PATH", str(path)))
    assert verdict.stdout.split(b"\n")[:-1] == [b"111", b"111", b"101", b"[]", b"False True"], verdict


@pytest.mark.parametrize("who", USERS)
def test_what_a_command_sends_last_arrives(who):
    came, whole = [], threading.Event()

    def serve(connection):
        time.sleep(0.3)  # the command has ended when this is read
        size = 0
        while data := connection.recv(1 << 16):
            size += len(data)
        came.append(size)
        if len(came) == 3:
            whole.set()

    code = "for _ in range(3): s = dial(); s.sendall(b'x' * 300000)\n"
    with outside(serve) as path:
        assert through(who, path, code).ok
        assert whole.wait(30)
    assert came == [300000] * 3


@pytest.mark.whole
@pytest.mark.parametrize("who", USERS)
def test_a_command_that_is_ended_ends_its_connections(who):
    gone = threading.Semaphore(0)

    def serve(connection):
        connection.sendall(b"begin")
        try:
            while connection.recv(100):
                pass
        except OSError:
            pass
        gone.release()

    code = "them = [dial() for _ in range(20)]\nfor s in them: s.recv(5)\nprint('all', flush=True)\ntime.sleep(99)"
    with outside(serve) as path:
        verdict = through(who, path, code, wall=5.0)
        assert (verdict.limit, verdict.stdout) == ("wall", b"all\n")
        assert all(gone.acquire(timeout=30) for _ in range(20))


def test_a_connection_that_begins_is_not_taken_for_full_buffers(tmp_path):
    """The kernel shows a new connection's first number less one that is not set yet: any 32 bits."""
    where = tmp_path / "net"
    where.mkdir()
    (where / "sockstat").write_text("sockets: used 2\nTCP: inuse 2 orphan 0 tw 0 alloc 2 mem 0\n")
    head, line = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n",
        "   {}: 0100007F:1FBB 0100007F:0016 {} {}:{}\n",
    )
    (where / "tcp6").write_text(head)
    (where / "tcp").write_text(head + line.format(0, "02", "F0000000", "00000000"))
    own = 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())
    assert room._buffers(tmp_path) == own
    (where / "tcp").write_text(head + line.format(0, "01", "00001000", "00000010"))
    assert room._buffers(tmp_path) == own + 2 * (0x1000 + 0x10)


@pytest.mark.whole
def test_a_flood_of_connections_waits_its_turn_and_takes_nothing_of_the_caller():
    before, live, most = len(os.listdir("/proc/self/fd")), set(), 0

    def serve(connection):
        nonlocal most
        live.add(connection)
        most = max(most, len(live))
        while connection.recv(1 << 16):
            pass
        live.discard(connection)

    code = """
kept = []
for _ in range(240): kept.append(dial()); kept[-1].setblocking(False)
for s in kept:
    try:
        while s.send(b'x' * 50000): pass
    except BlockingIOError: pass
time.sleep(1)
for s in kept: s.close()
with dial() as s: s.sendall(b'later'); s.shutdown(1); print(s.recv(1))
"""
    with outside(serve) as path:
        verdict = through("root", path, code)
        assert (verdict.code, verdict.stdout) == (0, b"b''\n"), verdict
    assert 1 < most <= 128
    assert len(os.listdir("/proc/self/fd")) <= before + 8  # the server's own, about to be closed


def test_what_is_no_door_is_named(monkeypatch, tmp_path):
    box = Sandbox(readable=())
    for port in (0, -1, 1 << 16):
        with pytest.raises(BadInput, match="a door at port"):
            box.run("true", doors={port: tmp_path})
    with pytest.raises(BadInput, match="unix socket has"):
        box.run("true", doors={80: Path("/tmp/" + "x" * 110)})
    with pytest.raises(BadInput, match="network of its own"):
        Sandbox(isolation="rlimits").run("true", doors={80: tmp_path})
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(doors, "PROGRAM", Path("/nowhere.py"))
    with pytest.raises(WorldError, match="could not be opened: their process ended"):
        box.run("sleep 94.6421", doors={80: tmp_path})
    assert running("94.6421") == []
    assert set(os.listdir("/proc/self/fd")) <= before


def test_the_keeper_of_a_door_ends_when_the_caller_is_killed(tmp_path):
    code = (
        f"from pathlib import Path\nfrom clew.sandbox import doors\nfrom clew.sandbox.sandbox import Sandbox\n"
        f"doors.PROGRAM, path = (Path({str(tmp_path)!r}, name) for name in ('door_program.py', 'x'))\n"
        "Sandbox(readable=()).run(['sleep', '93.5317'], doors={80: path})"
    )
    shutil.copy(doors.PROGRAM, tmp_path)
    source = str(Path(__file__).resolve().parents[2] / "src")
    child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source})
    until = time.monotonic() + 30
    while not any(line.startswith(b"sleep\0") for line in running("93.5317")) and time.monotonic() < until:
        time.sleep(0.05)
    assert any(b"door_program.py" in line for line in running(str(tmp_path)))
    child.kill()
    child.wait()
    until = time.monotonic() + 10
    while (running("93.5317") or running(str(tmp_path))) and time.monotonic() < until:
        time.sleep(0.05)
    assert running("93.5317") == running(str(tmp_path)) == []
