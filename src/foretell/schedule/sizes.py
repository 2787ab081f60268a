"""How long jobs are expected to be when they are submitted."""

from __future__ import annotations

from typing import Protocol

from foretell.graph.graph import Floats
from foretell.schedule.job import Job


class Sizes(Protocol):
    """Says how long jobs are, and learns from those that ended.

    Times are in seconds on the fewest servers of the best pool. A site asks once per job, in the
    order of arrival, and tells of every end as it happens: nothing is known of the future.
    """

    def predicted_s(self, job: Job) -> float:
        """Of a job that was just submitted."""

    def outgrown(self, job: Job) -> float:
        """Of a job that is longer than was predicted: more than what it has done."""

    def learn(self, job: Job, took_s: float) -> None:
        """A job ended after so long."""


class Oracle:
    """Knows how long each job is."""

    def __init__(self, true_s: Floats) -> None:
        self._true_s = true_s

    def predicted_s(self, job: Job) -> float:
        """The truth."""
        return float(self._true_s[job.number])

    def outgrown(self, job: Job) -> float:
        """Never far: only what rounding leaves."""
        return max(float(self._true_s[job.number]), job.done_s) * (1 + 1e-12)

    def learn(self, job: Job, took_s: float) -> None:
        """Nothing it did not know."""
