"""Robust statistics of repeated timings: where they become steady, their centre, how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Floats

_Z_95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What repeated timings say."""

    centre_s: float
    low_s: float
    high_s: float
    samples: int

    @property
    def relative_width(self) -> float:
        """Half the confidence interval over the centre."""
        return (self.high_s - self.low_s) / (2 * self.centre_s)


def steady_from(samples: Sequence[float]) -> int:
    """The first sample that belongs to the steady state, in the first half at most.

    The cut that minimises the standard error of what remains (MSER), on samples clipped to what
    lies within the usual range, so that one late outlier does not make everything before it
    look like warm-up.
    """
    values = np.asarray(samples, dtype=np.float64)
    count = len(values)
    if count < 4:
        return 0
    low, high = np.quantile(values[count // 2 :], [0.0, 0.9])
    spread = max(high - low, 1e-3 * high)
    clipped = np.minimum(values, high + 3 * spread)
    cuts = np.arange(count // 2 + 1)
    errors = [clipped[c:].var() / (count - c) for c in cuts]
    return int(np.argmin(errors))


def summarise(samples: Sequence[float]) -> Summary:
    """The median and its distribution-free 95 % confidence interval."""
    values = np.sort(np.asarray(samples, dtype=np.float64))
    count = len(values)
    reach = _Z_95 * np.sqrt(count) / 2
    low = max(0, int(np.floor(count / 2 - reach)))
    high = min(count - 1, int(np.ceil(count / 2 + reach)))
    return Summary(
        centre_s=float(np.median(values)),
        low_s=float(values[low]),
        high_s=float(values[high]),
        samples=count,
    )


def fast_half(samples: Sequence[float]) -> float:
    """Mean of the faster half: other work on a machine only ever adds time."""
    values: Floats = np.sort(np.asarray(samples, dtype=np.float64))
    return float(values[: max(1, (len(values) + 1) // 2)].mean())
