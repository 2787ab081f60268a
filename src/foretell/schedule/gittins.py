"""How soon a job of uncertain length is worth working on: the Gittins index of a log-normal length.

Of a job that has run for some time, the index is the best ratio, over all ends of a turn, of the
chance that it is done by then and the time that the turn is expected to take. Its inverse is a time:
what is left of a job of known length, more or less where a length is uncertain. To serve the least
of these first has the least mean completion time on one machine, whatever the distributions.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from foretell.graph.graph import Floats

_SIGMAS = np.linspace(0.0, 4.0, 41)
_LOG_AGES = np.linspace(-8.0, 12.0, 201)
_LEAST_SIGMA = 0.02


def left_s(median_s: float, sigma: float, done_s: float) -> float:
    """The inverse of the index; `sigma` is the deviation of the logarithm of the length."""
    table, steps_s, steps_a = _table(), 40 / 4.0, 200 / 20.0
    at_s = min(max(sigma, 0.0), 4.0) * steps_s
    log_age = math.log(done_s / median_s) if done_s > 0 else -8.0
    at_a = (min(max(log_age, -8.0), 12.0) + 8.0) * steps_a
    i, j = min(int(at_s), 39), min(int(at_a), 199)
    x, y = at_s - i, at_a - j
    low, high = table[i], table[i + 1]
    log_left = (1 - x) * ((1 - y) * low[j] + y * low[j + 1]) + x * (
        (1 - y) * high[j] + y * high[j + 1]
    )
    return median_s * math.exp(log_left) * (done_s / median_s if log_age > 12.0 else 1.0)


@cache
def _table() -> list[list[float]]:
    """Logarithms of the inverse index in medians, by sigma and the logarithm of the age."""
    return [
        [math.log(_inverse(max(s, _LEAST_SIGMA), math.exp(a))) for a in _LOG_AGES] for s in _SIGMAS
    ]


def _inverse(sigma: float, age: float) -> float:
    """At an age, both in medians."""
    # Ends of the turn: up to where hardly anything is left of the distribution.
    from scipy.stats import norm

    z = math.log(age) / sigma
    zs = np.unique(np.concatenate([np.linspace(max(z, -8.0), max(z, -8.0) + 12.0, 600)]))
    left = norm.sf(zs)
    base = norm.sf(max(z, -8.0)) if z > -8 else 1.0
    if base < 1e-300:
        return max(age / max(z / sigma, 1.0), 1e-12)
    x = np.exp(sigma * zs)
    alive = left / base
    spent = np.concatenate([[0.0], np.cumsum(np.diff(x) * (alive[1:] + alive[:-1]) / 2)]) + max(
        0.0, x[0] - age
    )
    done = 1 - alive
    ok = done > 1e-9
    return float(np.min(spent[ok] / done[ok]))
