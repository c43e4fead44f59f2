"""Scores over HTTP: the logprobs an OpenAI-compatible server gives to tokens it is sent.

vLLM (and what speaks like it) has ``prompt_logprobs`` on completions, which is tried first; others have ``echo`` with
``logprobs``. Nothing is rendered: ids go out, one logprob an id comes back, of the model at temperature 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.records import Request
from clew.core.values import F32, Usage
from clew.models.dialects import Json, completions
from clew.models.remote.attempts import InFlight, Sender, admitted, tries
from clew.models.remote.failures import Failed
from clew.models.remote.prices import Price


class Scorer(Sender, Protocol):
    """What scoring needs of a Remote; ``echoes`` says which way of scoring its endpoint has, once known."""

    price: Price | None
    extra: Json
    echoes: bool | None

    def json(self, text: str) -> Json: ...


async def score(remote: Scorer, ids: Sequence[Sequence[int]], temperature: float) -> list[F32]:
    """Logprobs of each row's tokens given those before, in the order of the rows; as many requests as rows.

    Raises:
        BadInput: an empty row, or another temperature than 1. Refused: the endpoint gives no logprobs of a prompt.
        Unreachable, ContextOverflow: as ``Remote.complete``.
    """
    if temperature != 1 or any(not row for row in ids):
        raise BadInput(
            f"an endpoint scores rows of tokens at temperature 1, not {temperature:g}",
            remedy="Leave the temperature out, and give at least one token a row.",
        )
    return list(await asyncio.gather(*[_row(remote, row, number) for number, row in enumerate(ids)]))


async def _row(remote: Scorer, ids: Sequence[int], number: int) -> F32:
    most = remote.price.cost(Usage(len(ids), 1)) if remote.price else 0.0
    flight = InFlight(Request((), seed=number), False, remote.deadline)
    flight.tokens = len(ids)
    remote.gate.purse.promise(most)
    spent = 0.0
    try:
        async with aclosing(tries(remote, flight, partial(_ask, remote, flight, ids))) as answers:
            values = await anext(answers)
        spent = most
    except TimeoutError:
        raise Unreachable(
            f"{remote.endpoint.url} did not score {len(ids)} tokens within {remote.deadline:g} s",
            remedy="Raise deadline, or lower concurrency.",
        ) from None
    finally:
        remote.gate.purse.pay(most, spent)
    return values


async def _ask(remote: Scorer, flight: InFlight, ids: Sequence[int]) -> AsyncGenerator[F32, None]:
    """By ``prompt_logprobs``, then by ``echo``; what the endpoint took is remembered."""
    refusal: Failed | None = None
    for echo in (False, True) if remote.echoes is None else (remote.echoes,):
        body = completions.scoring_to_wire(remote.model, ids, echo) | remote.extra
        try:
            async with admitted(remote, flight) as client, asyncio.timeout(flight.left()):
                _, answer = await remote.endpoint.post(client, completions, body, flight.request)
                flight.used = flight.tokens
        except Failed as failed:
            if failed.failure.status not in (400, 404, 422) or remote.echoes is not None:
                raise
            refusal = refusal or failed
            continue
        values = completions.scores_from_wire(remote.json(remote.endpoint.masking().text(answer)), ids, echo)
        if values is not None:
            remote.echoes = echo
            yield values
            return
    if refusal is not None:
        raise refusal
    raise Refused(
        f"{remote.endpoint.url} gives no logprobs of a prompt",
        remedy="Serve the weights with vLLM (prompt_logprobs), or score with local weights.",
    )
