"""How long jobs will be, learned from those that ended: trees on recurrence."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import numpy as np

from foretell.graph.graph import Floats
from foretell.schedule.forest import Forest, Guesser
from foretell.schedule.guess import Guess, left_s, median, normal, per_chance_s, quantile
from foretell.schedule.job import Job
from foretell.schedule.recurrence import FEATURES, LEVEL, USUAL, Recurrence
from foretell.schedule.trace import Trace

_FIRST_FIT = 500
"""Jobs that must have ended before trees say anything."""
_GROWTH = 1.4
"""By which the number of ended jobs grows between two fits."""
_MOST_ROWS = 20_000
"""Of the latest jobs that trees are fitted to."""
_NO_IDEA_S, _NO_IDEA_SPREAD = 3600.0, 2.0

Fit = Callable[[Floats, Floats, int], Guesser]
"""From rows of features, in the order in which jobs ended, logarithms of iterations and a seed."""


class Learned:
    """Iterations by trees, times the seconds an iteration takes on the fewest servers.

    Iterations that users state count. Else trees say how much longer it will be than the last two
    of the most alike. They are fitted only to jobs that ended before; until there are enough, the
    mean of the most alike counts, as far apart as the like were so far, then the time limit, then
    an hour.
    """

    def __init__(
        self, trace: Trace, iteration_s: Floats, seed: int = 0, fit: Fit = Forest.fitted
    ) -> None:
        self._iteration_s: list[float] = iteration_s.tolist()
        """Of every job."""
        self._past = Recurrence(trace)
        self._limit_s = trace.limit_s.tolist()
        self._stated, self._doubt = trace.stated.tolist(), trace.doubt.tolist()
        self._seed = seed
        self._asked: dict[int, list[float]] = {}
        """What was known of jobs that have not ended."""
        self._likely_s: dict[int, Guess] = {}
        """Lengths of the same."""
        self._rows = array("d")
        self._targets = array("d")
        self._fit = fit
        self._guesser: Guesser | None = None
        self._next_fit = _FIRST_FIT

    def predicted_s(self, job: Job) -> float:
        """The median."""
        return median(self.likely_s(job))

    def quantile_s(self, job: Job, share: float) -> float:
        """The length that it does not reach with that chance."""
        return quantile(self.likely_s(job), share)

    def left_s(self, job: Job) -> float:
        """The mean of what is left of all lengths that are not past."""
        return left_s(self.likely_s(job), job.done_s)

    def per_chance_s(self, job: Job) -> float:
        """The least of all moments at which one could stop it."""
        return per_chance_s(self.likely_s(job), job.done_s)

    def likely_s(self, job: Job) -> Guess:
        """Equally likely lengths of a job, as it was when it was submitted."""
        number = job.number
        found = self._likely_s.get(number)
        if found is None:
            each_s = self._iteration_s[number]
            found = [math.exp(log) * each_s for log in self._guess(number)]
            self._likely_s[number] = found
        return found

    def _guess(self, number: int) -> Guess:
        """Logarithms of its iterations."""
        features = self._asked[number] = self._past.features(number)
        if not math.isnan(self._stated[number]):
            return normal(math.log(self._stated[number]), self._doubt[number])
        if self._guesser is not None and features[LEVEL] >= 0:
            usual = features[USUAL]
            return [usual + change for change in self._guesser.guess(features)]
        closest = next(self._past.pasts(number), None)
        if closest is not None:
            return normal(closest[1].mean, self._past.doubt(*closest))
        said_s = min(self._limit_s[number], _NO_IDEA_S)
        return normal(math.log(said_s / self._iteration_s[number]), _NO_IDEA_SPREAD)

    def learn(self, job: Job, took_s: float) -> None:
        """One more job that ended; now and then, new trees."""
        log_length = math.log(took_s / self._iteration_s[job.number])
        features = self._asked.pop(job.number)
        self._likely_s.pop(job.number, None)
        self._past.add(job.number, log_length)
        if features[LEVEL] < 0:
            return
        self._rows.extend(features)
        self._targets.append(log_length - features[USUAL])
        if len(self._targets) >= self._next_fit:
            self._next_fit = math.ceil(len(self._targets) * _GROWTH)
            rows = np.frombuffer(self._rows).reshape(-1, len(FEATURES))[-_MOST_ROWS:]
            targets = np.frombuffer(self._targets)[-_MOST_ROWS:]
            self._guesser = self._fit(rows.copy(), targets.copy(), self._seed)
