"""Measured distributed jobs in Foretell's words."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.knobs import Priced, priced
from foretell.api import Case, workload_of
from foretell.parallel import Placed, place


@dataclass(frozen=True, kw_only=True)
class Job:
    """One measured configuration."""

    source: str
    device: str
    """Jobs on one device of one source share an efficiency curve."""
    configuration: str
    """Jobs with the same text go to the same fold."""
    options: Mapping[str, Any]
    """Options of foretell.predict, model and cluster included."""
    step_time_s: float
    memory_bytes: float | None = None
    """Peak allocated on the fullest rank."""
    labels: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def case(self) -> Case:
        """The job as a case."""
        return Case.from_mapping(dict(self.options))

    def placed(self) -> Placed:
        """The job on its cluster."""
        return place(*workload_of(self.case))

    def priced(self) -> Priced:
        """The job ready to be predicted."""
        return priced(self.placed(), self.step_time_s, str(self.labels), self.configuration)
