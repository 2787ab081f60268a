"""Intervals from the few cases that a calibration measures."""

from __future__ import annotations

import numpy as np

from foretell.graph.graph import Floats
from foretell.predictors.assemble import Spread

LEAST_CASES = 3
_Z_90 = 1.645
_LEAST_SPREAD = 0.03


def spread_of(logs: Floats) -> Spread:
    """90 % interval of measured over predicted, from few logarithms of the reverse."""
    if len(logs) < LEAST_CASES:
        return Spread(low=0.5, high=2.0)
    # Few cases know their own spread badly: Student's t, roughly.
    reach = _Z_90 * (1 + 1.5 / len(logs)) * float(np.sqrt(np.mean(logs**2)))
    reach = max(reach, _LEAST_SPREAD)
    return Spread(low=float(np.exp(-reach)), high=float(np.exp(reach)))
