"""Rows of counters become rates and levels, and what was missed stays visible."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from foretell.errors import InputError
from foretell.measure.rows import series_of_rows
from foretell.measure.series import Series

MS = 1_000_000


def series_of(rows: list[list[int]], **options: Any) -> Series:
    facts = {"interfaces": (), "devices": (), "threads": 2, "memory_bytes": 1000, "rate_hz": 50}
    table = np.array(rows, dtype=np.int64)
    return series_of_rows(table, sampler_cpu_s=0.0, **{**facts, **options})


def test_counters_become_rates_over_the_time_that_really_passed() -> None:
    series = series_of(
        [
            [5000 * MS, 100 * MS, 300, 10, 7000],
            [5020 * MS, 120 * MS, 400, 10, 7100],
            [5060 * MS, 200 * MS, 500, 40, 7100],
        ],
        interfaces=("eth0",),
    )
    assert series.began_s == 5.0
    assert series.times_s.tolist() == pytest.approx([0.02, 0.06])
    assert series["utilisation"].tolist() == pytest.approx([0.5, 1.0])
    assert series["memory_share"].tolist() == pytest.approx([0.4, 0.5])
    assert series["received_bytes_per_s"].tolist() == pytest.approx([0, 750])
    assert series["sent_bytes_per_s/eth0"].tolist() == pytest.approx([5000, 0])


def test_interfaces_add_up_and_devices_are_averaged() -> None:
    series = series_of(
        [
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [20 * MS, 0, 0, 1, 2, 3, 4, 50, 20, 8, 100, 40, 16],
        ],
        interfaces=("a", "b"),
        devices=(0, "GPU-1"),
    )
    assert series["received_bytes_per_s"].tolist() == pytest.approx([200])
    assert series["sent_bytes_per_s"].tolist() == pytest.approx([300])
    assert series["gpu_utilisation"].tolist() == pytest.approx([0.75])
    assert series["gpu_memory_utilisation/GPU-1"].tolist() == pytest.approx([0.4])
    assert series["gpu_memory_bytes"].tolist() == pytest.approx([12])


def test_a_row_right_after_the_last_tick_takes_its_place() -> None:
    rows = [[0, 0, 0], [20 * MS, 10 * MS, 1], [40 * MS, 10 * MS, 1], [41 * MS, 31 * MS, 2]]
    series = series_of(rows, threads=1)
    assert series.times_s.tolist() == pytest.approx([0.02, 0.041])
    assert series["utilisation"].tolist() == pytest.approx([0.5, 1.0])


def test_a_counter_that_starts_anew_is_no_negative_rate() -> None:
    series = series_of([[0, 0, 0, 900, 900], [20 * MS, 0, 0, 5, 5]], interfaces=("eth0",))
    assert series["sent_bytes_per_s"].tolist() == [0]


def regular(count: int, **options: Any) -> Series:
    times_s = 0.02 * np.arange(1, count + 1)
    return Series(100.0, times_s, {"utilisation": np.arange(float(count))}, 50.0, **options)


def test_missed_ticks_are_gaps_and_nothing_is_filled_in() -> None:
    times_s = np.array([0.02, 0.04, 0.1, 0.12])
    series = Series(0.0, times_s, {"utilisation": np.ones(4)}, 50.0)
    assert len(series) == 4
    assert series.gaps == ((0.04, 0.1),)
    assert series.rate_hz == pytest.approx(4 / 0.12)
    assert regular(10).gaps == ()


def test_a_part_of_a_series_holds_the_rows_that_lie_inside() -> None:
    part = regular(10).between(100.039, 100.101)
    assert part["utilisation"].tolist() == [2, 3, 4]
    assert part.began_s == pytest.approx(100.04)
    assert part.times_s.tolist() == pytest.approx([0.02, 0.04, 0.06])
    with pytest.raises(InputError, match="no sample lies between"):
        regular(10).between(90, 95)


def test_a_series_survives_json() -> None:
    series = regular(5, sampler_cpu_s=0.25)
    again = Series.from_dict(json.loads(json.dumps(series.to_dict())))
    assert again.to_dict() == series.to_dict()
    assert again["utilisation"].dtype == np.float64


def test_columns_and_times_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="'utilisation' and times_s differ in length"):
        Series(0.0, np.array([0.1]), {"utilisation": np.ones(2)}, 50.0)
    with pytest.raises(InputError, match="must be positive and grow"):
        Series(0.0, np.array([0.2, 0.1]), {"utilisation": np.ones(2)}, 50.0)
