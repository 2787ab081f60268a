"""Levels: whether a curve alternates between a lower and an upper level, and where they part.

The lower level is the lowest: a job that computes at full speed, copies at half of it and waits
has three, and only waiting is idle. So values are split by the square roots of their heights above
the floor, which draws unequal upper levels together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foretell.measure.series import Array

LEAST_SAMPLES = 4
"""Fewer are taken for a constant curve."""
_ENTER, _LEAVE = 0.6, 0.4
"""Where a burst begins and ends, on the way from one level to the other, in square roots."""
_OUTLIERS = 0.02
"""Share of the time at either end of the values that is left out when levels are looked for: one
wild sample would otherwise be a level."""
_APART, _APART_FROM_ONE = 4.0, 6.0
"""Least distance of two levels in standard deviations, around both or around the steadier one.
Noise around a single level is split into parts 2.7 to 3.6 of them apart."""
_BELOW_FLOOR = 0.05
"""How far below the lowest value heights begin, as a share of the range: the root rises steeply at
zero, where it would make a level out of the least difference."""
_RARE_SWING = 0.5
"""Least swing of bursts or idle times rarer than the outliers, which might be some."""
_ROUNDING = 1e-9


class Levels(NamedTuple):
    """Means of the lower and the upper values, and where a burst ends and begins."""

    low: float
    high: float
    leave: float
    enter: float


def find_levels(durations_s: Array, values: Array, least_swing: float) -> Levels | None:
    """The two levels of a curve that has two, else None.

    They lie at least `least_swing` apart, as a share of the upper one, and clearly further than
    values scatter around them.
    """
    if len(values) < LEAST_SAMPLES:
        return None
    order = np.argsort(values, kind="stable")
    values, weights = values[order], durations_s[order] / durations_s.sum()
    below = np.cumsum(weights)
    for outliers, swing in ((_OUTLIERS, least_swing), (0.0, max(least_swing, _RARE_SWING))):
        first, last = np.searchsorted(below, (outliers + _ROUNDING, 1 - outliers - _ROUNDING))
        trimmed = np.clip(values, values[first], values[last])
        found = _parted(weights, trimmed)
        if found is not None and found.high - found.low > swing * found.high:
            return found
    return None


def _parted(weights: Array, values: Array) -> Levels | None:
    """Levels of sorted values, if they lie further apart than noise would."""
    if values[-1] == values[0]:
        return None
    floor = values[0] - _BELOW_FLOOR * (values[-1] - values[0])
    heights = np.sqrt(values - floor)
    at = _split(weights, heights)
    (low, low_spread), (high, high_spread) = (
        _mean_and_spread(weights[part], heights[part]) for part in (slice(at), slice(at, None))
    )
    share = float(weights[:at].sum())
    both = float(np.sqrt(share * low_spread**2 + (1 - share) * high_spread**2))
    if high - low <= min(_APART * both, _APART_FROM_ONE * min(low_spread, high_spread)):
        return None
    leave, enter = (floor + (low + way * (high - low)) ** 2 for way in (_LEAVE, _ENTER))
    return Levels(
        low=_mean_and_spread(weights[:at], values[:at])[0],
        high=_mean_and_spread(weights[at:], values[at:])[0],
        leave=float(leave),
        enter=float(enter),
    )


def _split(weights: Array, heights: Array) -> int:
    """Where to cut sorted heights in two so that they lie as close to their means as can be."""
    below = np.cumsum(weights)[:-1]
    sums = np.cumsum(weights * (heights - weights @ heights))[:-1]
    between = sums**2 / (below * np.maximum(1 - below, _ROUNDING))
    between[heights[1:] == heights[:-1]] = -1.0
    return int(np.argmax(between)) + 1


def _mean_and_spread(weights: Array, values: Array) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))
