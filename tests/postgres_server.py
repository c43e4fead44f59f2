"""A throw-away PostgreSQL server: started by the first test that asks, and gone with the session."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

PASSWORD = "pa@ss/w0rd!"


def binaries() -> Path | None:
    """The newest folder that holds PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    known = shutil.which("postgres")
    return found[-1].parent if found else Path(known).parent if known else None


class Server:
    """One server on a free port of this machine. A superuser ``clew`` needs no password over the socket's folder."""

    def __init__(self, programs: Path, *settings: str) -> None:
        self.programs, self.settings = programs, settings
        self.folder = Path(tempfile.mkdtemp(prefix="clew-pg-", dir="/tmp"))
        self.user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        if self.user:
            shutil.chown(self.folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        order = ["initdb", "-D", str(self.folder / "data"), "-U", "clew", "-E", "UTF8", "--locale=C", "--no-sync"]
        order += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        self._do(order)
        self._numbers = itertools.count()
        self.version = self._do(["postgres", "--version"]).strip()
        self.start()

    def _do(self, order: list[str]) -> str:
        told = [str(self.programs / order[0]), *order[1:]]
        done = subprocess.run(told, user=self.user, cwd="/tmp", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Start it, and wait until it answers. After a crash the last processes of the old one may still be ending."""
        told = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        told += ["-k", str(self.folder), "-c", "listen_addresses=127.0.0.1"]
        told += [word for setting in self.settings for word in ("-c", setting)]
        ready = [str(self.programs / "pg_isready"), "-q", "-U", "clew", "-h", str(self.folder), "-p", str(self.port)]
        for attempt in range(600):
            if attempt == 0 or self.process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self.process = subprocess.Popen(told, user=self.user, cwd="/tmp", stdout=log, stderr=log)
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        """End the server and all its processes at once, as a crash does."""
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for process in (self.process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run SQL as the superuser."""
        told = ["psql", "-h", str(self.folder), "-p", str(self.port), "-U", "clew", "-d", database, "-XAtqc", text]
        return self._do(told)

    def url(self, schema: str = "") -> str:
        """The address of a store of its own, made when it is opened."""
        name = schema or f"s{next(self._numbers)}"
        return f"postgresql://clew@/postgres?host={self.folder}&port={self.port}&schema={name}"


def server(*settings: str) -> Server:
    """A server that is quick and forgets all in a power failure; the test is skipped where there is no PostgreSQL."""
    pytest.importorskip("psycopg", reason="did not run: the extra postgres is not installed")
    if (programs := binaries()) is None:
        pytest.skip("did not run: PostgreSQL is not installed (apt-get install postgresql)")
    return Server(programs, "fsync=off", "shared_buffers=32MB", *settings)
