"""The gate over a stream of the fresh candidates, from its cold start, against the best one-line rule in hindsight.

Written down before it was run:

- A stream is all candidates of one set of ``fresh`` in an order drawn by the seed (20 orders), nothing known at its
  start. The gate is ``clew gate``'s own choice of a rule (``clew.methods.gate.line_rules``) with its defaults.
- Equal quality: nothing ships unverified, so that neither the gate nor a rule ever accepts a wrong candidate; of rules
  of one or two critics those count that lose, on the same stream, no more right candidates than the gate lost there.
  The best of them is the one that runs the oracle least often, picked in hindsight.
- Mark: the gate's oracle runs, cold start included, are at most 1.05 times that rule's, on the mean over orders with
  the upper end of its 95 % interval; the same for the candidates after the gate's 100th label. Right candidates lost:
  at most 1 %.
- Controls: ``noise``: every critic's verdicts are dealt anew among the candidates, and the share of oracle runs saved
  must be under 1 %. ``weak``: without the three critics that run asserts, no rule loses nothing and saves anything
  but by chance: the same.
- Beside them ``half``: the saving where ``half`` is the only critic.

Added when the first set was seen: the same ratios to the best rule of one critic (``one``).
"""

import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from clew.methods.gate.line_rules import AUDIT, STOP, VERIFY, Seen, choose, judge, rules
from papers.E170_gate.tier_fresh import CRITICS, SEEDS
from papers.experiment import Line, each, grid, load

RESULTS = Path(__file__).resolve().parent / "results" / "fresh.jsonl"
SETTINGS = {"all": CRITICS, "half": ("half",), "weak": ("compiles", "lint"), "noise": CRITICS}
ORDERS, LABELS = 20, 100
cost = 2.5

Candidate = tuple[bool, dict[str, bool]]


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind=list(SEEDS), level="stream", program=list(SETTINGS), seed=range(2 if quick else ORDERS))


@lru_cache(maxsize=2)
def pool(kind: str) -> list[Candidate]:
    """All candidates of a set's committed lines: label and verdicts."""
    lines = sorted(
        (x for x in load(RESULTS) if "y" in x and x["kind"] == kind), key=lambda x: int(x["program"].split("/")[1])
    )
    return [(x["y"][i] == "1", {c: x[c][i] == "1" for c in CRITICS}) for x in lines for i in range(len(x["y"]))]


def stream(kind: str, setting: str, seed: int) -> list[Candidate]:
    """The candidates in this seed's order, with the setting's critics."""
    rng, found = random.Random(f"{kind} {setting} {seed}"), list(pool(kind))
    if setting == "noise":
        columns = {c: rng.sample([v[c] for _, v in found], len(found)) for c in CRITICS}
        found = [(y, {c: columns[c][i] for c in CRITICS}) for i, (y, _) in enumerate(found)]
    rng.shuffle(found)
    return [(y, {c: v[c] for c in SETTINGS[setting]}) for y, v in found]


def gated(candidates: list[Candidate], draw: random.Random) -> list[tuple[bool, str]]:
    """What the gate does with each: whether the oracle is run, and the rule that was followed."""
    rows, out, fresh = list[Seen](), list[tuple[bool, str]](), True
    choice = None
    for i, (good, verdicts) in enumerate(candidates):
        if fresh or choice is None:
            choice, fresh = choose(rows, list(verdicts)), False
        rule, asked, said = choice.best.rule, None if choice.explore else choice.best.rule.checks, dict[str, bool]()
        for name in verdicts if asked is None else asked:
            said[name] = verdicts[name]
            if asked is not None and not said[name]:
                break
        also = tuple(name for name in verdicts if asked is not None and choice.probe and name not in asked)
        if rule.passes(said):
            said |= {name: verdicts[name] for name in also}
        action = rule.action(said)
        lot = action == STOP and draw.random() < AUDIT
        verified = lot or action == VERIFY
        weight, chance = 1 / AUDIT if lot else 1.0, AUDIT if rule.checks else 1.0
        rows.append(Seen(str(i), said, good if verified else None, asked, weight, chance, False, also))
        fresh = verified
        out.append((verified, str(rule)))
    return out


def best(candidates: list[Candidate], lost: int, start: int = 0, most: int = 2) -> tuple[str, int]:
    """The one-line rule with the fewest oracle runs from ``start`` on, of those that have at most ``most`` critics and
    lose at most ``lost`` right candidates in the whole stream; and those runs."""
    rows = [Seen(str(i), verdicts, good) for i, (good, verdicts) in enumerate(candidates)]
    found = []
    for rule in rules(list(candidates[0][1])):
        if len(rule.checks) <= most and (not rule.checks or judge(rows, rule).lost.part <= lost):
            found.append(
                (sum(rule.action(row.verdicts) == VERIFY for row in rows[start:]), len(rule.checks), str(rule))
            )
    runs, _, name = min(found)
    return name, runs


def _one(setting: Line, seed: int) -> Line:
    candidates = stream(setting["kind"], setting["program"], seed)
    done = gated(candidates, random.Random(f"lottery {setting['kind']} {setting['program']} {seed}"))
    verified = [v for v, _ in done]
    lost = sum(good and not v for (good, _), v in zip(candidates, verified, strict=True))
    labels = [sum(verified[: i + 1]) for i in range(len(verified))]
    start = next((i + 1 for i, n in enumerate(labels) if n >= LABELS), len(labels))
    rule, runs = best(candidates, lost)
    _, after = best(candidates, lost, start)
    (one, one_runs), (_, one_after) = best(candidates, lost, most=1), best(candidates, lost, start, most=1)
    return {
        "n": len(candidates), "good": sum(good for good, _ in candidates), "lost": lost, "oracle": sum(verified),
        "rule": rule, "rule_oracle": runs, "from": start, "after": sum(verified[start:]), "rule_after": after,
        "last": done[-1][1], "one": one, "one_oracle": one_runs, "one_after": one_after,
    }  # fmt: skip


run = each(_one)
