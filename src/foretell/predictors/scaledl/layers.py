"""The layer model as a torch module: a roofline whose efficiencies a small network learns.

    peak    = the unit's, less a share of its lead over the vector units and of what power allows
    compute = FLOPs / peak x e^a x (1 + e^h / waves)^alpha x (1 + e^g us / (FLOPs / peak))^beta
    memory  = bytes / bandwidth x e^b x (1 + e^f us / (bytes / bandwidth))^gamma / cache gain
    time    = launches x overhead x e^o + (compute^p + memory^p)^(1/p) x e^k + waits

The network sees an operator's shape and the setting, never the amount of work or the device's
rates. With alpha + beta <= 1 and gamma <= 1, more work never takes less time, and a device with a
higher peak, bandwidth, cache or power limit is never slower. k belongs to kernels that several
models have (known.py). `numbers.py` evaluates the same without torch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.form import (
    DISPATCH_S,
    HOST_SHARPNESS,
    LOG_MICRO,
    MOST_RHO,
    OUTPUTS,
    OVERHEAD_S,
    POWER_SHARPNESS,
    SHARPNESS,
    START,
    USUAL_LOG_WATTS,
    USUAL_MATRIX_LEAD,
)
from foretell.predictors.scaledl.known import ON_DEVICE
from foretell.predictors.scaledl.limits import LIMITS, limits_row, limits_start, no_faster
from foretell.predictors.scaledl.setting import FIRST_UNIT, SETTING_NAMES, VECTOR
from foretell.predictors.scaledl.table import COLUMNS, UNITS, alike


@dataclass(frozen=True)
class Sizes:
    """Widths of the network."""

    names: int
    devices: int
    known: int = 0
    """Kernels with a correction of their own."""
    hidden: int = 96
    group_width: int = 12
    name_width: int = 8
    device_width: int = 6


@dataclass(frozen=True)
class Operators:
    """A batch of operators, each with the setting it runs in."""

    shape: Tensor
    group: Tensor
    name: Tensor
    unit: Tensor
    log_flops: Tensor
    log_bytes: Tensor
    log_tiles: Tensor
    launches: Tensor
    waits_s: Tensor
    setting: Tensor
    """[n, SETTING_NAMES]."""
    device: Tensor
    """Index of the embedding; 0 for devices not seen in training."""
    spec: Tensor
    """[n, DEVICE_NAMES], logarithms."""
    reference: Tensor
    """The same of the device whose peers these are."""
    known: Tensor
    """[n, LEVELS] indices of the corrections of the kernel; 0 where it has none."""

    def on_unseen(self) -> Operators:
        """The same on devices of which nothing is known but the specification."""
        known = self.known.clone()
        known[:, ON_DEVICE] = 0
        return dataclasses.replace(self, device=torch.zeros_like(self.device), known=known)


class LayerModel(nn.Module):
    """Seconds of operators."""

    shape_mean: Tensor
    shape_scale: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.group = nn.Embedding(len(GROUPS), sizes.group_width)
        self.name = nn.Embedding(sizes.names + 1, sizes.name_width)
        self.device = nn.Embedding(sizes.devices + 1, sizes.device_width)
        self.known = nn.Embedding(sizes.known + 1, 1)
        alone = len(COLUMNS) + len(UNITS) + sizes.group_width + sizes.name_width
        around = len(SETTING_NAMES) + sizes.device_width
        self.first = nn.Linear(alone + around, sizes.hidden)
        self.second = nn.Linear(sizes.hidden, sizes.hidden)
        self.last = nn.Linear(sizes.hidden, len(OUTPUTS))
        self.limits = nn.Embedding(len(GROUPS) * len(UNITS), len(LIMITS))
        self.register_buffer("shape_mean", torch.zeros(len(COLUMNS)))
        self.register_buffer("shape_scale", torch.ones(len(COLUMNS)))
        self.host = nn.Linear(len(SETTING_NAMES) + sizes.device_width, 1)
        nn.init.normal_(self.group.weight, std=0.5)
        nn.init.normal_(self.name.weight, std=0.3)
        nn.init.zeros_(self.device.weight)
        nn.init.zeros_(self.known.weight)
        nn.init.normal_(self.last.weight, std=0.01)
        with torch.no_grad():
            self.last.bias.copy_(torch.tensor([START.get(name, 0.0) for name in OUTPUTS]))
            self.limits.weight.copy_(torch.tensor(limits_start()))
        nn.init.zeros_(self.host.weight)
        nn.init.zeros_(self.host.bias)

    def hidden(self, ops: Operators) -> Tensor:
        """What the network makes of each operator."""
        shape = (ops.shape - self.shape_mean) * self.shape_scale
        unit = nn.functional.one_hot(alike(ops.unit), len(UNITS)).to(ops.shape.dtype)
        parts = (
            torch.cat((shape, unit), 1),
            torch.cat((self.group(ops.group), self.name(ops.name)), 1),
            ops.setting,
            self.device(ops.device),
        )
        # Apart, because facts need no gradient: a tenth of the time of a fit.
        columns = self.first.weight.split([part.shape[1] for part in parts], 1)
        made = (nn.functional.linear(p, c) for p, c in zip(parts, columns, strict=True))
        first = nn.functional.silu(sum(made, self.first.bias))
        return first + nn.functional.silu(self.second(first))

    def _limits(self, ops: Operators) -> dict[str, Tensor]:
        made = self.limits(limits_row(ops.group, ops.unit))
        return dict(zip(LIMITS, made.unbind(1), strict=True))

    def seconds(self, ops: Operators, hidden: Tensor | None = None) -> Tensor:
        """Time of every operator."""
        made = self.last(self.hidden(ops) if hidden is None else hidden)
        out = dict(zip(OUTPUTS, made.unbind(1), strict=True)) | self._limits(ops)
        log_compute = self._log_compute(ops, out)
        log_memory = self._log_memory(ops, out)
        busy = torch.logaddexp(SHARPNESS * log_compute, SHARPNESS * log_memory) / SHARPNESS
        apart = (self.known(ops.known)[:, :, 0] * (ops.known > 0)).sum(1)
        busy = torch.exp(busy + apart)
        return ops.launches * OVERHEAD_S * torch.exp(out["overhead"]) + busy + ops.waits_s

    def _log_compute(self, ops: Operators, out: dict[str, Tensor]) -> Tensor:
        lead, power = out["share_processors"].sigmoid(), out["share_power"].sigmoid()
        peak = _reached(ops.spec, ops.unit, lead, power)
        usual = _reached(ops.reference, ops.unit, lead, power)
        rho = MOST_RHO * torch.sigmoid(out["rho_compute"])
        ideal = ops.log_flops - (1 - rho) * peak - rho * usual
        waves = ops.log_tiles - ops.spec[:, 2]
        shares = torch.softmax(
            torch.stack([out["share_waves"], out["share_short"], out["share_none"]], 1), 1
        )
        short = nn.functional.softplus(out["short_compute"] + LOG_MICRO - ideal)
        least: Tensor = no_faster(out["compute"], ops.group, nn.functional.softplus)
        full = shares[:, 0] * nn.functional.softplus(out["waves"] - waves)
        return ideal + least + full + shares[:, 1] * short

    def _log_memory(self, ops: Operators, out: dict[str, Tensor]) -> Tensor:
        rho = MOST_RHO * torch.sigmoid(out["rho_memory"])
        ideal = ops.log_bytes - (1 - rho) * ops.spec[:, 0] - rho * ops.reference[:, 0]
        short = nn.functional.softplus(out["short_memory"] + LOG_MICRO - ideal)
        cached = nn.functional.logsigmoid(ops.spec[:, 1] - ops.log_bytes)
        gain = nn.functional.softplus(out["cache"] + cached)
        return ideal + out["memory"] + torch.sigmoid(out["share_memory"]) * short - gain

    def dispatch_s(self, setting: Tensor, device: Tensor) -> Tensor:
        """Host time of one launch in each setting."""
        made = self.host(torch.cat([setting, self.device(device)], 1))
        return DISPATCH_S * torch.exp(made[:, 0])


def _reached(spec: Tensor, unit: Tensor, lead: Tensor, power: Tensor) -> Tensor:
    """Logarithm of the peak that counts: processors and power bound what matrix units can do."""
    peak = spec[:, FIRST_UNIT:].gather(1, unit[:, None])[:, 0]
    more = nn.functional.relu(peak - spec[:, VECTOR] - USUAL_MATRIX_LEAD)
    short = USUAL_LOG_WATTS + spec[:, 2] - spec[:, 3]
    starved = nn.functional.softplus(POWER_SHARPNESS * short) / POWER_SHARPNESS
    return peak - lead * more - power * starved


def step_seconds(
    op_s: Tensor, count: Tensor, owner: Tensor, launches: Tensor, dispatch_s: Tensor
) -> Tensor:
    """Time of steps: what the device takes, or the host that launches, whichever is longer."""
    steps = len(dispatch_s)
    device_s = torch.zeros(steps).index_add_(0, owner, op_s * count)
    host_s = torch.zeros(steps).index_add_(0, owner, launches * count) * dispatch_s
    both = torch.stack([device_s.log(), (host_s + 1e-12).log()], 1)
    return torch.exp(torch.logsumexp(HOST_SHARPNESS * both, 1) / HOST_SHARPNESS)
