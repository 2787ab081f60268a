"""How long jobs will be, learned from those that ended: a random forest on recurrence."""

from __future__ import annotations

import math
from array import array

import numpy as np

from foretell.graph.graph import Floats
from foretell.schedule.forest import Forest, Guess
from foretell.schedule.job import Job
from foretell.schedule.recurrence import FEATURES, Recurrence
from foretell.schedule.trace import Trace

_FIRST_FIT = 100
"""Jobs that must have ended before a forest says anything."""
_GROWTH = 1.4
"""By which the number of ended jobs grows between two fits."""
_MOST_ROWS = 20_000
"""Of the latest jobs that a forest is fitted to."""
_NO_IDEA_S, _NO_IDEA_SPREAD = 3600.0, 2.0
_OUTGROWN = 2.0
"""By which a job is expected to be longer than it was so far, if none like it ever was."""


class Learned:
    """Iterations by a random forest, times the seconds an iteration takes on the fewest servers.

    Fitted only to jobs that ended before; before there are enough, the mean of the most alike ones
    counts, then what the user said, then an hour.
    """

    def __init__(self, trace: Trace, iteration_s: Floats, seed: int = 0) -> None:
        self._iteration_s = iteration_s.tolist()
        """Of every job."""
        self._past = Recurrence(trace)
        self._limit_s = trace.limit_s.tolist()
        self._seed = seed
        self._asked: dict[int, list[float]] = {}
        """What was known of jobs that have not ended."""
        self._rows = array("d")
        self._targets = array("d")
        self._forest: Forest | None = None
        self._next_fit = _FIRST_FIT

    def predicted_s(self, job: Job) -> float:
        """The median."""
        return math.exp(self.guess(job).mean) * self._iteration_s[job.number]

    def quantile_s(self, job: Job, deviations: float) -> float:
        """So many deviations above the median."""
        guess = self.guess(job)
        return math.exp(guess.mean + deviations * guess.deviation) * self._iteration_s[job.number]

    def guess(self, job: Job) -> Guess:
        """The logarithm of the iterations of a job just submitted."""
        number = job.number
        features = self._asked.get(number)
        if features is None:
            features = self._asked[number] = self._past.features(number)
        if self._forest is not None:
            return self._forest.guess(features)
        closest = next(self._past.pasts(number), None)
        if closest is not None:
            return Guess(closest.mean, max(closest.deviation, 1 / closest.count))
        said_s = min(self._limit_s[number], _NO_IDEA_S)
        return Guess(math.log(said_s / self._iteration_s[number]), _NO_IDEA_SPREAD)

    def outgrown(self, job: Job) -> float:
        """The mean of jobs like it that were longer than it is now."""
        each_s = self._iteration_s[job.number]
        done = math.log(max(job.done_s, 1e-9) / each_s)
        for past in self._past.pasts(job.number):
            if (mean := past.mean_above(done)) is not None:
                return max(mean * each_s, job.done_s * (1 + 1e-9))
        return _OUTGROWN * job.done_s

    def learn(self, job: Job, took_s: float) -> None:
        """One more job that ended; now and then, a new forest."""
        log_length = math.log(took_s / self._iteration_s[job.number])
        self._rows.extend(self._asked.pop(job.number))
        self._targets.append(log_length)
        self._past.add(job.number, log_length)
        if len(self._targets) >= self._next_fit:
            self._next_fit = math.ceil(len(self._targets) * _GROWTH)
            rows = np.frombuffer(self._rows).reshape(-1, len(FEATURES))[-_MOST_ROWS:]
            targets = np.frombuffer(self._targets)[-_MOST_ROWS:]
            self._forest = Forest.fitted(rows.copy(), targets.copy(), self._seed)
