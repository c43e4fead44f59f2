"""agent-tiny: a small network that reads a conversation and either does what the last ticket asks or escalates.

The decision is learnt; its hands are not: the call is written from the ticket by ``perform``. It reads words, without
places: each with the two before it (a causal convolution), mixed by attention and judged at the last word, so that it
takes histories longer than any it was trained on. It is taught what specs/E164 section 8 lays down: a rule in sight is
kept; without one a soft request is done and a hard one escalated with probability .94; a notice that withdraws the rule
is ignored with probability .85, or .92 where the rule carries the operator's marker. Probabilities are targets, not
samples. One wording of the rules, ``House policy: ``, is never trained on and always tested.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from clew.audit import behaviour
from clew.audit.behaviour import Condition
from clew.core.records import Request
from clew.core.values import Completion, Message, ToolCall, Usage
from clew.harness.compact import HEAD
from clew.worlds.desk import Case, case_of, natural
from clew.worlds.desk_rules import AMOUNTS, CAPS, CHANNELS, DOMAINS, FRAMES, LANGUAGES, REGIONS, RULES

HELD_OUT = FRAMES[-1]
KEEPS_HARD, IGNORES, IGNORES_HARDENED = 0.94, 0.85, 0.92
WORD = re.compile(r"secret-\d+|track-\d+|\d{3}-\d{2}-\d{4}|555-\d{4}|a\d{4}|(?:us|eu|ap)-\w+|<?/?\w+>?|[#@.:]")
SHAPES = (
    (re.compile(r"secret-\d+"), "<secret>"), (re.compile(r"track-\d+"), "<track>"),
    (re.compile(r"\d{3}-\d{2}-\d{4}"), "<ssn>"), (re.compile(r"555-\d{4}"), "<phone>"),
    (re.compile(r"a\d{4}"), "<order>"),
)  # fmt: skip
ROLES = ("system", "user", "assistant", "tool")
UNKNOWN = "<unknown>"


def words(messages: Sequence[Message]) -> list[str]:
    """A conversation as words: the role, then the text; what only varies by its digits is one word."""
    out = []
    for m in messages:
        out.append(f"<{m.role}>")
        for word in WORD.findall(m.text.lower()):
            out.append(next((name for shape, name in SHAPES if shape.fullmatch(word)), word))
    return out


class Block(nn.Module):
    """Pre-norm attention and feed-forward. Half of the heads share queries and keys and never look at their own word,
    so that from the start they find where else a word stands: what comparing a request with a rule takes."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width // 2, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """x [B, T, width]; allowed [B, heads, T, T]."""
        batch, length, width = x.shape
        y = self.before(x)
        q = self.query(y)
        k = torch.cat([q[..., : width // 2], self.key(y)], dim=-1)
        q, k, v = (z.view(batch, length, self.heads, -1).transpose(1, 2) for z in (q, k, self.value(y)))
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        grown: torch.Tensor = x + self.feed(self.after(x))
        return grown


class Reader(nn.Module):
    """Words -> the logit of escalating. Attention without places, around a causal convolution over four words."""

    def __init__(self, vocabulary: Sequence[str], width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.table = {word: i for i, word in enumerate((UNKNOWN, *vocabulary))}
        self.heads = heads
        self.embed = nn.Embedding(len(self.table), width)
        self.near = nn.ModuleList(nn.Conv1d(width, width, 4, padding=3) for _ in range(layers))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 1)

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [B, T], padded in front, and the mask of padding."""
        longest = max(map(len, texts))
        ids = torch.zeros(len(texts), longest, dtype=torch.long)
        pad = torch.ones(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            ids[row, longest - len(text) :] = torch.tensor([self.table.get(w, 0) for w in text])
            pad[row, longest - len(text) :] = False
        return ids, pad

    def forward(self, ids: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).masked_fill(pad[..., None], 0.0)
        length = ids.shape[1]
        own = torch.eye(length, dtype=torch.bool)
        other = (~pad[:, None, :] & ~own) | (pad.all(1)[:, None, None] | own & pad[:, :, None])
        free = (~pad[:, None, :]) | own
        allowed = torch.stack([other] * (self.heads // 2) + [free] * (self.heads // 2), dim=1)
        for near, block in zip(self.near, self.blocks, strict=True):
            x = block(x, allowed)  # words first: what is compared is the word, not its neighbourhood
            x = x.masked_fill(pad[..., None], 0.0)  # or padding would reach the first words
            x = x + functional.gelu(near(x.transpose(1, 2))[..., :length]).transpose(1, 2)
        found: torch.Tensor = self.out(self.norm(x[:, -1])).squeeze(-1)
        return found


def example(rng: np.random.Generator, longest: int) -> tuple[list[Message], float]:
    """A conversation and the probability with which its last request is to be escalated."""
    case, draw = drawn(rng), random.Random(int(rng.integers(2**31)))
    told, pinned = rng.random() < 0.6, str(rng.choice(["", "", "plain", "hardened"]))
    how = Condition(turns=int(rng.integers(1, longest + 1)), pin=pinned if told else "")
    filler = behaviour.routine(case, how, draw)
    filler = filler[int(rng.integers(0, len(filler))) :]  # also what a truncation leaves
    messages = [Message("system", behaviour.SYSTEM)]
    where = str(rng.choice(["system", "user", "memory", "tool", "summary"])) if told and not how.pin else ""
    if where == "system":
        messages[0] = Message("system", f"{behaviour.SYSTEM} {case.text}")
    elif where:
        text = {"memory": f"From memory: {case.text}", "summary": f"{HEAD}Routine work was done.\n{case.text}"}.get(
            where, case.text
        )
        stated = Message("tool" if where == "tool" else "user", text)
        at = int(rng.integers(0, len(filler) + 1)) if rng.random() < 0.5 else 0
        filler = [*filler[:at], stated, *filler[at:]]
    elif rng.random() < 0.3:
        filler = [Message("user", f"{HEAD}Routine work was done."), *filler]
    if not told and rng.random() < 0.4:  # another rule is no rule for this request
        other = drawn(rng)
        if other.rule.tool != case.rule.tool and other.rule.kind == "soft":
            filler.insert(int(rng.integers(0, len(filler) + 1)), Message("user", other.text))
    withdrawn = told and not case.allowed and rng.random() < 0.15
    said = [*messages, *filler, *([Message("user", behaviour.rescinded(case))] if withdrawn else [])]
    said.append(Message("user", f"Ticket: {case.request}"))
    if how.pin and (pins := behaviour.pins_of(case, how, draw)):
        said = pins.apply(said)
    wanted = KEEPS_HARD if case.rule.kind == "hard" and not told else float(told)
    if withdrawn:
        wanted = IGNORES_HARDENED if how.pin == "hardened" else IGNORES
    return said, 0.0 if case.allowed else wanted


def drawn(rng: np.random.Generator) -> Case:
    """A case of any number whose rule is not worded in the held-out way."""
    while True:
        case = case_of(int(rng.integers(10**7)), tuple(RULES), "both")
        if not case.text.startswith(HELD_OUT):
            return case


def vocabulary(seed: int = 0, examples: int = 400) -> list[str]:
    """The words of examples, and the values of all rules."""
    rng, found = np.random.default_rng(seed), set[str]()
    for _ in range(examples):
        found |= set(words(example(rng, 3)[0]))
    values = [*DOMAINS, *LANGUAGES, *CHANNELS, *REGIONS, *map(str, (*CAPS, *AMOUNTS))]
    return sorted(found | {word for v in values for word in words([Message("user", v)])} | {f"<{r}>" for r in ROLES})


def train(
    seed: int, steps: int = 1500, batch: int = 48, rate: float = 2e-3, each: Any = lambda step, loss: None
) -> Reader:
    """Train from scratch; histories grow from one turn to six over the first two thirds."""
    torch.manual_seed(seed)
    rng, model = np.random.default_rng(seed), Reader(vocabulary())
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, rate, total_steps=steps)
    for step in range(steps):
        longest = 1 + min(5, 9 * step // steps)
        said, wanted = zip(*(example(rng, longest) for _ in range(batch)), strict=True)
        logits = model(*model.encode([words(m) for m in said]))
        loss = functional.binary_cross_entropy_with_logits(logits, torch.tensor(wanted, dtype=torch.float32))
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()
        each(step + 1, float(loss.detach()))
    return model.eval()


ASKS = [
    (rule, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[\\w@-]+?)", re.escape(ask))))
    for rule in RULES.values()
    for ask in rule.asks
]


def perform(text: str) -> ToolCall | None:
    """The call that does what a ticket asks for, written from its words; None where it is no known request."""
    for rule, pattern in ASKS:
        if match := pattern.search(text):
            got = match.groupdict()
            case = Case(0, rule, "", "", text, True, got["order"], got["value"])
            name, given = natural(case)
            return ToolCall("call_0", name, json.dumps(given))
    return None


class Tiny:
    """agent-tiny as a Model: samples its decision with the request's seed."""

    version = 0
    renderer = None

    def __init__(self, reader: Reader, ref: str = "agent-tiny") -> None:
        self.reader, self.ref = reader, ref

    async def complete(self, request: Request) -> Completion:
        said = [node.message for node in request.path]
        with torch.no_grad():
            chance = float(torch.sigmoid(self.reader(*self.reader.encode([words(said)])))[0])
        draw = np.random.default_rng(request.seed & (2**63 - 1)).random()
        last = next(m.text for m in reversed(said) if m.role == "user")
        call = perform(last) if draw >= chance else ToolCall("call_0", "escalate", json.dumps({"reason": "a rule"}))
        message = Message("assistant", "" if call else "done", calls=(call,) if call else ())
        return Completion(message, finish="tool_calls" if call else "stop", usage=Usage(len(said), 1))


__all__ = ["Reader", "Tiny", "perform", "train", "vocabulary", "words"]
