"""Labels given on the page: what came over the network is checked and filed, through a connection of its own.

Called by ``web``, behind ``guard``. A label is filed whole or not at all, and never over another author's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.store import labels
from clew.view.pages import labels_page
from clew.view.stores import Stores

BODY = 1 << 20  # bytes of a label: a note of 20,000 characters, all of them escapes
FIELDS = ("place", "by", "stars", "verdict", "note", "withdraw")


def file(stores: Stores, data: Mapping[str, Any], verdicts: Sequence[str]) -> dict[str, Any]:
    """File a label; what stands of its run's labels now, as the page shows it.

    Raises:
        BadInput: a field is unknown or of another type, or the label is none. StoreError: it cannot be written.
    """
    if unknown := set(data) - set(FIELDS):
        remedy = f"Known: {', '.join(FIELDS)}."
        raise BadInput(f"{short(sorted(unknown)[0], 40)!r} is no field of a label", remedy=remedy)
    place, by, verdict, note = (data.get(name, "") for name in ("place", "by", "verdict", "note"))
    withdraw, stars = data.get("withdraw", []), data.get("stars")
    for name, value in (("place", place), ("by", by), ("verdict", verdict), ("note", note)):
        if not isinstance(value, str):
            raise BadInput(f"{name} is a {type(value).__name__}", remedy="Send a text.")
    if not isinstance(withdraw, list) or not all(isinstance(word, str) for word in withdraw):
        raise BadInput("withdraw is no list of words", remedy=f"Name some of {', '.join(labels.ASPECTS)}.")
    given: dict[str, Any] = {"stars": stars, "verdict": verdict, "note": note}
    store = stores.fresh()
    try:
        entry = labels.put(store, place, by=by, withdraw=withdraw, verdicts=verdicts, **given)
        return labels_page.page(store, place.partition("@")[0], verdicts) | {"filed": entry.place}
    finally:
        if store.path != ":memory:":
            store.close()
