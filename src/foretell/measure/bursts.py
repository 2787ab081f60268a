"""Bursts and the idle times between them, and a run's twelve numbers made from them.

Levels, and where a burst begins and ends between them, are found in the values themselves. A run is
looked at through a window that opens and closes anywhere, so its end is joined to its beginning:
what the window cuts apart is one burst or one idle time, there are as many of one as of the other,
and seeing the run twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.data.record import PARTS, SERIES
from foretell.errors import InputError
from foretell.measure.levels import Levels, find_levels
from foretell.measure.series import Array, Series

Flags = np.ndarray[Any, np.dtype[np.bool_]]

LEAST_SWING = 0.4
"""Least distance of two levels as a share of the upper one: processors are counted at ticks and
packets as they come, which alone makes a steady flow jump by a fifth."""
MEMORY_SWING = 0.02
"""The same for memory, which is not counted but held, most of it for good."""
_MERGE_PERIODS = 1.5
_TRIM_SAMPLES = 3
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Bursts:
    """When a curve was up, and the means of it.

    A curve without two levels is one burst all along when it is above zero on the mean, and one
    idle time when it is zero. Lengths times counts add up to the duration.
    """

    idle_s: float
    """Mean length of the times between bursts; 0 when there are none."""
    burst_s: float
    burst_level: float
    """Mean value during bursts; 0 when there are none."""
    idle_count: int
    burst_count: int
    low: float
    high: float
    """The two levels found; equal when there is but one."""
    segments: tuple[tuple[float, float], ...]
    """Beginning and end of each burst as the window shows it."""


def find_bursts(
    times_s: Array,
    values: Array,
    *,
    merge_s: float | None = None,
    least_swing: float = LEAST_SWING,
) -> Bursts:
    """Bursts in values, each of which stands for the time since the one before it (or since 0).

    Idle times shorter than `merge_s` are part of the burst around them. Without it that is one and
    a half sampling periods: a single low sample cannot be told from a hiccup. Levels closer than
    `least_swing`, as a share of the upper one, are one.
    """
    durations_s = np.diff(times_s, prepend=0.0)
    if len(times_s) != len(values) or not len(values):
        raise InputError(
            f"{len(times_s)} times and {len(values)} values make no curve: give as many, at least 1"
        )
    if not np.all(np.isfinite(values)) or np.any(durations_s <= 0):
        raise InputError("a curve must have finite values at growing times: check both")
    levels = find_levels(durations_s, values, least_swing)
    if levels is None:
        mean = float(np.average(values, weights=durations_s))
        up = np.full(len(values), mean > 0)
        return _means(up, durations_s, values, mean, mean)
    least_s = _MERGE_PERIODS * float(np.median(durations_s)) if merge_s is None else merge_s
    up = _hysteresis(values, levels)
    up = _merged(up, durations_s, least_s)
    up = _trimmed(up, values, levels.low)
    return _means(up, durations_s, values, levels.low, levels.high)


def curves(series: Series) -> dict[str, Array]:
    """The four curves of a run, by the names records use.

    Where GPUs were sampled, utilisation and memory are theirs: the shares of the time in which they
    computed, and in which their memory was read or written. Elsewhere they are the processes'.
    """
    gpu = "gpu_utilisation" in series.columns
    names = {
        "memory": "gpu_memory_utilisation" if gpu else "memory_share",
        "utilisation": "gpu_utilisation" if gpu else "utilisation",
        "received": "received_bytes_per_s",
        "sent": "sent_bytes_per_s",
    }
    return {name: series[names[name]] for name in SERIES}


def series_bursts(series: Series, *, merge_s: float | None = None) -> dict[str, Bursts]:
    """The bursts of the four curves of a run."""
    held = series.columns.get("memory_share")
    return {
        name: find_bursts(
            series.times_s,
            values,
            merge_s=merge_s,
            least_swing=MEMORY_SWING if values is held else LEAST_SWING,
        )
        for name, values in curves(series).items()
    }


def resources(series: Series, *, merge_s: float | None = None) -> tuple[float, ...]:
    """The twelve numbers of a run, in the order of foretell.data.RESOURCES."""
    found = series_bursts(series, merge_s=merge_s)
    return tuple(getattr(found[name], part) for name in SERIES for part in PARTS)


def _hysteresis(values: Array, levels: Levels) -> Flags:
    """Whether the curve is up; in between it stays what it was."""
    certain = np.zeros(len(values), np.int64)
    certain[values >= levels.enter] = 1
    certain[values <= levels.leave] = -1
    known = np.flatnonzero(certain)
    at = np.searchsorted(known, np.arange(len(values)), side="right") - 1
    up: Flags = certain[known[at]] > 0  # -1 is the last: the end comes before the beginning
    return up


def _merged(up: Flags, durations_s: Array, least_s: float) -> Flags:
    """Idle times shorter than `least_s` become part of the burst around them."""
    run, lengths = _runs(up, durations_s)
    short = lengths < least_s * (1 - _ROUNDING)
    merged: Flags = up | short[run]
    return merged


def _trimmed(up: Flags, values: Array, low: float) -> Flags:
    """Without the first and last sample of a burst where it was up for less than half of them."""
    if up.all():
        return up
    start = int(np.argmin(up))  # idle, so that no burst is cut apart
    up, values = np.roll(up, -start), np.roll(values, -start)
    for first, end in _spans(up):
        if end - first >= _TRIM_SAMPLES:
            middle = (low + np.median(values[first:end])) / 2
            up[first], up[end - 1] = values[first] >= middle, values[end - 1] >= middle
    return np.roll(up, start)


def _means(up: Flags, durations_s: Array, values: Array, low: float, high: float) -> Bursts:
    run, _ = _runs(up, durations_s)
    burst_count, idle_count = len(set(run[up])), len(set(run[~up]))
    burst_s, idle_s = float(durations_s[up].sum()), float(durations_s[~up].sum())
    level = float(np.average(values[up], weights=durations_s[up])) if burst_count else 0.0
    times_s = np.concatenate(([0.0], np.cumsum(durations_s)))
    return Bursts(
        idle_s=idle_s / idle_count if idle_count else 0.0,
        burst_s=burst_s / burst_count if burst_count else 0.0,
        burst_level=level,
        idle_count=idle_count,
        burst_count=burst_count,
        low=low,
        high=high,
        segments=tuple((float(times_s[a]), float(times_s[b])) for a, b in _spans(up)),
    )


def _spans(up: Flags) -> Any:
    """First sample of each burst, and the one after its last."""
    ends = np.concatenate(([False], up, [False])).astype(int)
    return np.flatnonzero(np.diff(ends)).reshape(-1, 2)


def _runs(up: Flags, durations_s: Array) -> tuple[Any, Array]:
    """The run each sample belongs to, the last joined to the first, and the length of each."""
    run = np.concatenate(([0], np.cumsum(up[1:] != up[:-1])))
    if up[0] == up[-1]:
        run[run == run[-1]] = 0
    return run, np.bincount(run, weights=durations_s).astype(float)
