"""The shapes of vLLM's answers, written by hand: our client reads them, and `clew serve` answers in the same."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")
pytest.importorskip("prometheus_client")

from clew.core.errors import BadRecord, ModelError, Refused
from clew.core.values import Completion
from clew.fit import adapter_files, adapters
from clew.models.asking import request
from clew.models.dialects import completions, token_route
from clew.models.fleet import Fleet
from clew.models.kept import listed
from clew.serve.openai.server import Server
from clew.serve.openai.updatable import Updatable
from clew.serve.openai.weight_routes import WeightRoutes
from tests.models.server import failing
from tests.models.server import serving as peer_serving
from tests.serve.fleet_servers import other, tiny
from tests.serve.serving import using

SHAPES = json.loads((Path(__file__).parent / "vllm_shapes.json").read_text())
IDS = next(one["answer"] for one in SHAPES["exchanges"] if one["path"] == token_route.PATH)
REPLY = next(one["answer"] for one in SHAPES["exchanges"] if one["path"] == "/v1/completions")
FREE = {"id", "created", "owned_by", "text", "finish_reason", "token_ids", "tokens", "token_logprobs", "text_offset",
        "usage", "end", "max_model_len", "logprob", "token_id", "sampling_mask"}  # fmt: skip


def differences(theirs: Any, ours: Any, at: str = "") -> list[str]:
    """Where our answer has not the form of theirs: a key is missing, or a value is of another kind."""
    name = at.rpartition(".")[2]
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{at}: {ours!r}"]
        missing = [f"{at}.{key} is missing" for key in theirs if key not in ours and key != "object"]
        both = (differences(theirs[key], ours[key], f"{at}.{key}") for key in theirs if key in ours)
        return missing + [one for found in both for one in found]
    if isinstance(theirs, list) and name not in FREE:
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return [f"{at}: {ours!r}"]
        return [one for a, b in zip(theirs, ours, strict=True) for one in differences(a, b, at)]
    same = type(theirs) is type(ours) if name in FREE else theirs == ours
    return [] if same else [f"{at}: {ours!r}, not {theirs!r}"]


def test_our_server_answers_in_these_shapes(tmp_path: Path) -> None:
    held = Updatable(tiny())
    server = Server(held, names=("m",), updates=WeightRoutes(held, tmp_path))
    folder = other(tmp_path / "weights", 1)
    lora = adapter_files.write(adapters.attach(tiny().module, {"r": 2}), tmp_path / "adapter", "m")

    async def go(client: httpx.AsyncClient) -> list[str]:
        wrong = list[str]()
        for one in SHAPES["exchanges"]:
            body = json.loads(json.dumps(one.get("body")).replace("FOLDER", str(folder)).replace("ADAPTER", str(lora)))
            got = await client.request(one["method"], one["path"], json=body)
            if "says" in one:
                wrong += [] if got.text == one["says"] else [got.text]
                continue
            wrong += [f"{one['path']}{line}" for line in differences(one["answer"], got.json())]
        return wrong

    assert using(server, go) == []
    held.close()


def read(spans: Any) -> Completion:
    body = copy.deepcopy(REPLY)
    body["choices"][0]["weight_versions"] = spans
    return completions.completion_from_wire(body)


def test_our_client_reads_which_weights_sampled_which_tokens() -> None:
    alone, mixed = completions.completion_from_wire(REPLY), read(SHAPES["span_over_an_update"])
    assert [(one.served_by, one.tokens) for one in alone.inner] == [("8", (5, 6, 7, 5))]
    assert [(one.served_by, one.tokens) for one in mixed.inner] == [("7", (5,)), ("8", (6, 7, 5))]


def test_our_client_reads_ids_masks_and_logprobs_and_none_that_do_not_fit() -> None:
    done = token_route.completion_from_wire(IDS)
    assert (done.tokens, done.finish, done.model) == ((5, 6, 7, 5), "length", "m")
    assert done.plain is None
    assert done.logprobs.tolist() == pytest.approx([-0.5, -0.7, -0.6, -0.8])  # type: ignore[union-attr]
    assert listed(done.kept) == [[5, 9], [5, 6], [2, 7], [1, 5]]
    assert [(one.served_by, one.tokens) for one in done.inner] == [("8", (5, 6, 7, 5))]

    def changed(**fields: Any) -> Completion:
        body = copy.deepcopy(IDS)
        body["choices"][0] |= fields
        return token_route.completion_from_wire(body)

    paired = changed(sampling_mask_logprobs=[[-0.1, -2], [-0.2, -2], [-0.3, -2], [-2, -0.4]])
    assert paired.logprobs.tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.4])  # type: ignore[union-attr]
    assert paired.plain is not None
    for odd in ([], [[5], [6], [7]], [[9], [6], [7], [5]], "all", [[5, "x"], [6], [7], [5]]):
        assert changed(sampling_mask=odd).kept == b""
    for scores in ([[-1]], "no", [[-0.1], [-0.2], [-0.3], [-0.4]]):
        assert changed(sampling_mask_logprobs=scores).plain is None
    entry = {"token": "token_id:6", "logprob": -1.0}
    for content in ([entry], [entry] * 4, None, [{}] * 4):
        assert changed(logprobs={"content": content}).logprobs is None
    for ids in (None, "5", [5, "6"], [True]):
        with pytest.raises(BadRecord, match="no choice with token_ids"):
            changed(token_ids=ids)
    for body in ({}, {"choices": []}, {"choices": ["x"]}):
        with pytest.raises(BadRecord, match="no choice with token_ids"):
            token_route.completion_from_wire(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "token_ids is no list of token ids"),
        ({"token_ids": [1, "2"]}, "token_ids is no list of token ids"),
        ({"token_ids": [-1]}, "token_ids is no list of token ids"),
        ({"token_ids": [1]}, "sampling_params is no object"),
        ({"token_ids": [1], "sampling_params": {"echo": True}}, "sampling_params has 'echo'"),
        ({"token_ids": [1], "sampling_params": {}, "features": {}}, "the body has 'features'"),
        ({"token_ids": [1], "sampling_params": {}, "stream": True}, "stream is 'True'"),
        ({"token_ids": [1], "sampling_params": {"temperature": "hot"}}, "temperature is 'hot'"),
        ({"token_ids": [1], "sampling_params": {"min_p": 2}}, "min_p=2 has no meaning"),
        ({"token_ids": [1], "sampling_params": {}, "model": "other"}, "no model is called 'other'"),
    ],
)
def test_a_wrong_request_of_ids_is_named(body: Any, said: str) -> None:
    model = tiny()
    got = using(Server(model, names=("m",)), lambda client: client.post(token_route.PATH, json=body))
    model.close()
    assert got.status_code in (400, 404)
    assert said in got.json()["error"]["message"]


@pytest.mark.parametrize("spans", SHAPES["not_covering"], ids=str)
def test_spans_that_leave_a_token_unknown_are_refused(spans: Any) -> None:
    with pytest.raises(Exception, match="weight_versions") as error:
        read(spans)
    assert error.value.remedy


def test_a_fleet_files_a_mixed_reply_by_versions_and_refuses_garbage() -> None:
    model = tiny()
    body = copy.deepcopy(REPLY)
    with peer_serving() as peer:
        fleet = Fleet([peer.url], model.renderer, model="m")
        peer.answer = lambda sent, count: body
        body["choices"][0]["weight_versions"] = SHAPES["span_over_an_update"]
        done = asyncio.run(fleet.complete(request(model, "go", run="r", conversation=2)))
        assert (done.version, [(one.version, one.tokens) for one in done.inner]) == (7, [(7, (5,)), (8, (6, 7, 5))])
        sent = peer.bodies[-1]
        assert (sent["return_weight_versions"], sent["session_id"]) == (True, "r-2")
        assert sent["request_id"].startswith("clew-")
        body["choices"][0]["weight_versions"] = SHAPES["not_covering"][0]
        with pytest.raises(Refused, match="do not cover the 4 tokens"):
            asyncio.run(fleet.complete(request(model, "go")))
        body["choices"][0].pop("weight_versions")
        assert asyncio.run(fleet.complete(request(model, "go"))).version == 0
    model.close()


def test_vllm_loads_a_folder_by_its_own_loader(tmp_path: Path) -> None:
    """The steps of a push in their order; where one fails half done, the server stays paused and is left out."""
    model, notes = tiny(), list[str]()
    control = ["pause", "collective_rpc", "reset_prefix_cache", "update_weight_version", "resume"]
    with peer_serving(["completions"], control) as peer:
        peer.models = [{"id": "m", "owned_by": "vllm"}]
        peer.answer = lambda sent, count: {}
        fleet = Fleet([peer.url], model.renderer, note=notes.append)
        fleet.push(tmp_path, 3)
        assert peer.paths == [f"/{name}" for name in control]
        assert peer.bodies[1] == {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path.resolve())}}
        assert peer.bodies[3] == {"new_version": "3"}
        begun = len(peer.paths)
        peer.answer = lambda sent, count: failing(500) if "method" in sent else {}
        with pytest.raises(ModelError, match="collective_rpc answered 500"):
            fleet.push(tmp_path, 5)
        assert "/resume" not in peer.paths[begun:]
    assert "is left out" in notes[0]
    model.close()


def test_a_reply_of_unknown_weights_is_thrown_away_and_asked_for_again(tmp_path: Path) -> None:
    """A server that tells no versions takes weights while it samples: nobody could say which token is whose."""
    model = tiny()
    control = ["pause", "init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"]
    body = copy.deepcopy(REPLY)
    body["choices"][0].pop("weight_versions")
    with peer_serving(["completions"], [*control, "resume"]) as peer:
        fleet = Fleet([peer.url], model.renderer, model="m")

        pushed = threading.Event()

        async def slow() -> Any:
            while not pushed.is_set():
                await asyncio.sleep(0.01)
            return body

        peer.answer = lambda sent, count: slow() if "prompt" in sent else {}

        async def go(mode: Any, version: int) -> Completion:
            pushed.clear()
            asked = len(peer.bodies)
            work = asyncio.ensure_future(fleet.complete(request(model, "go", run="r", conversation=0)))
            while not any("prompt" in sent for sent in peer.bodies[asked:]):
                await asyncio.sleep(0.01)
            await fleet.apush(tmp_path, version, mode)
            pushed.set()
            return await work

        assert asyncio.run(go("wait", 1)).version == 0
        before = len(peer.bodies)
        assert asyncio.run(go("keep", 2)).version == 2
        assert sum("prompt" in sent for sent in peer.bodies[before:]) == 2
    model.close()
