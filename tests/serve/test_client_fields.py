"""litellm and langchain-openai, unmodified, with the fields that a server's client sends beside OpenAI's own: each way
to ask gives the same reply, whole and streamed. They run where these are installed (pip install litellm
langchain-openai)."""

from __future__ import annotations

from typing import Any

import pytest

from clew.serve.openai.server import Server
from tests.serve.serving import serving
from tests.serve.test_template_variables import QUIET, thinker

OWN: dict[str, Any] = {"max_tokens": 8, "seed": 1, "presence_penalty": 0.3, "frequency_penalty": 0.2}
MORE: dict[str, Any] = {
    "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": True, "top_k": 20,
    "allowed_token_ids": list(range(5, 30)), "chat_template_kwargs": QUIET,
}  # fmt: skip
HI = [{"role": "user", "content": "hi"}]


@pytest.mark.filterwarnings("ignore")  # of its own code
def test_litellm_sends_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it fetches a list of prices otherwise
    litellm = pytest.importorskip("litellm", reason="did not run: litellm is not installed")
    with serving(Server(thinker(), names=("m",))) as base:
        how = {"api_base": f"{base}/v1", "api_key": "x", "messages": HI, "logit_bias": {"7": 2.0}, **OWN}
        openai = litellm.completion(model="openai/m", extra_body=MORE, **how)
        vllm = litellm.completion(model="hosted_vllm/m", **how, **MORE)
        pieces = litellm.completion(model="openai/m", extra_body=MORE, stream=True, **how)
        streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert openai.choices[0].message.content == vllm.choices[0].message.content == streamed
    assert (openai.usage.completion_tokens, openai.usage.prompt_tokens) == (8, vllm.usage.prompt_tokens)


@pytest.mark.filterwarnings("ignore")
def test_langchain_sends_every_field() -> None:
    langchain = pytest.importorskip("langchain_openai", reason="did not run: langchain_openai is not installed")
    openai = pytest.importorskip("openai", reason="did not run: openai is not installed")
    with serving(Server(thinker(), names=("m",))) as base:
        how = {"model": "m", "base_url": f"{base}/v1", "api_key": "x"}
        chat = langchain.ChatOpenAI(extra_body=MORE, logit_bias={"7": 2}, **how, **OWN)
        whole = chat.invoke("hi")
        assert whole.content == "".join(piece.content for piece in chat.stream("hi"))
        assert whole.usage_metadata["output_tokens"] == 8
        wrong = langchain.ChatOpenAI(extra_body={"chat_template_kwargs": {"tokenize": True}}, **how)
        with pytest.raises(openai.BadRequestError, match="variable 'tokenize' is not free"):
            wrong.invoke("hi")
