"""What a token took: pauses do not count, and runs that shared an engine shared its time."""

from __future__ import annotations

import pytest

from clew.store import MemoryStore, Run
from clew.store.run import pace
from tests.audit import planted


def timed(begins: list[float], seconds: float) -> list[Run]:
    """Runs of one model whose model calls begin at these times and take so long, whatever they took."""
    _, runs = planted.solutions(n=len(begins))
    store = MemoryStore()
    for run, begin in zip(runs, begins, strict=True):
        store.put_run(run.row._replace(created=begin))
        for call in run.calls:
            store.put_call(run.id, call._replace(started=begin, seconds=seconds if call.kind == "ask" else 0.0))
    return [Run(store, run.id) for run in runs]


def test_a_token_of_runs_made_one_by_one_with_pauses_took_what_their_calls_took():
    runs = timed([1000.0, 5000.0], seconds=12.0)
    assert pace(runs) == pytest.approx(24.0 / sum(run.tokens for run in runs))


def test_a_token_of_one_run_of_many_made_at_once_took_its_share_of_the_engine():
    runs = timed([1000.0 + i / 10 for i in range(16)], seconds=12.0)
    tokens = sum(run.tokens for run in runs)
    assert pace(runs) == pytest.approx(13.5 / tokens)
    assert pace(runs[:1]) == pytest.approx(12.0 / tokens), "not 12 s for its own tokens alone"
    assert pace(timed([0.0], seconds=0.0)) == 0.0
