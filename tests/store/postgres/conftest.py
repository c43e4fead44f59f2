"""The server that the tests of the PostgreSQL store share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    made = server()
    yield made
    made.stop()
