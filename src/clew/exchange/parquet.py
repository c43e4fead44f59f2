"""Parquet, one run a row, for data frames and ``datasets``.

Columns: ``task_id``, ``reward``, ``scores``, ``model``, ``messages`` (list of role, content, reasoning_content,
tool_calls with arguments as JSON text, tool_call_id, name), ``annotations`` (list of message, method, value, values:
what methods say of the replies) and ``line``, the whole run as one line of OpenAI-format JSONL. Reading takes ``line``
where it is present, so that nothing is lost; else it makes do with the other columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, BadRecord, need
from clew.exchange import files
from clew.exchange.files import Skipped, brief
from clew.exchange.openai_jsonl import line_of, transcript_of
from clew.exchange.transcript import Transcript
from clew.models.dialects import chat
from clew.models.dialects.foreign import neutral

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".parquet",)
PARSED = ("messages", "tools", "scores", "conversations", "prompt", "completion")  # columns that may be JSON text
ROWS = 256  # runs held at once while writing


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    return need("pyarrow", "frames"), need("pyarrow.parquet", "frames")


def schema(pa: ModuleType) -> pyarrow.Schema:
    """The columns of a row."""
    text = pa.large_string()
    function = pa.struct([("name", text), ("arguments", text)])
    call = pa.struct([("id", text), ("type", text), ("function", function)])
    plain = [(name, text) for name in ("role", "content", "reasoning_content", "tool_call_id", "name")]
    message = pa.struct([*plain, ("tool_calls", pa.list_(call))])
    number = pa.float64()
    value = pa.struct([("message", pa.int64()), ("method", text), ("value", number), ("values", pa.list_(number))])
    columns = [("task_id", text), ("reward", number), ("scores", pa.map_(text, number)), ("model", text)]
    columns += [("messages", pa.large_list(message)), ("annotations", pa.large_list(value)), ("line", text)]
    return pa.schema(columns)


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """Transcripts of a file's rows; a row that is none gives its error in its place.

    Raises:
        As ``rows_of``.
    """
    told = set[str]()
    for number, row in rows_of(path, only="line"):
        for name in [name for name, value in row.items() if _bytes(value)]:
            del row[name]
            if name not in told:
                told.add(name)
                remedy = "The rest of each row is imported."
                yield Skipped(f"{path.name}: the column {brief(name)} holds bytes and is left out", remedy=remedy)
        yield _transcript(row, f"{path.name}:{number}")


def rows_of(path: Path, only: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a file, numbered from 1.

    Args:
        only: read this column alone, where there is one of that name.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is no Parquet file, or unpacks to too much. MissingExtra: pyarrow
        is not installed.
    """
    pa, parquet = _pyarrow()
    number = 0
    try:
        with parquet.ParquetFile(path, read_dictionary=_texts(parquet, path)) as file:
            claimed, unpacked = files.Budget(path), files.Budget(path)
            for group in range(file.metadata.num_row_groups):
                about = file.metadata.row_group(group)
                claimed.spend(max(0, about.total_byte_size))  # both sums may lie; what comes is counted below
                claimed.spend(sum(max(0, about.column(i).num_values) for i in range(about.num_columns)))
            columns = [only] if only in file.schema_arrow.names else None
            for batch in file.iter_batches(ROWS, columns=columns):
                for at in range(batch.num_rows):  # one at a time: equal texts are one in the batch, many as values
                    number += 1
                    (row,) = batch.slice(at, 1).to_pylist()
                    unpacked.spend(_size(row))
                    yield number, row
    except (OSError, pa.ArrowException, ValueError) as error:  # UnicodeDecodeError is a ValueError
        if isinstance(error, OSError) and error.errno is not None:
            raise files.unusable(path, error) from error
        said = " ".join(str(error).split())[:200]  # Arrow calls a torn footer an OSError too
        raise BadRecord(f"{path.name}: {said}", remedy="Give a Parquet file.") from error


def _texts(parquet: ModuleType, path: Path) -> list[str]:
    """The columns of texts, which are read as a dictionary with indices: many equal texts take the room of one."""
    schema = parquet.read_metadata(path).schema
    columns = [schema.column(i) for i in range(len(schema))]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _size(value: object) -> int:
    """About how many bytes a row takes as text."""
    if isinstance(value, (dict, list)):
        return 8 + sum(map(_size, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, (str, bytes)) else 8


def _transcript(row: dict[str, Any], where: str) -> Transcript | BadRecord:
    try:
        if isinstance(row.get("line"), str):
            return transcript_of(files.loads(row["line"]), where)
        row = {k: _finite(v) for k, v in row.items()}
        row = {k: _parsed(v) if k in PARSED else v for k, v in row.items() if v is not None}
        if isinstance(row.get("scores"), list):
            row["scores"] = dict(row["scores"])
        if isinstance(row.get("messages"), list):
            row["messages"] = [_filled(m) for m in row["messages"]]
        return transcript_of(files.loads(files.dumps(row, default=_as_text)), where)
    except (BadInput, ValueError) as error:
        said = error.message if isinstance(error, BadInput) else str(error)
        return BadRecord(f"{where}: {said}", remedy='A row needs a "line" of JSON, or "messages" in OpenAI\'s format.')


def _bytes(value: object) -> bool:
    """Whether bytes stand anywhere in a value, as images do in columns of datasets."""
    if isinstance(value, (dict, list, tuple)):
        return any(map(_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)


def _finite(value: object) -> object:
    """A value with null in place of NaN, which data frames write where there is nothing."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parsed(value: object) -> object:
    """A column that may be JSON text: so datasets keep what differs in form from row to row."""
    text = value.strip() if isinstance(value, str) else ""
    return files.loads(text) if text[:1] in ("[", "{") else value


def _as_text(value: object) -> str:
    """Dates, times and decimals, for which JSON has no form."""
    if isinstance(value, bytes):
        raise TypeError("a column of bytes")
    return str(value)


def _filled(message: object) -> object:
    """A struct's fields that are not null; null content stays, as it means something."""
    if not isinstance(message, dict):
        return message
    kept = {k: v for k, v in message.items() if v is not None or k == "content"}
    if isinstance(calls := kept.get("tool_calls"), list):
        kept["tool_calls"] = [_without_gaps(call) for call in calls]
    return kept


def _without_gaps(value: object) -> object:
    """A call without the null fields that a column of structs gives it, for the arguments of other rows."""
    if isinstance(value, dict):
        return {k: _without_gaps(v) for k, v in value.items() if v is not None}
    return value


def write(path: Path, transcripts: Iterable[Transcript]) -> int:
    """Write one row for each transcript; gives their number.

    Raises:
        BadInput: the file cannot be written. MissingExtra: pyarrow is not installed.
    """
    pa, parquet = _pyarrow()
    columns, count, rows = schema(pa), 0, list[dict[str, Any]]()
    with files.replacing(path) as beside, parquet.ParquetWriter(beside, columns) as writer:
        for it in transcripts:
            rows.append(row_of(it))
            count += 1
            if len(rows) == ROWS:
                writer.write_table(pa.Table.from_pylist(rows, columns))
                rows.clear()
        writer.write_table(pa.Table.from_pylist(rows, columns))
    return count


def row_of(it: Transcript) -> dict[str, Any]:
    """One run as a row."""
    messages = []
    for m in neutral(it.messages, chat.NAME, named=True):
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in m.calls
        ]
        row = {"role": m.role, "content": m.text, "reasoning_content": m.reasoning or None, "tool_calls": calls or None}
        name = chat.message_to_wire(m).get("name")
        messages.append(row | {"tool_call_id": m.call_id, "name": name if isinstance(name, str) else None})
    line = files.dumps(line_of(it)).decode()
    values = [
        {
            "message": v.message,
            "method": v.method,
            "value": v.value,
            "values": None if v.values is None else [*v.values],
        }
        for v in it.values
    ]
    about: dict[str, Any] = {
        "task_id": it.task_id,
        "reward": it.reward,
        "scores": [*it.scores.items()],
        "model": it.model or None,
    }
    about |= {"messages": messages, "annotations": values, "line": line}
    return {k: clean(v) for k, v in about.items()}


def clean(value: object) -> object:
    """Arrow text is strict UTF-8; a lone surrogate shows as a question mark here and is kept in ``line``."""
    if isinstance(value, str):
        return files.whole_text(value)
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(map(clean, value))
    return [clean(v) for v in value] if isinstance(value, list) else value
