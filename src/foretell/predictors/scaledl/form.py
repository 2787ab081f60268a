"""The form of the layer model: constants that training and prediction share."""

from __future__ import annotations

import math

SHARPNESS = 3.0
"""Of the smooth maximum of compute and memory."""
HOST_SHARPNESS = 4.0
"""Of the smooth maximum of the device's time and that of the host that launches."""
OVERHEAD_S, DISPATCH_S = 3e-6, 6e-6
LOG_MICRO = math.log(1e-6)
MOST_RHO = 0.6
"""How much of a device's lead in peak or bandwidth an operator may fail to use, as an exponent."""
OUTPUTS = (
    "compute",
    "memory",
    "overhead",
    "waves",
    "short_compute",
    "short_memory",
    "cache",
    "share_waves",
    "share_short",
    "share_none",
    "share_memory",
)
"""What the network says of an operator."""
START = {
    "compute": 0.5,
    "memory": 0.3,
    "waves": -1.0,
    "cache": 2.0,
}
"""Where it starts, unless at zero.

Devices that were measured are few: what their caches do to an operator starts where it holds on
most of them, and moves only as far as the data say; so does what limits.py has of units and power.
"""
USUAL_MATRIX_LEAD = math.log(2.0)
"""Of matrix units over vector units, that an operator uses wherever there is more."""
USUAL_LOG_WATTS = math.log(3.4)
"""Per processor: with less a device does not keep its clock."""
POWER_SHARPNESS = 4.0
MOST_CORRECTION = 1.5
"""Logarithm by which an operator's surroundings may change its time."""
