"""What is left of a job of uncertain length."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.schedule.gittins import left_s


@given(st.floats(1.0, 1e6), st.floats(0.0, 0.9))
def test_a_known_length_leaves_what_is_not_done(median_s: float, share: float) -> None:
    assert left_s(median_s, 0.0, share * median_s) == pytest.approx(
        (1 - share) * median_s, rel=0.05, abs=0.06 * median_s
    )


@given(st.floats(0.1, 3.5), st.floats(0.0, 1e4), st.floats(1e-3, 1e3))
def test_it_has_no_unit(sigma: float, done_s: float, factor: float) -> None:
    one = left_s(100.0, sigma, done_s)
    assert left_s(100.0 * factor, sigma, done_s * factor) == pytest.approx(one * factor, rel=1e-6)


@given(st.floats(1e-3, 1e6), st.floats(0.0, 5.0), st.floats(0.0, 1e12))
def test_something_is_always_left(median_s: float, sigma: float, done_s: float) -> None:
    assert 0 < left_s(median_s, sigma, done_s) < math.inf


@pytest.mark.parametrize(("sigma", "age"), [(0.5, 0.0), (1.0, 1.0), (2.0, 0.0), (2.0, 5.0)])
def test_it_is_the_best_turn_over_a_sample(sigma: float, age: float) -> None:
    """Against a million drawn lengths: least expected time per chance to be done."""
    lengths = np.exp(sigma * np.random.default_rng(0).normal(size=1_000_000))
    lengths = np.sort(lengths[lengths > age])
    worked = np.cumsum(lengths - age) + (lengths - age) * np.arange(len(lengths) - 1, -1, -1)
    ratio = worked / np.arange(1, len(lengths) + 1)
    assert left_s(1.0, sigma, age) == pytest.approx(ratio[20_000:].min(), rel=0.03)


def test_a_job_that_lasts_is_expected_to_last() -> None:
    left = [left_s(100.0, 1.5, done_s) for done_s in (100.0, 1e3, 1e4, 1e5, 1e9)]
    assert left == sorted(left)
