"""Records as an Arrow table and back: the schema of every file in the store."""

from __future__ import annotations

import collections.abc
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from foretell.data.record import Record, field_types
from foretell.errors import InputError

SCHEMA_VERSION = "1"
_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    tuple: pa.list_(pa.float64()),
    collections.abc.Mapping: pa.string(),
}
_FIELDS = field_types()
_MAPPINGS = tuple(n for n, (kind, _) in _FIELDS.items() if kind is collections.abc.Mapping)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        *(pa.field(name, _ARROW[kind], nullable=empty) for name, (kind, empty) in _FIELDS.items()),
    ],
    metadata={"foretell.schema": SCHEMA_VERSION},
)


def to_table(records: Iterable[Record]) -> pa.Table:
    """One row per record; mappings become JSON text."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for record in records:
        columns["id"].append(record.id)
        for name in _FIELDS:
            value = getattr(record, name)
            columns[name].append(_as_json(value) if name in _MAPPINGS else value)
    return pa.table(columns, schema=SCHEMA)


def to_records(table: pa.Table) -> Iterator[Record]:
    """The records of a table, in its order."""
    for batch in table.select(list(_FIELDS)).to_batches(max_chunksize=4096):
        yield from map(to_record, batch.to_pylist())


def to_record(row: dict[str, Any]) -> Record:
    """The record of one row, whose mappings are still text."""
    values = {name: row[name] for name in _FIELDS}
    for name in _MAPPINGS:
        values[name] = json.loads(values[name])
    values["resources"] = tuple(values["resources"])
    return Record(**values)


def check_schema(schema: pa.Schema, path: str) -> None:
    """Refuse a file that is not one of the store's."""
    if not schema.equals(SCHEMA):
        version = (schema.metadata or {}).get(b"foretell.schema", b"none").decode()
        raise InputError(
            f"measurements {path!r} have schema {version}, this version reads {SCHEMA_VERSION}: "
            "remove the file, or export and import it with the version that wrote it"
        )


def first_line(error: Exception) -> str:
    """What Arrow says about a file, without its listings."""
    return next(iter(str(error).strip().splitlines()), "").rstrip(" .:") or type(error).__name__


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
