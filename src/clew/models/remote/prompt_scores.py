"""Scores over HTTP: the logprobs an OpenAI-compatible server gives to tokens it is sent.

vLLM (and what speaks like it) has ``prompt_logprobs`` on completions, which is tried first; others have ``echo`` with
``logprobs``. Nothing is rendered: ids go out, one logprob an id comes back, of the model at temperature 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.values import F32, Usage
from clew.models.dialects import completions
from clew.models.remote.endpoint import Failed
from clew.models.remote.failures import Failure, error_of, pause_of

if TYPE_CHECKING:
    from clew.models.remote.client import Remote


def wait(work: Coroutine[Any, Any, list[F32]]) -> list[F32]:
    """Run to the end, in a thread of its own where an event loop runs here already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def score(remote: Remote, ids: Sequence[Sequence[int]], temperature: float) -> list[F32]:
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


async def _row(remote: Remote, ids: Sequence[int], number: int) -> F32:
    most = remote.price.cost(Usage(len(ids), 1)) if remote.price else 0.0
    remote.gate.promise(most)
    spent = 0.0
    try:
        async with asyncio.timeout(remote.deadline):
            values = await _tries(remote, ids, number)
        spent = most
    except TimeoutError:
        raise Unreachable(
            f"{remote.endpoint.url} did not score {len(ids)} tokens within {remote.deadline:g} s",
            remedy="Raise deadline, or lower concurrency.",
        ) from None
    finally:
        remote.gate.pay(most, spent)
    return values


async def _tries(remote: Remote, ids: Sequence[int], number: int) -> F32:
    failures = 0
    while True:
        try:
            return await _ask(remote, ids)
        except Failed as failed:
            failure: Failure = failed.failure
        if failure.final:
            raise error_of(failure, remote.endpoint.url, remote.model)
        failures += 1
        if failures >= remote.attempts:
            raise Unreachable(
                f"no answer from {remote.endpoint.url} in {failures} attempts; the last one: {failure.text}",
                remedy="Check that the server runs and that its URL is right; or raise attempts.",
            )
        await asyncio.sleep(max(failure.wait or 0.0, pause_of(remote.backoff, failures, number)))


async def _ask(remote: Remote, ids: Sequence[int]) -> F32:
    """By ``prompt_logprobs``, then by ``echo``; what the endpoint took is remembered."""
    refusal: Failed | None = None
    for echo in (False, True) if remote.echoes is None else (remote.echoes,):
        body = completions.scoring_to_wire(remote.model, ids, echo) | remote.extra
        try:
            answer = await _post(remote, body, len(ids))
        except Failed as failed:
            if failed.failure.status not in (400, 404, 422) or remote.echoes is not None:
                raise
            refusal = refusal or failed
            continue
        values = completions.scores_from_wire(remote.json(answer), ids, echo)
        if values is not None:
            remote.echoes = echo
            return values
    if refusal is not None:
        raise refusal
    raise Refused(
        f"{remote.endpoint.url} gives no logprobs of a prompt",
        remedy="Serve the weights with vLLM (prompt_logprobs), or score with local weights.",
    )


async def _post(remote: Remote, body: dict[str, Any], tokens: int) -> str:
    await asyncio.sleep(remote.gate.enter(tokens))
    while (paused := remote.gate.paused()) > 0:
        await asyncio.sleep(paused)
    here = await remote.endpoint.here()
    async with here.room:
        return (await remote.endpoint.post(here.client, completions, body, "")).text
