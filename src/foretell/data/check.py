"""What is wrong with the files of a store, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foretell.data.columns import check_schema, first_line, to_record
from foretell.errors import InputError

_BATCH_ROWS = 4096


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    file: str
    row: int | None
    """Counted from zero; None when it is the file."""
    what: str


@dataclass(frozen=True)
class Checked:
    """A stretch of rows that was looked at."""

    rows: int
    faults: tuple[Fault, ...]


def check_file(path: Path) -> Iterator[Checked]:
    """Look at every row of a file: its schema, its values, and whether its id is its own."""
    try:
        with pq.ParquetFile(path) as file:
            check_schema(file.schema_arrow, path.name)
            start = 0
            for batch in file.iter_batches(_BATCH_ROWS):
                rows = enumerate(batch.to_pylist(), start)
                wrong = ((place, _wrong(row)) for place, row in rows)
                found = tuple(Fault(path.name, place, what) for place, what in wrong if what)
                yield Checked(batch.num_rows, found)
                start += batch.num_rows
    except InputError as error:
        yield Checked(0, (Fault(path.name, None, str(error)),))
    except (OSError, pa.ArrowException) as error:
        said = f"file cannot be read ({first_line(error)}): remove it"
        yield Checked(0, (Fault(path.name, None, said),))


def _wrong(row: dict[str, Any]) -> str:
    """What is wrong with a row; empty when nothing is."""
    try:
        record = to_record(row)
    except InputError as error:
        return str(error)
    except (ValueError, TypeError):
        return "a mapping is not JSON"
    return "" if record.id == row["id"] else f"id {row['id']!r} is not that of its values"
