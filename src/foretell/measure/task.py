"""What a worker is asked to do and what it answers, as JSON that crosses a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretell.api import Case


@dataclass(frozen=True, kw_only=True)
class Task:
    """One workload, or one table of collectives, to be run for a while."""

    options: Mapping[str, Any]
    """Of a Case: model, batch and the rest; for collectives their sizes."""
    seconds: float = 4.0
    """How long to sample, once warm."""
    most_samples: int = 200
    width: float = 0.02
    """Stop sooner when the centre is known this well, as a share of it."""
    probe: bool = False
    """Whether usage is sampled as well."""
    profile: bool = False
    """Whether single operators are timed as well."""

    @property
    def case(self) -> Case:
        """The workload as a case."""
        return Case.from_mapping(dict(self.options))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a task."""

    outcome: str = "ok"
    reason: str = ""
    step_s: list[float] = field(default_factory=list)
    """Seconds of every sampled step, of the slowest process."""
    phase_s: list[float] = field(default_factory=list)
    """Median seconds of forward, backward and optimizer; empty for pipelines."""
    reference_s: float = 0.0
    """Median seconds of the reference work between steps: how fast the machine was."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Peaks of the fullest process."""
    sent_bytes: float = 0.0
    """Payload per step and process."""
    series: Mapping[str, Any] = field(default_factory=dict)
    """Usage of the first process over time."""
    operators: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Times of collectives."""
    spent_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self)
