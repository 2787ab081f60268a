"""A log as a trace for a cluster: shapes for its jobs, lengths in iterations, known devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretell.cluster import aliases
from foretell.errors import InputError, UnknownNameError
from foretell.graph.graph import Floats, Ints
from foretell.schedule.placement import Placement
from foretell.schedule.pool import PoolSpec
from foretell.schedule.readers import Row
from foretell.schedule.shape import Shape, data_parallel
from foretell.schedule.trace import NONE, Trace
from foretell.schedule.typical import typical_shape


def silent_shape(row: Row) -> Shape:
    """Devices that tell each other nothing: it does not matter where they are."""
    return data_parallel(row.devices, compute_s=1.0, parameter_bytes=0.0)


TRAFFIC: Mapping[str, Callable[[Row], Shape]] = {"none": silent_shape, "typical": typical_shape}
"""What jobs of a log are taken to tell each other, which logs do not say."""


def trace_of(
    rows: Sequence[Row], pools: Sequence[PoolSpec], traffic: str = "none", load: float = 1.0
) -> Trace:
    """Jobs in the order of `rows`, which is that of their arrival.

    How long a job had its devices is how long it takes on the fewest servers, unless that was
    forecast; arrivals follow each other `load` times as fast.
    """
    if traffic not in TRAFFIC:
        raise UnknownNameError("traffic", traffic, TRAFFIC, f"use one of {', '.join(TRAFFIC)}")
    if not 0 < load < float("inf"):
        raise InputError(f"load {load:g} must be above zero")
    shape_for, shapes = TRAFFIC[traffic], dict[Shape, int]()
    made = (row.shape or shape_for(row) for row in rows)
    shape = np.array([shapes.setdefault(each, len(shapes)) for each in made])
    _check_sizes(rows, pools)
    least = _least_s(tuple(shapes), pools)
    texts: dict[str, int] = {}
    submit_s = _column(rows, "submit_s")
    arrival_s = (submit_s - submit_s[0]) / load
    deadline_s = arrival_s + (_column(rows, "deadline_s") - submit_s)
    wants, devices_wanted = _wants(rows, pools)
    return Trace(
        ids=[row.id for row in rows],
        arrival_s=arrival_s,
        iterations=_iterations(rows, least[shape]),
        stated=_column(rows, "iterations"),
        doubt=_column(rows, "doubt"),
        shapes=tuple(shapes),
        shape=shape,
        user=_filed([row.user for row in rows], texts),
        group=_filed([row.group for row in rows], texts),
        name=_filed([row.name for row in rows], texts),
        texts=tuple(texts),
        limit_s=_column(rows, "limit_s"),
        deadline_s=deadline_s,
        devices_wanted=devices_wanted,
        wants=wants,
    )


def _iterations(rows: Sequence[Row], each_s: Floats) -> Floats:
    """As many as the log says, where it says how long a job took; else as many as forecast."""
    forecast = np.array([row.is_forecast for row in rows], dtype=np.bool_)
    logged = _column(rows, "duration_s") / each_s
    found: Floats = np.where(forecast, _column(rows, "iterations"), logged)
    return found


def _column(rows: Sequence[Row], name: str) -> Floats:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def _filed(values: Sequence[str], texts: dict[str, int]) -> Ints:
    return np.array([texts.setdefault(v, len(texts)) if v else NONE for v in values])


def _check_sizes(rows: Sequence[Row], pools: Sequence[PoolSpec]) -> None:
    most = max(spec.devices for spec in pools)
    for row in rows:
        if row.devices > most:
            raise InputError(
                f"job {row.id!r} (line {row.line}) needs {row.devices} devices and the largest "
                f"pool of the cluster has {most}: enlarge that, or leave it out (--drop-larger)"
            )


def _least_s(shapes: tuple[Shape, ...], pools: Sequence[PoolSpec]) -> Floats:
    placement = Placement(shapes, pools)
    return np.array([placement.least_s(number) for number in range(len(shapes))])


def _wants(rows: Sequence[Row], pools: Sequence[PoolSpec]) -> tuple[Ints, tuple[str, ...]]:
    """Kinds of devices count where the cluster has several, and has them."""
    here = {spec.device for spec in pools}
    if len(here) < 2:
        return np.full(len(rows), NONE), ()
    known, kinds = aliases(), dict[str, int]()
    found = []
    for row in rows:
        kind = known.get(row.device.lower(), row.device.lower())
        found.append(kinds.setdefault(kind, len(kinds)) if kind in here else NONE)
    return np.array(found), tuple(kinds)
