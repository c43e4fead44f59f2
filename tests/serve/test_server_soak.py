"""The soak of benchmarks/soak.py, for seconds in place of minutes: a served process, killed and started again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from benchmarks import soak
from clew.store import open_store

pytestmark = pytest.mark.whole

pytest.importorskip("torch")
pytest.importorskip("prometheus_client")
SECONDS = float(os.environ.get("CLEW_SOAK", "6"))


@pytest.mark.timeout(600)
def test_no_answer_is_wrong_mixed_or_lost(tmp_path: Path) -> None:
    done = asyncio.run(soak.run(SECONDS, 4.0, tmp_path))
    assert done.faults == []
    assert done.counts["kills"] == 1
    assert done.counts["answers"] > 2 * soak.QUEUE  # those of a burst at the least
    assert done.counts["refusals"] > 0
    assert None not in done.right
    store = open_store(str(tmp_path / "served.db"))
    assert not store.verify()
    assert store.find("")
    store.close()


def test_a_soak_sees_what_goes_wrong(tmp_path: Path) -> None:
    """A wrong answer, a refusal without a reason, and a damaged stream count as faults."""
    import httpx

    it = soak.Soak(soak.Server(tmp_path), soak.questions())
    it.reason(httpx.Response(400, json={"error": {}}))
    it.refused(httpx.Response(400, json={"error": {"message": "no", "code": "x", "type": "y"}}))
    assert len(it.faults) == 2

    async def wrong() -> None:
        async def once(k: int, stream: bool) -> list[int]:
            return [k, 1]

        it.once, it.right = once, [[k] for k in range(48)]  # type: ignore[method-assign]
        await it.ask()
        await it.client.aclose()

    asyncio.run(wrong())
    assert len(it.faults) == 3
    chunk = '{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}'
    assert soak.joined("chat/completions", [f"data: {chunk}"]) is None
    assert soak.slope([(k, 100.0 + k) for k in range(100)])[0] == pytest.approx(3600)
