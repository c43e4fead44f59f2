"""Which version of the weights sampled which tokens of a reply: read from answers of servers, and from the record.

``Fleet`` writes a reply that several versions made as one ``Inner`` for each span; ``train.rows`` reads it back. A
token of one version must never be filed as another's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clew.core.errors import Refused
from clew.core.records import Call
from clew.core.values import F32, Completion, Inner, Sampling
from clew.models.dialects.completions import MADE, made_by
from clew.models.kept import pack, truncates, unpack

MASK = (
    "Start vLLM with --enable-scale-out, --return-sampling-mask and --logprobs-mode processed_logprobs, and sample "
    "with top_k above 0; or leave top_p, top_k and the grammar out (`clew doctor URL` tells what is missing)."
)
DIGITS = 18  # of a version: what a column of whole numbers holds


def number_of(label: str) -> int | None:
    """The version that a server's label means; None where a fleet did not give it, as of ``default``."""
    return int(label) if label.isascii() and label.isdecimal() and len(label) <= DIGITS else None


def told_by(part: Completion, version: int, pushed: bool, where: str) -> Completion:
    """The answer of one endpoint, with one ``inner`` for each span of tokens that one version of the weights sampled.

    Args:
        version: of the weights when it was asked, for a server that tells none.
        pushed: whether the fleet has given the endpoint its weights, and with them a label.

    Raises:
        Refused: weights that the fleet never pushed made some of it.
    """
    tokens = part.tokens or ()
    strange = [one.served_by for one in part.inner if number_of(one.served_by) is None]
    if strange and pushed:
        raise Refused(
            f"{where} answered with weights {strange[0][:60]!r}, which this fleet did not push",
            remedy="Let one trainer alone push weights there; the next push sets the version right.",
        )
    made = part.inner if part.inner and not strange else made_by([(str(version), 0, len(tokens))], tokens)
    return _spanned(part, made, version, where)


def told_under(part: Completion, adapter: str, version: int, where: str) -> Completion:
    """The same of an answer to a request that named an adapter: all of its tokens are of that one.

    Args:
        adapter: the name that the answer must have; empty where the server does not tell it.

    Raises:
        Refused: another model answered.
    """
    if adapter and part.model not in ("", adapter):
        raise Refused(
            f"{where} was asked for {adapter} and answered as {part.model[:60]!r}",
            remedy="Let no proxy between rename models, and ask the server itself.",
        )
    tokens = part.tokens or ()
    return _spanned(part, made_by([(str(version), 0, len(tokens))], tokens), version, where)


def _spanned(part: Completion, made: Sequence[Inner], version: int, where: str) -> Completion:
    spans = [
        one._replace(model=MADE + where, version=int(one.served_by), served_by=part.model) for one in made if one.tokens
    ]
    return part._replace(inner=tuple(spans), version=spans[0].version if spans else version)


def together(parts: Sequence[Completion]) -> Completion:
    """One reply of parts that were sampled one after another, each going on from those before; with all their spans."""
    last, some = parts[-1], [part for part in parts if part.tokens]
    spans = tuple(one for part in parts for one in part.inner)
    if len(parts) == 1:
        return last
    tops = [part.tops for part in some if part.tops is not None]
    return last._replace(
        tokens=tuple(token for part in some for token in part.tokens or ()),
        logprobs=_all_of([part.logprobs for part in some]),
        entropies=_all_of([part.entropies for part in some]),
        plain=_all_of([part.plain for part in some]),
        kept=_sets(some),
        tops=tuple(top for each in tops for top in each) if tops and len(tops) == len(some) else None,
        usage=parts[0].usage._replace(completion=sum(part.usage.completion for part in parts)),
        cost=sum(part.cost for part in parts),
        seconds=sum(part.seconds for part in parts),
        attempts=tuple(one for part in parts for one in part.attempts),
        inner=spans,
    )


def joined(parts: Sequence[Completion]) -> Completion:
    """The same of parts that ``told_by`` gave. Its version is the oldest of its tokens', and ``inner`` has the spans
    only where there are several versions."""
    done = together(parts)
    versions = {one.version for one in done.inner}
    inner = done.inner if len(versions) > 1 else ()
    return done._replace(version=min(versions, default=done.version), inner=inner)


def usable(done: Completion, sampling: Sampling, where: str) -> None:
    """Check that a reply can train: with logprobs of the law in force, and with the tokens that this law left.

    Raises:
        Refused: they are missing; the remedy names the flag of the server.
    """
    cut = "the grammar" if sampling.grammar else "top_p and top_k" if truncates(sampling) else ""
    if cut and not done.kept:
        raise Refused(
            f"{where} did not say which tokens {cut} left at each place (sampling_mask), which training needs",
            remedy=MASK,
        )
    if done.logprobs is None:
        raise Refused(
            f"{where} gave no logprobs of the distribution that it sampled from, which training needs",
            remedy="Sample with temperature 1 and without top_p, top_k and a grammar; or start vLLM with "
            "--logprobs-mode processed_logprobs (`clew doctor URL` tells).",
        )


def _sets(parts: Sequence[Completion]) -> bytes:
    """The tokens that were left at each token of all parts; nothing where one does not say."""
    if not parts or not all(part.kept for part in parts):
        return b""
    return pack([left for part in parts for left in unpack(part.kept)])


def _all_of(values: Sequence[F32 | None]) -> F32 | None:
    here = [value for value in values if value is not None]
    return np.concatenate(here) if here and len(here) == len(values) else None


def spans_of(call: Call) -> list[tuple[int, int, int]]:
    """(version, start, stop) of the tokens that an ask sampled, counted from the first of them.

    One span of the version that its Setup names, where no fleet answered or all tokens are of one version.
    """
    count = 0 if call.logprobs is None else len(call.logprobs)
    found, at = list[tuple[int, int, int]](), 0
    for one in call.inner:
        if one.model.startswith(MADE) and one.tokens is not None:
            found.append((one.version, at, at + len(one.tokens)))
            at += len(one.tokens)
    if found and at == count:
        return found
    return [(call.setup.version if call.setup else 0, 0, count)]
