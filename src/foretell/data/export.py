"""Measurements as one file for other programs: Parquet, CSV or JSON lines."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from foretell.data.columns import SCHEMA, to_records
from foretell.data.record import Record
from foretell.errors import CannotError, InputError

FORMATS = (".parquet", ".csv", ".jsonl")


def check_format(path: Path) -> str:
    """The format a file's name asks for."""
    if path.suffix not in FORMATS:
        raise InputError(
            f"{str(path)!r} ends in no format that can be written: use {', '.join(FORMATS)}"
        )
    return path.suffix


def export(table: pa.Table, path: Path) -> None:
    """Write all rows; the file is there whole or, if anything goes wrong, as it was before."""
    form = check_format(path)
    with whole_file(path, binary=form == ".parquet") as stream:
        if form == ".parquet":
            pq.write_table(table, stream, compression="zstd")
        elif form == ".csv":
            _write_csv(table, stream)
        else:
            for record in to_records(table):
                stream.write(json.dumps(plain(record)) + "\n")


def write_rows(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A plain CSV file, whole or not at all."""
    with whole_file(path, binary=False) as stream:
        csv.writer(stream).writerows([list(header), *map(list, rows)])


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON knows it, with its id."""
    return {"id": record.id, **{n: getattr(record, n) for n in SCHEMA.names if n != "id"}}


@contextlib.contextmanager
def whole_file(path: Path, *, binary: bool) -> Iterator[IO[Any]]:
    """A stream to a file that takes its name once all is written."""
    if not path.parent.is_dir():
        raise InputError(
            f"{str(path)!r} cannot be written: there is no directory {str(path.parent)!r}; make it "
            "or name another"
        )
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        text = {} if binary else {"encoding": "utf-8", "newline": ""}
        with part.open("xb" if binary else "x", **text) as stream:  # type: ignore[call-overload]
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise CannotError(
            f"{str(path)!r} cannot be written: {error.strerror or error}; free space or name "
            "another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def check_place(path: Path, option: str) -> None:
    """Refuse a file that cannot be made, before the work that would fill it."""
    if not path.parent.is_dir():
        raise InputError(f"{option} {str(path)!r}: there is no directory {str(path.parent)!r}")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InputError(
            f"{option} {str(path)!r} cannot be written ({error.strerror}): name another place"
        ) from error


def _write_csv(table: pa.Table, stream: IO[str]) -> None:
    """Mappings stay JSON text; the numbers of usage curves are joined by blanks."""
    writer = csv.writer(stream)
    writer.writerow(table.column_names)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            row["resources"] = " ".join(map(str, row["resources"]))
            writer.writerow(["" if value is None else value for value in row.values()])
