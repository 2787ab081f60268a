"""The figures every benchmark states."""

from __future__ import annotations

import numpy as np


def errors(ratios: np.ndarray) -> dict[str, float]:
    """Mean, median, p90 and max of |predicted / measured - 1| in percent.

    `ratios` are measured / predicted.
    """
    off = 100 * np.abs(1 / ratios - 1)
    return {
        "mean": float(off.mean()),
        "median": float(np.median(off)),
        "p90": float(np.quantile(off, 0.9)),
        "max": float(off.max()),
    }
