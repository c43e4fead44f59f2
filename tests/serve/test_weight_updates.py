"""Weights pushed to servers under way: which tokens are whose, what a paused server says, and hostile paths."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("prometheus_client")

import torch

from clew.core.errors import ModelError
from clew.core.values import Sampling
from clew.fit.collate import collate
from clew.harness import Runner
from clew.models.asking import request
from clew.models.dialects.completions import MADE
from clew.models.fleet import Fleet
from clew.models.local import Local
from clew.serve.openai.server import Server
from clew.serve.openai.updatable import Updatable
from clew.serve.openai.weight_routes import WeightRoutes
from clew.train.dump import dump, load
from clew.train.rows import rows
from clew.worlds.toys import Counter
from tests.serve.fleet_servers import other, servers, tiny, twin
from tests.serve.serving import using

LONG = Sampling(max_tokens=220)


@pytest.fixture(scope="module")
def model() -> Iterator[Local]:
    made = tiny()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with other weights below it."""
    root = tmp_path_factory.mktemp("weights")
    other(root / "one", 1)
    return root


def logprobs(model: Local, asked: Any, tokens: tuple[int, ...]) -> np.ndarray:
    """What these weights give to the tokens of a reply."""
    before = [i for node in asked.path for i in node.ids or ()] + [*asked.head]
    return model.score([[*before, *tokens]])[0][len(before) - 1 :]


@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_a_reply_that_spans_two_versions_says_which_tokens_are_whose(model: Local, folder: Path, mode: Any) -> None:
    before, after = Local(other(folder / "zero", 0), ref="tiny"), Local(folder / "one", ref="tiny")
    asks = [request(model, "go north", seed=k, sampling=LONG, run=f"r{k}", conversation=0) for k in range(8)]
    served = twin(model)
    with servers(served, updates=folder) as urls:
        fleet = Fleet(urls, model.renderer, training=True)

        async def go(old: int) -> list[Any]:
            await fleet.apush(folder / "zero", old)
            work = [asyncio.ensure_future(fleet.complete(ask)) for ask in asks]
            while served.engine.stats().running < 2 and not all(one.done() for one in work):
                await asyncio.sleep(0.001)
            await fleet.apush(folder / "one", old + 1, mode)
            return list(await asyncio.gather(*work))

        for old in range(4, 40, 2):  # on a busy machine all replies can be over before the push
            found = asyncio.run(go(old))
            if mixed := [done for done in found if done.inner]:
                break
    assert mixed, [done.version for done in found]
    for asked, done in zip(asks, found, strict=True):
        spans = [(one.version, one.tokens) for one in done.inner] or [(done.version, done.tokens)]
        assert {version for version, _ in spans} <= {old, old + 1}
        assert done.version == min(version for version, _ in spans)
        assert tuple(t for _, tokens in spans for t in tokens) == done.tokens
        own = {old: logprobs(before, asked, done.tokens), old + 1: logprobs(after, asked, done.tokens)}
        at = 0
        for version, tokens in spans:
            here = slice(at, at := at + len(tokens))
            assert np.abs(own[version][here] - done.logprobs[here]).max() < 1e-4
    assert all(one.model.startswith(MADE + urls[0]) for done in mixed for one in done.inner)
    before.close()
    after.close()


def test_in_wait_mode_no_reply_is_mixed_and_new_ones_are_told_to_come_back(model: Local, folder: Path) -> None:
    held = Updatable(twin(model))
    server = Server(held, names=("m",), updates=WeightRoutes(held, folder))
    body = {"model": "m", "prompt": [1, 2], "max_tokens": 200, "return_token_ids": True, "return_weight_versions": True}

    async def go(client: httpx.AsyncClient) -> list[httpx.Response]:
        first = asyncio.ensure_future(client.post("/v1/completions", json=body))
        await asyncio.sleep(0.02)
        await client.post("/pause?mode=wait")
        refused = await client.post("/v1/completions", json=body)
        said = await client.get("/is_paused")
        for path, told in [
            ("/start_weight_update", {}),
            ("/update_weights", {"update_info": {"path": str(folder / "one")}}),
            ("/finish_weight_update", {"weight_version": "7"}),
            ("/resume", {}),
        ]:
            assert (await client.post(path, json=told)).status_code == 200, path
        last = await client.post("/v1/completions", json=body)
        return [await first, refused, said, last, await client.get("/weight_info")]

    first, refused, said, last, info = using(server, go)
    held.close()
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert said.json() == {"is_paused": True}
    assert [s["version"] for s in first.json()["choices"][0]["weight_versions"]] == ["default"]
    assert [s["version"] for s in last.json()["choices"][0]["weight_versions"]] == ["7"]
    assert info.json() == {"weight_version": "7"}


@pytest.mark.whole
def test_a_request_to_a_paused_endpoint_waits_longer_than_its_tries(model: Local, folder: Path) -> None:
    with servers(twin(model), updates=folder) as urls:
        fleet = Fleet(urls, model.renderer, backoff=0.01)

        async def go() -> Any:
            await fleet.members[0].control.post("/pause", query={"mode": "wait"})
            work = asyncio.ensure_future(fleet.complete(request(model, "go")))
            await asyncio.sleep(2.2)
            assert not work.done()
            await fleet.members[0].control.post("/resume")
            return await work

        assert asyncio.run(go()).tokens
    assert not fleet.members[0].down


def test_a_server_that_was_started_again_gets_the_weights_again(model: Local, folder: Path) -> None:
    notes: list[str] = []
    with servers(twin(model), updates=folder) as urls:
        fleet = Fleet(urls, model.renderer, note=notes.append)
        fleet.push(folder / "one", 5)
        httpx.post(f"{urls[0]}/update_weight_version", json={"new_version": "default"})  # as after a restart
        assert asyncio.run(fleet.complete(request(model, "go"))).version == 5
        assert httpx.get(f"{urls[0]}/weight_info").json() == {"weight_version": "5"}
    assert len(notes) == 1
    assert "serves weights that were not pushed here" in notes[0]


def test_an_endpoint_that_cannot_take_the_weights_is_left_out(model: Local, folder: Path) -> None:
    notes: list[str] = []
    with servers(twin(model), updates=folder) as taking, servers(twin(model)) as fixed:
        fleet = Fleet([*taking, *fixed], model.renderer, note=notes.append)
        assert fleet.push(folder / "one", 1) == 1
        done = [asyncio.run(fleet.complete(request(model, "go", seed=k))) for k in range(3)]
        assert {one.version for one in done} == {1}
        alone = Fleet(fixed, model.renderer, note=notes.append)
        with pytest.raises(ModelError, match="/pause answered 404") as error:
            alone.push(folder / "one", 1)
    assert "VLLM_SERVER_DEV_MODE=1" in error.value.remedy
    assert fixed[0] in notes[0]


def test_paths_outside_the_folder_and_weights_of_others_change_nothing(
    model: Local, folder: Path, tmp_path: Path
) -> None:
    outside = other(tmp_path / "outside", 2)
    (folder / "link").symlink_to(outside)
    (folder / "pickle").mkdir()
    (folder / "pickle" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (folder / "broken").mkdir()
    (folder / "broken" / "model.safetensors").write_bytes(b"\xff" * 64)
    wide = Local(twin(model).module, renderer=model.renderer)
    wide.module.model.embed_tokens.weight.data = wide.module.model.embed_tokens.weight.data[:5].clone()
    wide.module.save_pretrained(folder / "wide")
    held = Updatable(twin(model))
    before = held.digest()
    server = Server(held, names=("m",), updates=WeightRoutes(held, folder))
    paths = [str(outside), str(folder / "link"), str(folder / ".." / "x"), "/etc", "\0", "pickle", "broken", "wide"]
    paths[5:] = [str(folder / name) for name in paths[5:]]

    async def go(client: httpx.AsyncClient) -> list[httpx.Response]:
        await client.post("/start_weight_update")
        return [await client.post("/update_weights", json={"update_info": {"path": path}}) for path in paths]

    answers = using(server, go)
    assert [one.status_code for one in answers] == [400] * 8
    told = [one.json()["error"]["message"] for one in answers]
    assert all("no folder in that of --weight-updates" in one for one in told[:5])
    assert "holds no *.safetensors" in told[5]
    assert "cannot be read" in told[6]
    assert "another model's weights" in told[7]
    assert held.digest() == before
    held.close()


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/pause?mode=sleep", {}, "mode is 'sleep'"),
        ("/update_weights", {"update_info": {"path": "x"}}, "no weight update is under way"),
        ("/finish_weight_update", {"weight_version": "1"}, "no weight update is under way"),
        ("/update_weight_version", {"new_version": ["a"]}, "new_version is no text"),
        ("/init_weight_transfer_engine", {}, "init_info is no object"),
        ("/abort_requests", {"request_ids": "all"}, "request_ids is no list"),
    ],
)
def test_a_wrong_step_of_an_update_is_named(model: Local, folder: Path, path: str, body: Any, said: str) -> None:
    held = Updatable(model)
    server = Server(held, names=("m",), updates=WeightRoutes(held, folder))
    answer = using(server, lambda client: client.post(path, json=body))
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_a_request_is_aborted_by_its_id_and_gives_what_it_had(model: Local, folder: Path) -> None:
    held = Updatable(twin(model))
    server = Server(held, names=("m",), updates=WeightRoutes(held, folder))
    body = {"model": "m", "prompt": [1, 2], "max_tokens": 220, "return_token_ids": True, "request_id": "mine"}

    async def go(client: httpx.AsyncClient) -> list[httpx.Response]:
        await client.post("/pause?mode=keep")
        work = asyncio.ensure_future(client.post("/v1/completions", json=body))
        await asyncio.sleep(0.05)
        gone = await client.post("/abort_requests", json={"request_ids": ["mine", "other"]})
        return [gone, await work]

    gone, answer = using(server, go)
    held.close()
    assert gone.json() == {"status": "aborted", "aborted": 1}
    assert answer.json()["choices"][0]["finish_reason"] == "abort"
    assert answer.json()["choices"][0]["token_ids"] == []


def test_rows_of_runs_whose_weights_changed_say_which_version_sampled_each_token(model: Local, folder: Path) -> None:
    """Weights are pushed between two turns of live runs: each token has the logprob of its version."""
    turns, paused = [0], []

    async def talker(run: Any) -> None:
        chat = run.chat()
        for _ in range(3):
            await chat.ask("go north")

    class Pushed(Fleet):
        """Pushes once, while some runs are in their second turn."""

        async def complete(self, request: Any) -> Any:
            turns[0] += 1
            if turns[0] == 7:
                paused.append(await self.apush(folder / "one", 2, "keep"))
            return await super().complete(request)

    before, after = Local(folder / "zero", ref="tiny"), Local(folder / "one", ref="tiny")
    with servers(twin(model), twin(model), updates=folder) as urls:
        fleet = Pushed(urls, model.renderer, ref="tiny", training=True)
        fleet.push(other(folder / "zero", 0), 1)
        runner = Runner(talker, Counter(), fleet, sampling={"max_tokens": 12})
        groups = runner.collect(Counter().sample(1), 4)
    assert paused == [2]
    asks = [call for run in groups.runs for call in run.calls if call.kind == "ask"]
    made = rows(groups, {(call.run, call.seq): 1.0 for call in asks})
    mixed = [row for row in made if row.versions is not None]
    assert mixed
    for row in mixed:
        assert {*row.versions[row.sampled].tolist()} == {1, 2}
        assert (row.versions[~row.sampled] == -1).all()
        assert row.version == 1
        for version, weights in ((1, before), (2, after)):
            at = np.flatnonzero(row.versions == version)
            scores = weights.score([row.ids.tolist()])[0]
            assert np.abs(scores[at - 1] - row.old[at]).max() < 1e-4
    (micro,) = [collate(mixed, 2, torch.device("cpu"))]
    assert int(micro.current.sum()) == sum(int((row.versions == 2).sum()) for row in mixed)
    dump(made, folder / "rows.npz")
    for one, again in zip(made, load(folder / "rows.npz"), strict=True):
        assert (one.versions is None) == (again.versions is None)
        assert one.versions is None or (one.versions == again.versions).all()
    before.close()
    after.close()


def test_scores_are_of_no_weights_that_are_half_loaded(model: Local, folder: Path) -> None:
    """What is sampled can wait for new weights; what is computed at once is refused until they are there."""
    held = Updatable(twin(model))
    server = Server(held, names=("tiny",), updates=WeightRoutes(held, folder))
    body = {"model": "tiny", "query": "go", "items": ["north"], "label_token_ids": [3]}

    async def ask(client: httpx.AsyncClient) -> list[int]:
        found = [(await client.post("/v1/score", json=body)).status_code]
        await client.post("/pause?mode=keep")
        found.append((await client.post("/v1/score", json=body)).status_code)
        found.append((await client.post("/v1/embeddings", json={"model": "tiny", "input": "go"})).status_code)
        await client.post("/resume")
        return [*found, (await client.post("/v1/score", json=body)).status_code]

    assert using(server, ask) == [200, 503, 503, 200]
    held.local.close()
