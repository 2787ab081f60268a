"""A timed operator as a record; references that tables repeat row by row are built once."""

from __future__ import annotations

from functools import cache
from typing import Any

from foretell.data.importers.hardware import known_cluster
from foretell.data.record import Record
from foretell.graph.sources.op_shape import op_reference


def operator_record(model: str, device: str, **fields: Any) -> Record:
    """A record of an operator on one device; `device` is empty where it is not told."""
    return Record(
        kind="operator",
        model=model,
        cluster=known_cluster(device),
        device=device,
        group=model,
        **fields,
    )


@cache
def linear(inner: int, outer: int) -> str:
    """A product with a matrix of so many rows and columns."""
    return op_reference("linear", **{"in": inner, "out": outer})


@cache
def rowwise(name: str, width: int) -> str:
    """An operator over rows of so many numbers."""
    return op_reference(name, width=width)
