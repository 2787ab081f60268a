"""An uncertain length, as equally likely ones, and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

COUNT = 16
"""Of the lengths that stand for all."""
SHARES = tuple((i + 0.5) / COUNT for i in range(COUNT))
"""Of all lengths that are below each."""
_NORMAL = tuple(NormalDist().inv_cdf(share) for share in SHARES)
_OUTGROWN = 0.5
"""Of its age that is left of a job older than all that was thought likely: old jobs live longer."""

Guess = Sequence[float]
"""COUNT equally likely values, the least first."""


def normal(mean: float, deviation: float) -> Guess:
    """Where only a mean and a deviation are known."""
    return [mean + deviation * z for z in _NORMAL]


def median(guess: Guess) -> float:
    """The geometric middle of lengths."""
    return math.sqrt(guess[COUNT // 2 - 1] * guess[COUNT // 2])


def quantile(guess: Guess, share: float) -> float:
    """Below which so large a share is, between the values and never beyond them."""
    at = min(max(share * COUNT - 0.5, 0.0), COUNT - 1.0)
    low = min(int(at), COUNT - 2)
    return guess[low] + (at - low) * (guess[low + 1] - guess[low])


def left_s(lengths_s: Guess, done_s: float) -> float:
    """The mean of what is left of those that are longer than what is done."""
    longer, total_s = 0, 0.0
    for length_s in reversed(lengths_s):
        if length_s <= done_s:
            break
        longer += 1
        total_s += length_s
    return total_s / longer - done_s if longer else _OUTGROWN * done_s


def per_chance_s(lengths_s: Guess, done_s: float) -> float:
    """The least time that is expected to pass per chance to be done, whenever one would stop.

    Gittins' index is the inverse. A job that is either done soon or takes for ever has a small
    one, although much is left of it on average.
    """
    longer = [length_s - done_s for length_s in lengths_s if length_s > done_s]
    if not longer:
        return _OUTGROWN * done_s
    passed_s, least_s = 0.0, math.inf
    for ended, left in enumerate(longer, start=1):
        passed_s += left
        least_s = min(least_s, (passed_s + (len(longer) - ended) * left) / ended)
    return least_s
