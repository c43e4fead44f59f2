"""What an OpenAI-compatible server does with what clients send: done, refused in words, or taken and not done.

    python tools/conformance.py http://localhost:8422/v1 [--model NAME] [--key KEY] [--json FILE]

Standard library alone: copy this file to where the server is. It works on any server (vLLM, SGLang, llama.cpp,
`clew serve`), asks a few dozen short questions, and judges by effects that can be seen from outside: a seeded reply
comes again, a token biased by +100 is the whole reply, streamed pieces are the whole reply. "Refused" is right where a
server does not do something that changes what the answer means; "WRONG" is a server that takes it and does not do it.
Exit status 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Tell me of the sea."}]
PLACES = {"place": {"enum": ["left", "right"]}}
LOOK = {"type": "object", "properties": PLACES, "required": ["place"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks somewhere.", "parameters": LOOK}}


class Refused(Exception):
    """The server answered with a status of 4xx and said why."""


class Client:
    """Asks one server."""

    def __init__(self, url: str, model: str, key: str) -> None:
        self.url, self.model, self.key = url.rstrip("/"), model, key
        self.headers: dict[str, str] = {}

    def get(self, path: str) -> Json:
        return self._answer(urllib.request.Request(self.url + path, headers=self._head()))

    def post(self, path: str, **body: Any) -> Json:
        return self._answer(self._request(path, body))

    def chat(self, **body: Any) -> Json:
        return self.post("/chat/completions", messages=body.pop("messages", HELLO), **{"max_tokens": 12, **body})

    def text(self, **body: Any) -> str:
        """The reply's text, seeded unless told otherwise."""
        return str(self.chat(**{"seed": 5, **body})["choices"][0]["message"].get("content") or "")

    def stream(self, path: str, **body: Any) -> Iterator[Json]:
        """The events of a stream, which must end with [DONE]."""
        done = False
        try:
            with urllib.request.urlopen(self._request(path, body | {"stream": True}), timeout=120) as answer:
                for line in answer:
                    if line.startswith(b"data:"):
                        data = line[5:].strip()
                        done = data == b"[DONE]"
                        if not done:
                            yield json.loads(data)
        except urllib.error.HTTPError as error:
            raise Refused(error.read(2000).decode("utf-8", "replace")) from None
        assert done, "the stream does not end with [DONE]"

    def _request(self, path: str, body: Json) -> urllib.request.Request:
        data = json.dumps({"model": self.model, **body}).encode()
        return urllib.request.Request(self.url + path, data, self._head())

    def _head(self) -> dict[str, str]:
        return {"content-type": "application/json", **({"authorization": f"Bearer {self.key}"} if self.key else {})}

    def _answer(self, request: urllib.request.Request) -> Json:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                self.headers = {name.lower(): value for name, value in answer.headers.items()}
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            told = error.read(2000).decode("utf-8", "replace")
            if not 400 <= error.code < 500:
                raise AssertionError(f"status {error.code}: {told[:200]}") from None
            raise Refused(told) from None


def models(c: Client) -> None:
    assert c.model in [one["id"] for one in c.get("/models")["data"]], "the model is not listed"


def reply(c: Client) -> None:
    got = c.chat(seed=1)
    assert got["object"] == "chat.completion", got.get("object")
    assert got["choices"][0]["message"]["role"] == "assistant"
    assert got["choices"][0]["finish_reason"] in ("stop", "length")
    assert got["usage"]["total_tokens"] == got["usage"]["prompt_tokens"] + got["usage"]["completion_tokens"]


def bounded(c: Client) -> None:
    got = c.chat(max_tokens=3)
    assert got["usage"]["completion_tokens"] <= 3
    assert got["choices"][0]["finish_reason"] in ("length", "stop")


def seeded(c: Client) -> None:
    assert c.text(seed=7) == c.text(seed=7), "one seed gave two replies"


def greedy(c: Client) -> None:
    assert c.text(temperature=0, seed=1) == c.text(temperature=0, seed=2), "temperature 0 gave two replies"


def streamed(c: Client) -> None:
    pieces = [e["choices"][0]["delta"].get("content") or "" for e in _chat_events(c, seed=5) if e["choices"]]
    assert "".join(pieces) == c.text(), "pieces are not the whole reply"


def streamed_usage(c: Client) -> None:
    events = list(_chat_events(c, stream_options={"include_usage": True}))
    assert events[-1].get("usage", {}).get("completion_tokens"), "the last event has no usage"


def _chat_events(c: Client, **body: Any) -> Iterator[Json]:
    return c.stream("/chat/completions", messages=HELLO, max_tokens=12, **body)


def several(c: Client) -> None:
    assert len(c.chat(n=3)["choices"]) == 3


def stopped(c: Client) -> None:
    whole = c.text(temperature=0, max_tokens=24)
    at = next((word for word in whole.split()[1:] if len(word) > 1), None)
    if at is None:
        raise Refused("the reply has no second word to stop at")
    assert at not in c.text(temperature=0, max_tokens=24, stop=[at]), f"{at!r} is in a reply that it stops"


def logprobs(c: Client) -> None:
    told = c.chat(logprobs=True, top_logprobs=2, seed=5)["choices"][0]["logprobs"]["content"]
    assert all(one["logprob"] <= 1e-6 for one in told)
    assert all(len(one["top_logprobs"]) == 2 for one in told)


def completed(c: Client) -> None:
    got = c.post("/completions", prompt="The sea", max_tokens=6, seed=1)
    assert isinstance(got["choices"][0]["text"], str)


def echoed(c: Client) -> None:
    got = c.post("/completions", prompt="The sea", max_tokens=2, echo=True, seed=1)
    assert got["choices"][0]["text"].startswith("The sea"), "the prompt is not echoed"


def ids(c: Client) -> None:
    got = c.post("/completions", prompt="The sea", max_tokens=4, seed=1, return_token_ids=True)["choices"][0]
    assert len(got["token_ids"]) <= 4
    assert got["prompt_token_ids"]


def _some_token(c: Client) -> int:
    got = c.post("/completions", prompt="The sea", max_tokens=1, temperature=0, return_token_ids=True, ignore_eos=True)
    return int(got["choices"][0]["token_ids"][0])


def biased(c: Client) -> None:
    token = _some_token(c)
    got = c.post("/completions", prompt="The", max_tokens=5, logit_bias={str(token): 100}, return_token_ids=True)
    assert set(got["choices"][0]["token_ids"]) == {token}, "a token biased by +100 is not the whole reply"


def allowed(c: Client) -> None:
    token = _some_token(c)
    got = c.post("/completions", prompt="The", max_tokens=5, allowed_token_ids=[token], return_token_ids=True)
    assert set(got["choices"][0]["token_ids"]) == {token}


def least_share(c: Client) -> None:
    assert c.text(min_p=1.0, seed=1) == c.text(temperature=0), "min_p 1 leaves the likeliest token alone"


def truncated(c: Client) -> None:
    assert c.text(top_k=1, seed=1) == c.text(temperature=0), "top_k 1 leaves the likeliest token alone"


def nucleus(c: Client) -> None:
    assert c.text(top_p=1e-6, seed=1) == c.text(temperature=0), "top_p near 0 leaves the likeliest token alone"


def repeated(c: Client) -> None:
    """With a heavy penalty a greedy reply of 16 tokens repeats fewer of them."""
    plain, held = (_ids(c, repetition_penalty=by) for by in (1.0, 50.0))
    assert len(set(held)) > len(set(plain)) or len(set(held)) == len(held), "a penalty of 50 changes nothing"


def present(c: Client) -> None:
    plain, held = (_ids(c, presence_penalty=by, frequency_penalty=by) for by in (0.0, 2.0))
    assert len(set(held)) >= len(set(plain)), "penalties make a reply repeat more"


def _ids(c: Client, **body: Any) -> list[int]:
    how = {"max_tokens": 16, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
    found: list[int] = c.post("/completions", prompt="The sea", **how, **body)["choices"][0]["token_ids"]
    return found


def least(c: Client) -> None:
    got = c.chat(min_tokens=8, max_tokens=8, seed=3)
    assert got["usage"]["completion_tokens"] == 8, "a reply of at least 8 tokens has fewer"


def endless(c: Client) -> None:
    got = c.chat(ignore_eos=True, max_tokens=30, seed=3)
    assert got["usage"]["completion_tokens"] == 30, "a reply that no token ends has ended"


def formed(c: Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["red", "blue"]}, "strict": True}}
    assert json.loads(c.text(response_format=form, max_tokens=40)) in ("red", "blue")


def called(c: Client) -> None:
    got = c.chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "look"}}, max_tokens=120, seed=1)
    call = got["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "look"
    assert "place" in json.loads(call["function"]["arguments"])


def named(c: Client) -> None:
    c.chat(max_tokens=1)
    assert "x-request-id" in c.headers, "an answer has no x-request-id"


def responses(c: Client) -> None:
    got = c.post("/responses", input="Tell me of the sea.", max_output_tokens=8)
    assert got["object"] == "response"


def embedded(c: Client) -> None:
    texts = ["the sea", "a ledger of debts", "the sea"]
    answer = c.post("/embeddings", input=texts, encoding_format="float")
    first, other, again = (one["embedding"] for one in sorted(answer["data"], key=lambda one: one["index"]))
    assert max(abs(a - b) for a, b in zip(first, again, strict=True)) < 1e-3, "one text has two vectors"
    assert max(abs(a - b) for a, b in zip(first, other, strict=True)) > 1e-3, "two texts have one vector"
    assert answer["usage"]["prompt_tokens"] >= len(texts), "the tokens are not counted"


def scored(c: Client) -> None:
    answer = c.post("/score", text_1="the sea", text_2=["a ledger of debts", "the sea"])
    other, same = (one["score"] for one in sorted(answer["data"], key=lambda one: one["index"]))
    assert same > other, "a text is less like itself than like another"


def wrong_role(c: Client) -> None:
    _must_refuse(lambda: c.chat(messages=[{"role": "king", "content": "hi"}]), "a message of the role king")


def wrong_type(c: Client) -> None:
    _must_refuse(lambda: c.chat(temperature="hot"), "a temperature of 'hot'")


def unknown_model(c: Client) -> None:
    _must_refuse(lambda: Client(c.url, "no-such-model", c.key).chat(), "a model that is not there")


def _must_refuse(ask: Callable[[], Json], what: str) -> None:
    try:
        ask()
    except Refused as told:
        error = json.loads(str(told)).get("error")
        said = error.get("message") if isinstance(error, dict) else error
        if not said:
            raise AssertionError("a refusal says nothing") from None
        return
    raise AssertionError(f"{what} is taken")


CHECKS: tuple[Callable[[Client], None], ...] = (
    models, reply, bounded, seeded, greedy, streamed, streamed_usage, several, stopped, logprobs, completed, echoed,
    ids, truncated, nucleus, least_share, biased, allowed, repeated, present, least, endless, formed, called, named,
    responses, embedded, scored, wrong_role, wrong_type, unknown_model,
)  # fmt: skip


def judged(client: Client, check: Callable[[Client], None]) -> tuple[str, str]:
    """What came of one check: done, refused or WRONG, and the reason."""
    try:
        check(client)
    except Refused as told:
        return "refused", str(told)
    except (AssertionError, KeyError, IndexError, TypeError, ValueError, OSError) as error:
        return "WRONG", f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
    return "done", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    client = Client(options.url, options.model, options.key)
    client.model = options.model or client.get("/models")["data"][0]["id"]
    found = {check.__name__: judged(client, check) for check in CHECKS}
    for name, (what, why) in found.items():
        print(f"{name:16s} {what:8s} {' '.join(why.split())[:140]}")
    wrong, done = (sum(what == which for what, _ in found.values()) for which in ("WRONG", "done"))
    print(f"\n{done} done, {wrong} wrong, of {len(found)}; model {client.model}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
