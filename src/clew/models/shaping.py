"""Settings that shape the law a token is drawn from beside temperature, top-p and top-k: penalties, biases, ends.

``Sampling.shape`` holds them as JSON of those that change something. The harness and the server write it by
``written``, engines read it by ``shape_of``, and a client of an endpoint sends it on. What changes the law otherwise
than by leaving tokens out (``bends``) must never train: a trainer cannot compute it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.values import Sampling, check_sampling

LONGEST = 1 << 16  # numbers in a list or mapping


class Shape(NamedTuple):
    """The settings, by their names in vLLM's API and OpenAI's; each default changes nothing.

    min_p: least probability of a token, as a share of the likeliest one's. presence_penalty, frequency_penalty: taken
    from the logits of tokens that the reply holds, once and for each time. repetition_penalty: logits of tokens that
    prompt or reply hold are divided by it where positive, else multiplied. logit_bias: added to logits, by token id.
    allowed_token_ids: nothing else is drawn; empty: anything. min_tokens: no token that ends the reply is drawn before.
    ignore_eos: none is drawn at all.
    """

    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = {}
    allowed_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False

    @property
    def bends(self) -> bool:
        """Whether the law is another one than the model's over fewer tokens."""
        plain = self.presence_penalty == self.frequency_penalty == 0 and self.repetition_penalty == 1
        return not plain or bool(self.logit_bias)

    @property
    def cuts(self) -> bool:
        """Whether tokens are left out of the law."""
        return self.min_p > 0 or bool(self.allowed_token_ids) or self.min_tokens > 0 or self.ignore_eos


PLAIN = Shape()
NAMES = Shape._fields
BOUNDS = {"min_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "repetition_penalty": (0.01, 100)}


@lru_cache(maxsize=4096)
def shape_of(text: str) -> Shape:
    """What ``Sampling.shape`` says.

    Raises:
        BadInput: it is no text that ``written`` gives.
    """
    if not text:
        return PLAIN
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not given:
        raise BadInput(f"shape={text[:60]!r} is no JSON object", remedy=f"Set {', '.join(NAMES)} by their names.")
    return _checked(given)


def written(values: Mapping[str, Any]) -> str:
    """The settings as ``Sampling.shape`` holds them; empty where none changes anything.

    Raises:
        BadInput: a value without a meaning, or of another name.
    """
    made = _checked({name: value for name, value in values.items() if value is not None})
    told = {name: value for name, value in made._asdict().items() if value != getattr(PLAIN, name)}
    return json.dumps(told, sort_keys=True) if told else ""


def sampling_with(base: Sampling, changes: Mapping[str, Any]) -> Sampling:
    """Settings with some of them changed, those of ``Shape`` by their own names.

    Raises:
        BadInput: there is no such setting, or it is given a value without a meaning.
    """
    return check_sampling(changed(base, changes))


def changed(base: Sampling, changes: Mapping[str, Any]) -> Sampling:
    """The same, where a model says whether temperature and truncation have a meaning: its error is part of a record.

    Raises:
        BadInput: there is no such setting, or one of ``Shape`` is given a value without a meaning.
    """
    known = (*(name for name in Sampling._fields if name != "shape"), *NAMES)
    for name in set(changes) - {*known, "shape"}:
        raise BadInput(f"unknown sampling setting {name!r}", remedy=f"Known: {', '.join(known)}.")
    plain = {name: value for name, value in changes.items() if name not in NAMES}
    made, more = base._replace(**plain), {name: value for name, value in changes.items() if name in NAMES}
    return made._replace(shape=written(shape_of(made.shape)._asdict() | more)) if more else made


def _checked(given: Mapping[str, Any]) -> Shape:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in BOUNDS:
            low, high = BOUNDS[name]
            right = _number(value) and low <= value <= high
            wanted = f"a number from {low} to {high}"
        elif name == "logit_bias":
            value = {_id(key): bias for key, bias in value.items()} if isinstance(value, Mapping) else None
            right = value is not None and None not in value and all(map(_number, value.values()))
            wanted = f"at most {LONGEST} token ids with a number each"
        elif name == "allowed_token_ids":
            value = tuple(value) if isinstance(value, list | tuple) else None
            right = value is not None and all(type(one) is int and one >= 0 for one in value)
            wanted = f"a list of at most {LONGEST} token ids"
        elif name == "min_tokens":
            right, wanted = type(value) is int and value >= 0, "a whole number, 0 or more"
        elif name == "ignore_eos":
            right, wanted = isinstance(value, bool), "true or false"
        else:
            raise BadInput(f"unknown sampling setting {name[:60]!r}", remedy=f"Known: {', '.join(NAMES)}.")
        if not right or (isinstance(value, Mapping | tuple) and len(value) > LONGEST):
            raise BadInput(f"{name}={str(given[name])[:60]} has no meaning", remedy=f"Give {wanted}.")
        found[name] = value
    return Shape(**found)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _id(key: object) -> int | None:
    text = str(key)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None
