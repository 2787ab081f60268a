"""Record: one measured run, our own or imported, as one row of the store."""

from __future__ import annotations

import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretell._version import __version__
from foretell.errors import InputError, UnknownNameError

KINDS = ("step", "operator", "collective")
"""A training or inference step, an operator alone, a collective alone."""
OUTCOMES = ("ok", "out-of-memory", "does-not-fit", "crashed", "timed-out", "refused")
SERIES = ("memory", "utilisation", "received", "sent")
PARTS = ("idle_s", "burst_s", "burst_level")
RESOURCES = tuple(f"{series}_{part}" for series in SERIES for part in PARTS)
"""The twelve numbers of a run's usage curves: a mean idle and burst length and a mean level per
series. Memory and utilisation are shares of the device, received and sent are bytes per second."""
_MEASURED = ("time_s", "allocated_bytes", "resident_bytes")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What ran, where, what came of it, and where the row comes from. Seconds and bytes."""

    kind: str = "step"
    model: str
    """A model reference (timm:resnet50, op:matmul,m=64,...), `collective:NAME`, or the source's
    own name of a model that no reference describes."""
    cluster: str = ""
    """As `--cluster` takes it; empty when the source does not say enough."""
    device: str = ""
    """Id in the catalogue, or the source's own name where the catalogue has none."""
    devices: int = 1
    nodes: int = 1
    batch: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of a forecast, by name; for collectives nbytes and dtype."""
    group: str = ""
    """Rows of one group are never split between what is fitted and what is judged."""
    outcome: str = "ok"
    reason: str = ""
    """Why there is no time, in one sentence."""
    time_s: float | None = None
    """Of one step, operator or collective: the robust centre of what was sampled. None where only
    memory was measured."""
    time_low_s: float | None = None
    time_high_s: float | None = None
    """95 % confidence interval of the centre."""
    samples: int | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    allocated_bytes: float | None = None
    """Peak of the allocator, on the fullest device."""
    resident_bytes: float | None = None
    """Peak of the process or of the device as its driver sees it."""
    sent_bytes: float | None = None
    """Per step and process."""
    resources: tuple[float, ...] = ()
    """The twelve numbers, in the order of RESOURCES; empty when they were not taken."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What else was measured, by name with its unit."""
    source: str
    """'foretell', or the importer's name."""
    origin: str = ""
    """File and line of an imported row; the run's id of our own."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions, threads, clocks, load: what is needed to repeat the run."""
    taken_at: str = ""
    """ISO 8601, UTC; empty when unknown."""
    version: str = __version__

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of record", self.kind, KINDS)
        if self.outcome not in OUTCOMES:
            raise UnknownNameError("outcome", self.outcome, OUTCOMES)
        if self.outcome == "ok":
            self._check_measured()
        if self.outcome != "ok" and not self.reason:
            raise InputError(f"{self.model!r} ended {self.outcome} without a reason: give one")
        if self.devices < 1 or self.nodes < 1 or (self.batch is not None and self.batch < 1):
            raise InputError(f"{self.model!r}: devices, nodes and batch must be at least 1")
        if self.resources and len(self.resources) != len(RESOURCES):
            raise InputError(f"resources has {len(self.resources)} numbers: give {len(RESOURCES)}")

    def _check_measured(self) -> None:
        """A run that went through was timed, or its memory was measured, or both."""
        taken = {name: getattr(self, name) for name in _MEASURED}
        wrong = [f"{n}={v}" for n, v in taken.items() if v is not None and not _positive(v)]
        if wrong:
            raise InputError(f"{wrong[0]} of {self.model!r} must be a positive number")
        if not any(taken.values()):
            raise InputError(
                f"{self.model!r} has neither time nor memory: give {' or '.join(_MEASURED)}"
            )

    @property
    def ok(self) -> bool:
        """Whether the run went through: it has a time, or its memory was measured alone."""
        return self.outcome == "ok"

    @property
    def id(self) -> str:
        """Hex digest of everything but the version: equal rows are one row."""
        data = {name: value for name, value in vars(self).items() if name != "version"}
        text = json.dumps(data, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def case_options(self) -> dict[str, Any]:
        """The record as options of a forecast, model and cluster included."""
        named = {"model": self.model, "cluster": self.cluster, "batch": self.batch}
        return {**self.options, **{name: value for name, value in named.items() if value}}


@dataclass(frozen=True, slots=True)
class Reject:
    """A row of a source that is not taken, and why."""

    origin: str
    reason: str


def field_types() -> dict[str, tuple[type, bool]]:
    """Name -> (plain type, whether it may be missing) of every field of Record."""
    found = {}
    for name, hint in typing.get_type_hints(Record).items():
        parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = next(typing.get_origin(p) or p for p in parts if p is not type(None))
        found[name] = (plain, len(parts) > 1)
    return found


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
