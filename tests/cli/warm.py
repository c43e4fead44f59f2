"""A warm start for tests that type `clew` into a shell: a process that has the libraries loaded forks for each line.

Importing torch and transformers takes 2 to 5 s of CPU, and the suite types hundreds of lines. ``tests/cli/shell.py``
starts one such process for each test process (``python warm.py serve SOCKET``) and puts a script named ``clew`` on the
path (``python warm.py ask SOCKET ARGUMENTS...``). The script hands over its arguments, environment, folder and streams
and waits. The fork is a process of its own, runs ``clew.cli`` as ``python -m clew.cli`` does, and ends with its exit
code. Signals reach it, and it ends when the script is killed. It must never be given what a cold start would not be:
a line whose ``PYTHON...`` variables differ from those that the libraries were loaded under is started cold.

This file imports nothing but the standard library at its top, so that the script itself starts in 20 ms.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOADED = (
    "torch", "sklearn.metrics", "scipy.stats", "transformers.models.qwen3.modeling_qwen3",
    "clew.models.local", "clew.fit.trainer", "clew.train.loop", "clew.serve.openai.server",
)  # fmt: skip


def settings(environment: dict[str, str]) -> dict[str, str]:
    """The variables that Python and native libraries read once, when they are loaded; an empty one is as none."""
    read = ("PYTHON", "OMP_", "HF_", "TRANSFORMERS_", "MKL_")
    return {name: value for name, value in environment.items() if name.startswith(read) and value}


# -- the script on the path --------------------------------------------------------------------------------------------


def ask(path: str, arguments: list[str]) -> None:
    """Have a fork run these arguments on this process's streams, and end with its exit code."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        told = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "umask": _umask()}
        text = json.dumps(told).encode()
        socket.send_fds(line, [len(text).to_bytes(4, "big")], [0, 1, 2])
        line.sendall(text)
        answers = line.makefile("r")
        pid = int(answers.readline())
        if not pid:
            os.execv(sys.executable, [sys.executable, "-P", "-m", "clew.cli", *arguments])
        for number in FORWARDED:
            signal.signal(number, lambda received, _: os.kill(pid, received))
        code = int(answers.readline() or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- the process that forks --------------------------------------------------------------------------------------------


def serve(path: str) -> list[str]:
    """Answer scripts for good. Only a fork returns from here, with the arguments that it is to run."""
    own = settings(dict(os.environ))
    _load()
    gc.freeze()  # a fork's collections leave these pages alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers end by themselves
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        if 0 in select.select([listener, 0], [], [])[0]:  # nothing is ever sent here: the test process is gone
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
            os._exit(0)
        line, _ = listener.accept()
        if os.fork():
            line.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return _watched(line, own)


def _load() -> None:
    """Import the verbs, and what they load later as far as it is installed."""
    from clew.cli.shared.common import load_verb
    from clew.cli.shared.verb_table import places

    for verb in places():
        load_verb(verb)
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)


def _watched(line: socket.socket, own: dict[str, str]) -> list[str]:
    """Fork what runs the arguments, and watch it; only what runs them returns."""
    head, streams, _, _ = socket.recv_fds(line, 4, 3)
    told = json.loads(_exactly(line, int.from_bytes(head, "big")))
    if settings(told["environment"]) != own:
        line.sendall(b"0\n")
        os._exit(0)
    ready, go = os.pipe()
    child = os.fork()
    if child:
        os.close(ready)
        for stream in streams:
            os.close(stream)
        line.sendall(f"{child}\n".encode())
        os.write(go, b"!")  # the script knows whom to send signals to
        os._exit(_until_gone(line, child))
    os.close(go)
    os.read(ready, 1)
    os.close(ready)
    line.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.setsid()
    os.chdir(told["folder"])
    os.umask(told["umask"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    arguments: list[str] = told["arguments"]
    return arguments


def _exactly(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := line.recv(size - len(found))):
        found += piece
    return found


def _until_gone(line: socket.socket, child: int) -> int:
    """Wait for the fork and tell its exit code, negative for a signal; a script that is gone takes the fork with it."""
    gone = os.pidfd_open(child)
    ready = select.select([gone, line], [], [])[0]
    if gone not in ready:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        line.sendall(f"{code}\n".encode())
    except OSError:
        return 1
    return 0


def run(arguments: list[str]) -> NoReturn:
    """Run ``clew.cli`` as ``python -m clew.cli`` does. At the end nothing is taken apart: to free what was loaded would
    copy every page of it, and take longer than most lines."""
    import atexit
    import runpy
    import threading
    import traceback

    sys.argv, code = ["clew", *arguments], 0
    try:
        runpy.run_module("clew.cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "ask":
        ask(where, rest)
    run(serve(where))
