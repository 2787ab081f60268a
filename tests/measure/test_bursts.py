"""Bursts of made curves are found where they were put."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.data import RESOURCES
from foretell.errors import InputError
from foretell.measure.bursts import Bursts, find_bursts, resources
from foretell.measure.series import Array, Series

PERIOD_S = 0.02
Wave = tuple[float, float, int, float, float]
"""Lengths of idle time and burst in seconds, how many, lower and upper level."""
CURVES = st.lists(st.floats(0, 1e12), min_size=1, max_size=80)


@st.composite
def waves(draw: st.DrawFn) -> Wave:
    """Waves slow enough to be sampled."""
    idle_s = draw(st.floats(4 * PERIOD_S, 1.0))
    burst_s = draw(st.floats(4 * PERIOD_S, 1.0))
    high = draw(st.floats(1e-3, 1e9))
    low = high * draw(st.floats(0.0, 0.5))
    return idle_s, burst_s, draw(st.integers(3, 8)), low, high


def sampled(wave: Wave, shift: float = 0.0) -> tuple[Array, Array]:
    """A square wave as counters see it: the mean over each sampling period."""
    idle_s, burst_s, count, low, high = wave
    cycle_s = idle_s + burst_s
    edges = np.arange(0.0, count * cycle_s, PERIOD_S) + shift
    whole, part = np.divmod(edges, cycle_s)
    up_s = whole * burst_s + np.maximum(part - idle_s, 0.0)
    values = low + (high - low) * np.diff(up_s) / PERIOD_S
    return PERIOD_S * np.arange(1, len(edges)), values


def numbers(found: Bursts) -> tuple[float, float, float]:
    return found.idle_s, found.burst_s, found.burst_level


@given(waves(), st.floats(0, 2))
@settings(deadline=None)
def test_a_square_wave_is_recovered_within_a_sampling_period(wave: Wave, shift: float) -> None:
    idle_s, burst_s, count, low, high = wave
    times_s, values = sampled(wave, shift)
    found = find_bursts(times_s, values)
    # The window may cut off as much as a period, which is shared out among the cycles.
    assert found.burst_count in (count, count - 1, count + 1)
    cycles = times_s[-1] / (idle_s + burst_s)
    slack = abs(cycles / found.burst_count - 1) * (idle_s + burst_s)
    assert found.idle_s == pytest.approx(idle_s, abs=PERIOD_S + slack)
    assert found.burst_s == pytest.approx(burst_s, abs=PERIOD_S + slack)
    edge = (high - low) * PERIOD_S / burst_s
    assert found.burst_level == pytest.approx(high, abs=edge + 1e-9 * high)


@given(waves(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_noise_of_a_tenth_of_the_swing_changes_little(wave: Wave, seed: int) -> None:
    idle_s, burst_s, _, low, high = wave
    times_s, clean = sampled(wave)
    noise = np.random.default_rng(seed).normal(scale=(high - low) / 10, size=len(clean))
    found = find_bursts(times_s, np.maximum(clean + noise, 0.0))
    assert found.idle_s == pytest.approx(idle_s, abs=1.5 * PERIOD_S)
    assert found.burst_s == pytest.approx(burst_s, abs=1.5 * PERIOD_S)
    assert found.burst_level == pytest.approx(high, rel=0.4)


@given(waves(), st.integers(-20, 20))
@settings(deadline=None)
def test_scaling_the_level_scales_the_level_only(wave: Wave, power: int) -> None:
    times_s, values = sampled(wave)
    scale = 2.0**power  # any other factor rounds, and may move a sample that lies on an edge
    once, scaled = find_bursts(times_s, values), find_bursts(times_s, scale * values)
    assert (scaled.idle_s, scaled.burst_s) == (once.idle_s, once.burst_s)
    assert scaled.burst_level == pytest.approx(scale * once.burst_level)


@given(waves(), st.integers(2, 4))
@settings(deadline=None)
def test_seeing_a_wave_again_changes_nothing(wave: Wave, times: int) -> None:
    times_s, values = sampled(wave)
    once = find_bursts(times_s, values)
    longer_s = PERIOD_S * np.arange(1, times * len(values) + 1)
    again = find_bursts(longer_s, np.tile(values, times))
    assert numbers(again) == pytest.approx(numbers(once))
    assert again.burst_count == times * once.burst_count


@given(CURVES, st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_lengths_and_counts_add_up_for_any_curve(curve: list[float], seed: int) -> None:
    steps_s = np.random.default_rng(seed).uniform(0.01, 0.1, len(curve))
    found = find_bursts(np.cumsum(steps_s), np.array(curve))
    assert np.all(np.isfinite(numbers(found)))
    assert min(numbers(found)) >= 0
    assert min(curve) * (1 - 1e-9) <= found.burst_level <= max(curve) * (1 + 1e-9) or (
        found.burst_count == 0
    )
    covered_s = found.idle_s * found.idle_count + found.burst_s * found.burst_count
    assert covered_s == pytest.approx(steps_s.sum())
    shown_s = sum(end_s - start_s for start_s, end_s in found.segments)
    assert shown_s == pytest.approx(found.burst_s * found.burst_count)


@given(st.floats(1e-6, 1e9), st.integers(1, 300))
def test_a_constant_curve_is_one_burst_all_along(level: float, count: int) -> None:
    times_s = PERIOD_S * np.arange(1, count + 1)
    found = find_bursts(times_s, np.full(count, level))
    assert numbers(found) == pytest.approx((0.0, times_s[-1], level))
    assert (found.idle_count, found.burst_count) == (0, 1)


@given(st.integers(1, 300))
def test_a_curve_of_zeros_is_one_idle_time(count: int) -> None:
    times_s = PERIOD_S * np.arange(1, count + 1)
    found = find_bursts(times_s, np.zeros(count))
    assert numbers(found) == pytest.approx((times_s[-1], 0.0, 0.0))
    assert (found.idle_count, found.burst_count, found.segments) == (1, 0, ())


@pytest.mark.parametrize("kind", ["normal", "uniform", "slow rise"])
def test_noise_around_one_level_has_no_bursts(kind: str) -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        values = {
            "normal": np.maximum(0.0, random.normal(1.0, 0.3, 400)),
            "uniform": random.uniform(0.0, 1.0, 400),
            "slow rise": np.linspace(0.0, 1.0, 400),
        }[kind]
        assert find_bursts(PERIOD_S * np.arange(1, 401), values).idle_count == 0


def test_a_steady_flow_counted_at_ticks_has_no_bursts() -> None:
    values = np.ones(300)
    values[[40, 90, 200]], values[[41, 91, 201]] = 0.8, 1.2
    found = find_bursts(PERIOD_S * np.arange(1, 301), values)
    assert (found.idle_count, found.burst_count) == (0, 1)


def test_bursts_of_changing_height_over_a_quiet_floor_are_all_found() -> None:
    heights = [1.0, 0.5, 0.6, 1.0, 0.5]
    values = np.concatenate([[0.01] * 10 + [height] * 10 for height in heights])
    found = find_bursts(PERIOD_S * np.arange(1, 101), values)
    assert found.burst_count == 5
    assert numbers(found) == pytest.approx((0.2, 0.2, 0.72))


@pytest.mark.parametrize("middle", [0.5, 0.7])
@pytest.mark.parametrize("samples", [2, 10, 30])
def test_only_the_lowest_of_three_levels_is_idle(middle: float, samples: int) -> None:
    values = np.tile([0.0] * 10 + [middle] * 10 + [1.0] * samples, 5)
    found = find_bursts(PERIOD_S * np.arange(1, len(values) + 1), values)
    assert found.idle_s == pytest.approx(0.2)
    assert found.burst_s == pytest.approx(PERIOD_S * (10 + samples))


def test_one_wild_sample_does_not_hide_the_bursts() -> None:
    values = np.tile([0.0] * 10 + [1.0] * 10, 10)
    values[55] = 40.0
    found = find_bursts(PERIOD_S * np.arange(1, 201), values)
    assert (found.idle_s, found.burst_s) == pytest.approx((0.2, 0.2))


def test_bursts_rarer_than_outliers_are_found_when_they_stand_out() -> None:
    values = np.zeros(1000)
    values[[200, 201, 700, 701]] = 5.0
    found = find_bursts(PERIOD_S * np.arange(1, 1001), values)
    assert numbers(found) == pytest.approx((9.96, 0.04, 5.0))


def test_short_idle_times_belong_to_the_burst_around_them() -> None:
    times_s = PERIOD_S * np.arange(1, 91)
    values = np.tile([0.0] * 10 + [1.0] * 9 + [0.0] + [1.0] * 10, 3)
    assert find_bursts(times_s, values).burst_s == pytest.approx(0.4)
    assert find_bursts(times_s, values, merge_s=0.0).burst_s == pytest.approx(0.19)
    assert find_bursts(times_s, values, merge_s=1.0).idle_count == 0


def test_what_the_window_cuts_apart_counts_once() -> None:
    values = np.array([1.0] * 5 + [0.0] * 10 + [1.0] * 10 + [0.0] * 10 + [1.0] * 5)
    found = find_bursts(PERIOD_S * np.arange(1, 41), values)
    assert numbers(found) == pytest.approx((0.2, 0.2, 1.0))
    assert len(found.segments) == 3


def test_long_samples_weigh_more() -> None:
    times_s = np.cumsum([0.02] * 8 + [0.2] + [0.02] * 8)
    values = np.array([0.0] * 8 + [1.0] + [0.0] * 8)
    assert find_bursts(times_s, values).burst_s == pytest.approx(0.2)


def test_curves_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="2 times and 1 values"):
        find_bursts(np.array([0.1, 0.2]), np.array([1.0]))
    with pytest.raises(InputError, match="at least 1"):
        find_bursts(np.array([]), np.array([]))
    with pytest.raises(InputError, match="finite values at growing times"):
        find_bursts(np.array([0.2, 0.1]), np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="finite values at growing times"):
        find_bursts(np.array([0.1, 0.2]), np.array([1.0, np.nan]))


def run_of(**columns: Array) -> Series:
    count = len(next(iter(columns.values())))
    zeros = np.zeros(count)
    every = {"received_bytes_per_s": zeros, "sent_bytes_per_s": zeros, "memory_share": zeros}
    return Series(0.0, PERIOD_S * np.arange(1, count + 1), {**every, **columns}, 1 / PERIOD_S)


def test_the_twelve_numbers_come_in_the_order_of_records() -> None:
    wave = np.tile([0.0] * 10 + [1.0] * 10, 4)
    series = run_of(
        utilisation=0.5 * np.roll(wave, 3),
        memory_share=0.5 + 0.1 * wave,
        sent_bytes_per_s=1e6 * wave,
    )
    found = dict(zip(RESOURCES, resources(series), strict=True))
    assert found["utilisation_burst_level"] == pytest.approx(0.5)
    assert found["memory_burst_level"] == pytest.approx(0.6)
    assert found["sent_burst_level"] == pytest.approx(1e6)
    assert found["received_idle_s"] == pytest.approx(1.6)
    assert found["memory_idle_s"] == found["sent_burst_s"] == pytest.approx(0.2)


def test_gpus_stand_for_utilisation_and_memory_where_they_were_sampled() -> None:
    wave = np.tile([0.0] * 10 + [1.0] * 10, 4)
    series = run_of(
        utilisation=np.ones(80), gpu_utilisation=0.9 * wave, gpu_memory_utilisation=0.3 * wave
    )
    found = dict(zip(RESOURCES, resources(series), strict=True))
    assert found["utilisation_burst_level"] == pytest.approx(0.9)
    assert found["memory_burst_level"] == pytest.approx(0.3)
