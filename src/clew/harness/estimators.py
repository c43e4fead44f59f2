"""Credit estimators by reference; one that stands in a file files the file's digest beside its values.

``clew credit`` and the recipes of ``clew train`` ask here. The digest is an annotation of the method on each group. A
value of the same method and parameters by another content of the file is never replaced in silence.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from clew.core import registry
from clew.core.records import Annotation
from clew.core.sources import digests, file_of
from clew.store import Group


def estimator(ref: str) -> Callable[..., Any]:
    """The credit function of a reference, with its arguments.

    Raises:
        UnknownName, BadInput: no such estimator, or arguments that it does not take.
    """
    found = registry.bound("credits", ref)
    if not file_of(registry.parse_ref(ref)[0]):
        return found

    @wraps(found)
    def sourced(groups: Iterable[Group], **how: Any) -> Any:
        groups = list(groups) if not isinstance(groups, Group) else [groups]
        credit = found(groups, **how)
        _compare(groups, credit, digests([ref]), store=how.get("store", True))
        return credit

    return sourced


def _compare(groups: list[Group], credit: Any, now: dict[str, str], *, store: bool) -> None:
    """Warn where the groups hold values by another content of the file, and file what it says now."""
    values = credit.annotations()
    if not (values and groups):
        return
    keeper, method, params = groups[0].store, values[0].method, values[0].params
    names = [group.id for group in groups]
    before = [a for a in keeper.annotations(names, method, "group") if a.params == params]
    other = [a for a in before if json.loads(a.data)["sources"] != now]
    if other:
        done = "were replaced" if store else "would be replaced"
        warnings.warn(
            f"{next(iter(now))} says something else than when {method!r} valued {len(other)} of these groups, whose "
            f"values {done}: to keep both, put the file back, value them again, and give the new method another name",
            stacklevel=4,
        )
    if store:
        data = json.dumps({"sources": now})
        keeper.annotate(Annotation("group", method, run=n, params=params, scope=n, data=data) for n in names)
        keeper.commit()
