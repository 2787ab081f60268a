"""The cluster as one machine that works on the job with the least left: preemptive SRPT."""

from __future__ import annotations

import heapq
import math


class VirtualMachine:
    """Jobs by number, with the seconds each takes on the machine alone."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._waiting: list[tuple[float, int]] = []
        """(seconds left, job), the least first; the first is worked on."""

    def add(self, number: int, size_s: float, now_s: float) -> list[int]:
        """A job arrives; those that were done before, in that order."""
        done = self.advance(now_s)
        heapq.heappush(self._waiting, (size_s, number))
        return done

    def advance(self, now_s: float) -> list[int]:
        """Work until then; the jobs that were done on the way, in that order."""
        done = []
        while self._waiting and self._now_s + self._waiting[0][0] <= now_s:
            left_s, number = heapq.heappop(self._waiting)
            self._now_s += left_s
            done.append(number)
        if self._waiting and now_s > self._now_s:
            left_s, number = self._waiting[0]
            # Still the least: the order of the heap holds.
            self._waiting[0] = (left_s - (now_s - self._now_s), number)
        self._now_s = max(self._now_s, now_s)
        return done

    def next_s(self) -> float:
        """When the next job will be done if none arrives."""
        return self._now_s + self._waiting[0][0] if self._waiting else math.inf
