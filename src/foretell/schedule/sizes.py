"""How long jobs are expected to be when they are submitted."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from foretell.graph.graph import Floats
from foretell.schedule.job import Job
from foretell.schedule.recurrence import Recurrence
from foretell.schedule.trace import Trace


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


class Blind:
    """Nobody knows; for policies that do not ask."""

    def predicted_s(self, job: Job) -> float:
        """Nothing."""
        return math.nan

    def outgrown(self, job: Job) -> float:
        """Nothing."""
        return math.nan

    def learn(self, job: Job, took_s: float) -> None:
        """Nothing."""


class Distorted:
    """The truth times log-normal noise, or turned upside down: long jobs are said to be short."""

    def __init__(self, true_s: Floats, sigma: float, seed: int, *, inverted: bool = False) -> None:
        noise = np.exp(np.random.default_rng(seed).normal(0.0, sigma, len(true_s)))
        middle = float(np.exp(2 * np.log(true_s).mean()))
        self._said_s = (middle / true_s if inverted else true_s) * noise

    def predicted_s(self, job: Job) -> float:
        """What is said of it."""
        return float(self._said_s[job.number])

    def outgrown(self, job: Job) -> float:
        """Twice what it has done."""
        return 2 * job.done_s

    def learn(self, job: Job, took_s: float) -> None:
        """Nothing: it goes on being wrong."""


class Stated:
    """What users stated, however wrong; where they stated nothing, the mean of all that ended."""

    def __init__(self) -> None:
        self._total_s, self._count = 3600.0, 1

    def predicted_s(self, job: Job) -> float:
        """The limit."""
        return job.limit_s if job.limit_s < math.inf else self._total_s / self._count

    def outgrown(self, job: Job) -> float:
        """Twice what it has done."""
        return 2 * job.done_s

    def learn(self, job: Job, took_s: float) -> None:
        """For the mean."""
        self._total_s += took_s
        self._count += 1


class LikeThose:
    """The mean of the last so many jobs with the closest key that has any."""

    def __init__(self, trace: Trace, last: int) -> None:
        self._past, self._last = Recurrence(trace), last

    def predicted_s(self, job: Job) -> float:
        """An hour if there are none."""
        closest = next(self._past.pasts(job.number), None)
        if closest is None:
            return 3600.0
        lengths = [math.exp(each) for each in list(closest.latest)[-self._last :]]
        return sum(lengths) / len(lengths)

    def outgrown(self, job: Job) -> float:
        """Twice what it has done."""
        return 2 * job.done_s

    def learn(self, job: Job, took_s: float) -> None:
        """For those that come."""
        self._past.add(job.number, math.log(took_s))
