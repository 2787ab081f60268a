"""Measurements wherever they are kept: a store, or a file that one was exported to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foretell.data.columns import check_schema, to_records
from foretell.data.record import Record
from foretell.data.store import Store
from foretell.errors import InputError


def measurements_in(place: Path) -> Iterator[Record]:
    """All records of a store's directory or of a .parquet file."""
    if place.is_dir():
        yield from Store(place).records()
        return
    if place.suffix != ".parquet" or not place.is_file():
        raise InputError(
            f"{str(place)!r} is neither a store's directory nor a .parquet file: "
            "'foretell data export' writes one"
        )
    try:
        table = pq.read_table(place)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{str(place)!r} cannot be read: {error}") from error
    check_schema(table.schema, str(place))
    yield from to_records(table)
