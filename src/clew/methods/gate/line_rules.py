"""One-line rules: which cheap checks decide whether the oracle is run, and what each rule would have saved and lost.

``clew gate`` chooses with ``choose`` the rule that it follows, from candidates whose verdicts are known: its own past
runs, or those that a project already has. A rule is never trusted on faith: it may leave the oracle out only after
enough good candidates were seen that it would not have stopped, and a lottery keeps looking at what it stops. This
module must never run a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, lgamma
from typing import NamedTuple

from clew.core.errors import need

VERIFY, SHIP, STOP, REFINE = "verify", "ship", "stop", "refine"
ENOUGH = 20  # labelled candidates of each class until which every critic is run on every candidate
MANY = 400  # labels until which every critic is run before the oracle is, to find a second one that is worth its time
LOSE = 0.01  # share of the good candidates that a rule may be expected to stop
AUDIT = 0.02  # share of the stopped candidates that are verified all the same
PAIRED = 8  # critics, those that stop most, of which two may make a rule
SIGN = 0.01  # chance of a critic without signal to look as telling as it did


class Seen(NamedTuple):
    """A candidate with what is known of it.

    content: what tells candidates apart; one content counts once. verdicts: of the critics that gave one. good: the
    oracle's verdict, None where it gave none. asked: the critics of the rule that was followed, of which none was run
    after the first that failed; None where every critic was run. also: those that were run beside them where all of
    them passed. weight: one over the chance with which this candidate was
    verified. chance: the one with which a candidate was verified, at that time, that the rule stopped. invented: a
    mutant, which says nothing of how often good candidates come.
    """

    content: str
    verdicts: Mapping[str, bool]
    good: bool | None
    asked: tuple[str, ...] | None = None
    weight: float = 1.0
    chance: float = 1.0
    invented: bool = False
    also: tuple[str, ...] = ()


class Rule(NamedTuple):
    """A rule that fits in one line of shell: the oracle is run where all these critics pass.

    checks: the critics, in the order in which they are run; none: every candidate is verified. ships: what passes them
    is shipped without the oracle, and everything else is verified.
    """

    checks: tuple[str, ...] = ()
    ships: bool = False

    def __str__(self) -> str:
        if not self.checks:
            return "verify always"
        passing = f"{' and '.join(self.checks)} {'pass' if len(self.checks) > 1 else 'passes'}"
        return f"ship unverified if {passing}, else verify" if self.ships else f"verify if {passing}"

    def passes(self, verdicts: Mapping[str, bool]) -> bool | None:
        """Whether all its critics pass; None where one that gave no verdict would decide it."""
        said = [verdicts.get(name) for name in self.checks]
        return False if False in said else None if None in said else True

    def action(self, verdicts: Mapping[str, bool]) -> str:
        """What it does with a candidate; where a critic gave no verdict, it verifies."""
        passed = self.passes(verdicts)
        if passed is None or not self.checks:
            return VERIFY
        if self.ships:
            return SHIP if passed else VERIFY
        return VERIFY if passed else STOP

    def knows(self, seen: Seen) -> bool:
        """Whether a candidate says, without bias, what this rule does: its critics were run, or left out only where
        another of its critics had failed."""
        if seen.asked is None or self.checks == seen.asked[: len(self.checks)]:
            return True
        return {*seen.asked} <= {*self.checks} <= {*seen.asked, *seen.also}


@dataclass(frozen=True, slots=True)
class Share:
    """A share of ``n`` (of unequal weight: of as many as they are worth), with its central 95 % interval."""

    part: float
    n: float

    @property
    def value(self) -> float:
        return self.part / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of the Beta posterior after Jeffreys' prior."""
        low, high = need("scipy.stats", "stats").beta.ppf([0.025, 0.975], self.part + 0.5, self.n - self.part + 0.5)
        return (0.0 if self.part == 0 else float(low)), (1.0 if self.part == self.n else float(high))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.0%} [{low:.0%}, {high:.0%}]"


class Found(NamedTuple):
    """What a rule would have done with the candidates that were seen.

    saved: candidates on which the oracle is left out, of all. lost: good candidates that are stopped, of the good ones
    (of a rule that ships: broken ones that are shipped, of those shipped). risk: the share that is to be expected,
    after what was seen. telling: the chance that critics without signal look like this. usable: whether it may be
    followed.
    """

    rule: Rule
    saved: Share
    lost: Share
    risk: float
    telling: float
    usable: bool
    spares: float = 0.0

    def __str__(self) -> str:
        if self.rule.ships:
            what = f"broken among the shipped {self.lost.part:.0f} of {self.lost.n:.0f}"
        else:
            what = f"good ones lost {self.lost.part:.0f} of {self.lost.n:.0f}"
        return f"{self.rule}: oracle runs saved {self.saved}; {what}, expected {self.risk:.1%}"


def once(rows: Iterable[Seen]) -> list[Seen]:
    """Each content once, where it was first seen: a label is kept, the later of two labels counts, and a critic that
    said different things of one content has said nothing."""
    found: dict[str, Seen] = {}
    for row in rows:
        old = found.get(row.content)
        if old is None:
            found[row.content] = row
            continue
        clash = {n for n, z in row.verdicts.items() if old.verdicts.get(n, z) != z}
        first, last = (old, row) if row.good is not None or old.good is None else (row, old)
        both = {n: z for n, z in {**first.verdicts, **last.verdicts}.items() if n not in clash}
        found[row.content] = last._replace(verdicts=both)
    return list(found.values())


def since_surprise(rows: Sequence[Seen]) -> Sequence[Seen]:
    """The candidates from the last one on that the lottery showed to be good though the rule had stopped it: what was
    seen before no longer speaks for how critics fare now."""
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        if row.weight > 1 and row.asked and (row.good is (Rule(row.asked).passes(row.verdicts) is False)):
            return rows[i:]
    return rows


def thin(rows: Iterable[Seen], critics: Sequence[str]) -> bool:
    """Whether every critic is to be run: of one, fewer than ``ENOUGH`` candidates of a class were seen."""
    full = [row for row in rows if row.good is not None and row.asked is None]
    for name in critics:
        labels = [row.good for row in full if name in row.verdicts]
        if min(labels.count(True), labels.count(False)) < ENOUGH:
            return True
    return False


def expected(found: int, exposure: float, checks: int) -> float:
    """The share of good candidates that a rule is to be expected to stop.

    Half of all critics, it is assumed beforehand, are a part of the oracle or as good as one, and never fail a good
    candidate; of the others any rate is as likely as another (a rule of two critics: a quarter). After ``exposure``
    good candidates of which none was stopped this is (1 - s) / ((g + 2) (s g + 1)) with s = 2 ** -checks; after
    ``found`` that were, the second kind alone is left, and it is (x + 1) / (g + 2).
    """
    if found:
        return (found + 1) / (exposure + 2)
    s = 0.5**checks
    return (1 - s) / ((exposure + 2) * (s * exposure + 1))


def by_chance(hits: int, n: int, others: int, m: int) -> float:
    """The chance that ``hits`` or more of the ``n`` + ``m`` marks fall on these ``n``, were they dealt blindly
    (Fisher, exact, one-sided)."""
    marks = hits + others
    whole = _log_ways(n + m, marks)
    ways = (_log_ways(n, k) + _log_ways(m, marks - k) - whole for k in range(hits, min(n, marks) + 1))
    return min(1.0, sum(map(exp, ways)))


def _log_ways(n: int, k: int) -> float:
    """The logarithm of the number of ways to choose ``k`` of ``n``."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def judge(rows: Iterable[Seen], rule: Rule, lose: float = LOSE, wrong: float = 0.0,
          seconds: Mapping[str, float] | None = None) -> Found:  # fmt: skip
    """What a rule would have done with these candidates, each content counted once already.

    Args:
        lose: share of the good ones that may be expected to be stopped. wrong: share of what is shipped unverified
            that may be expected to be broken.
        seconds: running time of each critic and of ``verify``.
    """
    return _judge(_tally(rows), rule, lose, wrong, seconds or {})


Tally = list[tuple[Seen, int]]  # candidates of which the same is known, and how many there are


def _tally(rows: Iterable[Seen]) -> Tally:
    counts: dict[tuple[object, ...], tuple[Seen, int]] = {}
    for row in rows:
        key = (frozenset(row.verdicts.items()), *row[2:])
        counts[key] = (row, counts[key][1] + 1 if key in counts else 1)
    return list(counts.values())


def _judge(rows: Tally, rule: Rule, lose: float, wrong: float, seconds: Mapping[str, float]) -> Found:
    known = [(r, n, p) for r, n in rows if rule.knows(r) if (p := rule.passes(r.verdicts)) is not None]
    labelled = [(r, n, p) for r, n, p in known if r.good is not None]
    good = [(r, n, p) for r, n, p in labelled if r.good]
    saved, telling = _saved(rows, rule), _telling([(r, n) for r, n, _ in labelled], rule)
    if rule.ships:
        bad = sum(n for r, n, p in labelled if p and not r.good)
        shipped = sum(n for _, n, p in labelled if p)
        exposure = sum(n * r.chance for r, n, p in good if p) + bad
        lost, risk, bound = Share(bad, shipped), (bad + 1) / (exposure + 2), wrong
    else:
        stopped, whole = sum(n for _, n, p in good if not p), sum(n * r.weight for r, n, _ in good)
        # Kish: candidates of unequal weight count for fewer
        worth = whole**2 / sum(n * r.weight**2 for r, n, _ in good) if good else 0.0
        part = sum(n * r.weight for r, n, p in good if not p) / whole * worth if good else 0.0
        exposure = sum(n * r.chance for r, n, p in good if p) + stopped
        lost, risk, bound = Share(part, worth), expected(stopped, exposure, len(rule.checks)), lose
    usable = not rule.checks or (risk <= bound and telling <= SIGN)
    spent = _spent(rule, [(r, n) for r, n, _ in known if not r.invented], seconds)
    spares = saved.value * seconds.get(VERIFY, 0.0) - spent
    return Found(rule, saved, lost, risk if rule.checks else 0.0, telling, usable, spares)


def _saved(rows: Tally, rule: Rule) -> Share:
    """The share on which a rule leaves the oracle out: of what passes its first critic, what fails its second is
    counted wherever both were run. The first is the one that was run on most candidates."""
    rows = [(r, n) for r, n in rows if not r.invented]
    if not rule.checks:
        return Share(0.0, sum(n for _, n in rows))
    alone = {c: [(r, n) for r, n in rows if c in r.verdicts and Rule((c,)).knows(r)] for c in rule.checks}
    most, passing, before = 0, 1.0, list[str]()
    for name in sorted(rule.checks, key=lambda c: -sum(n for _, n in alone[c])):
        both = [(r, n) for r, n in rows if name in r.verdicts and all(r.verdicts.get(o) for o in before)]
        here = both if before else alone[name]
        count = sum(n for _, n in here)
        passing *= sum(n for r, n in here if r.verdicts[name]) / count if count else 1.0
        most = most or count
        before.append(name)
    return Share((passing if rule.ships else 1 - passing) * most, most)


def _telling(labelled: Tally, rule: Rule) -> float:
    """The chance that critics without signal look like these: of each where the rule's others pass, the largest."""
    worst = 0.0
    for name in rule.checks:
        counts = {(good, said): 0 for good in (True, False) for said in (True, False)}
        for row, n in labelled:
            if name in row.verdicts and all(row.verdicts.get(other) for other in rule.checks if other != name):
                counts[bool(row.good), row.verdicts[name]] += n
        broken, good = ((counts[y, False], counts[y, False] + counts[y, True]) for y in (False, True))
        worst = max(worst, by_chance(*broken, *good))
    return worst


def _spent(rule: Rule, rows: Tally, seconds: Mapping[str, float]) -> float:
    """Seconds that a rule's critics take on a candidate: each is run where those before it passed."""
    total = 0.0
    for row, n in rows:
        for name in rule.checks:
            total += n * seconds.get(name, 0.0)
            if row.verdicts.get(name) is False:
                break
    return total / sum(n for _, n in rows) if rows else 0.0


def rules(critics: Sequence[str], pairs: Sequence[str] | None = None, wrong: float = 0.0) -> list[Rule]:
    """All one-line rules of one critic, or of two of ``pairs``, beside the one that verifies always."""
    several = [*((name,) for name in critics), *combinations(critics if pairs is None else pairs, 2)]
    return [Rule(), *map(Rule, several), *(Rule(checks, True) for checks in several if wrong > 0)]


class Choice(NamedTuple):
    """The rule to follow now, and what there is to say of every rule, best first. explore: every critic is to be run on
    the next candidate. probe: every critic is to be run where those of the rule have passed."""

    best: Found
    all: list[Found]
    explore: bool
    probe: bool


def choose(rows: Sequence[Seen], critics: Sequence[str], lose: float = LOSE, wrong: float = 0.0,
           seconds: Mapping[str, float] | None = None, by: str = "runs") -> Choice:  # fmt: skip
    """The usable rule that leaves out most oracle runs (``by`` seconds: that spares most running time).

    Args:
        rows: what was seen, in its order; a content may occur more than once.
        critics: those that may be used now.
    """
    rows, pairs = since_surprise(once(rows)), None
    tally = _tally(rows)
    if len(critics) > PAIRED:
        alone = {name: _saved(tally, Rule((name,))).value for name in critics}
        pairs = sorted(critics, key=lambda name: -alone[name])[:PAIRED]
    found = [_judge(tally, rule, lose, wrong, seconds or {}) for rule in rules(critics, pairs, wrong)]
    gain = {f.rule: f.spares if by == "seconds" else f.saved.value for f in found}
    found.sort(key=lambda f: (not f.usable, -gain[f.rule], len(f.rule.checks)))
    probe = sum(row.good is not None for row in rows) < MANY
    return Choice(found[0], found, thin(rows, critics) or any(map(_open, found)), probe)


def _open(found: Found) -> bool:
    """Whether more candidates could make a critic usable: it has stopped something, and none that was good."""
    one = len(found.rule.checks) == 1 and not found.rule.ships
    return one and not found.usable and found.saved.part > 0 and found.lost.part == 0


def held_out(rows: Sequence[Seen], critics: Sequence[str], **how: float | str | Mapping[str, float] | None) -> Found:
    """What choosing brings on candidates that the choice has not seen: each half's rule is judged on the other half."""
    rows = once(rows)
    halves = rows[::2], rows[1::2]
    judged = [judge(held, choose(fit, critics, **how).best.rule) for fit, held in (halves, halves[::-1])]  # type: ignore[arg-type]
    saved, lost = (
        Share(sum(getattr(f, name).part for f in judged), sum(getattr(f, name).n for f in judged))
        for name in ("saved", "lost")
    )
    return judged[0]._replace(saved=saved, lost=lost)


def belief(rows: Iterable[Seen], verdicts: Mapping[str, bool]) -> float:
    """The chance that a candidate is good, by Bayes' rule over what each critic said of it, one critic at a time
    (arXiv 2606.24453, section 3: every rate has one pass and one failure added)."""
    known = [row for row in once(rows) if row.good is not None]
    odds = 1.0
    for label, sign in ((True, 1), (False, -1)):
        odds *= (1 + sum(r.weight for r in known if r.good is label and not r.invented)) ** sign
        for name, said in verdicts.items():
            told = [r.verdicts[name] for r in known if r.good is label and name in r.verdicts]
            odds *= ((1 + told.count(said)) / (2 + len(told))) ** sign
    return odds / (1 + odds)
