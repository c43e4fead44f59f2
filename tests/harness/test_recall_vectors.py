"""Recall by vectors beside words: who ranks what, that a failing endpoint blocks nothing, that forks never ask one."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.values import StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory, recalling
from clew.harness.memory.forgetting import forget, places
from clew.harness.memory.ranking import joined
from clew.harness.memory.recalling import Memories, asked_of
from clew.models.fakes import Echo
from clew.store import Keeper, Run, open_store
from clew.store.base import Keeper as Store

QUERY = "what does the loaf shop cost"
TEXTS = ("the bakery opens at six", "the shop is closed", "bread is paid in cash", "whales sing")
MEANS = {"loaf": 0, "bakery": 0, "bread": 0, "shop": 1, "cost": 2, "paid": 2, "cash": 2, "sing": 3, "whales": 3}


class Meanings:
    """An embedding model that knows nine words. Refuses texts that say ``refused``."""

    ref, seconds = "http://model/v1#nine-words", 5.0

    def __init__(self, numbers: int = 8) -> None:
        self.numbers, self.queries, self.asked = numbers, list[str](), list[str]()
        self.fails: Exception | None = None

    def _row(self, text: str) -> np.ndarray:
        row = np.full(self.numbers, 0.01, np.float32)
        for word in text.split():
            if word in MEANS:
                row[MEANS[word]] += 1
        return row / np.sqrt((row * row).sum())

    def query(self, text: str, seconds: float) -> np.ndarray:
        assert seconds <= self.seconds
        self.queries.append(text)
        if self.fails is not None:
            raise self.fails
        return self._row(text)

    def texts(self, texts: Sequence[str], seconds: float) -> np.ndarray:
        assert len(texts) <= 64
        self.asked += texts
        if any("refused" in text for text in texts):
            raise Refused("too long")
        return np.stack([self._row(text) for text in texts])


async def asker(run: LiveRun, times: int = 1) -> None:
    for number in range(times):
        found = await run.memory("shop").recall(run.task.prompt if number < 2 else f"loaf {number}", k=3)
        await run.chat().ask(f"{found.text}\n{run.task.prompt}")


def recalls(run: Run) -> list[dict[str, object]]:
    return [json.loads(call.text) for call in run.calls if call.kind == "recall"]


def texts(told: dict[str, object]) -> list[str]:
    return [item["text"] for item in told["items"]]  # type: ignore[attr-defined,index]


def noted(run: Run) -> list[dict[str, str]]:
    return [json.loads(call.text) for call in run.calls if call.kind == "note"]


def ran(store: Keeper, model: Meanings | None, times: int = 1) -> Run:
    runner = Runner(asker, None, Echo(), store, {"times": times}, embedder=model)
    return runner.collect([Task("t", QUERY)], n=1).runs[0]


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "a.db") as opened:
        for text in TEXTS:
            Memory(opened, "shop").add("fact", {"text": text}, by="ann")
        yield opened


def test_what_is_meant_is_found_beside_what_is_said(store: Store) -> None:
    model = Meanings()
    assert texts(recalls(ran(store, None))[0]) == ["the shop is closed", "the bakery opens at six"], "shared words"
    run = ran(store, model)
    told = recalls(run)[0]
    assert texts(told) == ["the shop is closed", "bread is paid in cash", "the bakery opens at six"]
    assert told["ranked"]["by"] == "words and vectors"  # type: ignore[index]
    assert (model.queries, sorted(model.asked)) == ([QUERY], sorted(TEXTS))
    assert noted(run) == []
    again = ran(store, model)
    assert len(model.asked) == len(TEXTS), "what has its vector is not sent again"
    assert texts(recalls(again)[0]) == texts(told)
    other = Meanings()
    assert texts(recalls(ran(store, other))[0]) == texts(told)
    assert other.asked == [], "another process reads the vectors from the store"
    Memory(store, "shop").add("fact", {"text": "cash and loaf"}, by="ann")
    assert texts(recalls(ran(store, model))[0])[0] == "cash and loaf"
    assert model.asked[len(TEXTS) :] == ["cash and loaf"]
    assert store.verify() == []


def test_a_replay_and_a_fork_ask_nothing(store: Store) -> None:
    model = Meanings()
    run = ran(store, model, times=3)
    asked = (len(model.queries), len(model.asked))
    for embedder in (None, model):
        runner = Runner(asker, None, Echo(), store, {"times": 3}, embedder=embedder)
        assert runner.replay(run).calls == len(run.calls)
        first = next(call.seq for call in run.calls if call.kind == "recall")
        for at in (first, first + 2, first + 4):
            fork = runner.fork(run, at)[0]
            assert [texts(told) for told in recalls(fork)] == [texts(told) for told in recalls(run)]
            assert noted(fork) == []
        gone = recalls(run)[0]["items"][0]["id"]  # type: ignore[index]
        without = runner.fork(run, memory={"without": [gone]})[0]
        assert [len(texts(told)) for told in recalls(without)] == [2, 3, 3], "later recalls are ranked by vectors too"
        assert "the shop is closed" not in str([texts(told) for told in recalls(without)])
        grandchild = runner.fork(without, first + 2)[0]
        assert [texts(told) for told in recalls(grandchild)] == [texts(told) for told in recalls(without)]
    assert (len(model.queries), len(model.asked)) == asked
    Runner(asker, None, Echo(), store, {"times": 3}).fork(run, 0, model="echo")


def test_a_fork_that_asks_what_was_not_asked_ranks_by_words_and_says_so_once(store: Store) -> None:
    async def wanders(run: LiveRun) -> None:
        reply = await run.chat().ask("where to?")
        for more in ("", " now"):
            await run.memory("shop").recall(reply.text + more)

    model = Meanings()
    runner = Runner(wanders, None, Echo(), store, embedder=model)
    run = runner.collect([Task("t", "p")], n=1).runs[0]
    ask = next(call.seq for call in run.calls if call.kind == "ask")
    fork = runner.fork(run, ask, reply="the bakery")[0]
    assert len(model.queries) == 2, "of the run, none of the fork"
    assert [texts(told)[0] for told in recalls(fork)] == ["the bakery opens at six"] * 2
    assert ["a fork asks no endpoint" in note["why"] for note in noted(fork)] == [True]
    assert runner.replay(fork).calls == len(fork.calls)


@pytest.mark.parametrize("failure", [Unreachable("no answer"), Refused("no such model"), ValueError("a bug")])
def test_an_endpoint_that_fails_leaves_the_words_and_the_run_says_so_once(store: Store, failure: Exception) -> None:
    model = Meanings()
    model.fails = failure
    run = ran(store, model, times=2)
    assert run.stop is StopReason.RETURNED
    assert [texts(told) for told in recalls(run)] == [["the shop is closed", "the bakery opens at six"]] * 2
    assert [note["memory"] for note in noted(run)] == ["shop"]
    assert str(failure) in noted(run)[0]["why"]
    assert not any(call.error for call in run.calls)
    model.fails = None
    assert Runner(asker, None, Echo(), store, {"times": 2}).replay(run).calls == len(run.calls)
    first = next(call.seq for call in run.calls if call.kind == "recall")
    fork = Runner(asker, None, Echo(), store, {"times": 2}, embedder=model).fork(run, first)[0]
    assert noted(fork) == noted(run), "what the fork is given is as it was ranked"
    assert len(model.queries) == 2


def test_items_that_lack_a_vector_are_ranked_by_their_words(store: Store) -> None:
    refused = Memory(store, "shop").add("fact", {"text": "refused loaf"}, by="ann")
    model = Meanings()
    run = ran(store, model, times=2)
    assert refused.id in str(recalls(run)[0]["items"])
    assert (recalls(run)[0]["ranked"]["lacking"], recalls(run)[0]["ranked"]["of"]) == (1, 5)  # type: ignore[index]
    assert ["1 of 5 items have no vector" in note["why"] for note in noted(run)] == [True]
    assert model.asked.count("refused loaf") == 4, "with the others and in halves of them, and not at the next recall"
    Memory(store, "shop").retire(refused.id)
    assert noted(ran(store, model)) == [], "an item out of use needs none"


def test_a_recall_makes_so_many_vectors_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalling, "MADE", 3)
    model = Meanings()
    run = ran(store, model, times=2)
    assert [told["ranked"].get("lacking", 0) for told in recalls(run)] == [1, 0]  # type: ignore[attr-defined]
    assert len(model.asked) == 4
    assert len(noted(run)) == 1


def test_vectors_of_another_length_are_not_compared(store: Store) -> None:
    ran(store, Meanings(8))
    run = ran(store, Meanings(9))
    assert "vectors of 9 numbers and gave 8 before" in noted(run)[0]["why"]
    memories = Memories(store, Meanings(9))
    assert memories.embed("shop", again=True) == (0, 4, "")
    assert noted(ran(store, Meanings(9))) == []
    with pytest.raises(BadInput, match="no embedding model"):
        Memories(store).embed("shop")


def test_what_a_file_holds_is_hostile(store: Store) -> None:
    ran(store, Meanings())
    items = [item.id for item in Memory(store, "shop").items()]
    kept = store.vectors(Meanings.ref, items)
    bad = [b"odd", np.full(8, np.nan, "<f2").tobytes(), bytes(16)]
    store.put_vectors([one._replace(values=values) for one, values in zip(kept, bad, strict=False)])
    model = Meanings()
    assert texts(recalls(ran(store, model))[0])[0] == "the shop is closed"
    assert sorted(model.asked) == sorted(TEXTS[:3])
    store.put_vectors([kept[0]._replace(values=np.ones(3, "<f2").tobytes())])
    run = ran(store, Meanings())
    assert "vectors of 8 numbers and gave 3 before" in noted(run)[0]["why"]
    assert texts(recalls(run)[0])[0] == "the shop is closed"


def test_a_deleted_item_leaves_no_byte_of_its_vector(store: Store, tmp_path: Path) -> None:
    run = ran(store, Meanings())
    memory = Memory(store, "shop")
    doomed = next(item for item in memory.items() if item.text == TEXTS[2])
    values = store.vectors(Meanings.ref, [doomed.id])[0].values
    assert values in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    forget(memory, [doomed], places(store, [doomed]))
    assert values not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert store.vectors(Meanings.ref, [doomed.id]) == []
    assert TEXTS[2] not in str([call.text for call in store.calls(run.id)])
    assert store.verify() == []


def test_recalls_side_by_side_send_each_text_once(store: Store) -> None:
    model = Meanings()
    memories, asked = Memories(store, model), asked_of("shop", QUERY, 3, (), ())
    found = list[object]()
    threads = [threading.Thread(target=lambda: found.append(memories._asked_now(asked)[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(model.asked) == sorted(TEXTS)
    assert all("lacking" not in told for told in found)  # type: ignore[operator]
    assert len(found) == 8


def test_orders_are_joined_by_their_scores() -> None:
    words, likeness = np.array([4, 2, 0, 0], np.float32), np.array([0.5, 0.7, 0.9, -np.inf], np.float32)
    assert joined(words, [0, 1], likeness, [2, 1, 0]) == [2, 1, 0], "0.8, 0.4 + 0.1, 0.2"
    assert joined(words, [0, 1], likeness, [2, 1]) == [2, 0, 1], "what lies below the others counts as their least"
    assert joined(words, [0, 1], likeness, []) == [0, 1]
    assert joined(words * 0, [], likeness, [2, 1, 0]) == [2, 1, 0]
    unknown = np.full(4, -np.inf, np.float32)
    assert joined(words, [0, 1], unknown, []) == [0, 1], "by words alone"
    unknown[2] = 0.1
    assert joined(words, [0, 1], unknown, [2]) == [0, 2, 1], "1.0, 0.8, 0.5"
    assert joined(words[:0], [], likeness[:0], []) == []
    even = np.ones(4, np.float32)
    assert joined(even, [3, 1], even, [2, 0]) == [0, 1, 2, 3], "of equals the first place"
