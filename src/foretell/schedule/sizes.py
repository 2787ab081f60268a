"""How long jobs are expected to be when they are submitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from foretell.graph.graph import Floats
from foretell.schedule.job import Job
from foretell.schedule.recurrence import Recurrence
from foretell.schedule.trace import Trace

_NO_IDEA_S = 3600.0


class Sizes(Protocol):
    """Says how long jobs are, and learns from those that ended.

    Times are in seconds on the fewest servers of the best pool. A site asks for a job's length
    once, in the order of arrival, and tells of every end as it happens: nothing is known of the
    future.
    """

    def predicted_s(self, job: Job) -> float:
        """Of a job that was just submitted."""

    def left_s(self, job: Job) -> float:
        """How much longer a job that has done `done_s` is expected to need; above zero."""

    def per_chance_s(self, job: Job) -> float:
        """The least time expected to pass per chance that it is done: at most what is left."""

    def learn(self, job: Job, took_s: float) -> None:
        """A job ended after so long."""


class Oracle:
    """Knows how long each job is."""

    def __init__(self, true_s: Floats) -> None:
        self._true_s: list[float] = true_s.tolist()

    def predicted_s(self, job: Job) -> float:
        """The truth."""
        return self._true_s[job.number]

    def left_s(self, job: Job) -> float:
        """The truth, above zero whatever rounding leaves."""
        true_s = self._true_s[job.number]
        return max(true_s - job.done_s, 1e-12 * true_s)

    def per_chance_s(self, job: Job) -> float:
        """The same, without a doubt."""
        return self.left_s(job)

    def learn(self, job: Job, took_s: float) -> None:
        """Nothing it did not know."""


class Blind:
    """Nobody knows; for policies that do not ask."""

    def predicted_s(self, job: Job) -> float:
        """Nothing."""
        return math.nan

    def left_s(self, job: Job) -> float:
        """Nothing."""
        return math.nan

    def per_chance_s(self, job: Job) -> float:
        """Nothing."""
        return math.nan

    def learn(self, job: Job, took_s: float) -> None:
        """Nothing."""


class Doubling(ABC):
    """A number per job; who outgrows it is expected to need as long again as it took so far."""

    @abstractmethod
    def predicted_s(self, job: Job) -> float:
        """Of a job that was just submitted."""

    def left_s(self, job: Job) -> float:
        """What is left of the number."""
        if job.done_s >= job.predicted_s:
            job.predicted_s = 2 * job.done_s
        return job.predicted_s - job.done_s

    def per_chance_s(self, job: Job) -> float:
        """The same: a number has no chances."""
        return self.left_s(job)

    def learn(self, job: Job, took_s: float) -> None:  # noqa: B027
        """Nothing, unless it learns."""


class Distorted(Doubling):
    """The truth times log-normal noise, or turned upside down: long jobs are said to be short."""

    def __init__(self, true_s: Floats, sigma: float, seed: int, *, inverted: bool = False) -> None:
        noise = np.exp(np.random.default_rng(seed).normal(0.0, sigma, len(true_s)))
        middle = float(np.exp(2 * np.log(true_s).mean()))
        self._said_s = ((middle / true_s if inverted else true_s) * noise).tolist()

    def predicted_s(self, job: Job) -> float:
        """What is said of it."""
        return float(self._said_s[job.number])


class Stated(Doubling):
    """What users stated, however wrong; where they stated nothing, the mean of all that ended."""

    def __init__(self) -> None:
        self._total_s, self._count = _NO_IDEA_S, 1

    def predicted_s(self, job: Job) -> float:
        """The limit."""
        return job.limit_s if job.limit_s < math.inf else self._total_s / self._count

    def learn(self, job: Job, took_s: float) -> None:
        """For the mean."""
        self._total_s += took_s
        self._count += 1


class LikeThose(Doubling):
    """The mean of the last so many jobs with the closest key that has any."""

    def __init__(self, trace: Trace, last: int) -> None:
        self._past, self._last = Recurrence(trace), last

    def predicted_s(self, job: Job) -> float:
        """An hour if there are none."""
        closest = next(self._past.pasts(job.number), None)
        if closest is None:
            return _NO_IDEA_S
        _, past = closest
        lengths = [math.exp(each) for each in list(past.latest)[-self._last :]]
        return sum(lengths) / len(lengths)

    def learn(self, job: Job, took_s: float) -> None:
        """For those that come."""
        self._past.add(job.number, math.log(took_s))
