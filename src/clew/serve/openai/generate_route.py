"""The route ``/inference/v1/generate`` as vLLM has it: reads its bodies as completions of ids, writes its answers.

``Server`` calls it. Each setting is checked as one of completions is, so that none is ignored that would matter.
Nothing is streamed and no text is told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clew.core.values import Completion
from clew.models.dialects import Json, chat, completions, token_route
from clew.models.dialects.logprobs import entries
from clew.serve.incoming import parsed
from clew.serve.openai.bodies import Writer, law_of
from clew.serve.openai.questions import LARGEST, Limits, Question, read
from clew.serve.refusals import Rejected, unbroken

BESIDE = {"model", "request_id", "session_id", "priority", "cache_salt", "kv_transfer_params", "return_weight_versions"}
UNTOLD = {"token_ids", "sampling_params", "stream_options", "return_token_ids", "token_offsets"}
NEUTRAL = {"stream": (None, False), "output_mode": (None, "tokens")}
TOP = BESIDE | UNTOLD | NEUTRAL.keys()
PARAMS = {
    *("n", "temperature", "top_p", "top_k", "seed", "stop", "stop_token_ids", "max_tokens", "logprobs"),
    *("prompt_logprobs", "structured_outputs", "skip_special_tokens", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "min_p", "min_tokens", "bad_words", "ignore_eos", "logit_bias", "allowed_token_ids"),
    *("spaces_between_special_tokens", "include_stop_str_in_output", "truncate_prompt_tokens"),
}


def question_of(data: bytes, limits: Limits, name: str) -> Question:
    """Read a request's body.

    Args:
        name: of the model that answers where the body names none.

    Raises:
        Rejected: it is none of this route, or asks for what the server does not do.
    """
    body = parsed(data)
    ids, params = body.get("token_ids"), body.get("sampling_params")
    if not (isinstance(ids, list) and ids and all(type(token) is int and token >= 0 for token in ids)):
        raise Rejected("token_ids is no list of token ids", remedy='Send {"token_ids": [1, 2]}.', param="token_ids")
    if not isinstance(params, dict):
        told = "sampling_params is no object"
        raise Rejected(told, remedy='Send {"sampling_params": {"max_tokens": 16}}.', param="sampling_params")
    for key, neutral in NEUTRAL.items():
        if body.get(key) not in neutral:
            told = f"{key} is {str(body[key])[:60]!r}"
            raise Rejected(told, remedy=f"This route answers whole, in token ids: leave {key} out.", param=key)
    for where, found, known in (("the body", body, TOP), ("sampling_params", params, PARAMS | {"detokenize"})):
        for key in found:
            if key not in known and found[key] is not None:
                told = f"{where} has {key[:80]!r}, which this route does not know"
                raise Rejected(told, remedy="Leave it out.", code="unsupported_parameter", param=key[:80])
    settings = {k: v for k, v in params.items() if k in PARAMS and v is not None}
    beside = {k: v for k, v in body.items() if k in BESIDE and v is not None}
    asked: Json = {"max_tokens": limits.output or LARGEST, "model": name, **settings, **beside, "prompt": ids}
    asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    return read("completions", json.dumps(asked).encode(), limits)._replace(ids_alone=True)


class TokenWriter(Writer):
    """Writes the answer to one such request."""

    def whole(self, found: Sequence[Completion]) -> Json:
        """The body of an answer with these choices. Raises ModelError: one of them broke off."""
        found = [unbroken(c) for c in found]
        named = self.question.body.get("request_id") or self.about["id"]
        out: Json = {"request_id": named, "created": self.about["created"], "model": self.about["model"]}
        out["choices"] = [self._ids(i, c) for i, c in enumerate(found)]
        scored = self._prompt_logprobs(self.prompts[0]) if self.question.scored is not None else None
        usage = chat.usage_to_wire(self.usage(found))
        return {**out, "usage": usage, "prompt_logprobs": scored, "kv_transfer_params": None}

    def _ids(self, index: int, completion: Completion) -> Json:
        tokens = completion.tokens or ()
        own = None
        if self.question.tops is not None:
            tops = completion.tops if self.question.tops else None
            own = entries(completion._replace(tops=tops), self.shown)
        spans = completions.spans_to_wire(completion.inner, completion.version, len(tokens))
        made = token_route.choice(index, tokens, completion.finish, own, law_of(completion))
        return {**made, "weight_versions": spans}


__all__ = ["TokenWriter", "question_of"]
