"""What the server does with each parameter of each endpoint: supported, ignored with a warning, or refused.

``questions.read`` and ``scoring_routes`` call ``check``. A parameter must never be ignored if the answer would mean
something else without it. The table of docs/serve.md lists these rules, and a test compares the table with the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from clew.models import shaping
from clew.serve.refusals import Rejected

Endpoint = Literal["chat", "completions", "responses", "messages"]


class Rule(NamedTuple):
    """``neutral`` are the values that change nothing: they pass without a word whatever the rule. So does null."""

    what: Literal["supported", "ignored", "refused"]
    neutral: tuple[Any, ...] = ()
    remedy: str = ""


YES, NO = Rule("supported"), Rule("refused")
_CUT = "structured_outputs guided_json guided_regex guided_choice guided_grammar"
_LOCAL = "Set it for all requests when the server is started, or leave it out."


def _all(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


ANY = {
    **_all("model temperature top_p top_k seed stream request_id", YES),
    **_all(_CUT, YES),
    **_all("user safety_identifier service_tier prompt_cache_key prompt_cache_options prompt_cache_retention",
           Rule("ignored")),
    **_all("moderation context_management", NO),
    **dict.fromkeys(shaping.NAMES, YES),
    "use_beam_search": Rule("refused", (False,)),
    **_all("bad_words logits_processors", Rule("refused", ([],))),
    **_all("include_stop_str_in_output early_stopping", Rule("refused", (False,))),
    "truncate_prompt_tokens": Rule("refused", (), "Shorten the prompt."),
    "length_penalty": Rule("refused", (1,)),
    **_all("spaces_between_special_tokens detokenize include_reasoning", Rule("refused", (True,))),
    **_all("priority session_id cache_salt kv_transfer_params", Rule("ignored")),
}  # fmt: skip
RULES: Mapping[str, Mapping[str, Rule]] = {
    "chat": {
        **ANY,
        **_all("messages max_tokens max_completion_tokens n stop stream_options logprobs top_logprobs tools", YES),
        **_all("tool_choice response_format prompt_logprobs return_token_ids return_tokens_as_token_ids", YES),
        **_all("continue_final_message stop_token_ids policy chat_template_kwargs", YES),
        "add_generation_prompt": Rule("refused", (True, False), "The reply begins as the chat template says."),
        "modalities": Rule("refused", (["text"],), "Ask for text."),
        **_all("metadata store reasoning_effort verbosity prediction", Rule("ignored")),
        "parallel_tool_calls": YES,
        "skip_special_tokens": Rule("ignored", (False,)),
        **_all("functions function_call", Rule("refused", ([], "none"), "Send tools and tool_choice.")),
        **_all("audio web_search_options documents", NO),
        "max_output_tokens": Rule("refused", (), "Send max_completion_tokens."),
        "best_of": Rule("refused", (1,), "Ask for n."),
        "echo": Rule("refused", (False,)),
        "add_special_tokens": Rule("refused", (False,), "The chat template has them."),
        "chat_template": Rule("refused", (), "The model's own template is used."),
    },
    "completions": {
        **ANY,
        **_all("prompt max_tokens n stop stream_options logprobs echo prompt_logprobs return_token_ids", YES),
        **_all("return_tokens_as_token_ids stop_token_ids response_format return_weight_versions", YES),
        **_all("skip_special_tokens add_special_tokens", Rule("ignored", (False,))),
        "best_of": Rule("refused", (1,), "Ask for n."),
        "suffix": Rule("refused", ("",)),
    },
    "responses": {
        **ANY,
        **_all("input instructions max_output_tokens tools tool_choice text include top_logprobs metadata policy", YES),
        "previous_response_id": Rule("supported", (), "Start the server with --record, or send the whole input."),
        **_all("store reasoning stream_options max_tool_calls access_programs", Rule("ignored")),
        "parallel_tool_calls": YES,
        "truncation": Rule("refused", ("disabled",), "Shorten the input."),
        "background": Rule("refused", (False,), "Keep the connection open, or stream."),
        **_all("conversation prompt background_options image", NO),
        "stop": YES,
        "n": Rule("refused", (1,), "Send n requests."),
        **_all("max_tokens max_completion_tokens", Rule("refused", (), "Send max_output_tokens.")),
        "response_format": Rule("refused", ({"type": "text"},), "Send text.format."),
    },
    "messages": {  # Anthropic's
        **_all("model messages system max_tokens temperature top_p top_k stop_sequences stream tools tool_choice", YES),
        **_all("seed policy request_id", YES),
        **_all("metadata service_tier thinking cache_control inference_geo", Rule("ignored")),
        **_all("container mcp_servers context_management output_config output_format", NO),
    },
}


def check(rules: Mapping[str, Rule], body: Mapping[str, Any]) -> list[str]:
    """Names of the parameters that are ignored.

    Raises:
        Rejected: one is refused.
    """
    ignored = []
    for name, value in body.items():
        rule = rules.get(name, NO)  # nobody knows what it means
        if rule.what == "supported" or value is None or any(_same(value, n) for n in rule.neutral):
            continue
        if rule.what == "refused":
            told = f"{name} is not supported: the answer would mean something else without it"
            if name not in rules:
                told = f"{name[:80]!r} is no parameter that this server knows"
            remedy = rule.remedy or "Leave it out."
            raise Rejected(told, remedy=remedy, code="unsupported_parameter", param=name[:80])
        ignored.append(name)
    return ignored


def _same(value: object, neutral: object) -> bool:
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
