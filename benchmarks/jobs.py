"""Measured distributed jobs: records of steps, ready to be forecast and priced."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.knobs import Priced, priced
from benchmarks.sources import measured
from foretell.api import Case, workload_of
from foretell.data import Record
from foretell.data.importers import Tally
from foretell.parallel import Placed, place

# Sources whose jobs on one device differ too much in these to share an efficiency curve.
_APART = {
    "llm_foundry": "precision",
    "megatron_bridge": "precision",
    "nemo": "precision",
    "mlperf": "benchmark",
}


@dataclass(frozen=True)
class Job:
    """One measured configuration."""

    record: Record

    @property
    def curve(self) -> str:
        """Jobs of one source with the same text share an efficiency curve."""
        record = self.record
        known = {**record.options, **record.environment}
        apart = _APART.get(record.source)
        return f"{record.device} {known[apart]}" if apart else record.device

    @property
    def labels(self) -> Mapping[str, Any]:
        """What tells the job apart in a ledger."""
        return {"origin": self.record.origin, **self.record.environment}

    @property
    def step_time_s(self) -> float:
        """As measured."""
        assert self.record.time_s is not None
        return self.record.time_s

    @functools.cached_property
    def case(self) -> Case:
        """The job as a case."""
        return Case.from_mapping(self.record.case_options())

    def placed(self) -> Placed:
        """The job on its cluster."""
        return place(*workload_of(self.case))

    def priced(self) -> Priced:
        """The job ready to be predicted."""
        return priced(self.placed(), self.step_time_s, str(self.labels), self.record.group)


def jobs_of(source: str, tally: Tally | None = None) -> list[Job]:
    """All steps of a source; `tally` learns what was left out and why."""
    return [Job(r) for r in measured(source, tally=tally) if r.kind == "step" and r.ok]
