"""Fit the analytic predictor's constants to measured operators and measured steps.

Both kinds of evidence become the same problem: a measured time is the sum over operators of
count x roofline time. The few constants are found by gradient descent on the log error, with a
pull towards a prior that decides whatever the data does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretell.cluster import Device
from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.constants import SCALARS, FamilyConstants
from foretell.predictors.analytic.rates import GROUP_INDEX, GROUPS
from foretell.predictors.analytic.roofline import OpColumns, op_times

# Optimizers of small models say little about bandwidth, and those of large ones are not measured.
_FIXED = GROUP_INDEX["optimizer"]
_COLUMNS = ("flops", "nbytes", "peak_flops_per_s", "tile_s", "waves", "tile_fill", "launches")


@dataclass
class Evidence:
    """Measured times as sums of operators, ready for torch."""

    columns: Any
    row: torch.Tensor
    count: torch.Tensor
    dispatched: torch.Tensor
    measured_s: torch.Tensor
    l2_bytes: torch.Tensor
    bandwidth: torch.Tensor

    def __len__(self) -> int:
        return len(self.measured_s)

    def predict(self, constants: FamilyConstants) -> torch.Tensor:
        """Seconds per row."""
        device = _Rates(self.l2_bytes, self.bandwidth)
        seconds = op_times(self.columns, device, constants)  # type: ignore[arg-type]
        total = torch.zeros(len(self), dtype=torch.float64)
        busy = total.index_add(0, self.row, seconds * self.count)
        host = self.dispatched * constants.dispatch_s
        return (busy**4 + host**4) ** 0.25

    def ratios(self, constants: FamilyConstants) -> Floats:
        """measured / predicted per row."""
        return np.asarray((self.measured_s / self.predict(constants)).detach())

    def subset(self, keep: Floats) -> Evidence:
        """The rows where `keep` is true."""
        chosen = torch.as_tensor(np.asarray(keep, dtype=bool))
        ops = chosen[self.row]
        number = torch.cumsum(chosen.long(), 0) - 1
        columns = OpColumns(
            **{f.name: getattr(self.columns, f.name)[ops] for f in dataclasses.fields(OpColumns)}
        )
        return Evidence(
            columns,
            number[self.row[ops]],
            self.count[ops],
            self.dispatched[chosen],
            self.measured_s[chosen],
            self.l2_bytes[ops],
            self.bandwidth[ops],
        )


@dataclass(frozen=True)
class _Rates:
    """The part of a Device that op_times reads, per operator."""

    l2_bytes: Any
    memory_bandwidth_bytes_per_s: Any


@dataclass(frozen=True)
class Sample:
    """One measured time."""

    columns: OpColumns
    count: Ints
    dispatched: float
    device: Device
    measured_s: float


def evidence_of(samples: Sequence[Sample]) -> Evidence:
    """Stack samples into flat columns."""
    lengths = [len(s.count) for s in samples]

    def stacked(pick: Any) -> torch.Tensor:
        return torch.as_tensor(np.concatenate([pick(s) for s in samples]))

    columns = OpColumns(
        group=stacked(lambda s: s.columns.group),  # type: ignore[arg-type]
        **{n: stacked(lambda s, n=n: getattr(s.columns, n)).double() for n in _COLUMNS},  # type: ignore[arg-type,misc]
    )
    return Evidence(
        columns,
        torch.as_tensor(np.repeat(np.arange(len(samples)), lengths)),
        stacked(lambda s: s.count).double(),
        torch.as_tensor([s.dispatched for s in samples], dtype=torch.float64),
        torch.as_tensor([s.measured_s for s in samples], dtype=torch.float64),
        stacked(lambda s: np.full(len(s.count), float(s.device.l2_bytes))),
        stacked(lambda s: np.full(len(s.count), s.device.memory_bandwidth_bytes_per_s)),
    )


def fit(
    evidence: Evidence,
    prior: FamilyConstants,
    *,
    steps: int = 250,
    pull: float = 0.02,
    rate: float = 0.05,
    with_overheads: bool = True,
) -> FamilyConstants:
    """Constants that explain the evidence, near `prior` where it is silent.

    Operators timed alone say nothing about overheads in a step: `with_overheads=False` keeps
    the prior's.
    """
    start = {
        "compute": torch.as_tensor(np.log(prior.compute)),
        "memory": torch.as_tensor(np.log(prior.memory)),
        "scalars": torch.as_tensor([np.log(getattr(prior, n)) for n in SCALARS]),
    }
    free = {name: value.clone().requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.Adam(free.values(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    target = torch.log(evidence.measured_s)
    for _ in range(steps):
        optimizer.zero_grad()
        error = torch.log(evidence.predict(_constants(free))) - target
        loss = torch.nn.functional.huber_loss(error, torch.zeros_like(error), delta=0.1) * 10
        away = sum(((free[n] - start[n]) ** 2).mean() for n in free)
        (loss + pull * away).backward()
        free["memory"].grad[_FIXED] = 0.0  # type: ignore[index]
        if not with_overheads:
            free["scalars"].grad[:2] = 0.0  # type: ignore[index]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            free["compute"].clamp_(max=float(np.log(1.1)))
            free["memory"].clamp_(max=float(np.log(1.6)))
    found = _constants({n: v.detach() for n, v in free.items()})
    return FamilyConstants(
        compute=np.asarray(found.compute),
        memory=np.asarray(found.memory),
        **{n: float(getattr(found, n)) for n in SCALARS},
    )


def _constants(free: dict[str, torch.Tensor]) -> FamilyConstants:
    scalars = torch.exp(free["scalars"])
    return FamilyConstants(
        compute=torch.exp(free["compute"]),  # type: ignore[arg-type]
        memory=torch.exp(free["memory"]),  # type: ignore[arg-type]
        **{n: scalars[i] for i, n in enumerate(SCALARS)},  # type: ignore[arg-type]
    )


def prior_constants() -> FamilyConstants:
    """Where fitting starts: round numbers."""
    compute = dict.fromkeys(GROUPS, 0.6)
    compute |= {"depthwise": 0.3, "depthwise_backward": 0.2, "grouped": 0.3}
    compute |= {"grouped_backward": 0.25, "conv_backward": 0.5, "attention_backward": 0.45}
    memory = dict.fromkeys(GROUPS, 0.75)
    return FamilyConstants.from_dict({"compute": compute, "memory": memory})
