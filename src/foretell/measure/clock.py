"""Times of a device: what it has finished, not what it has been told to do."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import torch

HEADER_BYTES = 66
"""Ethernet 14, IPv4 20, TCP 32 (with timestamps): what every packet adds to its payload."""
_REFERENCE_WIDTH = 384
_REFERENCE_S = 0.01


def chosen_device(local_rank: int) -> torch.device:
    """The accelerator of a process, or the CPU."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def backend_of(device: torch.device) -> str:
    """What processes on such devices talk through; RCCL goes by NCCL's name."""
    return "nccl" if device.type == "cuda" else "gloo"


def now_s(device: torch.device) -> float:
    """The time once the device has done everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


class Reference:
    """A fixed piece of work whose time tells how fast the machine is at the moment."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.factor = torch.full((_REFERENCE_WIDTH, _REFERENCE_WIDTH), 0.01, device=device)

    def seconds(self) -> float:
        """Mean of the runs of a short while, waiting for other work on the machine included."""
        start = end = now_s(self.device)
        runs = 0
        while end - start < _REFERENCE_S:
            torch.mm(self.factor, self.factor)
            runs += 1
            end = now_s(self.device)
        return (end - start) / runs


class Memory:
    """Peaks of one piece of work, on the device and of the process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with contextlib.suppress(OSError):  # from here on the kernel's peak counts anew
            Path("/proc/self/clear_refs").write_text("5")

    def peaks(self) -> dict[str, float]:
        """Peak bytes by who counts them."""
        found = {}
        if self.device.type == "cuda":
            found["allocated_bytes"] = float(torch.cuda.max_memory_allocated(self.device))
            found["reserved_bytes"] = float(torch.cuda.max_memory_reserved(self.device))
        resident = _peak_resident_bytes()
        return found | ({"resident_bytes": resident} if resident else {})


def sent_bytes(interface: str) -> int:
    """Payload that left through an interface so far; 0 when it has no counters."""
    counters = Path("/sys/class/net", interface, "statistics")
    try:
        nbytes, packets = (int((counters / n).read_text()) for n in ("tx_bytes", "tx_packets"))
    except (OSError, ValueError):
        return 0
    return nbytes - HEADER_BYTES * packets


def _peak_resident_bytes() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        unit = 1 if os.uname().sysname == "Darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
    peak = next((line for line in lines if line.startswith("VmHWM")), "")
    return float(peak.split()[1]) * 1024 if peak else 0.0
