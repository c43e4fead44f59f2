"""Incremental detokenisation: the part of a growing reply that is settled, and so never has to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clew.core.protocols import Renderer
from clew.core.values import Message
from clew.models.replies import held

WINDOW = 16  # tokens that are decoded again with each new one
BROKEN = "\ufffd"  # what a decoder puts for bytes that are no character, or none yet
LONGEST = 3  # of these stand for a character of which bytes are missing


class Text:
    """The text of a growing list of ids, decoded a window at a time.

    A character whose bytes are not all there is held back. A decoder that shows one text alone and another before
    more bytes (byte fallback of broken UTF-8) is taken at its first word.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = self._shown = 0  # of the window: its first token, and characters given

    def add(self, ids: Sequence[int]) -> str:
        """Take more ids; gives the characters that are now whole."""
        self._ids += ids
        text = self._decode(self._ids[self._start :])
        whole = len(text)
        while whole and text[whole - 1] == BROKEN and len(text) - whole < LONGEST:
            whole -= 1
        new = text[self._shown : whole]
        self._shown = max(self._shown, whole)
        if whole == len(text) and len(self._ids) - self._start > 2 * WINDOW:
            self._start = len(self._ids) - WINDOW
            self._shown = len(self._decode(self._ids[self._start :]))
        return new


class Settled:
    """Text and reasoning of a reply that can be given away while the rest is sampled.

    Held back are parts of characters, what may become a stop string, and what the renderer says may yet change, such
    as a tool call. Of a renderer without ``decode`` everything comes at the end.
    """

    def __init__(self, renderer: Renderer, stops: tuple[str, ...], forced: tuple[int, ...]) -> None:
        decode = getattr(renderer, "decode", None)
        self._text = Text(decode) if decode is not None else None
        self._parse, self._stops, self._end = getattr(renderer, "settled", None), stops, renderer.stop
        self._raw = ""
        self._text_given, self._thought_given = "", ""
        if forced:
            self._add(forced)

    def add(self, ids: Sequence[int]) -> tuple[str, str]:
        """Take sampled ids; gives text and reasoning that they settle."""
        self._add(ids)
        text, thought = self._parse(self._raw) if self._parse is not None else (self._raw, "")
        for stop in self._stops:
            text = text.partition(stop)[0]
        return self._new(text[: len(text) - held(text, self._stops)] if self._stops else text, thought)

    def rest(self, message: Message) -> tuple[str, str]:
        """What of the whole reply was not given yet."""
        return self._new(message.text, message.reasoning)

    def _add(self, ids: Sequence[int]) -> None:
        if self._text is not None:
            self._raw += self._text.add([i for i in ids if i not in self._end])

    def _new(self, text: str, thought: str) -> tuple[str, str]:
        known, before = self._text_given, self._thought_given
        new = text[len(known) :] if text.startswith(known) else ""
        more = thought[len(before) :] if thought.startswith(before) else ""
        self._text_given, self._thought_given = known + new, before + more
        return new, more
