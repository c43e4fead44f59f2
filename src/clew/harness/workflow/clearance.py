"""Who of a team may be asked, and what each may be shown: judged before anything is asked, and what is unknown is
refused.

``orchestrator`` judges by it, and the server that offers an orchestrator. Policies, labels of workers and the rule of
classes are those of ``clew.models.compose``, and nothing here may allow what they refuse. Nothing here asks anybody.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clew.core.errors import BadInput, Refused
from clew.core.values import Usage
from clew.models.compose.policy import UNKNOWN, Policy, cost_of, flow_of
from clew.models.compose.router import CROWD, Worker, read_worker

LEAD = "lead"
SIGNS = re.compile(r"[^A-Za-z0-9._-]+")
NOBODY = 'Name models: --config \'{"workers": ["openai:gpt-5-mini", "./weights"]}\'.'


class Words(NamedTuple):
    """A text, and the classes of data that it holds."""

    text: str
    classes: frozenset[str] = frozenset()


class Post(NamedTuple):
    """One worker: its name as plans show it, its model, and its labels."""

    name: str
    ref: str
    labels: Worker


@dataclass(frozen=True)
class Team:
    """The workers, the model that leads them, and what a policy allows of both.

    A policy calls a worker by its name, with ``-`` for signs that no name of a router's worker has; the leading model
    by the name among its labels, ``lead`` where there is none. What ``allow`` does not name is not asked, be it the
    leading model.
    """

    posts: tuple[Post, ...]
    lead: Worker
    policy: Policy

    @classmethod
    def read(cls, workers: object, lead: object = None, policy: object = None) -> Team:
        """A team from the orchestrator's arguments.

        Raises:
            BadInput: there are no workers, or one of the arguments is no such thing. UnknownName: the policy names
            nobody.
        """
        pairs = list(workers.items()) if isinstance(workers, Mapping) else [("", one) for one in _list(workers or ())]
        posts = dict[str, Post]()
        for name, said in pairs:
            post = _post(str(name), said)
            if posts.setdefault(post.labels.name, post) != post:
                raise BadInput(f"two workers are called {post.labels.name}", remedy="Give each a name of its own.")
        if not posts:
            raise BadInput("the orchestrator has no workers", remedy=NOBODY)
        if len(posts) > CROWD:
            raise BadInput(f"{len(posts)} workers", remedy=f"Name at most {CROWD}.")
        led = read_worker({"name": LEAD, **_table(lead or {}, "lead"), "ref": LEAD})
        if led.name in posts:
            raise BadInput(f"a worker has the leading model's name, {led.name}", remedy="Give it another.")
        return cls(tuple(posts.values()), led, Policy()).under(policy)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a policy may name."""
        return (*(post.labels.name for post in self.posts), self.lead.name)

    @property
    def labelled(self) -> bool:
        """Whether classes of data are told apart."""
        everyone = (self.lead, *(post.labels for post in self.posts))
        return bool(self.policy.data_class) or any(one.data_class for one in everyone)

    def under(self, stated: object) -> Team:
        """The team under a policy as well, which can only narrow its own; None narrows nothing.

        Raises:
            BadInput: it is no policy. UnknownName: it names nobody.
        """
        if stated is None:
            return self
        read = stated if isinstance(stated, Policy) else Policy.read(stated)
        return replace(self, policy=self.policy.narrowed(read.known(self.names)))

    def judged(self, who: Worker, each: Sequence[Collection[str]]) -> tuple[str, frozenset[int]]:
        """Why someone may not be asked about texts with these classes, the last of which is the task; and the places of
        those that are kept from it where it may."""
        why = self.policy.refusal(who, Usage())
        if why or not self.labelled:
            return why, frozenset()
        return flow_of(who, [frozenset(one) for one in each], self.policy.flow or "remove")

    def too_dear(self, who: Worker, most: Usage, spent: float) -> tuple[str, float]:
        """Why a request of at most so many tokens costs too much once ``spent`` dollars are counted; and its price."""
        if self.policy.max_cost is None:
            return "", 0.0
        left = replace(self.policy, max_cost=max(0.0, self.policy.max_cost - spent))
        return left.refusal(who, most), cost_of(who, most) or 0.0

    def open(self, holds: Collection[str] = ()) -> tuple[list[int], dict[str, str]]:
        """The places of the workers that may be given a task with these classes, and why the others may not."""
        why = {at: self.judged(post.labels, [holds])[0] for at, post in enumerate(self.posts)}
        return [at for at in why if not why[at]], {self.posts[at].name: why[at] for at in why if why[at]}

    def nobody(self) -> Refused:
        """What is raised where no worker may be asked."""
        told = "; ".join(f"{name}: {why}" for name, why in list(self.open()[1].items())[:8])
        return Refused(f"no worker may work on this ({told})", remedy="Widen the policy, or add a worker it allows.")

    def made(self, who: Worker, shown: Collection[str]) -> frozenset[str]:
        """The classes of what someone writes who was shown these."""
        return frozenset(shown).union(self.policy.data_class, {who.data_class} - {""}) if self.labelled else frozenset()

    def of(self, message: Mapping[str, object]) -> frozenset[str]:
        """The classes of a message of a task: as it says, else ``unknown`` where it is not a user's."""
        if not self.labelled:
            return frozenset()
        said = message.get("classes")
        if isinstance(said, (list, tuple)):
            return frozenset(str(one) for one in said)
        return frozenset() if message.get("role", "user") in ("user", "system") else frozenset({UNKNOWN})


def _post(name: str, said: object) -> Post:
    known = dict(said) if isinstance(said, Mapping) else {"ref": said}
    ref = known.pop("ref", None)
    if not isinstance(ref, str) or not ref.strip():
        raise BadInput("a worker has no model", remedy=NOBODY)
    shown = name or str(known.pop("name", ref))
    plain = SIGNS.sub("-", shown).strip("._-")[-64:].lstrip("._-")
    return Post(shown, ref, read_worker({**known, "name": plain, "ref": LEAD}))


def _list(workers: object) -> Sequence[object]:
    if not isinstance(workers, (list, tuple)):
        raise BadInput("workers is no list of models", remedy=NOBODY)
    return workers


def _table(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} is no JSON object", remedy='Write its labels, as in {"region": "eu"}.')
    return value
