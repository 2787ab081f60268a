"""The store: a directory of Parquet files that only ever gains rows.

Every append is one new file, written aside, synced and renamed, so that a reader sees it whole or
not at all, writers need not know of each other, and a kill at any moment loses no earlier row.
Compacting writes one large file before it removes the small ones it holds; rows are told apart by
their id, so a kill in between leaves nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foretell.data.columns import SCHEMA, check_schema, first_line, to_records, to_table
from foretell.data.record import Record
from foretell.errors import CannotError, InputError

ENVIRONMENT_VARIABLE = "FORETELL_STORE"
_ROWS_PER_FILE = 50_000
_SUFFIX = ".parquet"
_UNFINISHED = ".part"
_ABANDONED_S = 3600.0


def default_store() -> Store:
    """The store FORETELL_STORE names, else the user's own."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        return Store(Path(chosen))
    base = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
    return Store(Path(base) / "foretell" / "measurements")


class Store:
    """Measurements in a directory. Any number of processes may append and read at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def append(self, records: Iterable[Record]) -> int:
        """Add records and return how many; on disk for good when this returns."""
        added = 0
        for part in _chunks(records, _ROWS_PER_FILE):
            self._write(to_table(part))
            added += len(part)
        return added

    def check_writable(self) -> None:
        """Refuse a place that takes no files, before anything is measured for it."""
        is_new = not self.directory.exists()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.directory).close()
            if is_new:
                self.directory.rmdir()
        except OSError as error:
            raise InputError(
                f"measurements cannot be kept in {str(self.directory)!r} ({error.strerror}): name "
                "another place with --store"
            ) from error

    def table(self, **equal: str) -> pa.Table:
        """All rows, each id once, in the order of writing; `equal` keeps columns of one value."""
        table = self._whole()
        for name, value in equal.items():
            if name not in SCHEMA.names:
                raise InputError(f"measurements have no column {name!r}: use {SCHEMA.names}")
            table = table.filter(pc.equal(table[name], value))
        return _distinct(table)

    def records(self, **equal: str) -> Iterator[Record]:
        """The rows as records."""
        return to_records(self.table(**equal))

    def ids(self) -> set[str]:
        """The ids of all rows."""
        return {i for table in self._tables(["id"]) for i in table["id"].to_pylist()}

    def files(self) -> list[Path]:
        """Files that hold rows, oldest first."""
        return sorted(self.directory.glob(f"*{_SUFFIX}"))

    def compact(self) -> int:
        """Join all files into as few as may be; returns how many rows they hold."""
        self._remove_abandoned()
        old = self.files()
        table = self.table()
        if len(old) > 1:
            for start in range(0, table.num_rows, _ROWS_PER_FILE):
                self._write(table.slice(start, _ROWS_PER_FILE))
            for path in old:
                path.unlink(missing_ok=True)
        return int(table.num_rows)

    def _write(self, table: pa.Table) -> None:
        # Sorting by name is sorting by time; the rest of the name keeps writers apart.
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"
        part = self.directory / f"{name}{_UNFINISHED}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as stream:
                pq.write_table(table, stream, compression="zstd")
                stream.flush()
                os.fsync(stream.fileno())
            part.rename(part.with_suffix(_SUFFIX))
            _sync(self.directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise CannotError(
                f"measurements cannot be written to {str(self.directory)!r}: {error.strerror}; "
                "free space or name another place with --store"
            ) from error

    def _whole(self) -> pa.Table:
        tables = self._tables()
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def _tables(self, columns: list[str] | None = None) -> list[pa.Table]:
        while True:
            try:
                return [self._read(path, columns) for path in self.files()]
            except FileNotFoundError:  # a compaction beside us has joined it with others
                continue

    def _read(self, path: Path, columns: list[str] | None) -> pa.Table:
        try:
            with pq.ParquetFile(path) as file:
                check_schema(file.schema_arrow, str(path))
                return file.read(columns)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"measurements {str(path)!r} cannot be read ({first_line(error)}): "
                "remove the file, the rest is whole"
            ) from error

    def _remove_abandoned(self) -> None:
        """What killed writers left half written."""
        for path in self.directory.glob(f"*{_UNFINISHED}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()


def _distinct(table: pa.Table) -> pa.Table:
    """The first row of each id."""
    if not table.num_rows:
        return table
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    first = numbered.group_by("id").aggregate([("row", "min")])["row_min"]
    if len(first) == table.num_rows:
        return table
    return table.take(first.combine_chunks().sort())


def _chunks(records: Iterable[Record], size: int) -> Iterator[list[Record]]:
    iterator = iter(records)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _sync(directory: Path) -> None:
    """Make a rename last; file systems that cannot are left as they are."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
