"""Reads an endpoint's answer within bounds: so many bytes, packed or not, whatever the endpoint goes on to send.

``endpoint`` and ``client`` read every body through it: an endpoint is a stranger, and a few kilobytes can unpack to
gigabytes.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx

from clew.models.remote.failures import Failed, Failure

MOST = 64 << 20  # bytes of an answer, unpacked
_PIECE = 1 << 20  # bytes that are unpacked at once
_PACKED = {"gzip", "x-gzip", "deflate"}


async def text(answer: httpx.Response, most: int = MOST) -> str:
    """The whole body.

    Raises:
        Failed: it is larger, or packed in a way that we did not ask for.
    """
    out = bytearray()
    async with aclosing(_pieces(answer, most)) as pieces:
        async for piece in pieces:
            out += piece
    return out.decode("utf-8", "replace")


async def lines(answer: httpx.Response, most: int = MOST) -> AsyncGenerator[str, None]:
    """The lines of a body as they come, without their ends. Raises what ``text`` raises."""
    decoder, held = codecs.getincrementaldecoder("utf-8")("replace"), list[str]()
    async with aclosing(_pieces(answer, most)) as pieces:
        async for piece in pieces:
            first, *more = decoder.decode(piece).split("\n")
            held.append(first)
            for following in more:
                yield "".join(held).removesuffix("\r")
                held = [following]
    yield "".join(held)


async def _pieces(answer: httpx.Response, most: int) -> AsyncGenerator[bytes, None]:
    packed = answer.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if packed != "identity" and packed not in _PACKED:
        told = f"an answer packed as {packed[:40]!r}, which was not asked for"
        raise Failed(Failure(answer.status_code, told, final=True))
    unpack, total = zlib.decompressobj(47) if packed in _PACKED else None, 0
    async for raw in answer.aiter_raw():
        while raw:
            piece, raw = (unpack.decompress(raw, _PIECE), unpack.unconsumed_tail) if unpack else (raw, b"")
            total += len(piece)
            if total > most:
                told = f"an answer of more than {most:,} bytes"
                raise Failed(Failure(answer.status_code, told, final=True))
            yield piece
