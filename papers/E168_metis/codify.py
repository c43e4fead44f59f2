"""The codifiers of E168, by templates: from a plan and its queries, or from one run, to the source of a tool.

``pattern`` gets the plan and the queries of its ledger, and never a run (specs/E168 step 13). ``trajectory`` gets a run
and freezes what it did: how many pages, which field, which operator, the second filter. Only our own templates are
run here, in this process; code that a model wrote must never be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from clew.methods.memory.lessons.spent import Cost
from clew.worlds.apps.app_goals import Filter, answered
from clew.worlds.apps.app_rules import CHANGES, TOOLS
from papers.E168_metis.errands import Step, words_cost
from papers.E168_metis.player import Tool, _row
from papers.E168_metis.reading import Advice, Asked, advice, read

API = [f"{tool.name}: {tool.description} {json.dumps(tool.schema)}" for tool in TOOLS]  # what a codifier is told of it
BUGS = ("pages", "negation", "second")  # one page alone is read; "is not" is read as "is"; one filter alone is kept


class Draft(NamedTuple):
    """A tool before any check. deps: the advice that was compiled into it; empty where it reads it at each call."""

    name: str
    source: str
    doc: str
    deps: tuple[str, ...]
    cost: Cost


_HEAD = '''def {name}(query, api):
    """{doc}"""
    asked = read(query)
    if asked is None or asked[:3] != {signature!r} or not {{f.field for f in asked.filters}} <= {fields!r}:
        return None
    told = advice({facts}, asked.app)
    at = {{"app": asked.app, "table": asked.table}}
    if not told.fetch:
        return None
    if told.login:
        api("login", app=asked.app)
    rows, page, more = [], 1, True
    while more:
        seen = api("fetch", endpoint=told.fetch[0], page=page, **at)
{checked}        rows += [as_row(one, told) for one in seen.get("rows", ())]
        page, more = page + 1, {more}
    filters = {filters}
    rows = [r for r in rows if all(f.keeps(r) for f in filters) and not (r.pending and told.leaves_out)]
'''
_READ = "    return answered(asked.verb, rows)\n"
_CHANGE = """    if rows and not told.change:
        return None
    if rows:
        done = api("change", endpoint=told.change[0], verb=asked.verb, ids=[r.id for r in rows], **at)
{checked}    return "done"
"""
_CHECK = """        if "error" in seen:
            return None
"""


def pattern(
    name: str,
    asked: Asked,
    plan: str,
    queries: Sequence[str],
    known: Iterable[str] = (),
    bug: str = "",
    wary: bool = True,
) -> Draft:
    """A tool from a plan and the queries of its ledger.

    Args:
        asked: what the plan is for. known: the lines that are compiled in, in place of what is known when it is called.
        bug: one of BUGS, planted. wary: gives None where the app answers with an error; else it takes an error for an
            empty page.
    """
    fields = {f.field for query in queries for f in (read(query) or asked).filters}
    known = tuple(known)
    words = {
        "name": name,
        "doc": f"{asked.verb} {asked.table} of {asked.app}, any filters on {', '.join(sorted(fields))}",
        "signature": tuple(asked[:3]),
        "fields": fields,
        "facts": repr([*known]) if known else "facts()",
        "checked": _CHECK if wary else "",
        "more": "False" if bug == "pages" else 'bool(seen.get("has_more"))',
        "filters": {
            "negation": '[Filter(f.field, f.operator.replace("is not", "is"), f.value) for f in asked.filters]',
            "second": "asked.filters[:1]",
        }.get(bug, "asked.filters"),
    }
    body = _HEAD.format(**words)
    if asked.verb in CHANGES:
        body += _CHANGE.format(checked=_CHECK.replace("seen", "done") if wary else "")
    else:
        body += _READ
    return Draft(name, body, words["doc"], known, Cost(words_cost([plan, *queries, *API]), words_cost([body]), 1))


_FROZEN = '''def {name}(query, api):
    """{doc}"""
    asked = read(query)
    at = {at!r}
    told = advice({facts!r}, {app!r})
    {login}
    rows = []
    for page in range(1, {pages} + 1):
        seen = api("fetch", endpoint={fetch!r}, page=page, **at)
        rows += [as_row(one, told) for one in seen.get("rows", ())]
    filters = [Filter(*one) for one in frozen(asked.filters, {filters!r})]
    rows = [r for r in rows if all(f.keeps(r) for f in filters) and not (r.pending and told.leaves_out)]
'''
_FROZEN_CHANGE = """    if rows:
        api("change", endpoint={change!r}, verb={verb!r}, ids=[r.id for r in rows], **at)
    return "done"
"""


def trajectory(name: str, query: str, steps: Sequence[Step], known: Iterable[str]) -> Draft:
    """A tool from one run: its first filter's value is the only thing that a call may change.

    Args:
        query, steps: of the run. known: the advice that the run had, on cents and pending rows.
    """
    asked = read(query)
    assert asked is not None
    good = [step for step in steps if "error" not in step.seen]
    pages = max((step.given["page"] for step in good if step.name == "fetch"), default=1)
    ends = {step.name: step.given["endpoint"] for step in good if step.name in ("fetch", "change")}
    body = _FROZEN.format(
        name=name,
        doc=f"as in: {query}",
        at={"app": asked.app, "table": asked.table},
        facts=[*known],
        app=asked.app,
        login=f"api('login', app={asked.app!r})" if any(step.name == "login" for step in good) else "pass",
        pages=pages,
        fetch=ends.get("fetch", ""),
        filters=[tuple(f) for f in asked.filters],
    )
    if asked.verb in CHANGES:
        body += _FROZEN_CHANGE.format(change=ends.get("change", ""), verb=asked.verb)
    else:
        body += f"    return answered({asked.verb!r}, rows)\n"
    read_of = words_cost([query, *(f"{step[:3]}" for step in steps), *API])
    return Draft(name, body, f"as in: {query}", (), Cost(read_of, words_cost([body]), 1))


def frozen(asked: Sequence[Filter], source: Sequence[tuple[str, str, str | int]]) -> list[Filter]:
    """The filters of a source run with the first value of another query put in, where it is of the same type."""
    first, *rest = [Filter(*one) for one in source]
    value = asked[0].value
    if isinstance(value, int) == (first.field == "amount"):
        first = first._replace(value=value)
    return [first, *rest]


def compiled(draft: Draft, facts: Callable[[], list[str]] = list) -> Tool:
    """The function of a draft of ours.

    Args:
        facts: gives the lines of advice that are known when the tool is called.
    """
    library: dict[str, Any] = {
        "read": read, "advice": advice, "as_row": _row, "answered": answered, "Filter": Filter, "frozen": frozen,
        "facts": facts,
    }  # fmt: skip
    exec(compile(draft.source, f"<tool {draft.name}>", "exec"), library)
    tool: Tool = library[draft.name]
    return tool


__all__ = ["BUGS", "Advice", "Draft", "compiled", "frozen", "pattern", "trajectory"]
