"""What moves bytes between devices: links inside a node and networks between nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.errors import InputError, UnknownNameError

NODE_KINDS = ("nvlink", "pcie", "xgmi")
NETWORK_KINDS = ("infiniband", "roce", "efa", "ethernet", "loopback")
KINDS = NODE_KINDS + NETWORK_KINDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One kind of link; `link("ib-ndr")` looks a known one up.

    The bandwidth is that of one direction: of one GPU's lanes together for links inside a node,
    of one port for networks. The latency is one small message over one hop, software included.
    """

    id: str
    name: str
    kind: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError(
                f"kind of link {self.id!r}:", self.kind, KINDS, f"use one of {', '.join(KINDS)}"
            )
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise InputError(
                f"link {self.id!r}: bandwidth_bytes_per_s={self.bandwidth_bytes_per_s!r} "
                "must be a positive number"
            )
        if not 0 <= self.latency_s < math.inf:
            raise InputError(f"link {self.id!r}: latency_s={self.latency_s!r} must be 0 or more")

    @property
    def is_network(self) -> bool:
        """Whether it joins nodes rather than the devices of one node."""
        return self.kind in NETWORK_KINDS
