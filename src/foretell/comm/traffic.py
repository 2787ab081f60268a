"""What a collective sends, whatever it is sent over."""

from __future__ import annotations

from enum import Enum

from foretell.cluster import Device
from foretell.errors import InputError


class Collective(Enum):
    """An operation all ranks of a group take part in.

    Its size in bytes is: for ALL_REDUCE, BROADCAST and SEND_RECV the tensor, for ALL_GATHER the
    gathered output, for REDUCE_SCATTER the whole input, for ALL_TO_ALL what one rank holds.
    """

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"


def carried_as(kind: Collective, device: Device) -> Collective:
    """What the device's library runs instead: gloo, on CPUs, all-reduces to reduce-scatter."""
    if device.vendor == "cpu" and kind is Collective.REDUCE_SCATTER:
        return Collective.ALL_REDUCE
    return kind


def sent_share(kind: Collective, size: int) -> float:
    """Bytes the busiest rank sends, per byte of the collective's size."""
    if size == 1:
        return 0.0
    if kind in (Collective.BROADCAST, Collective.SEND_RECV):
        return 1.0
    passes = 2 if kind is Collective.ALL_REDUCE else 1
    return passes * (size - 1) / size


def bus_bytes(kind: Collective, nbytes: float, size: int) -> float:
    """Bytes each rank sends (the busiest one where they differ)."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"size={size!r} of a group must be a whole number of 1 or more")
    if not nbytes >= 0:
        raise InputError(f"nbytes={nbytes!r} of {kind.value} must be 0 or more")
    return nbytes * sent_share(kind, size)


def ring_steps(kind: Collective, size: int) -> int:
    """Messages one after another when the ranks stand in a ring."""
    if kind is Collective.SEND_RECV:
        return min(1, size - 1)
    return (2 if kind is Collective.ALL_REDUCE else 1) * (size - 1)
