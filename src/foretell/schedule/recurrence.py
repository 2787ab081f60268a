"""What jobs like a new one did before, at every level of likeness: what a forest reads."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foretell.schedule.trace import NONE, Trace

_REMEMBERED = 64
"""Lengths that a level remembers one by one."""
_DAY_S, _WEEK_DAYS = 86_400.0, 7
_UNKNOWN = -1.0
_FIRST, _SIZE, _ANY = 7, 8, 9
"""Levels of likeness that say nothing of who runs what: first jobs of their name (or of their user,
where jobs have no names), jobs of equal size, all."""
_APART = 1.0
"""Mean square by which logarithms of jobs are taken to differ from those before, to begin with."""
Key = tuple[int, ...]


@dataclass(slots=True)
class Past:
    """Jobs with one key that have ended: logarithms of how long they were."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def add(self, log_length: float) -> None:
        """One more."""
        self.count += 1
        self.total += log_length
        self.squares += log_length * log_length
        self.latest.append(log_length)

    @property
    def mean(self) -> float:
        """Of the logarithms."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """Of the logarithms."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2))

    @property
    def median(self) -> float:
        """Of the latest."""
        order = sorted(self.latest)
        return order[len(order) // 2]

    @property
    def last_two(self) -> float:
        """Logarithm of the mean length of the latest two."""
        last, before = self._latest_two()
        return math.log((math.exp(last) + math.exp(before)) / 2)

    @property
    def change(self) -> float:
        """How far the latest two are apart: nothing where the same thing runs again."""
        last, before = self._latest_two()
        return abs(last - before)

    def _latest_two(self) -> tuple[float, float]:
        last = self.latest[-1]
        return last, self.latest[-2] if len(self.latest) > 1 else last


FEATURES = (
    "devices",
    "limit",
    "hour",
    "weekday",
    "level",
    *(
        f"{where} {what}"
        for where in ("closest", "user", "group", "size")
        for what in ("count", "mean", "median", "last", "last two", "change", "deviation")
    ),
)
"""Names of the columns of `Recurrence.features`."""
LEVEL, USUAL = FEATURES.index("level"), FEATURES.index("closest last two")
"""How close the closest are, below zero where there are none; what is expected if they are all that
counts."""


class Recurrence:
    """The past of a trace's jobs, by keys from the closest to the coarsest."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._past: dict[Key, Past] = {}
        self._apart: dict[int, tuple[float, int]] = {}
        """By level: sum of squares by which jobs differed from the mean before them; how many."""
        columns = (trace.user, trace.group, trace.name, trace.devices)
        self._columns = [array("q", column.tolist()) for column in columns]
        self._limit_s = trace.limit_s.tolist()
        self._arrival_s = trace.arrival_s.tolist()

    def keys(self, number: int) -> Sequence[Key]:
        """Of a job, the closest first; keys of what is not known are left out."""
        user, group, name, devices = (column[number] for column in self._columns)
        found: list[Key] = []
        own: Key | None = None
        if user != NONE:
            own = (4, user)
            found += [(3, user, devices), own]
        if name != NONE:
            own = (2, name)
            found = [(0, user, group, name, devices), (1, user, name), own, *found]
        if group != NONE:
            found += [(5, group, devices), (6, group)]
        if own is not None and own not in self._past:
            found.append((_FIRST,))
        return [*found, (_SIZE, devices), (_ANY,)]

    def add(self, number: int, log_length: float) -> None:
        """A job has ended."""
        for key in self.keys(number):
            past = self._past.get(key)
            if past is None:
                past = self._past[key] = Past()
            else:
                squares, count = self._apart.get(key[0], (_APART, 1))
                self._apart[key[0]] = squares + (log_length - past.mean) ** 2, count + 1
            past.add(log_length)

    def pasts(self, number: int) -> Iterator[tuple[int, Past]]:
        """Jobs like this one that have ended and how alike they are, the most alike first."""
        for key in self.keys(number):
            if (past := self._past.get(key)) is not None:
                yield key[0], past

    def doubt(self, level: int, past: Past) -> float:
        """By how much the next one's logarithm differs from the mean of these.

        They are few: how far others of this likeness were apart counts as one more of them.
        """
        squares, count = self._apart.get(level, (_APART, 1))
        spread = (past.count * past.deviation**2 + squares / count) / (past.count + 1)
        return math.sqrt(spread * (1 + 1 / past.count))

    def features(self, number: int) -> list[float]:
        """What is known of a job when it is submitted, in the order of FEATURES."""
        user, group, _, devices = (column[number] for column in self._columns)
        limit_s, arrival_s = self._limit_s[number], self._arrival_s[number]
        closest = next(self.pasts(number), None)
        found = [
            math.log(devices),
            math.log(limit_s) if limit_s < math.inf else _UNKNOWN,
            arrival_s % _DAY_S / 3600,
            arrival_s // _DAY_S % _WEEK_DAYS,
            _UNKNOWN if closest is None else float(closest[0]),
            *_told(None if closest is None else closest[1]),
        ]
        for key in ((4, user), (6, group), (_SIZE, devices)):
            found += _told(self._past.get(key))
        return found


def _told(past: Past | None) -> tuple[float, ...]:
    if past is None:
        return (0.0, *[_UNKNOWN] * 6)
    return (
        math.log1p(past.count),
        past.mean,
        past.median,
        past.latest[-1],
        past.last_two,
        past.change,
        past.deviation,
    )
