"""Rows of counters, as the sampling process reads them, as a Series of rates and levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.measure.series import Array, Series

Rows = np.ndarray[Any, np.dtype[np.int64]]


def series_of_rows(
    rows: Rows,
    *,
    rate_hz: float,
    interfaces: Sequence[str],
    devices: Sequence[int | str],
    threads: int,
    memory_bytes: int,
    sampler_cpu_s: float,
) -> Series:
    """Clock, CPU nanoseconds, resident bytes, two counters per interface, three per device."""
    if len(rows) > 2 and rows[-1, 0] - rows[-2, 0] < 1e9 / rate_hz / 2:
        # The last row comes whenever it is asked for. The one before it goes when it is too close:
        # counters still hold what was counted until then, and the rate of a moment is noise.
        rows = np.delete(rows, -2, axis=0)
    times_s = (rows[1:, 0] - rows[0, 0]) / 1e9
    columns: dict[str, Array] = {
        "utilisation": _rate(rows, 1) / 1e9 / threads,
        "memory_bytes": rows[1:, 2].astype(float),
        "memory_share": rows[1:, 2] / memory_bytes,
    }
    parts: dict[str, list[Array]] = {"received_bytes_per_s": [], "sent_bytes_per_s": []}
    at = 3
    for interface in interfaces:
        for name, values in zip(parts, (_rate(rows, at), _rate(rows, at + 1)), strict=True):
            parts[name].append(values)
            columns[f"{name}/{interface}"] = values
        at += 2
    for name, of_each in parts.items():
        columns[name] = np.sum(of_each, axis=0) if of_each else np.zeros(len(times_s))
    for place, device in enumerate(devices):
        busy, memory_busy, used = rows[1:, at + 3 * place : at + 3 * place + 3].T
        columns[f"gpu_utilisation/{device}"] = busy / 100
        columns[f"gpu_memory_utilisation/{device}"] = memory_busy / 100
        columns[f"gpu_memory_bytes/{device}"] = used.astype(float)
    for name in ("gpu_utilisation", "gpu_memory_utilisation", "gpu_memory_bytes") * bool(devices):
        columns[name] = np.mean([columns[f"{name}/{device}"] for device in devices], axis=0)
    return Series(float(rows[0, 0]) / 1e9, times_s, columns, rate_hz, sampler_cpu_s)


def _rate(rows: Rows, column: int) -> Array:
    # Counters start anew when an interface is made anew.
    gained: Array = np.maximum(np.diff(rows[:, column]), 0) / np.diff(rows[:, 0]) * 1e9
    return gained
