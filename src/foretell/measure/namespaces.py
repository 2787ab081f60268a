"""Two hosts on one machine: network namespaces joined by a veth pair whose rate can be set.

Names carry the process that made them, so that runs side by side do not meet, and what a killed
run left behind is found and removed by the next. Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PREFIX = "foretell-"
INTERFACE = "ft0"
_ADDRESSES = ("192.0.2.1/30", "192.0.2.2/30")  # TEST-NET-1, known to these namespaces only
_PACKET_BYTES = 16 * 1024  # handed down whole; larger than a burst, tbf would cut it up slowly
_BURST_S = 5e-4
_LEAST_BURST_BYTES = 20 * 1024
_QUEUE_S = 2.0


def first_address(host: int) -> str:
    """The address of one of the hosts."""
    return _ADDRESSES[host].partition("/")[0]


def why_not() -> str:
    """Why namespaces cannot be made here; empty when they can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install iproute2"
    try:
        with HostPair() as hosts:
            hosts.shape(1e8)
    except RuntimeError as error:
        return str(error)
    return ""


class HostPair:
    """Two namespaces, made on entry and removed on exit."""

    def __init__(self) -> None:
        self.names = tuple(f"{PREFIX}{os.getpid()}-{i}" for i in range(2))

    def __enter__(self) -> HostPair:
        remove_stale()
        try:
            for name in self.names:
                _run("ip", "netns", "add", name)
            left, right = self.names
            _run(
                *("ip", "link", "add", INTERFACE, "netns", left),
                *("type", "veth", "peer", "name", INTERFACE, "netns", right),
            )
            for name, address in zip(self.names, _ADDRESSES, strict=True):
                _run("ip", "-n", name, "address", "add", address, "dev", INTERFACE)
                size = ("gso_max_size", str(_PACKET_BYTES))
                _run("ip", "-n", name, "link", "set", INTERFACE, *size)
                for device in (INTERFACE, "lo"):
                    _run("ip", "-n", name, "link", "set", device, "up")
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def shape(self, bits_per_s: float | None) -> None:
        """Send no faster than this in either direction; None lifts the limit."""
        for name in self.names:
            where = ("dev", INTERFACE, "root")
            command = ["tc", "-n", name, "qdisc", "delete", *where]
            subprocess.run(command, capture_output=True, check=False)
            if bits_per_s is None:
                continue
            burst = max(_LEAST_BURST_BYTES, int(bits_per_s / 8 * _BURST_S))
            _run(
                *("tc", "-n", name, "qdisc", "add", *where, "tbf"),
                *("rate", f"{bits_per_s:.0f}bit", "burst", f"{burst}b"),
                *("latency", f"{_QUEUE_S:g}s"),
            )

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs a program on one of the hosts."""
        return ["ip", "netns", "exec", self.names[host], *command]


def remove_stale() -> None:
    """Remove namespaces of runs that are no more."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        owner = name.removeprefix(PREFIX).split("-")[0]
        ours = name.startswith(PREFIX) and owner.isdigit()
        if ours and not Path("/proc", owner).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
