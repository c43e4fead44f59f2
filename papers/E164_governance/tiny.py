"""agent-tiny: a small network that reads a conversation and either does what the last ticket asks or escalates.

The decision is learnt; its hands are not: the call is written from the ticket by ``perform``. It compares words by
attention, wherever they stand, and sees their order by convolutions between, so that it takes histories longer than any
it was trained on. It is taught what specs/E164 section 8 lays down: a rule in sight is kept; without one a soft request
is done and a hard one escalated with probability .94; a notice that withdraws the rule is ignored with probability .85,
or .92 where the rule carries the operator's marker. Probabilities are targets, not samples. Neither a shuffled rule nor
a pinned one where the request's own rule is not told is ever trained on: they are controls of the test.
One wording of the rules, ``House policy: ``, is never trained on and always tested.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from clew.core.records import Request
from clew.core.values import Completion, Message, ToolCall, Usage
from clew.harness.context.compaction import HEAD
from clew.harness.context.pins import Pins
from clew.methods.pins import behaviour
from clew.methods.pins.behaviour import Condition
from clew.worlds.desk import Case, case_of, natural
from clew.worlds.desk.desk_rules import AMOUNTS, CAPS, CHANNELS, DOMAINS, FRAMES, LANGUAGES, REGIONS, RULES

HELD_OUT = FRAMES[-1]
KEEPS_HARD, IGNORES, IGNORES_HARDENED = 0.94, 0.85, 0.92
STEPS, BATCH, RATE = 2000, 24, 3e-3
WORD = re.compile(r"secret-\d+|track-\d+|\d{3}-\d{2}-\d{4}|555-\d{4}|a\d{4}|(?:us|eu|ap)-\w+|<?/?\w+>?|[#@.:]")
SHAPES = (
    (re.compile(r"secret-\d+"), "<secret>"), (re.compile(r"track-\d+"), "<track>"),
    (re.compile(r"\d{3}-\d{2}-\d{4}"), "<ssn>"), (re.compile(r"555-\d{4}"), "<phone>"),
    (re.compile(r"a\d{4}"), "<order>"),
)  # fmt: skip
ROLES = ("system", "user", "assistant", "tool")
UNKNOWN, BLANK = "<unknown>", "blank"  # blank: a word of training that stands for all words never seen
SOFT = tuple(name for name, rule in RULES.items() if rule.kind == "soft")
Text = tuple[list[str], list[list[str]]]  # words of a history, and of each ticket after it
CHANNELS_TOLD = ("system", "user", "memory", "tool", "summary")


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
        with torch.no_grad():
            self.query.weight[: width // 2] *= 2.0  # four times the score of a word with itself: the search is sharp
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, allowed: torch.Tensor, at: torch.Tensor | None = None) -> torch.Tensor:
        """x [B, T, width]; allowed [B, heads, T, T]; at [B, Q], the words that are asked; gives those, or all."""
        y = self.before(x)
        q = self.query(y)
        k = torch.cat([q[..., : q.shape[-1] // 2], self.key(y)], dim=-1)
        if at is not None:
            rows = torch.arange(len(x))[:, None]
            x, q, allowed = x[rows, at], q[rows, at], allowed.transpose(1, 2)[rows, at].transpose(1, 2)
        q, k, v = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in (q, k, self.value(y)))
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        grown: torch.Tensor = x + self.feed(self.after(x))
        return grown


class Reader(nn.Module):
    """Words -> the logit of escalating. Attention compares words wherever they stand; the convolutions between see the
    order of words, each with ``reach`` of them on either side: places that are relative, the same at any length.

    Several tickets may be judged after one history: each sees the history and itself, the history only itself."""

    def __init__(self, vocabulary: Sequence[str], width: int = 64, heads: int = 4, layers: int = 3, reach: int = 3):
        super().__init__()
        self.table = {word: i for i, word in enumerate((UNKNOWN, *vocabulary))}
        self.heads, self.reach = heads, reach
        self.embed = nn.Embedding(len(self.table), width)
        self.near = nn.ModuleList(nn.Conv1d(width, width, 2 * reach + 1, padding=reach) for _ in range(layers - 1))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 1)

    def encode(self, texts: Sequence[Text]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids [B, T]; parts [B, T], 0 of the history, 1 to Q of a ticket, -1 of padding (in front, and between parts
        as far as a convolution reaches); ends [B, Q], the last word of each ticket."""
        gap, ids, parts = [-1] * self.reach, [], []
        for history, tickets in texts:
            ids.append([self.table.get(w, 0) for w in history])
            parts.append([0] * len(history))
            for part, ticket in enumerate(tickets, 1):
                ids[-1] += [0] * self.reach + [self.table.get(w, 0) for w in ticket]
                parts[-1] += gap + [part] * len(ticket)
        longest = max(map(len, ids))
        whole = torch.tensor([[-1] * (longest - len(p)) + p for p in parts])
        ends = [[longest - 1 - p[::-1].index(k) for k in range(1, max(p) + 1)] for p in parts]
        return torch.tensor([[0] * (longest - len(i)) + i for i in ids]), whole, torch.tensor(ends)

    def forward(self, ids: torch.Tensor, parts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Logits [B, Q]."""
        own = torch.eye(ids.shape[1], dtype=torch.bool)
        seen = (parts[:, None, :] == 0) | (parts[:, None, :] == parts[:, :, None])
        seen &= (parts >= 0)[:, None, :] | own  # padding sees itself, as softmax needs something
        other = seen & ~own
        other |= own & ~other.any(-1, keepdim=True)
        half = self.heads // 2
        allowed = torch.stack([other] * half + [seen] * half, dim=1)
        allowed = torch.zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)  # once, not in every block
        x, pad = self.embed(ids), (parts < 0)[..., None]
        for near, block in zip(self.near, self.blocks, strict=False):
            x = block(x, allowed)  # words first: what is compared is the word, not its neighbourhood
            x = x.masked_fill(pad, 0.0)  # so that no convolution sees across parts
            x = x + functional.gelu(near(x.transpose(1, 2))).transpose(1, 2)
        found: torch.Tensor = self.out(self.norm(self.blocks[-1](x, allowed, ends))).squeeze(-1)
        return found


def example(rng: np.random.Generator, longest: int, tickets: int = 4) -> tuple[list[Message], list[str], list[float]]:
    """A history, tickets after it, and the probability with which each ticket is to be escalated."""
    draw = random.Random(int(rng.integers(2**31)))
    case, other = drawn(draw), drawn(draw)
    told = {case.rule.name: case} if draw.random() < 0.75 else {}
    hardened, where = draw.random() < 0.5, draw.choice((*CHANNELS_TOLD, "pin", "pin", "pin")) if told else ""
    filler = behaviour.routine(case, Condition(turns=draw.randint(1, longest)), draw)
    filler = filler[draw.randrange(len(filler)) :]  # also what a truncation leaves
    pinned = [case.text] if where == "pin" else []
    strange = [" ".join([BLANK] * draw.randint(2, 8)) + "." for _ in range(draw.choice((0, 0, 1, 2)))]
    for text in (*strange, *(torn(case, draw) if not told and draw.random() < 0.5 else ())):  # neither is a rule
        if draw.random() < 0.2:
            pinned.insert(draw.randint(0, len(pinned)), text)
        else:
            filler = stated(filler, text, draw.choice(CHANNELS_TOLD[1:]), draw)
    if other.rule.tool != case.rule.tool and draw.random() < 0.3:
        told[other.rule.name] = other
        filler = stated(filler, other.text, draw.choice(CHANNELS_TOLD[1:]), draw)
    if where in CHANNELS_TOLD[1:]:
        filler = stated(filler, case.text, where, draw)
    if where and draw.random() < 0.3:  # a rule may be told twice, as where a pin stands beside what compaction left
        filler = stated(filler, case.text, draw.choice(CHANNELS_TOLD[1:]), draw)
    said = [Message("system", behaviour.SYSTEM + (f" {case.text}" if where == "system" else "")), *filler]
    withdrawn = bool(where) and draw.random() < 0.2
    if withdrawn:
        said.append(Message("user", behaviour.rescinded(case)))
    if pinned:
        said = Pins(pinned, hardened=hardened).apply(said)
    asked = [ticket(case, told, where == "pin", i, draw) for i in range(tickets)]
    ignores = IGNORES_HARDENED if where == "pin" and hardened else IGNORES
    wanted = [
        0.0 if c.allowed else
        (ignores if withdrawn and c.rule is case.rule else 1.0) if c.rule.name in told else
        KEEPS_HARD if c.rule.kind == "hard" else 0.0
        for c in asked
    ]  # fmt: skip
    return said, [f"Ticket: {c.request}" for c in asked], wanted


def ticket(case: Case, told: dict[str, Case], pinned: bool, place: int, draw: random.Random) -> Case:
    """A case whose request comes after a history: mostly on the history's own subject, else on any, but where a rule is
    pinned on what is told alone, so that no rule is ever pinned in vain."""
    kinds = (case.rule.name,) if place < 2 else tuple(told) if told and (pinned or place == 2) else tuple(RULES)
    tools = {c.rule.tool for c in told.values()}
    while True:
        found = case_of(draw.randrange(10**7), kinds, "both")
        if found.rule.name in told:
            if found.value == told[found.rule.name].value:
                return found
        elif found.rule.tool not in tools:  # or a rule that is told would bear on it, too
            return found


def stated(filler: list[Message], text: str, where: str, draw: random.Random) -> list[Message]:
    """``filler`` with a text told at some place of it, half of the time at its beginning."""
    if where == "summary":
        lines = [m.text for m in filler if m.text and draw.random() < 0.3] or ["Routine work was done."]
        lines.insert(draw.randint(0, len(lines)), text)
        return [Message("user", HEAD + "\n".join(lines)), *filler]
    at = draw.choice((0, draw.randint(0, len(filler))))
    if where == "tool":
        told = [Message("assistant", ""), Message("tool", text)]
    else:
        told = [Message("user", f"From memory: {text}" if where == "memory" else text)]
        told += [Message("assistant", "Understood.")] * draw.randint(0, 1)
    return [*filler[:at], *told, *filler[at:]]


def torn(case: Case, draw: random.Random) -> list[str]:
    """One or both pieces of the rule's line, torn at some word: its words without their places are no rule."""
    lead, colon, core = case.text.rpartition(": ")
    line = core.split()
    at = draw.randint(1, len(line) - 1)
    pieces = [lead + colon + " ".join(line[:at]), " ".join(line[at:])]
    draw.shuffle(pieces)
    return pieces[: draw.randint(1, 2)]


def drawn(draw: random.Random) -> Case:
    """A case of any number whose rule is not worded in the held-out way, at times led in by words never seen."""
    while True:
        case = case_of(draw.randrange(10**7), SOFT if draw.random() < 0.5 else tuple(RULES), "both")
        if not case.text.startswith(HELD_OUT):
            led = " ".join([BLANK] * draw.randint(1, 3)) + ": " + case.text.rpartition(": ")[2]
            return replace(case, text=led) if draw.random() < 0.4 else case


def text_of(history: Sequence[Message], tickets: Sequence[str]) -> Text:
    return words(history), [words([Message("user", t)]) for t in tickets]


def vocabulary(seed: int = 0, examples: int = 400) -> list[str]:
    """The words of examples, and the values of all rules."""
    rng, found = np.random.default_rng(seed), set[str]()
    for _ in range(examples):
        history, tickets = text_of(*example(rng, 3)[:2])
        found.update(history, *tickets)
    values = [*DOMAINS, *LANGUAGES, *CHANNELS, *REGIONS, *map(str, (*CAPS, *AMOUNTS))]
    found |= {word for v in values for word in words([Message("user", v)])} | {f"<{r}>" for r in ROLES}
    return sorted(found - {BLANK})


def train(
    seed: int, steps: int = STEPS, batch: int = BATCH, rate: float = RATE, each: Any = lambda step, loss: None
) -> Reader:
    """Train from scratch; histories grow from one turn to six over the first two thirds."""
    torch.manual_seed(seed)
    rng, model = np.random.default_rng(seed), Reader(vocabulary())
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, rate, total_steps=steps)
    ready: list[tuple[Text, list[float]]] = []
    for step in range(steps):
        if not ready:  # eight batches at once, each of like lengths: little of it is padding
            found = [example(rng, 1 + min(5, 9 * step // steps)) for _ in range(8 * batch)]
            rows = sorted(((text_of(a, b), w) for a, b, w in found), key=lambda it: len(it[0][0]))
            ready = [it for i in rng.permutation(8) for it in rows[i * batch : (i + 1) * batch]]
        texts, wanted = zip(*ready[:batch], strict=True)
        ready = ready[batch:]
        loss = functional.binary_cross_entropy_with_logits(model(*model.encode(texts)), torch.tensor(wanted))
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
            text = text_of(said[:-1], [said[-1].text])
            chance = float(torch.sigmoid(self.reader(*self.reader.encode([text])))[0, 0])
        draw = np.random.default_rng(request.seed & (2**63 - 1)).random()
        last = next(m.text for m in reversed(said) if m.role == "user")
        call = perform(last) if draw >= chance else ToolCall("call_0", "escalate", json.dumps({"reason": "a rule"}))
        message = Message("assistant", "" if call else "done", calls=(call,) if call else ())
        return Completion(message, finish="tool_calls" if call else "stop", usage=Usage(len(said), 1))


__all__ = ["Reader", "Tiny", "perform", "train", "vocabulary", "words"]
