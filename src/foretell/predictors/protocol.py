"""The seam every predictor fits: fit, predict, save, load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from foretell.cluster import Cluster
from foretell.parallel import Placed, StepRun
from foretell.predictors.forecast import Forecast
from foretell.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a real run did."""

    workload: Workload
    cluster: Cluster
    step_time_s: float
    peak_memory_bytes: float | None = None
    source: str = ""


@runtime_checkable
class Predictor(Protocol):
    """Answers what a workload will need on a cluster.

    `predict` must not change the predictor and may be called from several threads. `fit` returns
    a fitted copy. `save` writes plain data (JSON, safetensors), never code; `load` reads it back.
    """

    @property
    def name(self) -> str:
        """What `predictor=` calls it."""
        ...

    def fit(self, measurements: Iterable[Measurement]) -> Self:
        """A copy that has learned from real runs."""
        ...

    def predict(self, workload: Workload, cluster: Cluster) -> Forecast:
        """The forecast for one workload on one cluster."""
        ...

    def save(self, path: Path) -> None:
        """Write what was learned."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what save wrote."""
        ...


@runtime_checkable
class PlaysSteps(Protocol):
    """A predictor that can show how a step runs, operator by operator."""

    def play(self, workload: Workload, cluster: Cluster) -> tuple[Placed, StepRun]:
        """How the job is dealt out, and one step of it by its timeline."""
        ...
