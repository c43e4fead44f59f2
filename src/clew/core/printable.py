"""Text that somebody else wrote, made fit for a terminal: what would be obeyed, hidden or put out of order is shown.

All that prints calls it, on its way out: the command line, the tree of a run, reports. It must never change what is
stored or sent. A transcript, a name in an imported file or an error of a model is text of somebody else.
"""

from __future__ import annotations

import re
import shlex

DEFAULT_STORE = ".clew/store.db"  # the store of a command line that names none
CODES = """0-8 B-1F 7F-9F AD 34F 600-605 61C 6DD 70F 890-891 8E2 115F-1160 17B4-17B5 180B-180F 200B-200F 2028-202E
2060-206F 3164 D800-DFFF FE00-FE0F FEFF FFA0 FFF0-FFFB 110BD 110CD 13430-1343F 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"""
"""Code points that are not printed as they are: control (Cc, without tab and newline), format (Cf: marks of direction,
tags), surrogate (Cs), line and paragraph separator (Zl, Zp), and all with the property Default_Ignorable_Code_Point
(invisible by design: fillers, joiners, variation selectors). Unicode 16."""
SIGNS = """AD SHY, 34F CGJ, 61C ALM, 200B ZWSP, 200C ZWNJ, 200D ZWJ, 200E LRM, 200F RLM, 2028 LS, 2029 PS, 202A LRE,
202B RLE, 202C PDF, 202D LRO, 202E RLO, 2060 WJ, 2066 LRI, 2067 RLI, 2068 FSI, 2069 PDI, FE0F VS16, FEFF BOM"""
NAMES = {int(code, 16): name for code, name in (pair.split() for pair in SIGNS.split(","))}


def _ranges() -> str:
    spans = ([int(end, 16) for end in span.split("-")] for span in CODES.split())
    return "".join(f"\\U{span[0]:08x}-\\U{span[-1]:08x}" for span in spans)


HIDDEN = re.compile(f"[{_ranges()}]")


def visible(text: str) -> str:
    """The text with a sign in the place of each hidden character: ␛ for escape, ⟨RLO⟩, ⟨U+E0041⟩.

    Tabs and newlines stay; a carriage return stays only as part of a line's end.
    """
    return HIDDEN.sub(_sign, text.replace("\r\n", "\n"))


def short(text: str, width: int) -> str:
    """One line of at most ``width`` characters, the hidden ones visible."""
    line = " ".join(text.split())
    shown = visible(line[: width + 1])
    return shown if len(shown) <= width else shown[: max(width - 1, 1)] + "…"


def escaped(text: str) -> str:
    """JSON with its hidden characters written as escapes: it reads back as the same value."""
    return HIDDEN.sub(_escape, text)


def store_option(path: str) -> str:
    """What names a store at the end of a printed command line; nothing where the line takes that store anyway."""
    return "" if path in (DEFAULT_STORE, ":memory:", "") else f" --store {quoted(path)}"


def quoted(word: str) -> str:
    """A word as a shell reads it; a character that is hidden, or that not every font has, is written as an escape."""
    if all(_seen(c) or c in "\n\t" for c in word):
        return shlex.quote(word)
    return "$'" + "".join(map(_shell_escape, word)) + "'"


def _seen(c: str) -> bool:
    return c.isprintable() and not HIDDEN.match(c)


def _shell_escape(c: str) -> str:
    if c in "\\'":
        return "\\" + c
    return c if _seen(c) else "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "replace"))


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{NAMES.get(code) or f'U+{code:04X}'}⟩"


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
