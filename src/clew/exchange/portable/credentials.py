"""Credentials in texts and files, by the known shapes of keys and by values that are known to be secret.

What a portable run is made from is looked through with this. Never by entropy: ids of tool calls, digests and seeds
look just as random, and a record without them can be neither replayed nor forked.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from clew.core.keys import encode

MASK = b"[credential]"
SHORTEST = 12  # characters of a value of the environment
PIECE, OVERLAP, MOST = 1 << 20, 1 << 13, 1 << 30  # bytes: of one piece of what is unpacked, kept of it, of all pieces
NAMED = re.compile(r"API_?KEY|(?<![A-Z])KEYS?(?![A-Z])|TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
# a setting whose text is a credential, by its name; "key" and "tokens" alone name other things
SETTING = re.compile(
    r"api_?key|access_?key|private_?key|(?:^|_)(?:token|auth|bearer)$|secret|passw(?:or)?d|credential", re.I
)
_SLACK = [b"xox" + kind + b"-" for kind in (b"a", b"b", b"e", b"p", b"r", b"s")]
_GITHUB = [b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"]
_PEM = rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"


class Shape(NamedTuple):
    """What a kind of key looks like. mark: a piece that each has; pattern: the whole key; name: what it is called."""

    name: str
    mark: bytes
    pattern: re.Pattern[bytes]


def _shape(name: str, mark: bytes, rest: bytes, before: bytes = rb"\w-") -> Shape:
    """A shape that begins with its mark, after no character of ``before``."""
    start = re.escape(mark)
    return Shape(name, mark, re.compile(start + rb"(?<![" + before + rb"]" + start + rb")" + rest))


SHAPES = (
    _shape("a key of OpenAI, Anthropic or the like", b"sk-", rb"(?=[\w-]*\d)[A-Za-z0-9_-]{20,}"),
    *(_shape("a token of GitHub", mark, rb"[A-Za-z0-9]{30,}") for mark in _GITHUB),
    _shape("a token of GitHub", b"github_pat_", rb"[A-Za-z0-9_]{22,}"),
    _shape("a token of GitLab", b"glpat-", rb"[A-Za-z0-9_-]{20,}"),
    *(_shape("an access key of AWS", mark, rb"[0-9A-Z]{16}(?![0-9A-Za-z])") for mark in (b"AKIA", b"ASIA")),
    *(_shape("a token of Slack", mark, rb"[A-Za-z0-9-]{10,}") for mark in _SLACK),
    _shape("a key of Google", b"AIza", rb"[0-9A-Za-z_-]{35}"),
    _shape("a token of Hugging Face", b"hf_", rb"[A-Za-z0-9]{30,}"),
    _shape("a token of npm", b"npm_", rb"[A-Za-z0-9]{36}"),
    _shape("a token of PyPI", b"pypi-AgE", rb"[A-Za-z0-9_-]{40,}"),
    _shape("a key of Groq", b"gsk_", rb"[A-Za-z0-9]{40,}"),
    *(_shape("a key of Stripe", mark, rb"[A-Za-z0-9]{16,}") for mark in (b"sk_live_", b"rk_live_", b"sk_test_")),
    _shape("a signed web token", b"eyJ", rb"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}"),
    *(
        _shape("an authorization header", mark, rb"(?=[\w.~+/-]*\d)[\w.~+/-]{16,}=*", rb"\w")
        for mark in (b"Bearer ", b"bearer ")
    ),
    Shape(
        "a private key",
        b"PRIVATE KEY-----",
        re.compile(
            _PEM + rb'(?=[^"<]{0,300}?[A-Za-z0-9+/]{40})'
            rb'(?:[^"]{0,20000}?-----END [A-Z ]{0,20}PRIVATE KEY-----|[A-Za-z0-9+/=\\\s]+)'
        ),
    ),
)


class Credentials:
    """Finds credentials.

    Args:
        known: further secret values, by what they are called when one is found.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known: list[tuple[str, bytes]] = []
        for name, value in (known or {}).items():
            spelt = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            self._known += [(name, encode(text)) for text in sorted(spelt, key=len, reverse=True)]

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Credentials:
        """With the values of the variables whose names say that they are secret: of some length, no paths, no words."""
        return cls(
            {
                f"the value of {name}": value
                for name, value in environment.items()
                if NAMED.search(name) and _lone(value)
            }
        )

    def told(self, settings: Iterable[str]) -> Credentials:
        """With what settings, each a JSON text, hold under names that say it is secret: of some length, no words."""
        found = Credentials()
        values = {value for text in settings for value in secrets(_read(text)) if _lone(value)}
        found._known = [
            *self._known,
            *Credentials({f"a setting of a run ({len(v)} characters)": v for v in values})._known,
        ]
        return found

    def first(self, data: bytes | str) -> str:
        """What the first credential in a text is; empty where there is none."""
        data = encode(data) if isinstance(data, str) else data
        for name, value in self._known:
            if value in data:
                return name
        return next((s.name for s in SHAPES if s.mark in data and s.pattern.search(data)), "")

    def first_in_file(self, data: bytes) -> str:
        """The same for the content of a file; what is packed as gzip, zlib or a pack of git does is looked into."""
        return self.first(data) or next(filter(None, map(self.first, unpacked(data))), "")

    def masked(self, text: str) -> str:
        """The text with ``MASK`` in the place of each credential."""
        if not self.first(text):
            return text
        data = encode(text)
        for _, value in self._known:
            data = data.replace(value, MASK)
        for shape in SHAPES:
            data = shape.pattern.sub(MASK, data) if shape.mark in data else data
        return data.decode("utf-8", "surrogatepass")


def _lone(value: str) -> bool:
    """Whether a value can be looked for in other texts: it is long, and neither a word nor a path."""
    return len(value) >= SHORTEST and re.fullmatch(r"(?=.*\d)[^\s/][^\s]*", value) is not None


def _read(text: str) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def secrets(value: object) -> Iterator[str]:
    """The texts in a JSON value that stand under a name that says they are secret."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and inner and SETTING.search(name.replace("-", "_")):
                yield inner
            else:
                yield from secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets(inner)


def without_secrets(text: str) -> str:
    """JSON settings with ``MASK`` in the place of each such text; what is no JSON as it is."""
    found = {*secrets(_read(text))}

    def clean(value: object, named: bool = False) -> object:
        if isinstance(value, dict):
            return {k: clean(v, SETTING.search(k.replace("-", "_")) is not None) for k, v in value.items()}
        if isinstance(value, list):
            return [clean(v) for v in value]
        return MASK.decode() if named and isinstance(value, str) and value else value

    return json.dumps(clean(_read(text)), ensure_ascii=False, sort_keys=True) if found else text


def unpacked(data: bytes) -> Iterator[bytes]:
    """What lies packed in a file's content, in pieces that overlap; what is damaged ends it."""
    if data[:2] == b"\x1f\x8b":
        yield from _inflated(data, 0, 31)
    elif data[:1] == b"\x78" and len(data) > 1 and (data[0] * 256 + data[1]) % 31 == 0:
        yield from _inflated(data, 0, 15)
    elif data[:4] == b"PACK" and len(data) > 32:
        yield from _objects(data)


def _inflated(data: bytes, at: int, window: int, left: list[int] | None = None) -> Iterator[bytes]:
    """What a stream that begins at a place unpacks to; ``left`` is told how many bytes stand after its end."""
    stream, kept, total, size = zlib.decompressobj(window), b"", 0, 1 << 12
    try:
        while not stream.eof and at < len(data) and total < MOST:
            given, at, size = data[at : at + size], at + size, PIECE
            while given and not stream.eof:
                piece = stream.decompress(given, PIECE)
                given, total = stream.unconsumed_tail, total + len(piece)
                yield kept + piece
                kept = (kept + piece)[-OVERLAP:]
    except zlib.error:
        return
    if left is not None and stream.eof:
        left.append(len(stream.unused_data) + max(0, len(data) - at))


def _objects(data: bytes) -> Iterator[bytes]:
    """What the objects of a pack of git unpack to; of an object kept as a difference, what is new in it."""
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        if at >= len(data) - 20:
            return
        kind, more = data[at] >> 4 & 7, data[at] & 0x80
        at += 1
        while more and at < len(data):
            more, at = data[at] & 0x80, at + 1
        if kind == 6:  # a difference from the object so many bytes before
            while at < len(data) and data[at] & 0x80:
                at += 1
            at += 1
        elif kind == 7:  # a difference from the object of this name
            at += 20
        left = list[int]()
        yield from _inflated(data, at, 15, left)
        if not left:
            return
        at = len(data) - left[0]
