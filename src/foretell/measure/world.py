"""Where a crew runs: how many processes with how many threads, on which hosts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from foretell.cluster import Device, device
from foretell.cluster.catalogue import links
from foretell.cluster.detect import detect_gpus
from foretell.errors import InputError

_RATE = re.compile(r"(\d+(?:\.\d+)?)(k|m|g)bit")
_FACTOR = {"k": 1e3, "m": 1e6, "g": 1e9}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?")


@dataclass(frozen=True, kw_only=True)
class World:
    """Processes that run workloads together."""

    processes: int = 1
    """On each host."""
    threads: int = 0
    """Of each process; 0 deals the machine's cores out."""
    namespaces: int = 0
    """Hosts made of network namespaces on this machine; 0 for none."""
    bits_per_s: float | None = None
    """Rate of the link between namespaces; None leaves it as fast as it is."""
    hosts: tuple[str, ...] = ()
    """Names of other machines, reached by ssh; this one comes first and is not among them."""

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= 64:
            raise InputError(f"nproc={self.processes} must be between 1 and 64")
        if not 0 <= self.threads <= 1024:
            raise InputError(f"threads={self.threads} must be between 1 and 1024, or left out")
        if self.namespaces not in (0, 2):
            raise InputError(
                f"hosts={self.namespaces}: two namespaces can be joined, no other number"
            )

    @property
    def nodes(self) -> int:
        """Hosts in all."""
        return self.namespaces or 1 + len(self.hosts)

    @property
    def total(self) -> int:
        """Processes in all."""
        return self.nodes * self.processes

    @property
    def threads_each(self) -> int:
        """Threads of each process."""
        here = self.processes * (self.namespaces or 1)
        return self.threads or max(1, len(os.sched_getaffinity(0)) // here)

    @property
    def device(self) -> Device:
        """What one process runs on."""
        gpus = detect_gpus()
        return gpus[0] if gpus else device(f"local@{self.threads_each}")

    @property
    def cluster(self) -> str:
        """As `--cluster` takes it."""
        network = f":{_nearest_link(self.bits_per_s)}" if self.nodes > 1 else ""
        nodes = f"{self.nodes}x" if self.nodes > 1 else ""
        return f"{nodes}{self.processes}x{self.device.id}{network}"

    @property
    def text(self) -> str:
        """As people write it."""
        rate = f"@{format_rate(self.bits_per_s)}" if self.bits_per_s else ""
        hosts = f"{self.namespaces}{rate}" if self.namespaces else ",".join(self.hosts) or "1"
        return f"{self.processes} processes x {self.threads_each} threads on {hosts}"


def parse_hosts(text: str) -> dict[str, Any]:
    """'1' this machine; '2@1gbit' two namespaces on it; 'a,b' other machines beside it."""
    count, _, rate = text.partition("@")
    if count.isdecimal():
        if count == "1" and not rate:
            return {}
        if count != "2":
            raise InputError(
                f"hosts={text!r}: two namespaces can be joined, no other number; write 2@1gbit"
            )
        return {"namespaces": int(count), "bits_per_s": parse_rate(rate) if rate else None}
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"hosts={text!r} is not understood: write 2@1gbit for namespaces on this machine, "
                "or names of machines with commas"
            )
    return {"hosts": names}


def parse_rate(text: str) -> float:
    """'1gbit' -> 1e9 bits per second."""
    match = _RATE.fullmatch(text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise InputError(f"rate {text!r} is not understood: write 100mbit or 1gbit")
    return float(match[1]) * _FACTOR[match[2]]


def format_rate(bits_per_s: float) -> str:
    """1e9 -> '1gbit'."""
    unit = "g" if bits_per_s >= 1e9 else "m" if bits_per_s >= 1e6 else "k"
    return f"{bits_per_s / _FACTOR[unit]:g}{unit}bit"


def _nearest_link(bits_per_s: float | None) -> str:
    """The catalogued Ethernet nearest in rate; namespaces without a limit reach some 10 Gbit/s."""
    wanted = (bits_per_s or 1e10) / 8
    known = [link for link in links().values() if link.kind == "ethernet"]
    ratios = {
        link.id: max(link.bandwidth_bytes_per_s / wanted, wanted / link.bandwidth_bytes_per_s)
        for link in known
    }
    return min(ratios, key=lambda name: ratios[name])
