"""Forecast: what a predictor answers, each number with an interval."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretell._version import __version__
from foretell.cluster import Device, device
from foretell.errors import InputError
from foretell.units import format_bytes, format_count, format_duration, format_usd

WAITING = ("exposed_communication", "bubble", "loop")
"""What breakdowns by phase and class have beside operators: a device that waits."""


@dataclass(frozen=True)
class Quantity:
    """A number and the 90 % interval around it."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InputError(f"interval {self.low} to {self.high} does not hold {self.value}")

    def scaled(self, factor: float) -> Quantity:
        """All three times a positive factor."""
        return Quantity(self.value * factor, self.low * factor, self.high * factor)

    def inverse(self, numerator: float = 1.0) -> Quantity:
        """numerator / quantity: a rate from a time."""
        return Quantity(numerator / self.value, numerator / self.high, numerator / self.low)

    def at_most(self, limit: float) -> Quantity:
        """None of the three above a physical limit."""
        return Quantity(*(min(v, limit) for v in (self.value, self.low, self.high)))

    def to_dict(self) -> dict[str, float]:
        """{"value": .., "low": .., "high": ..}"""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Time, memory, utilisation, traffic and cost of a workload on a cluster."""

    step_time_s: Quantity
    memory_bytes: Quantity
    """Per device, at the peak of the step."""
    throughput_per_s: Quantity
    """Samples per second of the whole job."""
    utilisation: Quantity
    """Share of the devices' peak FLOP/s that the model's own FLOPs use (MFU)."""
    traffic_bytes_per_step: Quantity
    """Bytes each device sends to others per step."""
    total_time_s: Quantity | None = None
    cost_usd: Quantity | None = None
    fits: bool
    in_domain: bool
    notes: tuple[str, ...] = ()
    breakdown: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Seconds by phase, class and module; bytes by holder under "memory"."""
    subject: Mapping[str, Any] = field(default_factory=dict)
    """What was asked: model, cluster and settings, for people to recognise."""
    predictor: str
    version: str = __version__

    def fits_on(self, where: str | Device) -> bool:
        """Whether the step's memory fits on another device."""
        target = device(where) if isinstance(where, str) else where
        return self.memory_bytes.value <= target.memory_bytes

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON schema (docs/forecast-schema.md)."""
        quantities = {
            name: None if value is None else value.to_dict()
            for name, value in (
                ("step_time_s", self.step_time_s),
                ("memory_bytes", self.memory_bytes),
                ("throughput_per_s", self.throughput_per_s),
                ("total_time_s", self.total_time_s),
                ("cost_usd", self.cost_usd),
                ("utilisation", self.utilisation),
                ("traffic_bytes_per_step", self.traffic_bytes_per_step),
            )
        }
        return {
            **quantities,
            "fits": self.fits,
            "in_domain": self.in_domain,
            "notes": list(self.notes),
            "breakdown": {name: dict(parts) for name, parts in self.breakdown.items()},
            "subject": dict(self.subject),
            "predictor": self.predictor,
            "version": self.version,
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, value, 90 % interval) as people read them."""
        rows = [
            _row("step time", self.step_time_s, format_duration),
            _row("throughput", self.throughput_per_s, lambda v: format_count(v, f"{self._unit}/s")),
            _row("memory per device", self.memory_bytes, format_bytes),
            _row("utilisation (MFU)", self.utilisation, lambda v: f"{100 * v:.1f} %"),
        ]
        if self.traffic_bytes_per_step.value:
            rows.append(_row("sent per step", self.traffic_bytes_per_step, format_bytes))
        if self.total_time_s is not None:
            rows.append(_row("total time", self.total_time_s, format_duration))
        if self.cost_usd is not None:
            rows.append(_row("cost", self.cost_usd, format_usd))
        return rows

    def __str__(self) -> str:
        width = max(len(name) for name, _, _ in self.rows())
        lines = [self.title, *(f"  {n:<{width}}  {v:>12}  {i}" for n, v, i in self.rows())]
        lines.append(f"  {'fits':<{width}}  {'yes' if self.fits else 'no':>12}")
        return "\n".join(lines + [f"  {remark}" for remark in self._remarks()])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{html.escape(n)}</td><td><b>{html.escape(v)}</b></td>"
            f"<td>{html.escape(i)}</td></tr>"
            for n, v, i in [*self.rows(), ("fits", "yes" if self.fits else "no", "")]
        )
        notes = "".join(f"<li>{html.escape(remark)}</li>" for remark in self._remarks())
        return (
            f"<table><caption>{html.escape(self.title)}</caption>"
            f"<thead><tr><th></th><th>forecast</th><th>90 % interval</th></tr></thead>"
            f"<tbody>{cells}</tbody></table>" + (f"<ul>{notes}</ul>" if notes else "")
        )

    def _remarks(self) -> list[str]:
        """The notes, after a warning when the case resembles nothing that was measured."""
        warning = [] if self.in_domain else ["out of domain: the intervals are extrapolated"]
        return warning + [f"note: {note}" for note in self.notes]

    @property
    def title(self) -> str:
        """One line that says what was asked."""
        s = self.subject
        return f"{s.get('model', 'model')} on {s.get('cluster', 'cluster')}"

    @property
    def _unit(self) -> str:
        return str(self.subject.get("sample", "sample"))


def _row(name: str, quantity: Quantity, show: Any) -> tuple[str, str, str]:
    return name, show(quantity.value), f"{show(quantity.low)} – {show(quantity.high)}"
