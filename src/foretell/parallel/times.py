"""Operator times as a predictor gives them: on the device, and on the host that launches them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.graph.graph import Floats
from foretell.parallel.streams import CONTENTION

_SHARPNESS = 4


@dataclass(frozen=True, eq=False)
class OpTimes:
    """Seconds of every operator of a step, in execution order."""

    device_s: Floats
    host_s: Floats
    """Time to launch it; a step is no faster than all of its launches."""
    message_host_s: float = 2e-5
    """Time to launch a collective."""
    contention: float = CONTENTION
    """Share by which compute is slower while a collective runs beside it."""
    copy_bytes_per_s: float = math.inf
    """Rate of copies between tensors and the buffers they are exchanged in; infinite where they
    share memory."""
    exchange_factor: float = 1.0
    """By how much collectives in a running step take longer than alone."""
    network_factor: float = 1.0
    """By how much more those between nodes do."""
    loop_s: float = 0.0
    """Time per step in which the training loop keeps the device waiting: data, logs, losses."""

    def joined(self) -> Floats:
        """Device times stretched to the pace of the host, as one device alone sees them."""
        return self.device_s * stretch(float(self.device_s.sum()), float(self.host_s.sum()))


def stretch(device_s: float, host_s: float) -> float:
    """How much longer a device takes that also waits for its host."""
    if device_s <= 0.0:
        return 1.0
    together = (device_s**_SHARPNESS + host_s**_SHARPNESS) ** (1 / _SHARPNESS)
    return float(together / device_s)
