"""Redaction: content leaves a store for good and a tombstone stays in its place, under the key that it had.

A plan is made first (``of_place``, ``of_runs``, ``of_words``), which says where everything stands; ``done`` carries it
out in one transaction. Keys never change, so that forks and chains still verify. A plan that was carried out in part,
because the process was killed, is made and carried out again: what was erased before is passed over.
"""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from clew.core.errors import BadInput
from clew.core.keys import blob_key, encode
from clew.core.legality import issue_key
from clew.core.records import Annotation, Call, Cursor, Node, Report, RunRow, action_text
from clew.core.values import GONE, REDACTED, Message, Sampling, ToolCall
from clew.store import labels
from clew.store.entries import Entry, entry_key
from clew.store.groups import family_of
from clew.store.names import resolve
from clew.store.protocol import PACKED, Burial, Place, Tables, place

LONG = 32  # characters; a text this long is erased wherever another contains it, a shorter one where it stands alone
MOST = 50  # texts that are searched for when all is done
SHORTEST = 4  # characters of words that are searched for
SETTINGS = '{"redacted":"settings"}'  # `extra` of an ask of which only how the model was asked was erased
MARK = "redacted"  # in a run's meta: what of the run itself was erased
_STARTED = ("task", "changes", "config")  # what an agent is started with: without it a run cannot be followed


class Redaction(NamedTuple):
    """What is to be erased.

    burial: as a store takes it. counts: how many of what, in words: "messages" -> 3. places: of all that gets a
    tombstone, ``run@seq`` or a node's hex key. words: what ``Tables.holding`` is to look for afterwards; runs that have
    nothing to do with an erased place keep what they say.
    """

    burial: Burial
    counts: Mapping[str, int]
    places: list[str]
    words: tuple[bytes, ...] = ()


class Sought(Protocol):
    """Texts that are to be erased, and what of a text goes with them."""

    def says(self, text: str) -> bool:
        """Whether a text holds one of them."""

    def masked(self, text: str) -> str:
        """The text without them, where no key covers it."""

    def setting(self, text: str) -> str:
        """As ``masked``, of an argument of the agent."""

    def packed(self, data: bytes) -> bool:
        """Whether the bytes of an image or a snapshot hold one of them."""


class Texts:
    """Whole texts: where one stands alone, or is part of another and so long that it is not there by chance."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = {*texts} - {"", REDACTED, GONE}
        self.long = [text for text in self.texts if len(text) >= LONG]
        self.bytes = tuple(encode(text) for text in sorted(self.long, key=len)[:MOST])

    def says(self, text: str) -> bool:
        return text in self.texts or any(one in text for one in self.long)

    def masked(self, text: str) -> str:
        return REDACTED if self.says(text) else text

    def setting(self, text: str) -> str:
        return REDACTED if any(one in text for one in self.long) else text  # a short one may be "fast" or "yes"

    def packed(self, data: bytes) -> bool:
        return False


class Words:
    """Words wherever they stand, in each spelling that JSON has for them."""

    def __init__(self, words: Iterable[str]) -> None:
        self.spelt = sorted({way for word in words for way in spellings(word)}, key=len, reverse=True)
        self.bytes = tuple(encode(way) for way in self.spelt)

    def says(self, text: str) -> bool:
        return any(way in text for way in self.spelt)

    def masked(self, text: str) -> str:
        for way in self.spelt:
            text = text.replace(way, REDACTED)
        return text

    setting = masked

    def packed(self, data: bytes) -> bool:
        return any(way in data for way in self.bytes)


def spellings(word: str) -> set[str]:
    """A text as it is, in both normal forms of Unicode, and as JSON writes it, also inside JSON inside JSON."""
    found = {form for name in ("NFC", "NFD") for form in (word, unicodedata.normalize(name, word))}
    for _ in range(3):
        found |= {json.dumps(one, ensure_ascii=ascii)[1:-1] for one in found for ascii in (False, True)}
    return found


def own_calls(store: Tables, row: RunRow) -> list[Call]:
    """The Calls a run issued itself."""
    return store.calls(row.id, row.lineage[-1].stop if row.lineage else 0)


def tree_of(store: Tables, row: RunRow) -> set[bytes]:
    """Every node on a path of a run."""
    keys: set[bytes] = set()
    for call in store.calls(row.id):
        for key in (call.node_in, call.node_out):
            while key and key not in keys:
                keys.add(key)
                key = store.node(key).parent
    return keys


# plans


def of_place(store: Tables, target: str, only: Collection[str] | None = None) -> Redaction:
    """A Call (``run@seq``; with it its reply) or a node (hex key), and repetitions of what it says.

    Repetitions are the same text in runs that share Calls with it or were spawned by them, as a message, an action,
    an observation, in the task, in what an edit gives, in a label; a text of 32 characters or more counts wherever
    another text contains it, the agent's arguments too. ``only``: the texts whose repetitions count, where those are
    not all that the place says.

    Raises:
        UnknownName, BadInput: no such Call or node, or one without content.
    """
    store.commit()
    rows = {run: store.row(run) for run in store.run_ids()}
    if re.fullmatch(r"[0-9a-f]{32}", target):
        node = store.node(bytes.fromhex(target))
        texts, family = _texts(node.message), {run for run in rows if node.key in tree_of(store, rows[run])}
        calls, keys = set[tuple[str, int]](), {node.key}
    else:
        cursor = Cursor.parse(target)
        run = resolve(store, cursor.run)
        found = store.calls(run, cursor.seq, cursor.seq + 1)
        if not found or found[0].kind == "end":
            raise BadInput(f"{target} holds nothing to redact", remedy="Name an open, ask, act or note, as run@call.")
        call = found[0]
        texts, keys = _said(call), {call.node_out} - {b""}
        for key in keys:
            texts |= _texts(store.node(key).message)
        calls, family = {(call.run, call.seq)}, family_of(rows, call.run)
    sought = Texts(texts if only is None else only)
    plan = _plan(store, [rows[run] for run in rows if run in family], sought, keys, calls)
    return plan._replace(words=sought.bytes)


def of_runs(store: Tables, runs: Iterable[str]) -> Redaction:
    """All that runs say, were asked and were started with, the Calls they share included, and its repetitions.

    Of a run stay its place in groups and forks, numbers, times, settings and keys.
    """
    store.commit()
    rows = {run: store.row(run) for run in store.run_ids()}
    whole = set(runs)
    texts, keys, calls, family = set[str](), set[bytes](), set[tuple[str, int]](), set[str]()
    for run in whole:
        family |= family_of(rows, run)
        keys |= tree_of(store, rows[run])
        for call in store.calls(run):
            calls.add((call.run, call.seq))
            texts |= _said(call)
    for key in keys:
        texts |= _texts(store.node(key).message)
    sought = Texts(texts)
    plan = _plan(store, [rows[run] for run in rows if run in family], sought, keys, calls, whole)
    return plan._replace(words=sought.bytes)


def of_words(store: Tables, words: Collection[str]) -> Redaction:
    """Texts wherever they stand in a store: in any message, Call, task, setting, snapshot, label, note, report, memory.

    A message or a Call that holds one is erased whole, since its key covers all that it says; of what no key covers
    the words alone are erased. An item of a memory that holds one is deleted.

    Raises:
        BadInput: a text is too short to be told from others.
    """
    for word in words:
        if len(word.strip()) < SHORTEST:
            remedy = f"Give at least {SHORTEST} characters; everything that contains them is erased."
            raise BadInput(f"the text to erase has {len(word.strip())} characters", remedy=remedy)
    store.commit()
    sought = Words(words)
    plan = _plan(store, [store.row(run) for run in store.run_ids()], sought, set(), set())
    burial, counts, known = plan.burial, Counter(plan.counts), {node.key for node in plan.burial.nodes}
    tombs = store.tombstones()
    loose = [
        _empty(node, sought)
        for node in store.each_node()
        if node.key not in known and _spoken(node.message, sought) and not _clean(node, tombs)
    ]
    reports = {id: clean for id, one in store.reports().items() if (clean := _claimed(one, sought)) != one}
    groups = [store.group(id) for id in store.groups()]
    named = [g._replace(name=sought.masked(g.name), task_id=sought.masked(g.task_id)) for g in groups]
    said = [one for _, one in store.entries() if one.what != "deleted" and sought.says(one.body)]
    entries = [(one, one if one.what == "add" else _said_else(one, sought)) for one in said]
    notes = {place(a): a for a in burial.annotations}
    for a in store.annotations():
        if place(a) not in notes and sought.says(a.data):
            notes[place(a)] = a._replace(data=_json(a.data, sought.masked))
    blobs = [key for key in store.blob_keys() if sought.packed(store.blob(key))]
    burial = burial._replace(
        nodes=[*burial.nodes, *loose],
        annotations=[*notes.values()],
        reports=reports,
        groups=[now for now, was in zip(named, groups, strict=True) if now != was],
        entries=entries,
        blobs=blobs,
        words=sought.bytes,
    )
    counts |= {"messages": len(burial.nodes), "labels and other annotations": len(burial.annotations)}
    counts |= {"reports": len(reports), "groups": len(burial.groups), "entries of memories": len(entries)}
    counts["snapshots, images and shared texts"] = len(blobs)
    return Redaction(burial, _some(counts), _places(burial), sought.bytes)


def of_known(store: Tables, nodes: set[bytes], calls: set[tuple[str, int]]) -> Redaction:
    """These nodes and Calls alone, and Calls whose reply is one of the nodes; no repetitions."""
    return _plan(store, [store.row(run) for run in store.run_ids()], Texts(()), nodes, calls)


def done(store: Tables, plan: Redaction) -> list[str]:
    """Carry a plan out; gives the places that got a tombstone. Content that was erased before leaves the file, too."""
    burial = plan.burial
    store.forget([one.item for one, _ in burial.entries if one.what == "add"])
    store.annotate(burial.annotations)
    for group in burial.groups:
        store.put_group(group)
    store.bury(burial)
    return plan.places


# what a plan is made of


def _plan(
    store: Tables,
    rows: list[RunRow],
    sought: Sought,
    keys: set[bytes],
    targets: set[tuple[str, int]],
    whole: Collection[str] = (),
) -> Redaction:
    tombs = store.tombstones()
    nodes: dict[bytes, Node] = {key: _empty(store.node(key), sought) for key in keys}
    calls, places = [], dict[str, list[tuple[str, int]]]()  # of each run, where all its Calls stand
    gone = {(c.run, c.seq) for c in map(Cursor.parse, (where for where in tombs if "@" in where))} & targets
    for row in rows:
        for key in tree_of(store, row) - nodes.keys():
            node = store.node(key)
            if _spoken(node.message, sought):
                nodes[key] = _empty(node, sought)
        prev = b""
        places[row.id] = []
        for call in store.calls(row.id):
            places[row.id].append((call.run, call.seq))
            here = f"{call.run}@{call.seq}"
            prev = tombs.get(here) or issue_key(prev, call)
            hit = (call.run, call.seq) in targets or call.node_out in nodes
            held = call.run == row.id and _held(store, call, sought)
            if call.run != row.id:
                continue
            if held or (hit and here not in tombs):
                calls.append((row.id, _erased(call, sought), prev))
            elif (now := _rest(call, sought)) is not call:
                calls.append((row.id, now, prev))
    gone |= {(run, call.seq) for run, call, _ in calls}
    clean = []
    for row in rows:
        seqs = {seq for run, seq in places[row.id] if (run, seq) in gone}
        clean.append(_blank(row) if row.id in whole else _unsaid(row, sought, seqs))
    changed = [now for now, row in zip(clean, rows, strict=True) if now != row]
    notes = _annotated(store, [row.id for row in rows], gone | {(run, -1) for run in whole}, sought)
    left = [node for key, node in nodes.items() if not _clean(store.node(key), tombs)]
    burial = Burial(left, calls, changed, notes)
    counts = {"messages": len(left), "calls": len(calls), "tasks and arguments of runs": len(changed)}
    return Redaction(burial, _some(counts | {"labels and other annotations": len(notes)}), _places(burial))


def _some(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _places(burial: Burial) -> list[str]:
    return sorted([*(f"{run}@{c.seq}" for run, c, _ in burial.calls), *(node.key.hex() for node in burial.nodes)])


def _annotated(store: Tables, runs: list[str], gone: set[tuple[str, int]], sought: Sought) -> list[Annotation]:
    """What is said of runs, without what is erased: notes of people, and what methods quote."""
    notes = labels.unsaid(store, runs, gone, sought.says)
    known = {place(a) for a in notes}
    for a in store.annotations(runs):
        if a.data and a.method != labels.METHOD and place(a) not in known:
            data = _json(a.data, sought.masked)
            if data != a.data:
                notes.append(a._replace(data=data))
    was = {place(a): a.data for a in store.annotations(runs)}
    return [a for a in notes if a.data != was.get(place(a))]


def _texts(message: Message) -> set[str]:
    """Texts of a message whose repetitions are erased with it."""
    if message.redacted:
        return set()
    said = (message.text, message.reasoning, *(call.arguments for call in message.calls))
    return {*said, *PACKED.findall(message.extra)} - {""}


def _said(call: Call) -> set[str]:
    """The same of a Call: all it says, but the name of a note."""
    if call.redacted:
        return set()
    said = {*call.said, *PACKED.findall(call.extra)}
    return said - {"", call.action if call.kind in ("note", "draw", "now", "end") else ""}


def _spoken(message: Message, sought: Sought) -> bool:
    """Whether a message holds what is sought, in whatever part of it."""
    said = [message.role, message.text, message.reasoning, message.call_id or "", message.extra]
    said += [part for tool in message.calls for part in (tool.id, tool.name, tool.arguments)]
    images = PACKED.findall(message.extra)
    return any(map(sought.says, said + images)) or any(sought.packed(_bytes(image)) for image in images)


def _held(store: Tables, call: Call, sought: Sought) -> bool:
    """Whether a Call holds what is sought, in its texts, images or the snapshot of its world."""
    images = PACKED.findall(call.extra)
    if any(map(sought.says, (*call.said, *call.legal, call.extra, *images))):
        return call.kind != "end" or sought.says(call.text) or sought.says(call.error)
    if any(_spoken(sample.message, sought) for sample in call.packed):
        return True
    if any(sought.packed(_bytes(image)) for image in images):
        return True
    return bool(call.snapshot and isinstance(sought, Words) and sought.packed(store.blob(call.snapshot)))


def _bytes(image: str) -> bytes:
    return b64decode(image) if len(image) % 4 == 0 else b""


def _clean(node: Node, tombs: Mapping[str, bytes]) -> bool:
    """Whether nothing is left of a node to erase."""
    return node.key.hex() in tombs and node.message.redacted and node.message.text in ("", REDACTED)


def _empty(node: Node, sought: Sought) -> Node:
    role = sought.masked(node.message.role) if isinstance(sought, Words) else node.message.role
    return node._replace(message=Message(role, REDACTED, extra=GONE), ids=None)


_BLANK = Call("", 0, "note", b"", 0)
_CONTENT = ("legal", "snapshot", "packed", "logprobs", "entropies", "error", "inner", "kept")


def _erased(call: Call, sought: Sought) -> Call:
    """A tombstone: of an end the reason stays; of all Calls keys, numbers and times."""
    gone = call._replace(**{name: getattr(_BLANK, name) for name in _CONTENT}, extra=GONE)
    if call.kind == "end":
        return _rest(gone._replace(text=""), sought)
    action = action_text(ToolCall("", REDACTED, "{}")) if call.finish == "tool" else REDACTED
    shown = call.kind in ("open", "act")  # the text of others is JSON, or a value
    acts = call.kind in ("act", "recall", "note", "draw")
    return _rest(gone._replace(action=action if acts else "", text=REDACTED if shown else ""), sought)


def _rest(call: Call, sought: Sought) -> Call:
    """A Call without what is sought in errors of tries and in how a model was asked."""
    if isinstance(sought, Texts):
        return call
    tries = tuple(one._replace(error=sought.masked(one.error)) for one in call.attempts)
    if tries != call.attempts:
        call = call._replace(attempts=tries)
    setup = call.setup
    if setup is None:
        return call
    tools = tuple(
        tool for tool in setup.tools if not sought.says(json.dumps([tool.name, tool.description, tool.schema]))
    )
    asked, in_force = (_unasked(one, sought) for one in (setup.asked, setup.in_force))
    now = setup._replace(tools=tools, asked=asked, in_force=in_force, model=sought.masked(setup.model))
    now = now._replace(served_by=sought.masked(setup.served_by), weights=sought.masked(setup.weights))
    return call if now == setup else call._replace(setup=now, extra=call.extra or SETTINGS)


def _unasked(sampling: Sampling | None, sought: Sought) -> Sampling | None:
    if sampling is None:
        return None
    stop = tuple(sought.masked(text) for text in sampling.stop)
    grammar, shape = ("" if sought.says(text) else text for text in (sampling.grammar, sampling.shape))
    return sampling._replace(stop=stop, grammar=grammar, shape=shape)


def _said_else(one: Entry, sought: Sought) -> Entry:
    """A line about an item, as of a query that it was given for, without what is sought."""
    body = _json(one.body, sought.masked)
    return one._replace(body=body, key=entry_key(one.memory, one.item, one.at, one.what, body))


def _claimed(report: Report, sought: Sought) -> Report:
    masked = sought.masked
    caveats = tuple(map(masked, report.caveats))
    return replace(report, claim=masked(report.claim), design=masked(report.design), caveats=caveats)


def _unsaid(row: RunRow, sought: Sought, gone: set[int]) -> RunRow:
    """A run's row without what is sought: in the task, in edits (those of Calls ``gone`` lose their value), in the
    agent's arguments, in what an importer knew; words also in names."""
    changes = json.loads(row.changes) if row.changes else None
    for edit in changes["edits"] if changes else ():
        own = edit["seq"] in gone and edit["kind"] in ("reply", "prefix", "result")
        edit["value"] = REDACTED if own else _without(edit["value"], sought.masked)
    now = row._replace(
        task=_task(row.task, sought),
        changes=row.changes if not changes or json.loads(row.changes) == changes else json.dumps(changes),
        config=_json(row.config, sought.setting),
        meta=_json(row.meta, sought.masked),
    )
    if isinstance(sought, Words):
        now = now._replace(agent=sought.masked(row.agent), taskset=sought.masked(row.taskset))
        now = now._replace(model=sought.masked(row.model), task_id=sought.masked(row.task_id))
        now = now._replace(settings=_json(row.settings, sought.masked))
    return _marked(now, [name for name in _STARTED if getattr(now, name) != getattr(row, name)])


def _task(text: str, sought: Sought) -> str:
    """A task without what is sought; of whole texts its id and limits stay."""
    if isinstance(sought, Words) or not text:
        return _json(text, sought.masked)
    told = json.loads(text)
    now = told | {name: _without(told[name], sought.masked) for name in ("prompt", "data") if name in told}
    return text if now == told else json.dumps(now)


def _blank(row: RunRow) -> RunRow:
    """A run's row without all that it was told."""
    task = ""
    if row.task:
        told = json.loads(row.task)
        task = json.dumps(told | {"prompt": REDACTED, "data": {}})
    changes = json.loads(row.changes) if row.changes else None
    for edit in changes["edits"] if changes else ():
        edit["value"] = REDACTED
    now = row._replace(task=task, changes=json.dumps(changes) if changes else row.changes, config="{}", meta="{}")
    return row if MARK in json.loads(row.meta) and row.task == task else _marked(now, list(_STARTED))


def _marked(row: RunRow, names: list[str]) -> RunRow:
    if not names:
        return row
    meta = json.loads(row.meta or "{}")
    return row._replace(meta=json.dumps(meta | {MARK: sorted({*names, *meta.get(MARK, ())})}))


def marked(row: RunRow) -> list[str]:
    """What of a run's own row was redacted: some of task, changes, config."""
    found = json.loads(row.meta or "{}").get(MARK, ()) if MARK in row.meta else ()
    return [name for name in _STARTED if name in found]


def _json(text: str, masked: Callable[[str], str]) -> str:
    """JSON text, its strings masked; as it was where nothing in it changes. What is no JSON is masked as a text."""
    if not text:
        return text
    try:
        was = json.loads(text)
        now = _without(was, masked)
        return text if now == was else json.dumps(now)
    except (ValueError, RecursionError):
        return masked(text)


def _without(value: object, masked: Callable[[str], str]) -> object:
    """JSON whose strings are masked, and its numbers that are what is sought. Names that Clew gave stay."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [_without(one, masked) for one in value]
    if isinstance(value, dict):
        return {
            name if name.isidentifier() and len(name) < LONG else masked(name): _without(one, masked)
            for name, one in value.items()
        }
    if isinstance(value, (int, float)) and masked(json.dumps(value)) == REDACTED:
        return REDACTED
    return value


def known_gone(store: Tables, runs: Iterable[str]) -> list[str]:
    """Of these runs, those with a message that was redacted: it stays so when it comes in anew."""
    tombs = store.tombstones()
    rows = (store.row(run) for run in (runs if tombs else ()))
    return [row.id for row in rows if any(key.hex() in tombs for key in tree_of(store, row))]


def leftovers(call: Call) -> bool:
    """Whether a Call that has a tombstone holds content all the same."""
    if call.extra == SETTINGS:
        return False
    if call.extra != GONE:  # older tombstones have no mark
        return bool(call.action or call.text)
    arrays = call.logprobs is not None or call.entropies is not None
    held = (call.error, call.legal, call.packed, call.inner, call.kept, call.snapshot)
    return arrays or any(held) or call.text not in ("", REDACTED)


# uniting stores


class Withheld(NamedTuple):
    """Of another store what was redacted in this one, as tombstones, by key, place and run; and blobs of its own."""

    nodes: dict[bytes, Node]
    calls: dict[tuple[str, int], Call]
    rows: dict[str, RunRow]
    annotations: dict[Place, Annotation]
    blobs: set[bytes]
    issues: dict[tuple[str, int], bytes]

    @classmethod
    def nothing(cls) -> Withheld:
        return cls({}, {}, {}, {}, set(), {})


def withheld(store: Tables, other: Tables) -> Withheld:
    """What ``other`` still says where ``store`` has tombstones, with its repetitions there.

    A union must not bring it back: whoever erased it here meant every copy of it.
    """
    theirs = other.tombstones()
    places = [where for where in store.tombstones() if where not in theirs]
    keys = {*other.node_keys([bytes.fromhex(where) for where in places if "@" not in where])}
    runs, calls, texts = {*other.run_ids()}, set[tuple[str, int]](), set[str]()
    for cursor in (Cursor.parse(where) for where in places if "@" in where):
        if cursor.run in runs:
            for call in other.calls(cursor.run, cursor.seq, cursor.seq + 1):
                if call.run == cursor.run:
                    calls.add((call.run, call.seq))
                    texts |= _said(call)
    if not keys and not calls:
        return Withheld.nothing()
    for key in keys:
        texts |= _texts(other.node(key).message)
    rows = {run: other.row(run) for run in runs}
    family = {run for run in runs if keys & tree_of(other, rows[run])}
    for run, _ in calls:
        family |= family_of(rows, run)
    burial = _plan(other, [rows[run] for run in rows if run in family], Texts(texts), keys, calls).burial
    spoken = {(run, call.seq): call for run, call, _ in burial.calls}
    blobs = {key for node in burial.nodes for key in _blobs(other.node(node.key).message.extra)}
    for run, call, _ in burial.calls:
        was = other.calls(run, call.seq, call.seq + 1)[0]
        legal = json.dumps(was.legal, sort_keys=True, separators=(",", ":")).encode()
        blobs |= {was.snapshot, blob_key(legal), *_blobs(was.extra)} - {b""}
    blobs |= {blob_key(encode(rows[row.id].task)) for row in burial.rows}
    issues = {(run, call.seq): issue for run, call, issue in burial.calls}
    changed = {row.id: row for row in burial.rows}
    notes = {place(a): a for a in burial.annotations}
    return Withheld({n.key: n for n in burial.nodes}, spoken, changed, notes, blobs, issues)


def _blobs(extra: str) -> Iterator[bytes]:
    """Keys of the images in ``extra``, as a store in SQL keeps them."""
    return (blob_key(_bytes(image)) for image in PACKED.findall(extra))
