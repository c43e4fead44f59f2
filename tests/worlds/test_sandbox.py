"""The sandbox holds hostile programs, as root and as an ordinary user, says how each ended, leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import os
import pickle
import resource  # noqa: F401  (os.wait4 imports it, and an ordinary user may not be let to where Python lies)
import shutil
import struct
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clew.core.errors import BadInput, ClewError, MissingExtra
from clew.sandbox import cgroup, namespace, room, sandbox, seccomp
from clew.sandbox.archives import pack
from clew.sandbox.sandbox import Limits, Sandbox, own_folder

NOBODY = 65534
MIB = 1 << 20
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
USERS = [pytest.param("root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="not root here")), "ordinary"]


def as_user(who, function):
    """What ``function()`` gives, run here, or in a forked child that is an ordinary user where this process is root."""
    if who == "root" or os.geteuid() != 0:
        return function()
    read, back = os.pipe()
    child = os.fork()
    if child == 0:
        gc.freeze()  # what this process has left lying about closes no file of the child's
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = function()
        except BaseException as error:
            answer = error
        with os.fdopen(back, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(back)
    with os.fdopen(read, "rb") as file:
        answer = pickle.load(file)
    os.waitpid(child, 0)
    if isinstance(answer, BaseException):
        raise answer
    return answer


def here():
    """A sandbox of whoever asks, with a Python in it where that user may read this one, or the system's."""
    sandbox._prove.cache_clear()
    readable = os.access(sys.base_prefix, os.X_OK) and os.access(os.path.realpath(sys.executable), os.X_OK)
    return Sandbox(readable=None if readable else ())


def running(marker):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in line and int(name) != os.getpid():
            found.append(line)
    return found


def attack(who, code, marker, **limits):
    """The verdict on a Python program; afterwards no process, mount, or file of it exists."""
    before = Path("/proc/self/mounts").read_text()
    bounds = Limits(**{"wall": 20.0, "cpu": 15.0, **limits})
    with tempfile.TemporaryDirectory(dir="/tmp") as rooms:  # of this attack alone: others may run beside it
        os.chmod(rooms, 0o777)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", rooms)
            verdict = as_user(who, lambda: here().run(["python3", "-c", code, marker], limits=bounds))
        assert os.listdir(rooms) == []
    if verdict.code == 127 or b"Permission denied" in verdict.stderr[:60]:
        pytest.skip("an ordinary user can read no Python here")
    deadline = time.monotonic() + 5  # the kernel takes a pid namespace down in its own time
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(marker) == []
    assert Path("/proc/self/mounts").read_text() == before
    assert not {name for name in (*os.listdir("/tmp"), *os.listdir("/dev/shm")) if marker in name}
    return verdict


ATTACKS = {  # program; limits; what must hold of the verdict
    "fork bomb": (
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        {"processes": 20},
        lambda v: v.code is None and v.limit == "processes",
    ),
    "memory bomb": (
        "kept = []\nwhile True: kept.append(b'x' * (1 << 20))",
        {"memory": 60 * MIB},
        lambda v: (v.code is None and v.limit == "memory") or b"MemoryError" in v.stderr,
    ),
    "much address space and little memory": (
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nc.mmap.restype = ctypes.c_ssize_t\n"
        "ask = lambda size, may: c.mmap(None, ctypes.c_size_t(size), may, 0x4022, -1, ctypes.c_long(0)) != -1\n"
        "print(ask(64 << 30, 0), ask(400 << 20, 3), ctypes.get_errno())",
        {"memory": 60 * MIB},
        lambda v: v.stdout.split() == [b"True", b"False", b"12"],
    ),
    "memory bomb of many": (
        "import os, time\nfor _ in range(4): os.fork()\nx = b'x' * (15 << 20)\ntime.sleep(30)",
        {"memory": 100 * MIB},
        lambda v: v.code is None and v.limit == "memory",
    ),
    "disk fill": (
        "for i in range(10**9): open(str(i), 'wb').write(b'x' * (1 << 20))",
        {"disk": 8 * MIB},
        lambda v: v.limit == "disk" and v.code == 1 and b"No space left" in v.stderr,
    ),
    "disk fill of the other folders": (
        "import os\nfor place in ('/tmp/x', '/dev/shm/x', '/dev/x', '/x', '/etc/x'):\n"
        "  try:\n    with open(place, 'wb') as f:\n      while True: f.write(b'x' * (1 << 20))\n"
        "  except OSError as e: print(place, e.errno)",
        {"disk": 4 * MIB},
        lambda v: v.stdout.split() == b"/tmp/x 28 /dev/shm/x 28 /dev/x 30 /x 30 /etc/x 30".split(),
    ),
    "empty files": (
        "import os\nfor i in range(10**7):\n  os.close(os.open(f'/tmp/{i}', os.O_CREAT))",
        {"disk": MIB},
        lambda v: v.code is None and v.limit == "disk",
    ),
    "links to one file": (
        "import os\nopen('x', 'w').close()\nfor i in range(10**7): os.link('x', f'l{i}')",
        {"disk": MIB},
        lambda v: v.code is None and v.limit == "disk",
    ),
    "a file too large": (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('x', 'wb').write(b'x' * (3 << 20))",
        {"file_size": MIB},
        lambda v: v.limit == "file_size" and v.code == 128 + 25,
    ),
    "network": (
        "import socket, errno\nfor host in ('127.0.0.1', '192.0.2.1'):\n  "
        "try: socket.create_connection((host, 80), 3)\n"
        "  except OSError as e: print(errno.errorcode[e.errno])\n"
        "for family in (40, 17):\n"
        "  try: socket.socket(family, socket.SOCK_STREAM)\n  except OSError as e: print(e.errno)",
        {},
        lambda v: v.stdout.split() == [b"ECONNREFUSED", b"ENETUNREACH", b"97", b"97"],
    ),
    "reading the home folder": (
        "import os\nfor place in ('/root', '/home', os.path.expanduser('~')):\n"
        "  try: print([n for n in os.listdir(place) if n not in ('.pyenv', '.local')])\n"
        "  except OSError as e: print('[]')",
        {},
        lambda v: v.stdout.split() == [b"[]"] * 3,
    ),
    "writing outside": (
        "import os\nfor place in ('/usr/x', '/etc/passwd', '/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern'):\n"
        "  try: open(place, 'a').write('x'); print('wrote', place)\n"
        "  except OSError as e: print(e.errno in (1, 2, 13, 30))",
        {},
        lambda v: v.stdout.split() == [b"True"] * 4,
    ),
    "ptrace": (
        "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\nfor call in (lambda: c.ptrace(16, 1, 0, 0), "
        "lambda: c.unshare(0x10000000), lambda: c.mount(b'/', b'/tmp', b'', 4096, None), "
        "lambda: c.memfd_create(b'', 0), "
        "lambda: c.process_vm_readv(1, 0, 0, 0, 0, 0)): print(call(), ctypes.get_errno())",
        {},
        lambda v: v.stdout.split() == [b"-1", b"1"] * 5,
    ),
    "signals to the parent": (
        # Nothing of ours lives beside the program: a signal to all that it may reach is one to itself.
        "import os, signal\nprint(sorted(int(n) for n in os.listdir('/proc') if n.isdigit())[-1] < 60, flush=True)\n"
        "for pid in (PARENT, 1):\n  try: os.kill(pid, 9); print('sent', flush=True)\n"
        "  except OSError: print('none', flush=True)\n"
        "signal.signal(15, signal.SIG_IGN)\ntry: os.kill(-1, 15)\nexcept OSError: pass\nprint('own')",
        {},
        lambda v: v.ok and v.stdout.split()[:2] == [b"True", b"none"] and v.stdout.split()[3:] == [b"own"],
    ),
    "endless output": (
        "while True: print('y' * 5000)",
        {"output": 100_000},
        lambda v: v.code is None and v.limit == "output" and len(v.stdout) == 100_000,
    ),
    "sleep": ("import time; time.sleep(99)", {"wall": 1.0}, lambda v: v.code is None and v.limit == "wall"),
    "sleep with closed streams": (
        "import os, time\nfor fd in range(20):\n  try: os.close(fd)\n  except OSError: pass\ntime.sleep(99)",
        {"wall": 1.0},
        lambda v: v.code is None and v.limit == "wall",
    ),
    "spinning": ("while True: pass", {"cpu": 1.0}, lambda v: v.limit == "cpu"),
    "buffers of sockets": (
        "import os, socket, time\nkept = []\n[os.fork() or kept.clear() for _ in range(4)]\ntry:\n"
        "  while True:\n    kept.append(socket.socketpair())\n    for s in kept[-1]:\n"
        "      s.setblocking(False)\n      try:\n        while True: s.send(b'x' * 50000)\n"
        "      except BlockingIOError: pass\nexcept OSError: time.sleep(60)",
        {"memory": 64 * MIB, "wall": 60.0},
        lambda v: v.code is None and v.limit == "memory",
    ),
    "buffers of its own network": (
        "import os, socket, time\nserver, kept = socket.create_server(('127.0.0.1', 0), backlog=4096), []\n"
        "[os.fork() for _ in range(3)]\ntry:\n  while True:\n    s = socket.create_connection(server.getsockname())\n"
        "    kept.append(s)\n    s.setblocking(False)\n    try:\n      while True: s.send(b'x' * 50000)\n"
        "    except BlockingIOError: pass\nexcept OSError: time.sleep(60)",
        {"memory": 64 * MIB, "wall": 60.0},
        lambda v: v.code is None and v.limit == "memory",
    ),
    "larger buffers": (
        "import ctypes, fcntl, os, socket\nread, write = os.pipe()\n"
        "try: print(fcntl.fcntl(write, 1031, 1 << 20))\nexcept OSError as e: print(e.errno)\n"
        "c = ctypes.CDLL(None, use_errno=True)\nprint(c.vmsplice(write, None, 0, 0), ctypes.get_errno())\n"
        "s = socket.socket(socket.AF_UNIX)\nbefore = s.getsockopt(1, 7), s.getsockopt(1, 8)\n"
        "for option in (7, 8, 32, 33):\n  try: s.setsockopt(1, option, 1 << 22)\n  except OSError: pass\n"
        "print(before == (s.getsockopt(1, 7), s.getsockopt(1, 8)))\ns.setsockopt(1, 2, 1)\nprint(s.getsockopt(1, 2))",
        {},
        lambda v: v.stdout.split() == b"1 -1 1 True 1".split(),
    ),
    "timers and waiting signals": (
        "import ctypes, os, signal\nc, n, made = ctypes.CDLL(None), 0, ctypes.c_void_p()\n"
        "while n < 10**5 and c.timer_create(1, None, ctypes.byref(made)) == 0: n += 1\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [40])\nk = 0\n"
        "while k < 10**5 and c.sigqueue(os.getpid(), 40, 0) == 0: k += 1\nprint(n < 5000, k < 5000)",
        {},
        lambda v: v.stdout.split() == [b"True", b"True"],
    ),
    "threads": (
        "import threading, time\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "  except RuntimeError: time.sleep(60)",
        {"processes": 20, "wall": 60.0},
        lambda v: v.code is None and v.limit == "processes",
    ),
    "the first process": (
        "import os\nfor name in ('mem', 'environ', 'maps', 'root', 'cwd', 'fd/0', 'exe', 'auxv', 'oom_score_adj'):\n"
        "  try:\n    with open(f'/proc/1/{name}', 'r+b') as file: file.write(b'x')\n    print('wrote', name)\n"
        "  except OSError: pass\n"
        "try: print([n for n in os.listdir('/proc/1/root/') if n in ('root', 'work', 'var', 'boot')])\n"
        "except OSError: print([])",
        {},
        lambda v: v.stdout == b"[]\n",
    ),
    "rank and clock": (
        "import ctypes, os, time\ntried = [lambda: os.nice(-5), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, "
        "os.sched_param(50)), lambda: time.clock_settime(0, 1.0), lambda: os.setuid(0), lambda: os.setgroups([0]), "
        "lambda: os.chroot('/box'), lambda: open('/proc/self/oom_score_adj', 'w', buffering=1).write('-900\\n'), "
        "lambda: os.chown('/box', 0, 0)]\nfor call in tried:\n  try: call(); print('did', tried.index(call))\n"
        "  except OSError: pass\nprint(ctypes.CDLL(None).sethostname(b'x', 1))",
        {},
        lambda v: v.stdout == b"-1\n",
    ),
    "a daemon that cannot be asked": (
        "import os, signal, time\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n"
        "  except (OSError, ValueError): pass\n"
        "for _ in range(5):\n  if os.fork() == 0:\n    os.setsid()\n    for fd in range(9):\n"
        "      try: os.close(fd)\n      except OSError: pass\n    while True:\n      if os.fork(): os._exit(0)\n"
        "      time.sleep(.001)\nprint('gone')",
        {"processes": 40},
        lambda v: v.stdout == b"gone\n" and v.limit in ("", "processes"),
    ),
    "what no name leads to": (
        "import os\nkept = []\ntry:\n  while True:\n    kept.append(open(f'/tmp/{len(kept)}', 'wb'))\n"
        "    os.unlink(kept[-1].name)\n    kept[-1].write(b'x' * (1 << 20))\n    kept[-1].flush()\n"
        "except OSError as e: print(e.errno, len(kept))",
        {"disk": 4 * MIB},
        lambda v: v.stdout.split()[0] == b"28" and int(v.stdout.split()[1]) <= 5,
    ),
    "children that nobody waits for": (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n"
        "  if os.fork() == 0:\n    t = time.process_time()\n    while time.process_time() - t < .2: pass\n"
        "    os._exit(0)\n  try: os.wait()\n  except OSError: pass",
        {"cpu": 1.0, "wall": 60.0},
        lambda v: v.code is None and v.limit == "cpu" and 1 < v.cpu < 2,
    ),
    "a daemon": (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(99)\n"
        "  os._exit(0)\nprint('gone')",
        {},
        lambda v: v.ok and v.stdout == b"gone\n",
    ),
}


@pytest.mark.whole
@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_contained(who, name):
    code, limits, holds = ATTACKS[name]
    verdict = attack(who, code.replace("PARENT", str(os.getpid())), f"marker-{os.getpid()}-{who}", **limits)
    assert holds(verdict), verdict
    assert verdict.isolation == "bubblewrap"


@needs_bubblewrap
@pytest.mark.parametrize("name", ["buffers of sockets", "buffers of its own network", "memory bomb of many"])
def test_memory_is_bounded_without_a_control_group(name, monkeypatch):
    monkeypatch.setattr(room, "group", lambda most: None)
    code, limits, holds = ATTACKS[name]
    verdict = attack("root", code, f"marker-{os.getpid()}-bare", **limits)
    assert holds(verdict), verdict


@needs_bubblewrap
def test_a_control_group_is_gone_after_its_run():
    made = cgroup.group(64 * MIB)
    if made is None:
        pytest.skip("no control group with memory can be made here")
    made.close()
    here().run("true")
    assert not [name for name in os.listdir(made.folder.parent) if name.startswith(f"clew-{os.getpid()}-")]
    assert not made.folder.exists()


@pytest.mark.whole
@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
def test_the_count_of_the_processor_holds_without_the_kernels_clock(who, monkeypatch):
    monkeypatch.setattr(room, "cpu_clock", lambda pid: None)
    code, limits, _ = ATTACKS["children that nobody waits for"]
    verdict = attack(who, code, f"marker-{os.getpid()}-{who}", **limits)
    assert verdict.limit == "cpu", verdict


@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
def test_files_go_in_and_out_and_links_do_not(who):
    command = "cat in/a.txt; echo out > o.txt; ln -s /etc/passwd link; mkdir d; ln o.txt d/hard; mkfifo pipe; cat"

    def run():
        return here().run(command, {"in/a.txt": "hello "}, stdin="typed", keep=["o.txt", "link", "pipe", "d", "absent"])

    verdict = as_user(who, run)
    assert (verdict.code, verdict.stdout) == (0, b"hello typed")
    assert verdict.files["o.txt"] == b"out\n"
    assert set(verdict.files) <= {"o.txt", "d/hard"}
    assert any(line.startswith("link:") for line in verdict.refused)
    assert "ok after" in str(verdict)


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="not root here")
def test_root_becomes_a_uid_of_its_own_first():
    verdicts = [here().run("id -u; grep CapEff /proc/self/status; grep Groups /proc/self/status") for _ in range(2)]
    uids = [int(v.stdout.split()[0]) for v in verdicts]
    assert uids[0] != uids[1]
    assert all(uid >= 61184 for uid in uids)
    assert all(b"CapEff:\t0000000000000000" in v.stdout for v in verdicts)


@needs_bubblewrap
def test_nothing_of_this_process_is_passed_on(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    verdict = Sandbox().run("env; ls /proc/self/fd; ls /tmp /box", env={"OWN": "1"})
    assert b"secret" not in verdict.stdout
    assert b"OWN=1" in verdict.stdout
    assert verdict.stdout.split(b"LANG=C.UTF-8")[1].split()[-8:].count(b"4") == 0  # ls itself opens 3


@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
def test_certificates_can_be_read_and_keys_cannot(who):
    """Those of the open internet; a program that finds a configuration which it may not open gives up."""
    places = [p for p in ("/etc/ssl/openssl.cnf", "/etc/ssl/certs/ca-certificates.crt") if os.path.exists(p)]
    verdict = as_user(who, lambda: here().run(f"cat {' '.join(places)} /dev/null | wc -c; ls /etc/ssl/private"))
    assert int(verdict.stdout) == sum(os.path.getsize(place) for place in places)
    assert verdict.code != 0


@needs_bubblewrap
def test_async_runs_side_by_side_and_a_cancelled_one_ends():
    async def main():
        box = Sandbox()
        many = await asyncio.gather(*(box.arun(f"echo {i}") for i in range(4)))
        assert [v.stdout for v in many] == [b"%d\n" % i for i in range(4)]
        task = asyncio.create_task(box.arun(["sleep", "98.7654"]))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running("98.7654") == []

    asyncio.run(main())


@needs_bubblewrap
def test_output_is_told_as_it_comes_and_long_runs_leave_the_threads_of_the_loop_free():
    """The command goes on when what it said was told; while many such wait, other work still finds a thread."""

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        box, limits, heard = Sandbox(readable=()), Limits(wall=120, memory=64 * MIB), []

        async def one(folder):
            def told(name, piece):
                heard.append((name, piece))
                Path(folder, "box", "go").touch()

            Path(folder, "box").mkdir()
            own_folder(Path(folder, "box"))
            wait = "echo said >&2; while [ ! -e go ]; do sleep 0.05; done; echo went"
            return await box.arun(wait, folder=Path(folder, "box"), limits=limits, on_output=told)

        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(box.arun("sleep 60", limits=limits)) for _ in range(3)]
            with tempfile.TemporaryDirectory() as folder:
                assert (await one(folder)).stdout == b"went\n"
            await asyncio.to_thread(str)
            for task in waiting:
                task.cancel()
        assert heard == [("stderr", b"said\n"), ("stdout", b"went\n")]

        def failing(name, piece):
            raise ValueError(name)

        with pytest.raises(ValueError, match="stdout"):
            await box.arun("echo x; sleep 92.1234", on_output=failing)
        assert running("92.1234") == []

    asyncio.run(main())


@needs_bubblewrap
def test_bad_input_is_named():
    box = Sandbox(readable=())
    for name in ("/etc/x", "../x", "", "a/../../x"):
        with pytest.raises(BadInput, match="work folder"):
            box.run("true", {name: "x"})
    with pytest.raises(BadInput, match="raise Limits"):
        box.run("true", {"x": b"x" * 2 * MIB}, limits=Limits(disk=MIB))
    with pytest.raises(BadInput, match="wall is 0"):
        Limits(wall=0)
    with pytest.raises(BadInput, match="empty"):
        box.run([])
    with pytest.raises(BadInput, match="cannot be shown"):
        Sandbox(readable=["/nowhere"])
    assert box.run(["no-such-program"]).code == 127


@needs_bubblewrap
def test_programs_of_folders_that_are_shown_are_found_in_the_order_in_which_they_are_named(tmp_path):
    places = [tmp_path / name for name in ("b", "a", "b/inner")]
    for place in places:
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "whose").write_text(f"#!/bin/sh\necho {place.name}\n")
        (place / "bin" / "whose").chmod(0o755)
    for named in (places, places[::-1], [places[1], places[0], places[2]]):
        found = Sandbox(readable=named).run(["sh", "-c", "which -a whose; whose"])
        assert found.stdout.decode().split() == [*(f"{place}/bin/whose" for place in named), named[0].name]


@needs_bubblewrap
def test_a_virtual_environment_brings_its_python_and_never_the_home_folder(tmp_path, monkeypatch):
    base, venv = tmp_path / "python", tmp_path / "venv"
    (base / "bin").mkdir(parents=True)
    (base / "bin" / "python3.11").write_text("")
    venv.mkdir()
    for home, shown in ((base / "bin", [venv, base]), (tmp_path / "nothing", [venv]), ("/bin", [venv])):
        (venv / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.11\n")
        assert [*Sandbox(readable=[str(venv)]).readable] == shown
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    for home in (base, base / "inner"):
        monkeypatch.setattr(Path, "home", lambda home=home: home)
        assert [*Sandbox(readable=[str(venv)]).readable] == [venv]


def test_what_is_missing_or_cannot_be_enforced_refuses_to_start(monkeypatch):
    with pytest.raises(BadInput, match="no isolation"):
        Sandbox(isolation="hope")
    with monkeypatch.context() as patch:
        patch.setattr(sandbox.shutil, "which", lambda tool: None if tool == "bwrap" else f"/usr/bin/{tool}")
        with pytest.raises(MissingExtra, match="apt-get install bubblewrap"):
            Sandbox()
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: a bound that does not hold was not tried")
    whole = namespace.bounded
    for lost, name in (("--nproc", "processes"), ("--nofile", "open files"), ("--fsize", "file size")):
        sandbox._prove.cache_clear()
        lacking = lambda order, n, lost=lost: [w for w in whole(order, n) if not w.startswith(lost)]  # noqa: E731
        monkeypatch.setattr(namespace, "bounded", lacking)
        with pytest.raises(ClewError, match=f"cannot enforce: {name}"):
            Sandbox()
    sandbox._prove.cache_clear()


def test_the_weaker_way_bounds_what_it_says_and_cleans_up():
    box = Sandbox(isolation="rlimits", limits=Limits(wall=1.0, output=1000, memory=100 * MIB))
    verdict = box.run("cat x; pwd; sleep 97.531 & echo $HOME > kept", {"x": "in "}, keep=["kept"])
    assert (verdict.code, verdict.isolation) == (0, "rlimits")
    assert verdict.files["kept"].decode().strip() in verdict.stdout.decode()
    assert not Path(verdict.files["kept"].decode().strip()).exists()
    assert box.run("sleep 96.531 & sleep 97.531").limit == "wall"
    assert box.run("yes").limit == "output"
    assert running("97.531") == running("96.531") == []


FORGE = """
import glob, io, os, sys, tarfile
out = io.BytesIO()
with tarfile.open(fileobj=out, mode='w') as archive:
    entry = tarfile.TarInfo('kept')
    entry.size = 6
    archive.addfile(entry, io.BytesIO(b'forged'))
    header = bytearray(tarfile.TarInfo('endless').tobuf())
header[124:136] = b'\\xff' * 10 + b'\\xfe\\x00'  # a size of -512
header[148:156] = b'%06o\\0 ' % (sum(header[:148]) + 256 + sum(header[156:]))
own = {os.readlink(f'/proc/self/fd/{n}') for n in (1, 2)}
def above(pid):
    found = []
    while pid not in ('0', ''):
        found.append(pid)
        try:
            pid = next((line.split()[1] for line in open(f'/proc/{pid}/status') if line.startswith('PPid')), '')
        except OSError:
            break
    return found
reached, caller = [], above(sys.argv[2])
of_the_run = {}
def ours(pid):  # without namespaces most processes of /proc are not of this run
    if pid not in of_the_run:
        of_the_run[pid] = pid in caller or sys.argv[2] in above(pid)
    return of_the_run[pid]
for place in glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/proc/[0-9]*/task/*/fd/*'):
    try:
        if sys.argv[1] == 'rlimits' and not ours(place.split('/')[2]):
            continue
        if os.readlink(place) in own or place.startswith(f'/proc/{os.getpid()}/'):
            continue
        fd = os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        reached.append(os.readlink(place))
        os.write(fd, b'0 0\\n' + out.getvalue() + bytes(header) + b'\\0' * 512)
    except OSError:
        pass
print(sorted(reached))
open('kept', 'w').write('true')
"""


@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("isolation", ["bubblewrap", "rlimits"])
def test_what_is_handed_out_cannot_be_forged(who, isolation):
    box = here if isolation == "bubblewrap" else lambda: Sandbox(isolation="rlimits", readable=())
    verdict = as_user(who, lambda: box().run(["python3", "-c", FORGE, isolation, str(os.getpid())], keep=["."]))
    if verdict.code in (126, 127) or b"Permission denied" in verdict.stderr[:60]:
        pytest.skip("an ordinary user can read no Python here")
    assert (verdict.limit, verdict.files.get("kept"), verdict.refused) == ("", b"true", ())
    assert set(verdict.files) == {"kept"}
    if isolation == "bubblewrap":  # without namespaces the caller's own streams are in the same /proc
        assert verdict.stdout == b"[]\n"


@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
def test_kept_files_are_read_when_nothing_runs_any_more(who):
    """A daemon that goes on writing, and swaps a folder for a link, is gone when the files are taken."""
    command = (
        "mkdir d; echo own > d/x; ln -s /etc e\n"
        "(while :; do mv d f; mv e d; mv d e; mv f d; done) >/dev/null 2>&1 &\n"
        "(while :; do echo more >> log; done) >/dev/null 2>&1 &\n"
        "sleep 0.3; cp log before"
    )
    verdict = as_user(who, lambda: here().run(command, keep=["d/x", "d/passwd", "e/passwd", "log", "before", "."]))
    assert verdict.code == 0
    assert all(content in (b"own\n", b"more\n" * (len(content) // 5)) for content in verdict.files.values())
    assert verdict.files["log"].startswith(verdict.files["before"])


HOARDS = {  # what lies in the folder at the end; what is refused of it; names that are taken
    "sparse files": ("for i in 1 2 3; do truncate -s 3M f$i; done", "f3: no room for its 3145728 bytes", {"f1"}),
    "hard links": ("truncate -s 3M a; for i in 1 2 3; do ln a b$i; done", "b3: no room", {"a"}),
    "deep folders": (
        "i=0; while [ $i -lt 900 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > x",
        "folders deep",
        set(),
    ),
    "many files": ("seq 3000 | xargs touch", "too many", None),
    "special files": ("mkfifo p; ln -s / l; ln -s l m; mkdir d; ln -s ../../.. d/u", "p: no regular file", set()),
    "closed files": ("echo x > x; chmod 000 x; mkdir d; echo y > d/y; chmod 000 d", "", None),
    "odd names": ("touch -- '-rf' 'a\nb' \"$(printf '\\377')\" ' ' '...' '$(id)'", "", None),
    "a folder as a loop": ("mkdir d; ln -s . d/d; ln -s ../d d/e; echo x > d/x", "d/d: no regular file", {"d/x"}),
}


@pytest.mark.whole
@needs_bubblewrap
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("name", HOARDS)
def test_what_is_taken_out_is_bounded(who, name):
    command, refused, taken = HOARDS[name]
    verdict = as_user(who, lambda: here().run(command, keep=["."], limits=Limits(disk=4 * MIB, wall=60.0)))
    assert verdict.code == 0, verdict
    assert sum(map(len, verdict.files.values())) <= 4 * MIB
    assert len(verdict.files) <= 4096
    assert all(Path(path).parts[0] not in ("/", "..") for path in verdict.files)
    if taken is not None:
        assert set(verdict.files) == taken
    if taken is not None and refused:
        assert any(refused in line for line in verdict.refused), verdict.refused


@needs_bubblewrap
def test_no_device_is_made_and_no_attribute_is_free():
    code = (
        "import os, stat\n"
        "for mode in (stat.S_IFCHR, stat.S_IFBLK):\n"
        "  try: os.mknod('dev', mode | 0o666, os.makedev(1, 5)); print('made')\n"
        "  except OSError as e: print(e.errno)\n"
        "n = 0\nopen('x', 'w').close()\n"
        "try:\n  while n < 10**5: os.setxattr('x', f'user.{n}', b'x' * 60000); n += 1\n"
        "except OSError as e: print(e.errno > 0)\n"
        "else: print('endless')\n"
    )
    verdict = here().run(["python3", "-c", code], limits=Limits(disk=4 * MIB))
    assert verdict.stdout.split() == [b"1", b"1", b"True"] or verdict.limit == "disk"


@needs_bubblewrap
def test_a_torn_archive_is_said(tmp_path):
    whole = pack({"a": b"1" * 600, "b": b"2" * 6000})
    assert here().run("cat a | wc -c", whole).stdout.split() == [b"600"]
    for torn in (whole[:700], whole[:1300], b"nonsense" * 200):
        with pytest.raises(BadInput, match="cannot be unpacked"):
            here().run("echo ran", torn)
    with pytest.raises(BadInput, match="cannot be unpacked"):
        here().run("echo ran", {"x": b"1" * 9000}, limits=Limits(file_size=4096))
    full = here().run("echo ran", {f"f{i}": b"1" for i in range(20)}, limits=Limits(disk=40960))
    assert (full.code, full.limit, full.stdout) == (None, "disk", b"")


@functools.cache
def lines(machine):
    return list(struct.iter_unpack("<HBBI", seccomp.program(machine)))


def judged(machine, number, arguments=(), arch=None):
    """What the filter answers to a call: a plain interpreter of the classic BPF it uses."""
    program = lines(machine)
    arch = seccomp.ARCHITECTURES[machine][1] if arch is None else arch
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    at, value = 0, 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code == seccomp.LOAD:
            value = struct.unpack_from("<I", data, k)[0]
        elif code == seccomp.RETURN:
            return k
        else:
            test = {seccomp.JUMP_EQUAL: value == k, seccomp.JUMP_FROM: value >= k, seccomp.JUMP_ANY: bool(value & k)}
            at += yes if test[code] else no


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_the_filter_refuses_what_it_lists_and_nothing_else(machine):
    column = seccomp.ARCHITECTURES[machine][0]
    listed = {numbers[column] for numbers in seccomp.REFUSED.values()} - {None}
    special = {pair[column] for pair in (seccomp.CLONE, seccomp.CLONE3, seccomp.SOCKET, seccomp.IOCTL)}
    for number in range(600):
        if number not in special:
            assert judged(machine, number) == (seccomp.ERRNO | errno.EPERM if number in listed else seccomp.ALLOW)
    clone, clone3, socket, ioctl = (p[column] for p in (seccomp.CLONE, seccomp.CLONE3, seccomp.SOCKET, seccomp.IOCTL))
    assert judged(machine, clone3) == seccomp.ERRNO | errno.ENOSYS
    assert judged(machine, clone, [17]) == judged(machine, clone, [0x3D0F00]) == seccomp.ALLOW
    assert judged(machine, clone, [0x10000011]) == seccomp.ERRNO | errno.EPERM
    assert {judged(machine, socket, [f]) for f in (1, 2, 10, 16)} == {seccomp.ALLOW}
    assert {judged(machine, socket, [f]) for f in (0, 17, 38, 40)} == {seccomp.ERRNO | errno.EAFNOSUPPORT}
    assert judged(machine, ioctl, [0, 0x5412]) == judged(machine, ioctl, [0, 0x541C]) == seccomp.ERRNO | errno.EPERM
    assert judged(machine, ioctl, [0, 0x5413]) == seccomp.ALLOW
    fcntl, setsockopt = (p[column] for p in (seccomp.FCNTL, seccomp.SETSOCKOPT))
    assert judged(machine, fcntl, [3, 1031]) == seccomp.ERRNO | errno.EPERM
    assert judged(machine, fcntl, [1031, 4]) == judged(machine, fcntl, [3, 1032]) == seccomp.ALLOW
    assert {judged(machine, setsockopt, [3, 1, option]) for option in (7, 8)} == {seccomp.ERRNO}
    assert {judged(machine, setsockopt, [3, *rest]) for rest in ([1, 2], [0, 8], [6, 7])} == {seccomp.ALLOW}
    assert judged(machine, 0, arch=0x40000003) == seccomp.KILL
    if machine == "x86_64":
        assert judged(machine, seccomp.X32 + 1) == seccomp.KILL


def test_unknown_machines_are_refused():
    with pytest.raises(ClewError, match="riscv"):
        seccomp.program("riscv64")


@needs_bubblewrap
def test_a_run_ends_when_its_caller_is_killed():
    code = "import sys; from clew.sandbox.sandbox import Sandbox; Sandbox(readable=()).run(['sleep', '95.4321'])"
    import subprocess

    source = str(Path(__file__).resolve().parents[2] / "src")
    child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source})
    until = time.monotonic() + 20
    while not any(line.startswith(b"sleep\0") for line in running("95.4321")) and time.monotonic() < until:
        time.sleep(0.05)
    child.kill()
    child.wait()
    until = time.monotonic() + 10
    while running("95.4321") and time.monotonic() < until:
        time.sleep(0.05)
    assert running("95.4321") == []


@pytest.mark.whole
@needs_bubblewrap
def test_a_folder_of_this_machine_stays_and_is_bounded(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "kept.txt").write_text("mine")
    os.symlink("/etc/passwd", work / "out")
    box = Sandbox(Limits(disk=4 * MIB, file_size=3 * MIB))
    if os.geteuid() == 0:
        with pytest.raises(BadInput, match="may change"):
            box.run("true", folder=work)
    own_folder(work)
    assert box.run("echo theirs > new; cat kept.txt; echo $HOME; pwd", folder=work).stdout == b"mine/tmp\n/box\n"
    assert (work / "new").read_text() == "theirs\n"
    assert box.run("cat new", folder=work).stdout == b"theirs\n"
    assert os.stat("/etc/passwd").st_uid == 0  # a link is given over, not what it points to
    full = box.run("for i in 1 2 3 4; do head -c 2900000 /dev/zero > big$i; sleep 0.1; done; sleep 5", folder=work)
    assert (full.code, full.limit) == (None, "disk")
    with pytest.raises(BadInput, match="a folder of this machine"):
        box.run("true", {"a": "b"}, folder=work)
