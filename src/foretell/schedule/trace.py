"""Jobs as columns: what is known of each when it is submitted, and how long it really is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Floats, Ints
from foretell.schedule.shape import Shape

NONE = -1
"""Instead of an index where there is nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """Jobs in the order they arrive."""

    ids: Sequence[str]
    arrival_s: Floats
    iterations: Floats
    """How many it runs in the end, which nobody knows before."""
    stated: Floats = field(default_factory=lambda: np.zeros(0))
    """How many it should run by what its user says; no number where nobody says it."""
    doubt: Floats = field(default_factory=lambda: np.zeros(0))
    """Deviation of the logarithm of how long those take, where a forecast says it."""
    shapes: tuple[Shape, ...]
    shape: Ints
    """Of each job, index into `shapes`."""
    texts: tuple[str, ...] = ()
    user: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Index into `texts`, as `group` and `name`."""
    group: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    name: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    limit_s: Floats = field(default_factory=lambda: np.zeros(0))
    """What the user said it takes at most; infinite where nothing was said."""
    deadline_s: Floats = field(default_factory=lambda: np.zeros(0))
    """When it should be done; infinite where there is none."""
    preemptible: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    devices_wanted: tuple[str, ...] = ()
    """Kinds of devices that jobs ask for by name."""
    wants: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Index into `devices_wanted`, NONE where any will do."""

    def __post_init__(self) -> None:
        count = len(self.ids)
        usual = {
            "stated": np.nan,
            "doubt": 0.0,
            "user": NONE,
            "group": NONE,
            "name": NONE,
            "limit_s": np.inf,
            "deadline_s": np.inf,
            "preemptible": True,
            "wants": NONE,
        }
        for column, value in usual.items():
            given = getattr(self, column)
            if not len(given) and count:
                object.__setattr__(self, column, np.full(count, value, dtype=given.dtype))
        self._check()

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def devices(self) -> Ints:
        """How many each job needs."""
        each = np.array([shape.devices for shape in self.shapes], dtype=np.int64)
        return each[self.shape]

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of what devices tell each other."""
        return all(not len(s.flow_edges) and not len(s.ring_edges) for s in self.shapes)

    def _check(self) -> None:
        if not len(self):
            raise InputError("the trace has no jobs: give one with at least one")
        for column in ("arrival_s", "iterations", "shape", "user", "limit_s", "wants"):
            if len(getattr(self, column)) != len(self):
                raise InputError(
                    f"column {column} has {len(getattr(self, column))} rows, not {len(self)}"
                )
        bad = np.flatnonzero(~np.isfinite(self.arrival_s) | (self.arrival_s < 0))
        if len(bad):
            raise InputError(
                f"job {self.ids[bad[0]]!r} arrives at {self.arrival_s[bad[0]]:g} s: "
                "times must be 0 or more"
            )
        bad = np.flatnonzero(~np.isfinite(self.iterations) | (self.iterations <= 0))
        if len(bad):
            raise InputError(
                f"job {self.ids[bad[0]]!r} has {self.iterations[bad[0]]:g} iterations: "
                "it must run at least a part of one"
            )
        if (np.diff(self.arrival_s) < 0).any():
            raise InputError("the jobs of a trace must be in the order of their arrival: sort them")
