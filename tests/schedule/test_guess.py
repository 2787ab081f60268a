"""Equally likely lengths, and what is left of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.schedule.guess import COUNT, left_s, median, normal, per_chance_s, quantile

LENGTHS = st.lists(st.floats(1.0, 1e6), min_size=COUNT, max_size=COUNT).map(sorted)


@given(LENGTHS, st.floats(0.0, 1e7))
def test_what_is_left_is_the_mean_of_what_is_not_past(lengths: list[float], done_s: float) -> None:
    longer = [each - done_s for each in lengths if each > done_s]
    assert left_s(lengths, done_s) == pytest.approx(
        np.mean(longer) if longer else done_s / 2, rel=1e-6, abs=1e-6
    )
    assert left_s(lengths, done_s) > 0


@given(LENGTHS, st.floats(0.0, 1e6), st.floats(1e-3, 1e3))
def test_it_has_no_unit(lengths: list[float], done_s: float, factor: float) -> None:
    scaled = [each * factor for each in lengths]
    if any(abs(each - done_s) < 1e-6 * each for each in lengths):
        return  # rounding decides whether this one is past
    assert left_s(scaled, done_s * factor) == pytest.approx(
        factor * left_s(lengths, done_s), rel=1e-6, abs=1e-6 * factor
    )


def test_a_job_that_outlives_the_short_ones_is_one_of_the_long() -> None:
    lengths = [10.0] * 12 + [1000.0] * 4
    assert left_s(lengths, 0.0) == pytest.approx(257.5)
    assert left_s(lengths, 20.0) == pytest.approx(980.0)


def test_a_normal_guess_has_its_mean_and_nearly_its_deviation() -> None:
    guess = normal(3.0, 2.0)
    assert len(guess) == COUNT
    assert np.mean(guess) == pytest.approx(3.0)
    assert 1.8 < np.std(guess) < 2.0
    assert median([math.exp(each) for each in guess]) == pytest.approx(math.exp(3.0))


def test_quantiles_lie_between_the_values() -> None:
    guess = [float(i) for i in range(COUNT)]
    assert quantile(guess, 0.5) == pytest.approx((COUNT - 1) / 2)
    assert quantile(guess, 0.0) == 0.0
    assert quantile(guess, 1.0) == COUNT - 1


@given(LENGTHS, st.floats(0.0, 1e6))
def test_per_chance_is_the_least_over_all_moments_to_stop(
    lengths: list[float], done_s: float
) -> None:
    longer = np.array([each - done_s for each in lengths if each > done_s])
    if not len(longer):
        return
    tried = [np.minimum(longer, stop).mean() / (longer <= stop).mean() for stop in longer]
    assert per_chance_s(lengths, done_s) == pytest.approx(min(tried), rel=1e-6)
    assert per_chance_s(lengths, done_s) <= left_s(lengths, done_s) * (1 + 1e-9)


def test_a_job_that_may_be_done_soon_is_near_its_chance() -> None:
    lengths = [100.0] * 8 + [100_000.0] * 8
    assert left_s(lengths, 90.0) == pytest.approx(49_960.0)
    assert per_chance_s(lengths, 90.0) == pytest.approx(20.0)
