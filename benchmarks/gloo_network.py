"""A link and its constants from measured gloo collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.cluster import Cluster, Link, device, node_group
from foretell.comm import Collective, Constants, carried_as
from foretell.comm.constants import Pattern, Protocol
from foretell.comm.traffic import sent_share

_PATTERNS = {
    "all_reduce": "ring",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "send_recv": "pair",
}
_UNSHAPED_BYTES_PER_S = 1.25e9
_LONG_BYTES = 2**20
DEVICE = device("cpu")


@dataclass(frozen=True, kw_only=True)
class Network:
    """What the predictor is told about the network between the two hosts."""

    link: Link
    constants: Constants
    core_share: float
    """Share of a core that a long exchange takes."""
    copy_bytes_per_s: float

    @property
    def cluster(self) -> Cluster:
        """Two hosts with one process each."""
        nodes = node_group(DEVICE, count=2, gpus_per_node=1, network_link=self.link)
        return Cluster(groups=(nodes,))


def fit_network(answers: Sequence[Mapping[str, Any]], bits_per_s: float | None) -> Network:
    """Start and rate of every pattern, by least squares of relative errors."""
    rows = [row for answer in answers for row in answer["rows"]]
    link = Link(
        id="gloo",
        name="veth pair",
        kind="ethernet",
        bandwidth_bytes_per_s=bits_per_s / 8 if bits_per_s else _UNSHAPED_BYTES_PER_S,
        latency_s=0.0,
    )
    patterns = {}
    for collective, pattern in _PATTERNS.items():
        mine = [r for r in rows if r["collective"] == collective]
        share = sent_share(carried_as(Collective(collective), DEVICE), 2)
        start_s, byte_s = _line([(share * r["nbytes"], r["seconds"]) for r in mine])
        efficiency = 1 / (byte_s * link.bandwidth_bytes_per_s)
        protocol = Protocol(start_s=start_s, hop=0.0, efficiency=efficiency)
        patterns[pattern] = Pattern(protocols={"simple": protocol}, blend=1.0)
    busy = [
        r["core_share"]
        for r in rows
        if r["collective"] == "all_reduce" and r["nbytes"] >= _LONG_BYTES
    ]
    return Network(
        link=link,
        constants=Constants(links={link.id: patterns}),
        core_share=float(np.median(busy)),
        copy_bytes_per_s=float(np.mean([a["copy_bytes_per_s"] for a in answers])),
    )


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Seconds at zero bytes and per byte, both positive."""
    sent, seconds = np.array(points).T
    design = np.column_stack([np.ones_like(sent), sent]) / seconds[:, None]
    (start_s, byte_s), *_ = np.linalg.lstsq(design, np.ones_like(sent), rcond=None)
    if start_s < 0:
        start_s, byte_s = 0.0, float(np.median(seconds / sent))
    return float(start_s), float(byte_s)
