"""Series: what was sampled during a run, as columns over one time axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretell.errors import InputError, UnknownNameError

Array = np.ndarray[Any, np.dtype[np.float64]]
_GAP_PERIODS = 2.0


@dataclass(frozen=True, eq=False)
class Series:
    """Samples of one run. Times are what the clock said, never evened out.

    A row stands for the time since the row before it (the first: since the beginning). Rates and
    utilisations are means over that time, memory is what it was at its end.
    """

    began_s: float
    """On the monotonic clock, which all processes of a machine share."""
    times_s: Array
    """When each row was taken, since the beginning."""
    columns: Mapping[str, Array]
    """utilisation: share of the threads the processes may use; memory_bytes and memory_share:
    resident, of all processes, and of the machine's; received_bytes_per_s, sent_bytes_per_s: of all
    interfaces, and of each as NAME/INTERFACE; gpu_utilisation, gpu_memory_utilisation: shares of
    the time, and gpu_memory_bytes: mean of all devices, and of each as NAME/DEVICE."""
    asked_hz: float
    sampler_cpu_s: float = 0.0
    """CPU time the sampling itself took."""

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        odd = [name for name, length in lengths.items() if length != len(self.times_s)]
        if odd:
            raise InputError(f"column {odd[0]!r} and times_s differ in length: give one value each")
        if np.any(np.diff(self.times_s, prepend=0.0) <= 0):
            raise InputError("times_s of a series must be positive and grow: give them in order")

    def __getitem__(self, name: str) -> Array:
        if name not in self.columns:
            raise UnknownNameError("column", name, self.columns)
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def duration_s(self) -> float:
        """From the beginning to the last row."""
        return float(self.times_s[-1]) if len(self) else 0.0

    @property
    def rate_hz(self) -> float:
        """Rows per second that were really taken."""
        return len(self) / self.duration_s if len(self) else 0.0

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """Beginning and end of each time in which a tick or more was missed."""
        ends = self.times_s
        starts = np.concatenate(([0.0], ends[:-1])) if len(self) else ends
        # Late ticks shift by fractions of a period; the tick after one that is very late is left
        # out by design. Twice the period and more is time nobody looked.
        missed = ends - starts > _GAP_PERIODS / self.asked_hz
        return tuple(zip(starts[missed].tolist(), ends[missed].tolist(), strict=True))

    def between(self, start_s: float, end_s: float) -> Series:
        """The rows that lie wholly between two moments of the monotonic clock."""
        starts = self.began_s + np.concatenate(([0.0], self.times_s[:-1]))
        ends = self.began_s + self.times_s
        inside = np.flatnonzero((starts >= start_s) & (ends <= end_s))
        if not len(inside):
            raise InputError(
                f"no sample lies between {start_s} and {end_s}: the series runs from "
                f"{self.began_s} to {self.began_s + self.duration_s}"
            )
        began_s = float(starts[inside[0]])
        return replace(
            self,
            began_s=began_s,
            times_s=ends[inside] - began_s,
            columns={name: values[inside] for name, values in self.columns.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        columns = {name: values.tolist() for name, values in self.columns.items()}
        return {**vars(self), "times_s": self.times_s.tolist(), "columns": columns}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Series:
        """What `to_dict` made."""
        columns = {name: np.array(values, float) for name, values in data["columns"].items()}
        return cls(**{**data, "times_s": np.array(data["times_s"], float), "columns": columns})
