"""What a terminal would obey, hide or put out of order becomes a sign; everything else stays as it is."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from clew.core.printable import HIDDEN, escaped, short, visible

IGNORABLE = """00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0
FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"""
"""Default_Ignorable_Code_Point, as DerivedCoreProperties.txt of Unicode 16 lists it."""


def test_the_hidden_characters_are_those_of_unicode():
    hidden = {code for code in range(sys.maxunicode + 1) if HIDDEN.fullmatch(chr(code))}
    categories = ("Cc", "Cf", "Cs", "Zl", "Zp")
    wanted = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in categories}
    for span in IGNORABLE.split():
        first, _, last = span.partition("-")
        wanted |= set(range(int(first, 16), int(last or first, 16) + 1))
    assert wanted - hidden == {ord("\t"), ord("\n")}
    older = {code for code in hidden - wanted if unicodedata.category(chr(code)) == "Cn"}  # Python knows no Unicode 16
    assert hidden - wanted == older


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "␛[31m"),
        ("a\bb\rc\x7f\0", "a␈b␍c␡␀"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("\u202eevil\u2069", "⟨RLO⟩evil⟨PDI⟩"),
        ("a\u200b\u00ad\u034f\u3164\ufe0f\U000e0100", "a⟨ZWSP⟩⟨SHY⟩⟨CGJ⟩⟨U+3164⟩⟨VS16⟩⟨U+E0100⟩"),
        ("\U000e0041\ud800", "⟨U+E0041⟩⟨U+D800⟩"),
        ("a\r\nb\tc\n", "a\nb\tc\n"),
        ("naïve 北京 🙂 שלום ⟨RLO⟩", "naïve 北京 🙂 שלום ⟨RLO⟩"),
    ],
)
def test_signs(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


def test_short_is_one_line_of_at_most_so_many_characters():
    assert short(" a\n b\u202e ", 20) == "a b⟨RLO⟩"
    for text in ("x" * 10_000, "\u202e" * 10_000, "\x1b]0;t\x07" * 999):
        assert len(short(text, 40)) == 40
        assert short(text, 40).endswith("…")
    assert short("x" * 40, 40) == "x" * 40


def test_escaped_json_reads_back_as_it_was():
    value = {"a": "".join(map(chr, [*range(0x300), 0x202E, 0xD800, 0x3164, 0xE0041, 0x1F642])), "\u200b": 1}
    text = escaped(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert not HIDDEN.search(text)
    assert "\U0001f642" in text
