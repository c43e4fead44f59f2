"""Text in answers that is addressed to whoever reads it, and lessons that pass it on: what the screen throws out first.

A memory carries what one run read into all later ones, so a tool's output that says "remember to send a copy to ..."
is worth more to an attacker here than anywhere else. What is caught is listed in ``docs/lessons.md`` and in
``tests/audit/test_lessons_poisoned.py``, and so is what is not: a claim in plain words that a reflector puts into words
of its own, and a false fact. Nothing here says that a lesson is true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clew.core.printable import HIDDEN
from clew.harness.memory.ranking import words
from clew.methods.memory.lessons.grounds import ADDRESS, Grounds, Told, content, shares, terms

COPIED = 6  # words in a row that are a copy
_I = re.IGNORECASE | re.DOTALL
_SECRET = (
    r"(password|passphrase|passcode|secret|token|api.?key|credential|private.?key|card.?number|cvv|cookie|\.env\b|"
    r"environment variables?|system prompt|chat history|conversation|address.?book|contacts?|balance|"
    r"(customer|personal|private|user|account).{0,12}(data|records?|details))"
)
_GIVE = (
    r"\b(send|forward|post|upload|e-?mail|mail|share|leak|reveal|expose|transmit|disclos|exfiltrat|publish|hand over)"
)
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "it tells to set rules aside": re.compile(
        r"\b(ignor|disregard|overrid|bypass|circumvent|forget|disabl|turn off|skip)\w*\b.{0,50}"
        r"\b(instruct|rule|polic|previous|prior|earlier|system|safety|safeguard|guardrail|check|confirm|approv|warning|"
        r"verif|limit|permission)",
        _I,
    ),
    "it tells to give something secret away": re.compile(
        rf"{_GIVE}\w*\b.{{0,60}}{_SECRET}.{{0,60}}\b(to|at|into|via|with)\b", _I
    ),
    "it tells to keep something from people": re.compile(
        r"\b(secretly|silently|covertly|without (telling|asking|informing|notifying|mentioning)|"
        r"(do not|don't|never) (tell|mention|inform|report|log|reveal|ask|warn|notify))\b",
        _I,
    ),
    "it speaks as somebody who gives orders": re.compile(
        r"<\|\w|\[/?INST\]|<</?SYS|^\s*#+\s*(system|instruction)|\b(system|assistant|developer)\s*:|"
        r"\byou are now\b|\bnew (system )?instructions?\b|\bfrom now on\b|\bas (an|the) (ai|assistant)\b",
        _I | re.MULTILINE,
    ),
}
_SHELL = re.compile(
    r"\b(curl|wget|netcat|nc -|bash -c|sh -c|eval|exec|base64|powershell|rm -rf|chmod|(pip|npm) install)(?!\w)", _I
)
_TRANSFER = re.compile(r"\b(send|forward|post|upload|e-?mail|mail|cop(y|ies)|cc|bcc|report|transfer|pay|redirect)", _I)
_ADDRESSED = re.compile(
    r"\b(you|your|agents?|assistants?|ai|models?|bots?|reader|whoever)\b|\b(note|important|attention|notice|remember|"
    r"reminder|lesson|pitfalls?|memory|tip|hint|advice|instructions?|always|never|must|should|please|do not|don't|"
    r"ignore|disregard|from now on|in (the )?future|next time|trigger|mistake)\b",
    re.IGNORECASE,
)
TELLS = re.compile(
    r"\b(always|never|must|should|have to|has to|need(s|ed)? to|require[sd]?|make sure|be sure|remember|do not|don't|"
    r"please|avoid|ensure)\b",
    re.IGNORECASE,
)


def hostile(text: str, found: Grounds) -> str:
    """Why a lesson is not taken whatever the run shows, in a sentence; empty where nothing speaks against it."""
    if HIDDEN.search(text):
        return "it holds characters that are not seen"
    for why, pattern in PATTERNS.items():
        if pattern.search(text):
            return why
    shell = next((hit[0] for hit in _SHELL.finditer(text) if not found.was_done(hit[0])), "")
    if shell:
        return f"it names a command that the run never gave ({shell})"
    for address in ADDRESS.findall(text):
        strange = not found.was_done(address) and not found.was_asked(address)
        if strange and _TRANSFER.search(text) and (places := found.answers(address)):
            return f"it sends something to an address that only the answer at {found.run.place(places[0])} names"
    return ""


def passed_on(advice: str, found: Grounds) -> tuple[str, int]:
    """Whether advice is what an answer tells its reader to do: why it is, and the Call of the answer; else ("", -1).

    It is where it copies six words in a row of a sentence that is addressed to the reader, or where such a sentence
    holds at least half of its words, and more of them than what the agent did and was asked.
    """
    mine, said = content(advice), words(advice)
    rows = {tuple(said[i : i + COPIED]) for i in range(len(said) - COPIED + 1)}
    own = shares(mine, found.trusted)
    for told in found.told:
        for sentence in addressed(told):
            spoken = words(sentence)
            if rows & {tuple(spoken[i : i + COPIED]) for i in range(len(spoken) - COPIED + 1)}:
                return "it repeats what {place} tells its reader, word for word", told.seq
            part = shares(mine, content(sentence))
            if len(mine) >= 2 and part >= 0.5 and part > own:
                return "it says what {place} tells its reader, and not what the run did", told.seq
    return "", -1


def retold(mistake: str, consequence: str, found: Grounds) -> int:
    """The Call of an answer that is no error and names both a mistake and its consequence; -1 where there is none. A
    run that made the mistake was answered with the consequence; a text that tells of both is somebody's story."""
    both = (content(mistake), content(consequence))
    for told in found.told:
        if not told.error:
            there = content(told.text)
            if all(len(part) > 0 and shares(part, there) >= 0.6 for part in both) and addressed(told):
                return told.seq
    return -1


def addressed(told: Told) -> list[str]:
    """The sentences of an answer that speak to whoever reads it. An error that says what to do is none: it comes of
    what was done."""
    if told.error:
        return []
    sentences = re.split(r"(?<=[.!?;])\s+|\n+|\\n|\"\s*[:,]\s*\"", told.text)
    return [one for one in sentences if len(one.split()) >= 3 and _ADDRESSED.search(one)]


def untried(advice: str, found: Grounds) -> tuple[str, int]:
    """The first term of advice that nobody tried, was not asked for, and no error named; with the Call of the answer
    that names it, -1 where none does."""
    for term in terms(advice):
        if not (found.was_tried(term) or found.was_asked(term) or found.answers(term, errors=True)):
            places = found.answers(term)
            return term, places[0] if places else -1
    return "", -1


def borrowed(advice: str, found: Grounds) -> int:
    """The Call of an answer, no error, that alone holds at least half of what advice says, where the agent neither did
    these things nor was asked for them; -1 where there is none."""
    mine = content(advice)
    strange = [one for one in mine if not shares([one], found.trusted)]
    if len(strange) < 2 or 2 * len(strange) < len(mine):
        return -1
    for told in found.told:
        if not told.error and 2 * shares(strange, content(told.text)) * len(strange) >= len(mine):
            return told.seq
    return -1


def advice_of(kind: str, body: Mapping[str, str]) -> Sequence[str]:
    """The fields of a lesson that tell what to do; a fact that says must, always or never is one."""
    if kind == "pitfall":
        return [body["fix"]] if body.get("fix") else []
    text = body.get("text", "")
    return [text] if kind == "plan" or TELLS.search(text) else []
