"""LoRA adapters at servers: a name for each version, replies of the weights that it names, hostile folders refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("prometheus_client")

import torch

from clew.core.errors import Refused
from clew.core.values import Sampling
from clew.fit import adapter_files, adapters
from clew.models.asking import request
from clew.models.fleet import Fleet
from clew.models.fleet.adapter_swap import training_of
from clew.models.local import Local
from clew.serve.openai.served_adapters import MOST
from clew.serve.openai.server import Server
from clew.serve.openai.updatable import Updatable
from clew.serve.openai.weight_routes import WeightRoutes
from tests.models.server import failing
from tests.models.server import serving as peer_serving
from tests.serve.fleet_servers import servers, tiny, twin
from tests.serve.serving import using

LONG = Sampling(max_tokens=200)


@pytest.fixture(scope="module")
def model() -> Iterator[Local]:
    made = tiny()
    yield made
    made.close()


def adapted(model: Local, seed: int) -> Local:
    """The same weights with a new adapter of rank 2."""
    made = twin(model)
    torch.manual_seed(seed)
    adapters.attach(made.module, {"r": 2, "init_lora_weights": False})
    made.publish()
    return made


@pytest.fixture(scope="module")
def root(model: Local, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two adapters."""
    folder = tmp_path_factory.mktemp("trainings")
    for seed in (1, 2):
        made = adapted(model, seed)
        adapter_files.write(made.module, folder / f"adapter-{seed}", "tiny")
        made.close()
    return folder


def body(name: str, folder: Path | str, **more: Any) -> dict[str, Any]:
    return {"lora_name": name, "lora_path": str(folder), **more}


def listed(url: str) -> list[str]:
    return [one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]]


def test_an_adapter_answers_by_its_name_beside_the_weights_alone(model: Local, root: Path) -> None:
    asked = {"prompt": [1, 2, 3], "max_tokens": 12, "seed": 3, "return_token_ids": True, "return_weight_versions": True}
    held = Updatable(twin(model))
    server = Server(held, names=("m",), updates=WeightRoutes(held, root))

    async def go(client: httpx.AsyncClient) -> list[Any]:
        told = await client.post("/v1/load_lora_adapter", json=body("one", root / "adapter-1"))
        assert (told.status_code, told.text) == (200, "Success: LoRA adapter 'one' added successfully.")
        again = await client.post("/v1/load_lora_adapter", json=body("one", root / "adapter-2"))
        assert again.status_code == 400
        assert "has already been loaded" in again.text
        names = [(one["id"], one.get("parent")) for one in (await client.get("/v1/models")).json()["data"]]
        assert names == [("m", None), ("one", "m")]
        found = [(await client.post("/v1/completions", json={**asked, "model": name})).json() for name in ("m", "one")]
        sglang = await client.post("/load_lora_adapter", json=body("two", root / "adapter-2", pinned=False))
        assert sglang.json() == {"success": True, "error_message": "", "loaded_adapters": {"one": "one", "two": "two"}}
        gone = await client.post("/v1/unload_lora_adapter", json={"lora_name": "one"})
        assert gone.text == "Success: LoRA adapter 'one' removed successfully."
        assert (await client.post("/v1/unload_lora_adapter", json={"lora_name": "one"})).status_code == 404
        assert (await client.post("/v1/completions", json={**asked, "model": "one"})).status_code == 404
        return found

    alone, with_it = using(server, go)
    local = adapted(model, 1)
    node = request(model, "go")
    path = (node.path[0]._replace(ids=(1, 2, 3)),)
    want = [asyncio.run(one.complete(node._replace(path=path, head=(), seed=3, sampling=Sampling(max_tokens=12))))
            for one in (model, local)]  # fmt: skip
    assert alone["choices"][0]["token_ids"] == list(want[0].tokens or ())
    assert with_it["choices"][0]["token_ids"] == list(want[1].tokens or ())
    assert alone["choices"][0]["token_ids"] != with_it["choices"][0]["token_ids"]
    assert (with_it["model"], with_it["choices"][0]["weight_versions"][0]["version"]) == ("one", "one")
    local.close()
    held.close()


def test_folders_of_strangers_load_nothing(model: Local, root: Path, tmp_path: Path) -> None:
    """Outside the folder, by a link, a pickle, garbage, another model's, no LoRA, and a name that is taken."""
    outside = tmp_path / "outside"
    made = adapted(model, 3)
    adapter_files.write(made.module, outside, "tiny")
    made.close()
    (root / "link").symlink_to(outside)
    for name in ("pickle", "garbage", "shapes", "embedding", "kind"):
        adapter_files.write(adapted(model, 4).module, root / name, "tiny")
    weights = root / "pickle" / "adapter_model.safetensors"
    weights.rename(weights.with_name("adapter_model.bin"))
    (root / "garbage" / "adapter_model.safetensors").write_bytes(b"\xff" * 99)
    from safetensors.torch import load_file, save_file

    def changed(name: str, change: Any) -> None:
        file = root / name / "adapter_model.safetensors"
        save_file(change(load_file(file)), file)

    changed("shapes", lambda held: {k: v[:, :1].contiguous() if "lora_B" in k else v for k, v in held.items()})
    table = model.module.get_input_embeddings().weight
    pair = {"A": torch.zeros(2, table.shape[1]), "B": torch.zeros(len(table), 2)}
    embedding = {f"base_model.model.model.embed_tokens.lora_{k}.weight": tensor for k, tensor in pair.items()}
    changed("embedding", lambda _: embedding)
    (root / "kind" / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    wrong = [
        (outside, "no folder in that of --weight-updates"),
        (root / "link", "no folder in that of --weight-updates"),
        ("/etc", "no folder in that of --weight-updates"),
        (root / "pickle", "is a pickle"),
        (root / "garbage", "cannot be read"),
        (root / "shapes", "has ranks"),
        (root / "embedding", "a Embedding, which is not served"),
        (root / "kind", "is an adapter of kind 'IA3'"),
    ]
    held = Updatable(twin(model))
    server = Server(held, names=("m",), updates=WeightRoutes(held, root))

    async def go(client: httpx.AsyncClient) -> None:
        for path, said in wrong:
            got = await client.post("/v1/load_lora_adapter", json=body("x", path))
            assert (got.status_code, said in got.json()["error"]["message"]) == (400, True), (path, got.text)
        for bad in ({}, body("", root), body("m", root / "adapter-1"), {"lora_name": "x"}, body("a\nb", root)):
            assert (await client.post("/v1/load_lora_adapter", json=bad)).status_code == 400
        for k in range(MOST + 1):
            got = await client.post("/v1/load_lora_adapter", json=body(f"a{k}", root / "adapter-1"))
        assert "the most here" in got.json()["error"]["message"]

    using(server, go)
    for one in held, *server.updates.adapters.held:  # type: ignore[union-attr]
        one.close()


def test_a_push_lets_replies_under_way_end_under_the_adapter_that_they_named(model: Local, root: Path) -> None:
    with servers(twin(model), twin(model), updates=root) as urls:
        fleet = Fleet(urls, model.renderer, training=True)
        assert fleet.takes_adapters()
        fleet.push(root / "adapter-1", 1)
        first = [member.swap.name for member in fleet.members]

        async def go() -> tuple[list[Any], list[list[str]], list[Any]]:
            work = [asyncio.ensure_future(fleet.complete(request(model, "go north", seed=k, sampling=LONG)))
                    for k in range(6)]  # fmt: skip
            while not all(member.swap._under for member in fleet.members):
                await asyncio.sleep(0.001)
            await fleet.apush(root / "adapter-2", 2, "abort")
            busy = [list(member.swap._under) for member in fleet.members]
            after = await asyncio.gather(*[fleet.complete(request(model, "look", seed=k)) for k in range(4)])
            return list(await asyncio.gather(*work)), busy, list(after)

        old, _, new = asyncio.run(go())
        asyncio.run(fleet.members[0].swap.tidy())
        assert {one.version for one in old} == {1}
        assert {one.version for one in new} == {2}
        assert all(one.inner == () and one.finish in ("stop", "length") for one in (*old, *new))
        own = {1: adapted(model, 1), 2: adapted(model, 2)}
        for done, said, sampling in [(old[0], "go north", LONG), (new[0], "look", Sampling())]:
            there = asyncio.run(own[done.version].complete(request(model, said, seed=0, sampling=sampling)))
            assert done.tokens == there.tokens
        names = [listed(url) for url in urls]
        assert all(len(one) == 2 and one[1] not in first for one in names), "the old one is unloaded"
        httpx.post(f"{urls[0]}/v1/unload_lora_adapter", json={"lora_name": names[0][1]})  # as after a restart
        asks = [request(model, "go", seed=k, run=f"r{k}", conversation=0) for k in range(2)]
        assert {asyncio.run(fleet.complete(ask)).version for ask in asks} == {2}
        assert [len(listed(url)) for url in urls] == [2, 2]
    for one in own.values():
        one.close()


def test_adapters_of_a_training_that_was_killed_are_unloaded(model: Local, root: Path) -> None:
    with servers(twin(model), updates=root) as (url,):
        httpx.post(f"{url}/v1/load_lora_adapter", json=body("clew-somebody-else", root / "adapter-1"))
        for _ in range(2):
            fleet = Fleet([url], model.renderer, how="lora")
            fleet.push(root / "adapter-1", 1)
            assert listed(url)[1:] == ["clew-somebody-else", fleet.members[0].swap.name]
            assert fleet.members[0].swap.name.startswith(training_of(root / "adapter-1"))


def test_vllm_and_sglang_are_told_in_their_own_words_and_another_models_answer_is_refused(
    model: Local, root: Path
) -> None:
    reply = {"choices": [{"index": 0, "text": "go", "token_ids": [5], "finish_reason": "length",
                          "logprobs": {"tokens": ["token_id:5"], "token_logprobs": [-1.0]},
                          "weight_versions": [{"version": "default", "start": 0, "end": 1}]}]}  # fmt: skip

    def answer(sent: dict[str, Any], count: int) -> Any:
        if "prompt" in sent:
            return {**reply, "model": says or sent["model"]}
        return failing(422) if not sent else {}

    for paths, above, field in [
        (["completions", "load_lora_adapter", "unload_lora_adapter"], [], "model"),
        (["completions"], ["load_lora_adapter", "unload_lora_adapter"], "lora_path"),
    ]:
        says = ""
        with peer_serving(paths, above) as peer:
            peer.answer = answer
            fleet = Fleet([peer.url], model.renderer, how="lora", training=True)
            fleet.push(root / "adapter-1", 7)
            name = fleet.members[0].swap.name
            loaded = [sent for sent in peer.bodies if "lora_name" in sent]
            assert loaded == [body(name, (root / "adapter-1").resolve())]
            done = asyncio.run(fleet.complete(request(model, "go")))
            assert (done.version, peer.bodies[-1][field]) == (7, name)
            fleet.push(root / "adapter-2", 8)
            assert peer.bodies[-1] == {"lora_name": name}
            assert peer.paths[-1].endswith("/unload_lora_adapter")
            says = "another"
            if field == "model":
                with pytest.raises(Refused, match="answered as 'another'"):
                    asyncio.run(fleet.complete(request(model, "go")))
    with peer_serving(["completions"]) as peer:
        peer.answer = answer
        assert not Fleet([peer.url], model.renderer).takes_adapters()
        with pytest.raises(Refused, match="loads no LoRA adapters") as error:
            Fleet([peer.url], model.renderer, how="lora", note=lambda said: None).push(root / "adapter-1", 1)
        assert "--enable-lora" in error.value.remedy
