"""Constants of a link from measured collectives of one group of processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Device, Link
from foretell.comm.constants import Pattern, Protocol
from foretell.comm.traffic import Collective, carried_as, sent_share

_PATTERN = {
    Collective.ALL_REDUCE: "ring",
    Collective.ALL_TO_ALL: "exchange",
    Collective.SEND_RECV: "pair",
}
"""All others are kept under their own name."""


@dataclass(frozen=True)
class CollectiveTime:
    """How long a collective of a size took."""

    kind: Collective
    nbytes: float
    seconds: float


def fit_link(
    times: Iterable[CollectiveTime], link: Link, device: Device, ranks: int
) -> Mapping[str, Pattern]:
    """Start and rate of every pattern that was measured between so many ranks."""
    points: dict[Collective, list[tuple[float, float]]] = {}
    for time in times:
        points.setdefault(time.kind, []).append((time.nbytes, time.seconds))
    patterns = {}
    for kind, measured in points.items():
        share = sent_share(carried_as(kind, device), ranks)
        if kind is Collective.ALL_TO_ALL:
            share = (ranks - 1) / ranks
        start_s, byte_s = _line([(share * nbytes, seconds) for nbytes, seconds in measured])
        efficiency = 1 / (byte_s * link.bandwidth_bytes_per_s)
        protocol = Protocol(start_s=start_s, hop=0.0, efficiency=efficiency)
        patterns[_PATTERN.get(kind, kind.value)] = Pattern(
            protocols={"simple": protocol}, blend=1.0
        )
    return patterns


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds at zero bytes and per byte, by least squares of relative errors; none negative."""
    sent, seconds = np.array(points).T
    rows = np.column_stack([np.ones_like(sent), sent]) / seconds[:, None]
    (start_s, byte_s), *_ = np.linalg.lstsq(rows, np.ones_like(sent), rcond=None)
    if start_s < 0 or len(points) == 1:
        start_s, byte_s = 0.0, float(np.median(seconds / sent))
    if byte_s <= 0:  # no size was long enough to tell
        start_s, byte_s = float(np.median(seconds)), float((seconds / sent).min())
    return float(start_s), float(byte_s)
