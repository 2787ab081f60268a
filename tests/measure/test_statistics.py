"""Robust statistics of repeated timings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.measure.statistics import fast_half, steady_from, summarise


def noisy(count: int, centre: float, seed: int) -> np.ndarray:
    return centre * (1 + 0.02 * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("slow", [2, 5, 10])
def test_warm_up_is_left_out(slow: int, seed: int) -> None:
    samples = np.concatenate([noisy(slow, 3.0, seed), noisy(40, 1.0, seed + 100)])
    cut = steady_from(samples)
    assert slow <= cut <= slow + 4


@pytest.mark.parametrize("seed", range(10))
def test_a_late_outlier_does_not_make_all_before_it_warm_up(seed: int) -> None:
    samples = noisy(40, 1.0, seed)
    samples[30] = 9.0
    assert steady_from(samples) <= 8


def test_few_samples_are_all_kept() -> None:
    assert steady_from([3.0, 1.0, 1.0]) == 0


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60))
def test_the_centre_lies_in_its_interval_and_the_interval_among_the_samples(
    samples: list[float],
) -> None:
    found = summarise(samples)
    assert min(samples) <= found.low_s <= found.centre_s <= found.high_s <= max(samples)
    assert found.samples == len(samples)
    assert min(samples) * (1 - 1e-9) <= fast_half(samples) <= np.mean(samples) * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_interval_holds_the_true_median_about_19_times_in_20(seed: int) -> None:
    draw = np.random.default_rng(seed)
    hits = 0
    for _ in range(200):
        found = summarise(draw.lognormal(0.0, 0.3, 25))
        hits += found.low_s <= 1.0 <= found.high_s
    assert hits >= 180
