"""Writers of a PostgreSQL store, several at once, and what is left when one of them or the server dies.

CLEW_KILLS multiplies the kills: 2 of each by default.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from clew.core.errors import LeaseHeld
from clew.store.contract import Script
from tests.postgres_server import server

KILLS = 2 * int(os.environ.get("CLEW_KILLS", "1"))

WRITER = """
import sys, time
from clew.core.errors import StoreError
from clew.store.contract import Script
from clew.store.postgres.postgres_store import PostgresStore
store = PostgresStore(sys.argv[1])
name, steps = sys.argv[2], int(sys.argv[3])
script = Script(store, name)
script.open()
store.lease(name, "owner of " + name, 60.0)
def commit():
    while True:
        try:
            return store.commit()
        except StoreError as error:
            print("#", error.message, flush=True)
            time.sleep(0.1)
while script.seq < steps:
    script.ask("see", f"> do {script.seq}")
    script.act("> do", "done")
    commit()
    print(script.seq, flush=True)
script.end()
store.release(name, "owner of " + name)
commit()
store.close()
print("done", flush=True)
"""


def writer(url: str, name: str, steps: int) -> subprocess.Popen[str]:
    told = [sys.executable, "-c", WRITER, url, name, str(steps)]
    return subprocess.Popen(told, stdout=subprocess.PIPE, text=True)


def wait_for(child: subprocess.Popen[str], lines: int) -> int:
    """Read some lines that a writer printed; gives how many Calls it had committed by the last."""
    read = [child.stdout.readline() for _ in range(lines)]
    return max(int(line) for line in read if line[0].isdigit())


def sound(store, names: list[str], steps: int) -> None:
    """Each run is whole, once, and the record proves itself."""
    for name in names:
        calls = store.calls(name)
        assert [call.seq for call in calls] == list(range(len(calls)))
        assert len(calls) == steps + 1
        assert calls[-1].kind == "end"
    assert sorted(store.run_ids()) == sorted(names)
    assert store.verify() == []


@pytest.mark.whole
def test_four_writers_lose_nothing(postgres):
    from clew.store.postgres.postgres_store import PostgresStore

    url, names = postgres.url(), [f"w{n}" for n in range(4)]
    children = [writer(url, name, 41) for name in names]  # they also race to make the tables
    for child in children:
        assert child.communicate(timeout=120)[0].endswith("done\n")
    with PostgresStore(url) as store:
        sound(store, names, 41)
        assert store.leased() == []


def test_kill_9_of_a_writer_loses_no_committed_call(postgres):
    from clew.store.postgres.postgres_store import PostgresStore

    url = postgres.url()
    with PostgresStore(url) as store:
        for number in range(KILLS):
            name = f"k{number}"
            child = writer(url, name, 100_000)
            told = wait_for(child, 5 + 7 * (number % 9))
            os.kill(child.pid, signal.SIGKILL)
            said = child.stdout.read().split()
            child.wait()
            child.stdout.close()
            told = max([told, *map(int, said)])
            calls = store.calls(name)
            assert len(calls) >= told
            assert len(calls) % 2 == 1, "half a commit"
            assert store.verify() == []
            for _ in range(100):  # its lease is free as soon as the server sees that it is gone
                try:
                    store.lease(name, "next", 60.0)
                    break
                except LeaseHeld:
                    time.sleep(0.05)
            else:
                raise AssertionError("the lease of a dead writer is still held")


@pytest.mark.whole
def test_kill_9_of_the_server_loses_and_doubles_nothing():
    """Two writers go on over crashes of the server, and a reader too; each connects again by itself."""
    from clew.store.postgres.postgres_store import PostgresStore

    own = server()
    try:
        url, names = own.url(), ["a", "b"]
        reader = PostgresStore(url)
        steps = 1 + 800 * KILLS  # enough that no writer is done before the server is killed
        children = [writer(url, name, steps) for name in names]
        wait_for(children[1], 1)  # it is connected
        for _ in range(KILLS):
            told = wait_for(children[0], 25)
            own.kill()
            own.start()
            assert len(reader.calls("a")) >= told
        said = [child.stdout.read() for child in children]  # with what was read ahead, as `communicate` does not
        for child in children:
            child.wait(120)
            child.stdout.close()
        assert [text[-5:] for text in said] == ["done\n"] * 2
        assert "#" in said[0], "the writer did not see the server die"
        sound(reader, names, steps)
        assert len(reader.find("stop=done")) == 2
        reader.close()
    finally:
        own.stop()


def test_a_lease_is_held_while_its_owner_is_connected(postgres):
    from clew.store.postgres.postgres_store import PostgresStore

    url = postgres.url()
    one, two = PostgresStore(url), PostgresStore(url)
    script = Script(one, "r")
    script.open()
    one.lease("r", "one", 3600)
    one.commit()
    with pytest.raises(LeaseHeld, match="one"):
        two.lease("r", "two", 60)
    script.act("late", "?")
    one._db.close()  # as if its host had lost power: nothing is released
    two.lease("r", "two", 60)
    with pytest.raises(LeaseHeld):
        one.commit()
    assert len(two.calls("r")) == 1
    one.close()
    two.close()
