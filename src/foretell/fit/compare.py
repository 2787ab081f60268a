"""Predictors side by side on measured steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.api import workload_of
from foretell.data import Record, Reject
from foretell.errors import ForetellError
from foretell.fit.members import summary
from foretell.fit.steps import case_of
from foretell.graph.graph import Floats
from foretell.predictors import Quantity, predictor


@dataclass(frozen=True)
class Judged:
    """One measured step and what each predictor says of it."""

    label: str
    measured_s: float
    said: Mapping[str, Quantity]


@dataclass(frozen=True)
class Comparison:
    """All of them."""

    judged: Sequence[Judged]
    rejects: Sequence[Reject]

    def ratios(self, name: str) -> Floats:
        """Predicted over measured."""
        return np.array([j.said[name].value / j.measured_s for j in self.judged])

    def errors(self, name: str) -> dict[str, float]:
        """Mean, median, p90 and max of |ratio - 1|."""
        return summary(self.ratios(name))

    def covered(self, name: str) -> float:
        """Share of measurements inside the interval of their forecast."""
        inside = [j.said[name].low <= j.measured_s <= j.said[name].high for j in self.judged]
        return float(np.mean(inside))

    def worst(self, name: str, count: int) -> list[Judged]:
        """Those that are furthest off, by factor."""
        order = np.argsort(-np.abs(np.log(self.ratios(name))), kind="stable")
        return [self.judged[i] for i in order[:count]]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        names = list(self.judged[0].said)
        return {
            "predictors": {n: {**self.errors(n), "in_interval": self.covered(n)} for n in names},
            "steps": [
                {
                    "step": j.label,
                    "measured_s": j.measured_s,
                    **{n: q.value for n, q in j.said.items()},
                }
                for j in self.judged
            ],
            "not_judged": [f"{r.origin}: {r.reason}" for r in self.rejects],
        }


def compare(
    records: Sequence[Record],
    names: Sequence[str],
    tell: Callable[[int, int | None], None] = lambda done, total: None,
) -> Comparison:
    """What the predictors of those names say of every step that was measured."""
    predictors = {name: predictor(name) for name in names}
    steps = [r for r in records if r.kind == "step" and r.ok and r.time_s is not None]
    judged, rejects = [], []
    for number, record in enumerate(sorted(steps, key=lambda r: r.model)):
        tell(number, len(steps))
        try:
            workload, cluster = workload_of(case_of(record))
            said = {n: p.predict(workload, cluster).step_time_s for n, p in predictors.items()}
        except ForetellError as error:
            rejects.append(Reject(record.origin or record.id, str(error)))
            continue
        assert record.time_s is not None
        label = f"{record.model} batch {record.batch} on {record.cluster or record.device}"
        judged.append(Judged(label, record.time_s, said))
    return Comparison(judged, rejects)
