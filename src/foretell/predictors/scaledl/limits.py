"""How far operators keep a device's rates: numbers for each group of operators and each unit.

Neither the shape nor the phase counts, nor where it runs: what a matrix product timed alone teaches
holds for the gradients in a training step, which nobody timed on most devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretell.graph.graph import Floats
from foretell.predictors.analytic.rates import GROUP_INDEX, GROUPS
from foretell.predictors.scaledl.table import UNITS, alike

LIMITS = ("share_processors", "share_power", "rho_compute", "rho_memory")
"""Of the matrix units' lead over vector units, and of the lack of power, how much an operator
feels; and of the device's lead over a usual one in peak and in bandwidth, how much it wastes."""
_BACKWARD = "_backward"
_PRODUCTS = ("matmul", "bmm", "attention")
_START = 2.5, 0.0, -2.0, -2.0
_START_OF_PRODUCTS = -1.0, 0.0, -2.0, -2.0
"""Libraries of matrix products keep up with matrix units; those of convolutions with processors."""
_FASTEST, _FASTEST_OF_PRODUCTS = -1.0, -0.15
"""Logarithm of the least time over FLOPs / peak: some convolutions compute less than is counted,
products do not; clocks above the stated one help both a little."""
_FASTEST_SHARPNESS = 4.0
_FORWARD = np.array([GROUP_INDEX[name.removesuffix(_BACKWARD)] for name in GROUPS])
_LEAST = np.array(
    [
        _FASTEST_OF_PRODUCTS if name.removesuffix(_BACKWARD) in _PRODUCTS else _FASTEST
        for name in GROUPS
    ]
)


def limits_row(group: Any, unit: Any) -> Any:
    """Which row of the shares operators have."""
    forward = _FORWARD if isinstance(group, np.ndarray) else group.new_tensor(_FORWARD)
    return forward[group] * len(UNITS) + alike(unit)


def limits_start() -> Floats:
    """[rows, LIMITS] where the shares start."""
    starts = [_START_OF_PRODUCTS if name in _PRODUCTS else _START for name in GROUPS]
    return np.repeat(np.array(starts, dtype=np.float32), len(UNITS), axis=0)


def no_faster(log_time: Any, group: Any, softplus: Any) -> Any:
    """Logarithms of time over FLOPs / peak, bent so that none is below what is possible."""
    least = _LEAST if isinstance(group, np.ndarray) else log_time.new_tensor(_LEAST)
    above = _FASTEST_SHARPNESS * (log_time - least[group])
    return least[group] + softplus(above) / _FASTEST_SHARPNESS
