"""clew doctor URL: what a server has that a training needs, what it lacks, and which flag is missing."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("prometheus_client")

from tests.models.server import serving as peer_serving
from tests.serve.fleet_servers import servers, tiny


def marks(done):
    return {row["what"]: (row["ok"], row["found"], row["remedy"]) for row in json.loads(done.stdout)}


def test_our_own_server_has_all_that_a_training_needs(clew, tmp_path):
    with servers(tiny(), updates=tmp_path) as (url,):
        found = marks(clew("doctor", url, "--json"))
    assert found["server"] == (True, "clew, model 'm'", "")
    assert found["sampled ids"][0] is True
    assert found["logprobs"][:2] == (None, "raw: before temperature, top_p and top_k")
    assert "--logprobs-mode processed_logprobs" in found["logprobs"][2]
    assert found["weight versions of tokens"][:2] == (True, "return_weight_versions: default")
    assert found["pause and update routes"][:2] == (True, "weights 'default', not paused")
    assert found["LoRA adapters"] == (True, "/v1/load_lora_adapter", "")
    assert found["token ids in and out"] == (True, "/inference/v1/generate", "")
    assert found["mask of top_p and top_k"] == (True, "sampling_mask", "")
    assert found["mask of a grammar"][0] is None, "its words have no fast tokenizer"
    assert "fast tokenizer" in found["mask of a grammar"][2]


def test_a_server_without_the_routes_is_told_its_flag(clew):
    with servers(tiny()) as (url,):
        found = marks(clew("doctor", url, "--json"))
    assert found["pause and update routes"][0] is False
    assert "VLLM_SERVER_DEV_MODE=1" in found["pause and update routes"][2]
    assert found["LoRA adapters"][:2] == (None, "no route")
    assert "--enable-lora" in found["LoRA adapters"][2]


def test_a_servers_grammar_and_mask_are_found(clew):
    pytest.importorskip("llguidance")
    from tests.engine.test_grammar import PLAIN, ChatTemplateRenderer, local, tokenizer

    with servers(local(ChatTemplateRenderer(tokenizer(PLAIN)))) as (url,):
        found = marks(clew("doctor", url, "--json"))
    assert found["mask of a grammar"] == (True, "sampling_mask", "")


def test_processed_logprobs_and_missing_ids_are_told_apart(clew):
    def answer(body, count):
        top = {"a": -0.5 / body["temperature"], "b": -3.0}
        return {"choices": [{"text": "a", "logprobs": {"top_logprobs": [top]}, "finish_reason": "length"}]}

    with peer_serving() as peer:
        peer.answer = answer
        found = marks(clew("doctor", peer.url, "--json"))
    assert found["logprobs"] == (True, "processed: of the distribution in force", "")
    assert found["sampled ids"][:2] == (False, "none")
    assert "vLLM 0.10.2 or later" in found["sampled ids"][2]
    assert found["weight versions of tokens"][0] is False
    for what, flag in [("token ids in and out", "--enable-scale-out"), ("mask of top_p and top_k", "--return-sampling"),
                       ("mask of a grammar", "--return-sampling-mask")]:  # fmt: skip
        assert found[what][0] is None
        assert flag in found[what][2]


def test_a_server_that_is_not_there_and_one_that_talks_nonsense(clew):
    done = clew("doctor", "http://127.0.0.1:9", code=1)
    assert "no answer from http://127.0.0.1:9/v1/models" in done.stdout
    with peer_serving() as peer:
        peer.models = "nonsense"
        peer.answer = lambda body, count: {"choices": "no"}
        found = marks(clew("doctor", peer.url, "--json"))
    assert found["completions of token ids"][0] is False


def test_servers_of_different_weights_are_told(clew, tmp_path):
    import httpx

    with servers(tiny(), tiny(), updates=tmp_path) as urls:
        httpx.post(f"{urls[0]}/update_weight_version", json={"new_version": "3"})
        found = marks(clew("doctor", *urls, "--json"))
    assert found["versions"][1] == "the servers tell different versions of their weights"
    assert {what.partition(" ")[0] for what in found} == {*urls, "versions"}
