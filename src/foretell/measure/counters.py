"""Counters of the operating system, read many times a second by the sampling process.

All are integers that only grow, but for resident memory: CPU nanoseconds and resident bytes of the
processes together, then bytes received and sent per interface. A process or interface that is gone
keeps the CPU time and bytes it had last.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from foretell.errors import InputError, UnknownNameError

_BLOCK_BYTES = 1 << 16
_SCHEDULER_CLOCK = 2
_SENT = 8
"""Column of /proc/net/dev that counts the bytes sent; the first counts those received."""


class Counters(Protocol):
    """Processes and interfaces that were found, and what they have used so far."""

    interfaces: tuple[str, ...]
    threads: int
    memory_bytes: int
    """Of the machine."""

    def read(self) -> list[int]:
        """CPU nanoseconds, resident bytes, then bytes received and sent of each interface."""

    def close(self) -> None:
        """Let go of what was opened."""


def open_counters(pids: Sequence[int], interfaces: Sequence[str] | None) -> Counters:
    """The most precise counters this platform has."""
    if sys.platform == "linux":
        return LinuxCounters(pids, interfaces)
    return PortableCounters(pids, interfaces)


class LinuxCounters:
    """From /proc, through files that stay open.

    CPU time comes from the clock of each process, one system call that also counts threads which
    have ended; the schedstat of its threads holds the same nanoseconds and takes eighty times as
    long to read. The kernel adds to either when a thread stops or at a tick, every 1 to 10 ms.
    Interfaces are those the first process sees, in whatever network namespace it lives.
    """

    def __init__(self, pids: Sequence[int], interfaces: Sequence[str] | None) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._processes: dict[int, int] = {}
        self._cpu_ns = dict.fromkeys(pids, 0)
        allowed: set[int] = set()
        with contextlib.ExitStack() as files:
            for pid in pids:
                try:
                    self._processes[pid] = _open(files, f"/proc/{pid}/statm")
                    allowed |= os.sched_getaffinity(pid)
                except OSError:
                    raise not_running(pid) from None
            self._network = _open(files, f"/proc/{pids[0]}/net/dev")
            self._traffic = {name: (0, 0) for name, _ in self._lines()}
            self.interfaces = chosen_interfaces(interfaces, self._traffic)
            self._files = files.pop_all()
        self.threads = len(allowed)
        self.memory_bytes = self._page_bytes * os.sysconf("SC_PHYS_PAGES")

    def read(self) -> list[int]:
        resident_pages = 0
        for pid, statm in list(self._processes.items()):
            try:
                resident_pages += int(os.pread(statm, 256, 0).split()[1])
                self._cpu_ns[pid] = time.clock_gettime_ns(~pid << 3 | _SCHEDULER_CLOCK)
            except OSError:
                del self._processes[pid]
        if self.interfaces:
            for name, line in self._lines():
                fields = line.split()
                self._traffic[name] = int(fields[0]), int(fields[_SENT])
        traffic = [count for name in self.interfaces for count in self._traffic[name]]
        return [sum(self._cpu_ns.values()), resident_pages * self._page_bytes, *traffic]

    def close(self) -> None:
        self._files.close()

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        """Name and counters of each interface; the kernel hands out a page at a time."""
        text = b""
        while block := os.pread(self._network, _BLOCK_BYTES, len(text)):
            text += block
        for line in text.splitlines()[2:]:
            name, _, counts = line.partition(b":")
            yield name.strip().decode(), counts


class PortableCounters:
    """From psutil, where there is no /proc."""

    def __init__(self, pids: Sequence[int], interfaces: Sequence[str] | None) -> None:
        import psutil

        self._gone: tuple[type[Exception], ...] = (psutil.NoSuchProcess,)
        self._counts = psutil.net_io_counters
        self._cpu_ns = dict.fromkeys(pids, 0)
        try:
            self._processes = {pid: psutil.Process(pid) for pid in pids}
        except psutil.NoSuchProcess as error:
            raise not_running(error.pid) from None
        self._traffic = dict.fromkeys(self._counts(pernic=True, nowrap=False), (0, 0))
        self.interfaces = chosen_interfaces(interfaces, self._traffic)
        self.threads = psutil.cpu_count() or 1
        with contextlib.suppress(AttributeError):  # not every platform pins processes
            self.threads = len({c for p in self._processes.values() for c in p.cpu_affinity()})
        self.memory_bytes = psutil.virtual_memory().total

    def read(self) -> list[int]:
        resident_bytes = 0
        for pid, process in list(self._processes.items()):
            try:
                with process.oneshot():
                    resident_bytes += process.memory_info().rss
                    times = process.cpu_times()
                self._cpu_ns[pid] = round(1e9 * (times.user + times.system))
            except self._gone:
                del self._processes[pid]
        if self.interfaces:
            for name, counts in self._counts(pernic=True, nowrap=False).items():
                self._traffic[name] = counts.bytes_recv, counts.bytes_sent
        traffic = [count for name in self.interfaces for count in self._traffic[name]]
        return [sum(self._cpu_ns.values()), resident_bytes, *traffic]

    def close(self) -> None:
        self._processes.clear()


def chosen_interfaces(asked: Sequence[str] | None, known: Mapping[str, object]) -> tuple[str, ...]:
    """What was asked for; None means all but the loopback."""
    if asked is None:
        return tuple(name for name in known if not _is_loopback(name))
    for name in asked:
        if name not in known:
            raise UnknownNameError("interface", name, known, f"there are {', '.join(known)}")
    return tuple(asked)


def not_running(pid: int) -> InputError:
    """What to say about a process that is not there."""
    return InputError(f"process {pid} is not running: give ids of processes that are")


def _is_loopback(name: str) -> bool:
    return name in ("lo", "lo0") or name.lower().startswith("loopback")


def _open(files: contextlib.ExitStack, path: str) -> int:
    return files.enter_context(open(path, "rb", buffering=0)).fileno()
