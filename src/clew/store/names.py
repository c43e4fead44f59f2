"""How ids, tags and other names of a store are made, checked and resolved."""

from __future__ import annotations

import base64
import difflib
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from clew.core.errors import BadInput, UnknownName
from clew.store.protocol import Tables

NO_STORE = "Make runs with `clew quickstart`, `clew run` or `clew import`, or name a store with --store."
_OPERATOR = re.compile(r"[=<>:]")  # of a query; ids and tags have none


def new_id() -> str:
    """A global run or group id: 60 random bits as 12 characters a-z2-7, safe in queries, cursors and file names."""
    return base64.b32encode(secrets.token_bytes(8)).decode().lower()[:12]


def check_name(name: str) -> str:
    """A tag, or any other name that queries and the shell must carry unquoted.

    Raises:
        BadInput: it is empty or has other characters than letters, digits and ``_ . / -``.
    """
    if not re.fullmatch(r"[\w][\w./-]*", name):
        raise BadInput(f"{name!r} cannot be a name", remedy="Use letters, digits and _ . / - only.")
    return name


def is_query(word: str) -> bool:
    """Whether a word is meant as a query: it holds ``=``, ``<``, ``>`` or ``:``, which no id and no tag does."""
    return bool(_OPERATOR.search(word))


def resolve(store: Tables, text: str) -> str:
    """The run id meant by a full id, a unique prefix of one, or a tag that one run has.

    Raises:
        UnknownName: no run is meant; the remedy lists near names.
        BadInput: several are.
    """
    text = text.strip()
    with suppress(UnknownName):
        return store.row(text).id
    ids, tags = store.run_ids(), store.tags()
    found = tags.get(text) or [run for run in ids if text and run.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{text!r} means {len(found)} runs", remedy=f"Write more of the id: {some(found)}.")
    near = difflib.get_close_matches(text, [*ids, *tags], 3) or ids[-3:]
    raise UnknownName(
        f"no run is called {text!r} in {store.path}",
        remedy=f"Near names: {some(near)}. `clew log` lists all." if near else "The store holds no runs yet.",
    )


def chosen(store: Tables, words: Sequence[str], find: Callable[[str], list[str]]) -> list[str]:
    """The runs that words mean: ids, prefixes of ids, tags, or one query, which ``find`` answers; no words, all runs.

    Raises:
        UnknownName, BadInput: nothing or too much is meant by a word. BadQuery: the query does not parse.
    """
    words = [word for word in words if word.strip()]
    if not words or any(map(is_query, words)):
        return find(" ".join(words))
    found: dict[str, None] = {}
    for word in words:
        found.update(dict.fromkeys(store.tags().get(word) or [resolve(store, word)]))
    return list(found)


def some(names: Sequence[str], limit: int = 6) -> str:
    """The first few of a list, for a message."""
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
