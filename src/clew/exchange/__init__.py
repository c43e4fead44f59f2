"""Import and export of runs: messages in OpenAI's format, Parquet, Inspect logs, ATIF, OpenTelemetry, session logs."""

from __future__ import annotations

import importlib
from base64 import b32encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.exchange.files import LINE, Skipped, head
from clew.exchange.transcript import Transcript, recall, record, record_group, task_id_of, turns_of
from clew.store import Keeper, Run, open_store

__all__ = ["FORMATS", "Transcript", "export", "format_of", "import_file", "recall", "record"]


class Format(Protocol):
    """A module of this package that reads one kind of file."""

    SUFFIXES: tuple[str, ...]

    def read(self, path: Path) -> Iterator[Transcript | BadRecord]: ...


@runtime_checkable
class Writes(Protocol):
    """A format that can be written, from what other programs know of a run."""

    def write(self, path: Path, transcripts: Iterable[Transcript]) -> int: ...


@runtime_checkable
class WritesRuns(Protocol):
    """A format that can be written, from all that is recorded of a run."""

    def write_runs(self, path: Path, runs: Iterable[Run]) -> int: ...


@runtime_checkable
class Recognises(Protocol):
    """A format whose files are known by how they begin."""

    def recognises(self, head: bytes, suffix: str) -> bool: ...


FORMATS = {"openai": "openai_jsonl", "parquet": "parquet", "inspect": "inspect_log", "atif": "atif"}
FORMATS |= {"otel": "telemetry.file", "mini-swe-agent": "sessions.mini_swe"}
FORMATS |= {"codex": "sessions.codex", "claude-code": "sessions.claude_code"}
JSON = (
    ".json",
    ".jsonl",
    ".ndjson",
    ".jsonl.gz",
    ".jsonl.zst",
)  # endings that say too little: the file itself is looked at


def format_of(path: str | Path, format: str | None = None) -> str:
    """The format of a file by its name, or the one given.

    Raises:
        UnknownName: there is no such format. BadInput: the name says none.
    """
    if format is not None:
        if format not in FORMATS:
            raise UnknownName(f"no format is called {format!r}", remedy=f"Known: {', '.join(FORMATS)}.")
        return format
    name = Path(path).name.lower()
    fits = [(len(end), known) for known in FORMATS for end in _module(known).SUFFIXES if name.endswith(end)]
    if fits:
        return max(fits)[1]
    remedy = f"Give the format ({', '.join(FORMATS)}), or a name that ends in .jsonl, .parquet, .eval or .json."
    raise BadInput(f"{name!r} does not say what is in it", remedy=remedy)


def import_file(
    store: str | Path | Keeper,
    path: str | Path,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    on_bad: Callable[[BadRecord], None] | None = None,
    progress: Callable[[int], None] | None = None,
    name: str = "",
) -> list[str]:
    """Import a file's runs, all in one commit; runs of one task become one group of kind iid.

    Each becomes a run of the agent ``transcript``: it can be shown, compared, replayed, judged and forked; a fork
    samples the next reply. Rewards and scores become annotations on the run; what has no name here stays in
    ``RunRow.meta``.

    Args:
        skip_bad: import the good records of a file that also has broken ones; else nothing of it is imported.
        on_bad: called with each broken record that is skipped, and each broken line of a log that is read without it.
        progress: called with the number of runs so far.
        name: of the groups; the file's name by default.

    Returns:
        The new runs' ids, in the order of the file.

    Raises:
        BadRecord: a broken record, by file and line. BadInput: the file cannot be read. MissingExtra: its format
        needs a package that is not installed.
    """
    keeper, path = open_store(store), Path(path)
    chosen = _inside(path) if format is None else format_of(path, format)
    transcripts = _all(_module(chosen), path, skip_bad, on_bad)  # before anything is written
    runs, same = list[str](), _content(transcripts)
    groups: dict[str, tuple[str, int, list[str]]] = {}
    new = 0
    while transcripts:
        it = transcripts.popleft()
        task = it.task_id or task_id_of(turns_of(it.messages)[0])
        group, index, members = groups.setdefault(task, (_named(same, task), len(groups), []))
        order = (0, index, len(members))
        run = _named(same, task, len(members))
        if not _here(keeper, run):
            record(keeper, it._replace(task_id=task), run=run, group=group, order=order, format=chosen)
            new += 1
        members.append(run)
        runs.append(run)
        if progress is not None:
            progress(len(runs))
    if new < len(runs) and on_bad is not None:
        told = f"{path.name}: {len(runs) - new} of its {len(runs)} runs are here already, of the same content"
        on_bad(Skipped(told, remedy="They stand once, as they were."))
    for task, (group, _, members) in groups.items() if new else ():
        record_group(keeper, task, group, members, name or path.name)
    keeper.commit()
    return runs


def _all(reader: Format, path: Path, skip_bad: bool, on_bad: Callable[[BadRecord], None] | None) -> deque[Transcript]:
    """All transcripts of a file.

    Raises:
        BadRecord: a broken record that is not to be skipped, or no record at all.
    """
    transcripts = deque[Transcript]()
    for found in reader.read(path):
        if isinstance(found, Transcript):
            transcripts.append(found)
        elif not skip_bad and not isinstance(found, Skipped):
            raise found
        elif on_bad is not None:
            on_bad(found)
    if not transcripts:
        raise BadRecord(f"{path.name} holds no run", remedy="See `clew import --help` for what a file must look like.")
    return transcripts


def _content(transcripts: Iterable[Transcript]) -> bytes:
    """A digest of all that a file holds, wherever it lies and whatever it is called."""
    whole = blake2b(digest_size=16)
    for it in transcripts:
        meters = [*it.meters, *(meter for took in it.other_meters for meter in took)]
        logprobs = [None if m.logprobs is None else m.logprobs.tolist() for m in meters]
        plain = [m._replace(logprobs=None) for m in meters]
        rest = it._replace(where="", meters=(), other_meters=())
        whole.update(repr((rest, plain, logprobs)).encode("utf-8", "surrogatepass"))
    return whole.digest()


def _named(content: bytes, task: str, place: int = -1) -> str:
    """The id of a task's group, or of its run at a place, in a file of this content: the same at each import."""
    found = blake2b(b"%b %d %b" % (content, place, task.encode("utf-8", "surrogatepass")), digest_size=8).digest()
    return b32encode(found).decode().lower()[:12]


def _here(keeper: Keeper, run: str) -> bool:
    try:
        keeper.row(run)
    except UnknownName:
        return False
    return True


def export(
    store: str | Path | Keeper,
    runs: Iterable[Run | str],
    path: str | Path,
    format: str | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write runs to a file, whole or not at all; gives how many it holds. ``recall`` says what is written of a run.

    A run that asked no model has no messages and is left out.

    Raises:
        BadInput: there are none, none asked a model, or the file cannot be written. UnknownName: no such run or format.
    """
    keeper, path = open_store(store), Path(path)
    form = format_of(path, format)
    writer = _module(form)
    chosen = list(runs)
    if not chosen:
        raise BadInput("no run to export", remedy="Choose runs by id or by a query that selects some.")

    def whole() -> Iterator[Run]:
        for count, run in enumerate(chosen, 1):
            yield run if isinstance(run, Run) else keeper.run(run)
            if progress is not None:
                progress(count)

    def recalled() -> Iterator[Transcript]:
        empty = True
        for run in whole():
            found = recall(run)
            if found.messages:
                empty = False
                yield found
        if empty:
            remedy = "Choose runs with model calls; what other runs did is exported by `clew export --sft`."
            raise BadInput("none of these runs asked a model, so that they hold no messages", remedy=remedy)

    if isinstance(writer, WritesRuns):
        return writer.write_runs(path, whole())
    if isinstance(writer, Writes):
        return writer.write(path, recalled())
    known = ", ".join(name for name in FORMATS if isinstance(_module(name), (Writes, WritesRuns)))
    raise BadInput(f"{form} is read, not written", remedy=f"Export as one of these: {known}.")


def files_in(folder: Path) -> list[Path]:
    """The files below a folder that can be imported, by their names and content; logs of sub-agents go with theirs.

    Raises:
        BadInput: there is none.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.parent.name != "subagents" and not path.name.startswith("."):  # half-written
            with suppress(BadInput):
                if path.name.lower().endswith(JSON):
                    known = _recognised(path) is not None
                else:
                    known = format_of(path) in FORMATS
                found += [path] if known else []
    if not found:
        remedy = "Name files, or a folder with session logs, spans, .parquet or .eval files in it."
        raise BadInput(f"nothing below {folder} is known to hold runs", remedy=remedy)
    return found


def _inside(path: Path) -> str:
    """The format of a file by its content where its name says too little, else by its name.

    Raises:
        BadInput: neither says one, or the file cannot be read.
    """
    if path.name.lower().endswith(JSON):
        if (found := _recognised(path)) is not None:
            return found
        if path.suffix == ".json":
            return "openai"  # all others say of themselves what they are
    return format_of(path)


def _recognised(path: Path) -> str | None:
    """The format that a file's content says; None where it says none.

    Raises:
        BadInput: the file cannot be read.
    """
    begin = head(path, LINE if path.suffix == ".json" else 1 << 20)
    for name in FORMATS:
        if isinstance(module := _module(name), Recognises) and module.recognises(begin, path.suffix):
            return name
    return None


def _module(format: str) -> Format:
    return cast(Format, importlib.import_module(f"clew.exchange.{FORMATS[format]}"))
