"""Hidden states on disk: of ids and of runs, in three precisions, gone on with after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.records import Cursor
from clew.core.values import Task
from clew.harness import Runner
from clew.models.fakes import Echo
from clew.models.local import Local
from clew.models.taps import Source, States, read, states_folder
from clew.store.memory import MemoryStore

Make = Callable[..., Local]


@pytest.fixture
def ids() -> list[list[int]]:
    generator = np.random.default_rng(1)
    return [generator.integers(0, 40, n).tolist() for n in (7, 3, 30, 12, 1, 7)]


async def talker(run, turns: int = 3) -> None:
    chat = run.chat(max_tokens=6)
    for turn in range(turns):
        await chat.ask(f"w{turn} w7 w9")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_is_read_comes_back_row_by_row(
    make: Make, ids: list[list[int]], tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_folder, "SHARD", 2048)  # several shards, and rows of one source in two of them
    model, told = make(), list[tuple[int, int]]()
    states = read(
        model, ids, ["norm", 0, 1], folder=tmp_path / "s", dtype=dtype, batch=2, advance=lambda *n: told.append(n)
    )
    assert len(states) == sum(map(len, ids)) == told[-1][0] == told[-1][1]
    assert len(list((tmp_path / "s").glob("states-*.npy"))) > 3
    expected = model.states(ids, [0, 1, "norm"])
    close = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    for at, layer in enumerate((0, 1, "norm")):
        whole = np.concatenate([row[:, at] for row in expected])
        limit = close * np.abs(whole).max(-1, keepdims=True)
        assert (np.abs(states.take(layer) - whole) <= limit).all()
        np.testing.assert_array_equal(np.concatenate(list(states.batches(layer, 5))), states.take(layer))
    picked = states.take(1, [40, 2, 2, 11])
    np.testing.assert_array_equal(picked, states.take(1)[[40, 2, 2, 11]])
    assert [states.cursor(row) for row in (0, 7, 12)] == [Cursor("", 0, 0), Cursor("", 1, 0), Cursor("", 2, 2)]
    again = States.open(tmp_path / "s")
    np.testing.assert_array_equal(again.take(0), states.take(0))
    model.close()


def test_numbers_that_float16_cannot_hold_are_scaled() -> None:
    states = np.array([[[3e5, -1e-3, 0.0]], [[1e-12, 2e-12, 0.0]], [[0.0, 0.0, 0.0]]], np.float32)
    stored, scale = states_folder._encoded(states, "float16")
    back = states_folder._decoded(stored[:, 0], "float16", scale)
    assert np.isfinite(stored).all()
    np.testing.assert_allclose(back, states[:, 0], rtol=0, atol=3e5 * 2**-11)
    np.testing.assert_allclose(back[1], states[1, 0], rtol=2**-10)
    assert (back[2] == 0).all()
    odd = np.array([[[1.0039062, -1.0, np.inf, 3.3e38]]], np.float32)  # ties to even; no overflow into infinity's sign
    kept = states_folder._decoded(states_folder._encoded(odd, "bfloat16")[0][:, 0], "bfloat16", None)
    np.testing.assert_allclose(kept[0, :2], [1.0, -1.0])
    assert kept[0, 2] == np.inf


def test_states_of_runs_lead_back_to_their_tokens(make: Make, tmp_path: Path) -> None:
    model = make()
    runner = Runner(talker, None, model, store=MemoryStore())
    runs = runner.collect([Task("a", "x"), Task("b", "y")], n=2).runs
    states = read(model, runs, [1], "reply", folder=tmp_path / "reply", dtype="float32")
    calls = [(run, call) for run in runs for call in run.calls if call.kind == "ask"]
    assert len(states.sources) == len(calls) == 12
    rows = 0
    for number, (run, call) in enumerate(calls):
        prompt = [i for node in run.store.thread(call.node_in) for i in node.ids]
        reply = run.store.node(call.node_out).ids
        whole = model.states([[*prompt, *reply]], [1])[0][len(prompt) + call.head :, 0]
        mine = states.rows_of(run.id, call.seq)
        np.testing.assert_allclose(states.take(1, mine), whole, rtol=0, atol=1e-5)
        assert states.sources[number] == (run.id, call.seq)
        assert [states.cursor(row).token for row in mine] == list(range(len(reply) - call.head))
        assert states.cursor(mine[0]) == Cursor(run.id, call.seq)
        rows += len(mine)
    assert rows == len(states)
    last = read(model, runs[0], [0], "last", folder=tmp_path / "last")
    assert last.index["token"].tolist() == [-1] * 3
    first = read(model, runs[0], [0], "first", folder=tmp_path / "first")
    assert first.index["token"].tolist() == [0] * 3
    both = read(model, runs[0], [0], [-1, 0], folder=tmp_path / "both")
    assert both.index["token"].tolist()[1::2] == [-1] * 3
    mine = read(model, runs[0], [0], lambda s: [s.prompt + 1], folder=tmp_path / "own")
    assert mine.index["token"].tolist() == [1] * 3
    model.close()


def test_calls_of_one_conversation_pass_once(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    (run,) = Runner(talker, None, model, store=MemoryStore()).collect([Task("a", "x")], n=1).runs
    asked: list[list[int]] = []
    states = model.states
    monkeypatch.setattr(model, "states", lambda ids, *rest, **more: (asked.extend(ids), states(ids, *rest, **more))[1])
    read(model, [run], [1], folder=tmp_path / "s")
    assert [len(row) for row in asked[1:]] == [sum(len(node.ids) for node in run.conversation())]
    model.close()


def test_an_interrupted_reading_goes_on(make: Make, ids: list[list[int]], tmp_path: Path) -> None:
    model, seen = make(), list[tuple[int, int]]()
    folder = tmp_path / "s"

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(model, ids, [1], folder=folder, batch=2, advance=stop)
    with pytest.raises(BadInput, match="2 of 3 batches") as caught:
        States.open(folder)
    assert "goes on there" in caught.value.remedy
    read_again, passed = model.states, list[int]()
    model.states = lambda ids, *rest, **more: (passed.append(len(ids)), read_again(ids, *rest, **more))[1]
    states = read(model, ids, [1], folder=folder, batch=2, advance=stop)
    assert passed == [2], "one batch was left"
    assert seen[-1] == (60, 60)
    whole = np.concatenate([row[:, 0] for row in read_again(ids, [1])])
    np.testing.assert_allclose(states.take(1), whole, rtol=0, atol=0.01 * np.abs(whole).max())
    again = read(model, ids, [1], folder=folder, batch=2)
    assert passed == [2]
    np.testing.assert_array_equal(again.take(1), states.take(1))
    with pytest.raises(BadInput, match="other tokens, layers or weights"):
        read(model, ids, [0], folder=folder, batch=2)
    model.close()


def test_what_cannot_be_read_is_said_in_a_sentence(make: Make, ids: list[list[int]], tmp_path: Path) -> None:
    model = make()
    (echoed,) = Runner(talker, None, Echo(), store=MemoryStore()).collect([Task("a", "x")], n=1).runs
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("...")
    wrong = Source(np.array([1, 2], np.int32), 1, "r", 3, tokenizer="another")
    for given, where, match in (
        (([[]], [0]), "a", "neither a run nor a row"),
        (([], [0]), "a", "nothing to read"),
        (([[1, -2]], [0]), "a", "neither a run nor a row"),
        (([[1, 99]], [0]), "a", "token 99, and tiny has 47"),
        (([[1]], [5]), "a", "no layer 5"),
        (([[1]], [0], "middle"), "a", "no positions 'middle'"),
        (([[1]], [0], [4]), "a", "which has 1 tokens"),
        ((echoed, [0]), "a", "has no token ids"),
        (([wrong], [0]), "a", "in tokens of 'another'"),
        ((ids, [0]), "mine", "holds other files"),
    ):
        with pytest.raises(BadInput, match=match) as caught:
            read(model, *given, folder=tmp_path / where)
        assert caught.value.remedy
        assert not (tmp_path / "a").exists()
    with pytest.raises(BadInput, match="echo cannot read or change hidden states"):
        read(Echo(), ids, [0], folder=tmp_path / "a")
    model.close()


def test_a_damaged_folder_is_refused(make: Make, ids: list[list[int]], tmp_path: Path) -> None:
    model, folder = make(), tmp_path / "s"
    read(model, ids, [0], folder=folder)
    with pytest.raises(BadInput, match="no hidden states"):
        States.open(tmp_path)
    shard = (folder / "states-00000.npy").read_bytes()
    np.save(folder / "states-00000.npy", np.zeros((2, 1, 32), np.float16))
    with pytest.raises(BadInput, match=r"holds float16 \[2, 1, 32\]"):
        States.open(folder).take(0)
    (folder / "states-00000.npy").write_bytes(shard)
    States.open(folder).take(0)
    about = json.loads((folder / "taps.json").read_text())
    for wrong in ({**about, "dtype": "int3"}, {**about, "format": 2}, {"layers": 3}, [], {**about, "per": 0}):
        (folder / "taps.json").write_text(json.dumps(wrong))
        with pytest.raises(BadInput, match="cannot be read"):
            States.open(folder)
    model.close()
