"""Clerk: a customer desk with a policy card, a few orders, a customer who digresses, and tools that time out
(specs/E173, section 6b).

The screen shows the card (3 rules out of 12), what the customer wants and what happened last; what an order is like
shows when it is looked up. A refund cannot be undone. A run succeeds if the orders end as the card allows: what the
customer wants is done where no rule forbids it, and nothing else is. In 35 % of the tasks nothing may be done at all.

    policy never-refund-old never-change-phone never-refund-red ; want refund o4 , change o7 blue ; hello
    look o4  ->  ... ; o4 lamp red packed new cash
    refuse never-refund-red, change o7 blue, refund o4, done

What chance does is a hash of the task and the actions so far: it cannot be known beforehand, and a record can be
re-enacted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

from clew.core.errors import BadInput, WorldError
from clew.core.keys import state_key
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall
from clew.worlds.bases import Demonstrated, Exact, load
from clew.worlds.seeds import Dice, kept, split_of

ITEMS, COLOURS = ("phone", "lamp", "chair", "shirt"), ("red", "blue", "green")
STAGES, AGES, PAID = ("packed", "shipped", "delivered"), ("new", "old"), ("cash", "voucher")
FORBIDS = {
    "refund": ("old", "shipped", "voucher", "phone", "lamp", "red"),
    "change": ("old", "shipped", "delivered", "voucher", "phone", "lamp"),
}
RULES = tuple(f"never-{verb}-{trait}" for verb, traits in FORBIDS.items() for trait in traits)
NAMES = tuple(f"o{i}" for i in range(1, 10))
DIGRESSIONS = (
    "nice weather today", "my cat is ill", "your line was busy", "i like this shop", "wait a moment", "who are you"
)  # fmt: skip
RARE = "ka lo mi ne pa ro su ti va wex yo zu"  # what the refund tool is called in the rare syntax
KEPT_BACK = 35  # of 100 tasks: nothing may be done


class Wish(NamedTuple):
    """What the customer wants done to an order; ``colour`` of a change, else empty."""

    verb: str
    order: str
    colour: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.order} {self.colour}".rstrip()


class Plan:
    """One task: the card, the orders (name -> traits), the wishes, and the name of the refund tool."""

    def __init__(self, number: int, wishes: int, rare: float) -> None:
        dice = Dice(number, "clerk")
        self.number, self.kept_back = number, dice.below(100) < KEPT_BACK
        self.tool = RARE if dice.below(1000) < 1000 * rare else "refund"
        attempt = 0
        while True:
            self._draw(Dice(number, f"clerk {attempt}"), wishes)
            allowed = [self.rule(wish) is None for wish in self.wishes]
            if any(allowed) != self.kept_back:
                return
            attempt += 1

    def _draw(self, dice: Dice, wishes: int) -> None:
        self.card = tuple(RULES[i] for i in sorted(dice.order(len(RULES), 3)))
        names = [NAMES[i] for i in sorted(dice.order(len(NAMES), 4))]
        kinds = (ITEMS, COLOURS, STAGES, AGES, PAID)
        self.orders = {name: tuple(dice.pick(kind) for kind in kinds) for name in names}
        self.wishes = []
        for i in dice.order(4, 1 + dice.below(wishes)):
            verb = dice.pick(("refund", "change"))
            others = [c for c in COLOURS if c != self.orders[names[i]][1]]
            self.wishes.append(Wish(verb, names[i], dice.pick(others) if verb == "change" else ""))

    @property
    def content(self) -> Hashable:
        return (self.card, tuple((n, *traits) for n, traits in self.orders.items()), tuple(map(tuple, self.wishes)))

    def rule(self, wish: Wish) -> str | None:
        """The first rule of the card that forbids a wish."""
        return next((r for r in self.card if forbids(r, wish, self.orders[wish.order])), None)

    @property
    def conforming(self) -> dict[str, str]:
        """What is to be done: order -> ``refund``, or the colour it is changed to."""
        return {w.order: w.colour or w.verb for w in self.wishes if self.rule(w) is None}

    def calls(self, wish: Wish) -> str:
        """The action that grants a wish."""
        return f"{self.tool} {wish.order}" if wish.verb == "refund" else str(wish)


def forbids(rule: str, wish: Wish, traits: Sequence[str]) -> bool:
    _, verb, trait = rule.split("-")
    return verb == wish.verb and trait in traits


class ClerkWorld(Exact):
    """One conversation at the desk; exact. ``done_to``: what was done, order -> ``refund`` or its new colour."""

    def __init__(self, taskset: Clerk, number: int) -> None:
        self.plan, self._settings, self._name = taskset.plan(number), taskset, f"{taskset.ref} {number}"
        self.done_to: dict[str, str] = {}
        self.looked: list[str] = []
        self.refused: list[str] = []
        self._trail, self._left, self._over, self._closed = b"", taskset.turns, False, False
        self._event = "hello" if self.plan.tool == "refund" else f"hello ; refund is {RARE}"

    @property
    def success(self) -> bool:
        return self.done_to == self.plan.conforming

    @property
    def state_key(self) -> bytes:
        """What was looked up, done and refused; neither the turns left nor the customer's chatter."""
        facts = [sorted(self.looked), sorted(self.done_to.items()), sorted(self.refused)]
        return state_key(self._name, json.dumps([self._over, facts], sort_keys=True))

    def observe(self) -> Observation:
        plan = self.plan
        wants = " , ".join(map(str, plan.wishes))
        text = f"policy {' '.join(plan.card)} ; want {wants} ; {self._event}"
        ended = self._over or self._left <= 0
        return Observation(text, None, ended, () if ended else self.legal())

    def legal(self) -> tuple[str, ...]:
        """Every action that can be understood."""
        plan, names = self.plan, list(self.plan.orders)
        changes = [f"change {n} {c}" for n in names for c in COLOURS]
        refunds = [f"{plan.tool} {n}" for n in names]
        return (*(f"look {n}" for n in names), *refunds, *changes, *(f"refuse {r}" for r in plan.card), "done")

    def step(self, action: str | ToolCall) -> Observation:
        """Perform an action, unless chance interferes; what cannot be understood takes a turn as well.

        Raises:
            WorldError: the conversation is over or the world is closed.
        """
        if self._over or self._left <= 0 or self._closed:
            raise WorldError(f"step {str(action)[:40]!r} after the end", remedy="Open a new world for the task.")
        called = action.id if isinstance(action, ToolCall) else None
        text = " ".join(action.split()) if isinstance(action, str) else ""
        self._trail = blake2b(self._trail + text.encode("utf-8", "surrogatepass") + b"\n", digest_size=16).digest()
        self._left -= 1
        known = text in self.legal()
        luck = Dice(self.plan.number, f"clerk luck {self._trail.hex()}")
        if not known:
            self._event = "what"
        elif text == "done":
            self._event, self._over = "bye", True
        elif luck.below(1000) < 1000 * self._settings.noise:
            self._event = luck.pick(DIGRESSIONS)
        elif not text.startswith("refuse") and luck.below(1000) < 1000 * self._settings.timeouts:
            self._event = "timeout"
        else:
            self._event = self._perform(text)
        return self.observe()._replace(reward=float(self.success), call_id=called)

    def _perform(self, text: str) -> str:
        verb, *words = text.split()
        plan = self.plan
        if verb == "refuse":
            self.refused = [*self.refused, words[0]] if words[0] not in self.refused else self.refused
            return "noted"
        if verb == "look":
            self.looked = [*self.looked, words[0]] if words[0] not in self.looked else self.looked
            item, colour, *rest = plan.orders[words[0]]
            now = self.done_to.get(words[0], colour)
            return " ".join(
                [words[0], item, colour if now == "refund" else now, *rest, *["refunded"][: now == "refund"]]
            )
        if verb == "change":
            name, colour = words
            if self.done_to.get(name) == "refund":
                return "what"
            self.done_to.pop(name, None)
            if colour != plan.orders[name][1]:
                self.done_to[name] = colour
            return "ok"
        self.done_to[words[-1]] = "refund"
        return "ok"

    def snapshot(self) -> bytes:
        state = [self._trail.hex(), self._left, self._over, self._event, self.looked, self.done_to, self.refused]
        return json.dumps([self._name, *state]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is not one of this task."""
        _, trail, self._left, self._over, self._event, *facts = load(snapshot, self._name, 8)
        self._trail, (self.looked, self.done_to, self.refused) = bytes.fromhex(trail), facts


class Clerk(Demonstrated[ClerkWorld]):
    """Conversations at a customer desk; a task id ``clerk-NUMBER`` fixes card, orders, wishes and what chance does.

    Args:
        wishes: of a customer at most, 1 or 2.
        turns: actions until the customer leaves, 2 to 64.
        noise: chance that the customer digresses instead of letting the clerk act.
        timeouts: chance that a tool times out.
        rare: share of tasks in which the refund tool has a name of twelve words, told at the start.
        slips: what demonstrations get wrong: ``random``, anything that can be understood; ``habit``, the next wish is
            granted without looking it up or minding the card. Runs do not depend on it.
    """

    prefix, plays = "clerk", ClerkWorld

    def __init__(
        self,
        wishes: int = 2,
        turns: int = 6,
        noise: float = 0.2,
        timeouts: float = 0.1,
        rare: float = 0.0,
        slips: Literal["random", "habit"] = "random",
    ) -> None:
        given = {"wishes": wishes, "turns": turns, "noise": noise, "timeouts": timeouts, "rare": rare, "slips": slips}
        shares = (noise, timeouts, rare)
        if wishes not in (1, 2) or not 2 <= turns <= 64 or not all(0 <= share <= 1 for share in shares):
            raise BadInput(f"clerk({given})", remedy="Needs 1 or 2 wishes, 2 to 64 turns, and shares from 0 to 1.")
        if slips not in ("random", "habit"):
            raise BadInput(f"clerk(slips={slips!r})", remedy="Slips are random or habit.")
        self.ref = make_ref("clerk", given, Clerk)
        self.wishes, self.turns, self.noise, self.timeouts, self.rare = wishes, turns, noise, timeouts, rare
        self.slips = slips
        self.plan = kept(lambda number: Plan(number, wishes, rare))  # of a task number

    def content(self, number: int) -> Hashable:
        return Plan(number, self.wishes, self.rare).content

    def find(self, task_id: str) -> Task:
        plan = self.plan(self.number(task_id))
        wants = " and ".join(map(str, plan.wishes))
        data = {"must_not_act": plan.kept_back, "rare": plan.tool != "refund", "split": split_of(plan.content)}
        return Task(task_id, f"{wants}, as far as the card allows: {', '.join(plan.card)}", data)

    def open(self, task: Task) -> ClerkWorld:
        return ClerkWorld(self, self.number(task.id))

    def verdict(self, task: Task, last: ClerkWorld) -> dict[str, float]:
        """Reward 1 where the orders are as the card allows; ``told``: the share of forbidden wishes that were refused
        with a rule that forbids them (1 where there was none)."""
        plan = last.plan
        barred = [w for w in plan.wishes if plan.rule(w) is not None]
        told = [any(forbids(r, w, plan.orders[w.order]) for r in last.refused) for w in barred]
        return {"reward": float(last.success), "told": sum(told) / len(told) if told else 1.0}

    def vocabulary(self) -> list[str]:
        """Every word that the screen and actions can contain, sorted."""
        words = {*RULES, *NAMES, *ITEMS, *COLOURS, *STAGES, *AGES, *PAID, *RARE.split(), *" ".join(DIGRESSIONS).split()}
        said = "policy want ; , hello refund change look refuse done is what bye timeout noted ok refunded"
        return sorted({*words, *said.split()})

    def slip(self, world: ClerkWorld, rng: random.Random) -> str:
        """An action of a clerk who does not think."""
        if self.slips == "random":
            return rng.choice(world.observe().legal)
        plan = world.plan
        left = [w for w in plan.wishes if w.order not in world.done_to and plan.rule(w) not in world.refused]
        return plan.calls(left[0]) if left else "done"

    def expert(self, world: ClerkWorld) -> str:
        return oracle(world)


def oracle(world: ClerkWorld) -> str:
    """The next action of a clerk who looks up what is asked for, keeps to the card, and does not undo."""
    plan = world.plan
    for wish in plan.wishes:
        if wish.order not in world.looked:
            return f"look {wish.order}"
        rule = plan.rule(wish)
        if rule is None and world.done_to.get(wish.order) not in (wish.colour or wish.verb, "refund"):
            return plan.calls(wish)
        if rule is not None and rule not in world.refused:
            return f"refuse {rule}"
    return "done"
