"""Findings: where a bug is, why, what to do about it, what else is touched, and how sure that is.

The diagnosis reads them from a model's answer and prints them. The five fields are those of SHERLOC (arXiv 2606.24820);
``matched``, ``evidence`` and ``confidence`` are ours. A ranking understands no bug: its findings have ``matched``, the
words of the report found there, in place of a root cause and an idea. It must never mend a finding in silence:
``problems`` names what is wrong with one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clew.coding.repository.repository import View
from clew.core.errors import BadInput

STANDALONE = "standalone"
_TEXT = {"type": "string", "minLength": 1}
_LINE = {"type": "integer", "minimum": 1}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "location": {
            "type": "object",
            "properties": {"file": _TEXT, "start": _LINE, "end": _LINE},
            "required": ["file", "start", "end"],
        },
        "location_explanation": _TEXT,
        "root_cause": _TEXT,
        "solution_idea": _TEXT,
        "matched": {"type": "array", "items": _TEXT, "minItems": 1},
        "dependencies": {"anyOf": [{"const": STANDALONE}, {"type": "array", "items": _TEXT}]},
        "testing_impact": _TEXT,
        "evidence": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"tool": _TEXT, "args": {"type": "object"}, "lines": {"type": "string"}},
                "required": ["tool", "args", "lines"],
            },
        },
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["location", "location_explanation", "dependencies", "testing_impact"],
    "anyOf": [{"required": ["root_cause", "solution_idea"]}, {"required": ["matched"]}],
}
TAGGED = re.compile(r"<findings>(.*?)</findings>", re.DOTALL | re.IGNORECASE)
FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
PATH = re.compile(r"[\w./-]+\.(?:pyi?|jsx?|tsx?|go|java|c|cc|cpp|h|hpp|rs)\b")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was looked at: a tool, its arguments, and the lines it showed, as ``path:start-end``."""

    tool: str
    args: Mapping[str, Any]
    lines: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnosed place. Lines count from 1, ``end`` inclusive; ``dependencies`` empty: standalone; ``confidence``
    is the chance that ``file`` is one that the fix changes, None of any place but the first: it is not calibrated.
    ``root_cause`` and ``solution_idea`` are empty where
    nobody thought about the bug; then ``matched`` has the report's words in the place, the rarest first."""

    file: str
    start: int
    end: int
    location_explanation: str
    root_cause: str
    solution_idea: str
    dependencies: tuple[str, ...]
    testing_impact: str
    evidence: tuple[Evidence, ...] = field(default=())
    confidence: float | None = None
    matched: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """As ``SCHEMA`` says."""
        return {
            "location": {"file": self.file, "start": self.start, "end": self.end},
            "location_explanation": self.location_explanation,
            **({"root_cause": self.root_cause, "solution_idea": self.solution_idea} if self.root_cause else {}),
            **({"matched": list(self.matched)} if self.matched else {}),
            "dependencies": list(self.dependencies) or STANDALONE,
            "testing_impact": self.testing_impact,
            "evidence": [{"tool": e.tool, "args": dict(e.args), "lines": e.lines} for e in self.evidence],
            **({} if self.confidence is None else {"confidence": round(self.confidence, 4)}),
        }

    @property
    def sureness(self) -> str:
        """The confidence in words."""
        return "confidence not calibrated" if self.confidence is None else f"confidence {self.confidence:.2f}"

    def problems(self, view: View) -> list[str]:
        """What in this finding is not so in the repository: a file, span, dependency or test that does not exist."""
        out = []
        if self.file not in view.files:
            return [f"{self.file} does not exist"]
        lines = view.digests[self.file].lines
        if not 1 <= self.start <= self.end <= lines:
            out.append(f"{self.file} has {lines} lines, not {self.start} to {self.end}")
        out += [f"dependency {name} does not exist" for name in self.dependencies if name not in view.files]
        out += [f"test {p} does not exist" for p in PATH.findall(self.testing_impact) if p not in view.files]
        return out


def finding(value: object) -> Finding:
    """A finding from JSON.

    Raises:
        BadInput: it is not as ``SCHEMA`` says; the message names the field.
    """
    if not isinstance(value, dict):
        raise BadInput(f"a finding is a {type(value).__name__}", remedy="It is a JSON object.")
    wanted = SCHEMA["required"] + ([] if value.get("matched") else SCHEMA["anyOf"][0]["required"])
    missing = [name for name in wanted if value.get(name) in (None, "", {})]
    if missing and missing != ["dependencies"]:
        raise BadInput(f"a finding lacks {', '.join(missing)}", remedy="All five fields and the location are needed.")
    place = value["location"]
    try:
        file, start, end = str(place["file"]), int(place["start"]), int(place["end"])
        confidence = None if value.get("confidence") is None else float(value["confidence"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"location {place!r}", remedy='It is {"file": ..., "start": line, "end": line}.') from None
    if not file or not 1 <= start <= end or not 0 <= (confidence or 0.0) <= 1:
        raise BadInput(
            f"location {place!r}, confidence {confidence}", remedy="1 <= start <= end, 0 <= confidence <= 1."
        )
    near = value.get("dependencies") or []
    near = [] if near == STANDALONE else [near] if isinstance(near, str) else near
    evidence = tuple(
        Evidence(str(e.get("tool", "")), e.get("args") or {}, str(e.get("lines", "")))
        for e in value.get("evidence") or ()
        if isinstance(e, dict) and isinstance(e.get("args") or {}, dict)
    )
    names = ("location_explanation", "root_cause", "solution_idea", "testing_impact")
    where, cause, idea, impact = (_sentence(value.get(name) or "") for name in names)
    matched = tuple(map(str, value.get("matched") or ()))
    return Finding(file, start, end, where, cause, idea, tuple(map(str, near)), impact, evidence, confidence, matched)


def _sentence(value: object) -> str:
    return value if isinstance(value, str) else "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def answer(text: str) -> list[Finding] | None:
    """The findings of a final answer: tagged, fenced or bare JSON. None where the text is no such answer, which is told
    by a field that no tool's arguments have.

    Raises:
        BadInput: it is meant as one and does not parse or fit.
    """
    tagged = TAGGED.search(text)
    body = tagged[1] if tagged else text
    fenced = FENCED.search(body)
    body = (fenced[1] if fenced else body).strip()
    if not tagged and '"location_explanation"' not in body:
        return None
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        raise BadInput(f"the findings are not JSON: {error}", remedy="Write a JSON list of findings.") from None
    if isinstance(value, dict):
        value = value.get("findings", [value])
    if not isinstance(value, list) or not value:
        raise BadInput("there is no finding", remedy="Write a JSON list with at least one.")
    return [finding(item) for item in value]


def with_first(findings: Sequence[Finding], confidence: float) -> list[Finding]:
    """Findings of which the first has this confidence, and the others none: it is calibrated on first places alone."""
    return [replace(f, confidence=None if k else confidence) for k, f in enumerate(findings)]


def _some(names: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + rest if names else STANDALONE


BEFORE = "A diagnosis that was made before you began."
VERIFY = (
    "It may be wrong. Read and verify the files named, look for the tests "
    "concerned, and write a reproduction before you edit anything."
)


def markdown(findings: Sequence[Finding], full: Sequence[bool] | None = None, called: bool = False) -> str:
    """Findings for the prompt of an agent that will repair.

    Args:
        called: the agent asked for them itself.
        full: for each finding whether all of it is shown; where not, its location alone, as a hint. None: all.
    """
    full = [True] * len(findings) if full is None else full
    out = ["## Diagnosis", "", VERIFY if called else f"{BEFORE} {VERIFY}", ""]
    for k, (f, whole) in enumerate(zip(findings, full, strict=True), 1):
        if not whole:
            continue
        out += [
            f"### {k}. `{f.file}` lines {f.start}-{f.end} ({f.sureness})",
            "",
            f"- Location: {f.location_explanation}",
            *([f"- Root cause: {f.root_cause}", f"- Direction of a fix: {f.solution_idea}"] if f.root_cause else []),
            *([f"- Words of the report found there: {', '.join(f.matched)}"] if f.matched else []),
            f"- Depends on it: {_some(f.dependencies)}",
            f"- Tests: {f.testing_impact}",
            "",
        ]
    hints = [f"`{f.file}` lines {f.start}-{f.end}" for f, whole in zip(findings, full, strict=True) if not whole]
    if hints:
        out += ["Places that may be worth a look, unverified: " + "; ".join(hints) + ".", ""]
    return "\n".join(out)
