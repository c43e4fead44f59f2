"""Canonical form, digests and derived seeds: the part of the record that may never change.

A digest is blake2b of 16 bytes. Its ``person`` names the kind of thing and the version of the form, so that a node can
never collide with a request. Golden vectors live in ``tests/core/test_keys.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.values import Message, Sampling

SIZE = 16
NODE, TEXT, CALL, REQUEST = b"clew.node.1", b"clew.text.1", b"clew.call.1", b"clew.req.1"
STATE, BLOB, VALUE, SEED = b"clew.state.1", b"clew.blob.1", b"clew.value.1", b"clew.seed.1"
_pack_u32 = struct.Struct("<I").pack
_short = [_pack_u32(n) for n in range(1024)]  # every effect takes several digests of short pieces
_pack_f64 = struct.Struct("<d").pack


def digest(tag: bytes, *pieces: bytes) -> bytes:
    """16-byte blake2b of length-prefixed ``pieces`` under ``tag``."""
    return blake2b(b"".join(map(_sized, pieces)), digest_size=SIZE, person=tag).digest()


def _sized(piece: bytes) -> bytes:
    n = len(piece)
    return (_short[n] if n < 1024 else _pack_u32(n)) + piece


def encode(text: str) -> bytes:
    """UTF-8 that also carries lone surrogates, as models and broken files do produce them."""
    return text.encode("utf-8", "surrogatepass")


def canonical(value: object) -> bytes:
    """The one byte string of a JSON-like value: type tag, length, content; keys sorted.

    Integers and floats are distinct, ``bytes`` enter by their blob digest.

    Raises:
        BadInput: NaN or infinity, a non-string key, or a type that JSON does not know.
    """
    out: list[bytes] = []
    _walk(value, out)
    return b"".join(out)


def _walk(value: object, out: list[bytes]) -> None:
    if value is None:
        out.append(b"n")
    elif value is True:
        out.append(b"t")
    elif value is False:
        out.append(b"f")
    elif isinstance(value, str):
        data = encode(value)
        out += (b"s", _pack_u32(len(data)), data)
    elif isinstance(value, (int, np.integer)):
        data = str(int(value)).encode()
        out += (b"i", _pack_u32(len(data)), data)
    elif isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise BadInput(f"{value!r} has no canonical form", remedy="Leave the field out or use null.")
        out += (b"d", _pack_f64(float(value)))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out += (b"b", digest(BLOB, bytes(value)))
    elif isinstance(value, Mapping):
        pairs = []
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadInput(f"key {key!r} is not a string", remedy="Use string keys, as JSON does.")
            pairs.append((encode(key), item))
        out += (b"m", _pack_u32(len(pairs)))
        for name, item in sorted(pairs, key=lambda pair: pair[0]):
            out += (_pack_u32(len(name)), name)
            _walk(item, out)
    elif isinstance(value, Sequence):
        out += (b"l", _pack_u32(len(value)))
        for item in value:
            _walk(item, out)
    else:
        raise BadInput(f"a {type(value).__name__} has no canonical form", remedy="Use JSON values or bytes.")


def value_digest(value: object, tag: bytes = VALUE) -> bytes:
    """Digest of a JSON-like value in canonical form."""
    return digest(tag, canonical(value))


def blob_key(data: bytes) -> bytes:
    return digest(BLOB, data)


def state_key(*parts: str) -> bytes:
    """Names a world state: 16 bytes of the text that fixes it."""
    return digest(STATE, *[encode(p) for p in parts])


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian int32, the stored form."""
    return struct.pack(f"<{len(ids)}i", *ids)


def sampling_form(sampling: Sampling) -> dict[str, Any]:
    """The settings as a request's digest has them: a grammar and a shape only where there is one."""
    return {name: value for name, value in sampling._asdict().items() if value != ""}


def _message_pieces(message: Message) -> list[bytes]:
    pieces = [encode(message.role), encode(message.text)]
    if message[2:] != _PLAIN:
        call_id = b"" if message.call_id is None else b"+" + encode(message.call_id)
        pieces += [encode(message.reasoning), call_id, encode(message.extra)]
        for call in message.calls:
            pieces += [encode(call.id), encode(call.name), encode(call.arguments)]
    return pieces


_PLAIN = Message("", "")[2:]
_NO_TOKENS = 2 * _sized(b"")


def node_key(parent: bytes, message: Message, ids: Sequence[int] | None, tokenizer: str) -> bytes:
    """Identity of a node: its parent, its message, and its token ids under a tokenizer where it has any."""
    tokens = (b"", b"") if ids is None else (b"+" + encode(tokenizer), pack_ids(ids))
    return digest(NODE, parent, *tokens, *_message_pieces(message))


def text_key(parent: bytes, message: Message) -> bytes:
    """Identity without tokens: aligns paths of the same conversation under different tokenizers."""
    return digest(TEXT, parent, *_message_pieces(message))


def node_keys(
    parent: bytes, parent_text: bytes, message: Message, ids: Sequence[int] | None, tokenizer: str
) -> tuple[bytes, bytes]:
    """``node_key`` and ``text_key`` of one message at once."""
    said = b"".join(map(_sized, _message_pieces(message)))
    tokens = _NO_TOKENS if ids is None else _sized(b"+" + encode(tokenizer)) + _sized(pack_ids(ids))
    node = blake2b(_sized(parent) + tokens + said, digest_size=SIZE, person=NODE)
    text = blake2b(_sized(parent_text) + said, digest_size=SIZE, person=TEXT)
    return node.digest(), text.digest()


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed derived from ``seed`` and a path of names and numbers."""
    pieces = [encode(p) if isinstance(p, str) else p.to_bytes(8, "little", signed=True) for p in path]
    return int.from_bytes(digest(SEED, seed.to_bytes(8, "little", signed=True), *pieces)[:8], "little") >> 1


def uniforms(seeds: npt.NDArray[np.uint64], offsets: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Counter-based uniforms in [0, 1): one for each (seed, offset), whatever the batch around it.

    Two rounds of the splitmix64 finaliser (Steele, Lea and Flood 2014, 10.1145/2660193.2660195).
    """
    with np.errstate(over="ignore"):
        z = seeds + (offsets + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for _ in range(2):
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
