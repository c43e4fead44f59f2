"""A feature of two checkpoints for the page: what it is, where it is most active, and what writing it did.

All comes out of the store: `clew audit diff` files a Report for each feature, facts beside it, and its activation as
token values. Texts are read from the record, never from the facts. Nothing here may need torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clew.core.errors import UnknownName
from clew.core.json_values import plain
from clew.core.json_values import told as reported
from clew.core.records import Report
from clew.methods.features.feature import feature_facts as facts
from clew.store import Keeper
from clew.view.pages.tokens import decoder

BEFORE, AFTER = 24, 8  # tokens around a place
PLACES = 24
PIECE = 200  # characters of one token at most


def comparisons(store: Keeper) -> list[dict[str, Any]]:
    """Every comparison that filed features, the latest first: its models, its features, and what was asked of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    reports = store.reports()
    for name, report in facts.known(store, reports).items():
        row = _brief(store, name, report)
        if row is not None:
            found.setdefault(name.split("-")[1], []).append(row)
    return [_comparison(label, rows) for label, rows in reversed(found.items())]


def comparison(store: Keeper, label: str) -> dict[str, Any]:
    """One of them.

    Raises:
        UnknownName: no such comparison.
    """
    found = facts.known(store)
    rows = [_brief(store, name, report) for name, report in found.items() if name.startswith(f"diff-{label}-f")]
    kept = [row for row in rows if row is not None]
    if not kept:
        raise _unknown(f"no comparison is called {label!r}", found)
    return _comparison(label, kept)


def feature(store: Keeper, label: str, latent: str) -> dict[str, Any]:
    """All that is known of a feature.

    Raises:
        UnknownName: no such feature.
    """
    reports = store.reports()
    name = f"diff-{label}-f{latent}"
    report = reports.get(name) if facts.NAME.fullmatch(name) else None
    it, asked = facts.read(store, name, report) if report is not None else (None, [])
    if it is None or report is None:
        raise _unknown(f"there is no feature {latent!r} in comparison {label!r}", facts.known(store, reports))
    told = _figures(it, name) | {"report": reported(name, report), "top": it.top, "high": it.high, "counts": it.counts}
    told |= {"labeller": it.labeller if it.label else "", "tokens": it.tokens, "calls": it.calls}
    told["places"] = [_around(store, place) for place in it.places[:PLACES]]
    told["asked"] = [_asked(one, reports) for one in asked]
    others = sorted(other for other in facts.known(store, reports) if other.startswith(f"diff-{label}-f"))
    told["others"] = [int(other.rpartition("f")[2]) for other in others if other != name]
    return {"label": label, **_models(it), **_plain(told)}


def names(store: Keeper, methods: Sequence[str]) -> dict[str, str]:
    """What the features among some methods are called, by method."""
    mine = [name for name in methods if facts.NAME.fullmatch(name)]
    reports = store.reports() if mine else {}
    found = {name: facts.read(store, name, reports[name])[0] for name in mine if name in reports}
    return {name: f"feature {it.latent}{f': {it.label}' if it.label else ''}" for name, it in found.items() if it}


def _comparison(label: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    order = {"A": 0, "B": 1, "both": 2}
    asked = {one["behaviour"]: one for row in rows for one in row.pop("verdicts")}
    about = {key: rows[0].pop(key) for key in ("a", "b", "layer")}
    for row in rows[1:]:
        for key in about:
            row.pop(key)
    rows.sort(key=lambda row: (not row["parts"], order.get(row["whose"], 3), row["latent"]))
    return {"label": label, **about, "features": rows, "asked": list(asked.values())}


def _brief(store: Keeper, name: str, report: Report) -> dict[str, Any] | None:
    it, asked = facts.read(store, name, report)
    if it is None:
        return None
    told = {"parts": sorted({one.part for one in asked if one.part}), "tried": bool(asked)}
    verdicts = [{"behaviour": one.behaviour, "kind": one.kind, "text": one.text} for one in asked]
    return _plain(_models(it) | _figures(it, name) | told | {"verdicts": verdicts})


def _models(it: facts.Facts) -> dict[str, Any]:
    return {"a": it.a, "b": it.b, "layer": it.layer}


def _figures(it: facts.Facts, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {key: getattr(it, key) for key in ("latent", "whose", "share", "fitted", "active")}
    return found | {"name": name, "said": it.label, "often": it.active / it.tokens if it.tokens else None}


def _asked(one: facts.Asked, reports: Mapping[str, Report]) -> dict[str, Any]:
    """A question with the Reports of its arms; an arm whose Report is gone is left out."""
    arms = [
        {"stage": arm.stage, "about": arm.about, "p": arm.p, **reported(arm.report, reports[arm.report])}
        for arm in one.arms
        if arm.report in reports
    ]
    return {"behaviour": one.behaviour, "kind": one.kind, "text": one.text, "part": one.part, "arms": arms}


def _around(store: Keeper, place: facts.Place) -> dict[str, Any]:
    """A place with the text around it; where that was taken out, or no one here can spell it, a note says so."""
    told: dict[str, Any] = {"run": place.run, "seq": place.seq, "value": place.value}
    told |= {"token": place.token if place.token >= 0 else None, "before": "", "at": "", "after": "", "note": ""}
    try:
        call = next(iter(store.calls(place.run, place.seq, place.seq + 1)))
        nodes = [*store.thread(call.node_in), store.node(call.node_out)]
    except (StopIteration, UnknownName):
        return told | {"note": "this call is not in the store any more"}
    if any(node.ids is None for node in nodes):
        return told | {"note": "the text was taken out of the record"}
    ids = [i for node in nodes for i in node.ids or ()]
    if not 0 <= place.position < len(ids):
        return told | {"note": "the text was taken out of the record"}
    word = _speller(nodes[-1].tokenizer, call.setup.model if call.setup is not None else "")
    if word is None:
        return told | {"note": f"token {ids[place.position]}: no tokenizer here spells it"}
    at = place.position
    pieces = [word(i)[:PIECE] for i in ids[max(0, at - BEFORE) : at + AFTER + 1]]
    middle = min(at, BEFORE)
    told |= {"before": "".join(pieces[:middle]), "at": pieces[middle], "after": "".join(pieces[middle + 1 :])}
    return told


def _speller(tokenizer: str, model: str) -> Callable[[int], str] | None:
    found = decoder(tokenizer, model)
    if found is None or not tokenizer.startswith("words:"):
        return found
    return lambda i: f"{found(i)} "


def _unknown(told: str, known: Mapping[str, Report]) -> UnknownName:
    labels = sorted({name.split("-")[1] for name in known})
    remedy = f"Known comparisons: {', '.join(labels[:8])}." if labels else "`clew audit diff` files features."
    return UnknownName(told, remedy=remedy)


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = plain(told)
    return shown
