"""How soon a job of uncertain length is worth working on: the Gittins index of a log-normal length.

Of a job that has run for some time, the index is the best ratio, over all ends of a turn, of the
chance that it is done by then and the time that the turn is expected to take. Its inverse is a
time: what is left of a job of known length, more or less where a length is uncertain. To serve the
least of these first has the least mean completion time on one machine, whatever the distributions.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from foretell.graph.graph import Floats

_SIGMA_STEP, _SIGMAS = 0.05, 80
_Z_STEP, _Z_MOST = 0.05, 8.0
"""Ages are looked at up to so many deviations from the median, either way."""
_AGES = round(2 * _Z_MOST / _Z_STEP) + 1


def left_s(median_s: float, sigma: float, done_s: float) -> float:
    """The inverse of the index; `sigma` is the deviation of the logarithm of the length."""
    at = min(max(sigma / _SIGMA_STEP, 1.0), float(_SIGMAS))
    low = min(int(at), _SIGMAS - 1)
    share = at - low
    age = done_s / median_s
    return median_s * ((1 - share) * _left(low, age) + share * _left(low + 1, age))


def _left(step: int, age: float) -> float:
    """At an age, both in medians; beyond the table, what is left grows with the age."""
    new, row = _table()[step - 1]
    sigma = step * _SIGMA_STEP
    z = math.log(age) / sigma if age > 0 else -math.inf
    if z <= -_Z_MOST:
        return new - age
    if z >= _Z_MOST:
        return row[-1] * math.exp((z - _Z_MOST) * sigma)
    at = (z + _Z_MOST) / _Z_STEP
    below = min(int(at), _AGES - 2)
    return row[below] + (at - below) * (row[below + 1] - row[below])


@cache
def _table() -> list[tuple[float, list[float]]]:
    """By sigma, from one step on: of a new job, and of others by age in deviations."""
    z = np.linspace(-_Z_MOST, _Z_MOST, _AGES)
    survives = np.array([math.erfc(each / math.sqrt(2)) / 2 for each in z])
    return [_of_sigma(z, survives, (n + 1) * _SIGMA_STEP) for n in range(_SIGMAS)]


def _of_sigma(z: Floats, survives: Floats, sigma: float) -> tuple[float, list[float]]:
    """Of every age, the least expected time per chance to be done, over all later ends."""
    length = np.exp(sigma * z)
    turn = np.diff(length) * (survives[1:] + survives[:-1]) / 2
    behind = length[0] + np.concatenate([[0.0], np.cumsum(turn)])
    ahead = np.concatenate([np.cumsum(turn[::-1])[::-1], [0.0]])
    new = float((behind[1:] / (1 - survives[1:])).min())
    # Differences of sums from the nearer end, where these are least and so are exact.
    young = (z < 0)[:-1, None]
    time = np.where(young, behind - behind[:-1, None], ahead[:-1, None] - ahead)
    chance = survives[:-1, None] - survives[None, :]
    later = np.triu(np.ones_like(time, dtype=np.bool_), 1)
    least = np.where(later, time, np.inf) / np.where(later, chance, 1.0)
    found = least.min(1).tolist()
    return new, [*found, found[-1] * float(length[-1] / length[-2])]
