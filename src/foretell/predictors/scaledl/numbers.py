"""The layer model without torch: what `layers.py` computes, for predictions that start at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.context import Context
from foretell.predictors.scaledl.form import (
    DISPATCH_S,
    LOG_MICRO,
    MOST_CORRECTION,
    MOST_RHO,
    OUTPUTS,
    OVERHEAD_S,
    SHARPNESS,
)
from foretell.predictors.scaledl.setting import Setting
from foretell.predictors.scaledl.table import UNITS, OpTable

_NO_TILES = 1e9
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Layers:
    """Weights of a fitted layer model, by the names torch gives them."""

    weights: Mapping[str, Floats]
    devices: Mapping[str, int]
    """Embeddings by device id; 0 is a device not seen."""
    names: Mapping[str, int]
    reference: Mapping[str, Floats]
    """Specification of the device the others are compared with, for "gpu" and "cpu"."""

    def op_seconds(self, table: OpTable, setting: Setting) -> Floats:
        """Time of every row of a table."""
        return self.times_of(self.hidden(table, setting), table, setting)

    def times_of(self, hidden: Floats, table: OpTable, setting: Setting) -> Floats:
        """Time of every row, from what `hidden` made of it."""
        w = self.weights
        made = hidden @ w["last.weight"].T + w["last.bias"]
        out = dict(zip(OUTPUTS, made.T, strict=True))
        reference = self.reference["cpu" if setting.is_cpu else "gpu"]
        log_compute = _log_compute(table, setting.spec, reference, out)
        log_memory = _log_memory(table, setting.spec, reference, out)
        busy = np.exp(np.logaddexp(SHARPNESS * log_compute, SHARPNESS * log_memory) / SHARPNESS)
        seconds: Floats = table.launches * OVERHEAD_S * np.exp(out["overhead"]) + busy
        return seconds

    def dispatch_s(self, setting: Setting) -> float:
        """Host time of one launch."""
        w = self.weights
        inputs = np.concatenate([setting.features, self._device(setting)])
        return float(DISPATCH_S * np.exp(w["host.weight"][0] @ inputs + w["host.bias"][0]))

    def _device(self, setting: Setting) -> Floats:
        found: Floats = self.weights["device.weight"][self.devices.get(setting.device, 0)]
        return found

    def hidden(self, table: OpTable, setting: Setting) -> Floats:
        """What the network makes of every row."""
        w, count = self.weights, len(table)
        name: Ints = np.array([self.names.get(n, 0) for n in table.name], dtype=np.int64)
        inputs = np.concatenate(
            [
                (table.shape - w["shape_mean"]) * w["shape_scale"],
                np.eye(len(UNITS))[table.unit],
                np.broadcast_to(setting.features, (count, len(setting.features))),
                w["group.weight"][table.group],
                w["name.weight"][name],
                np.broadcast_to(self._device(setting), (count, w["device.weight"].shape[1])),
            ],
            1,
        )
        first = _silu(inputs @ w["first.weight"].T + w["first.bias"])
        hidden: Floats = first + _silu(first @ w["second.weight"].T + w["second.bias"])
        return hidden


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Weights of a fitted network over the graph, by the names torch gives them."""

    weights: Mapping[str, Floats]

    def change(self, hidden: Floats, context: Context) -> Floats:
        """Logarithms by which the times of a context's surroundings change."""
        w = self.weights
        state = _silu(hidden @ w["enter.weight"].T + w["enter.bias"])
        for i, part in enumerate((context.first, context.second)):
            mine = state[part.own]
            heard = mine @ w[f"own.{i}.weight"].T + w[f"own.{i}.bias"]
            heard += _mean(state, part.before_src, part.before_dst, len(part)) @ w[f"before.{i}"].T
            heard += _mean(state, part.after_src, part.after_dst, len(part)) @ w[f"after.{i}"].T
            state = mine + _silu(heard)
        left = state @ w["leave.weight"][0] + w["leave.bias"][0]
        changed: Floats = MOST_CORRECTION * np.tanh(left)
        return changed


def _mean(state: Floats, src: Ints, dst: Ints, nodes: int) -> Floats:
    """Mean of what reaches each node; zero where nothing does."""
    if not len(src):
        return np.zeros((nodes, state.shape[1]))
    order = np.argsort(dst, kind="stable")
    into, first = np.unique(dst[order], return_index=True)
    sums = np.add.reduceat(state[src[order]], first, axis=0)
    found = np.zeros((nodes, state.shape[1]))
    found[into] = sums / np.bincount(dst, minlength=nodes)[into][:, None]
    return found


def _log_compute(
    table: OpTable, spec: Floats, reference: Floats, out: Mapping[str, Floats]
) -> Floats:
    rho = MOST_RHO * _sigmoid(out["rho_compute"])
    ideal = _log(table.flops) - (1 - rho) * spec[3:][table.unit] - rho * reference[3:][table.unit]
    waves = _log(np.where(table.tiles > 0, table.tiles, _NO_TILES)) - spec[2]
    logits = np.stack([out["share_waves"], out["share_short"], out["share_none"]], 1)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    found: Floats = (
        ideal
        + out["compute"]
        + shares[:, 0] * _softplus(out["waves"] - waves)
        + shares[:, 1] * _softplus(out["short_compute"] + LOG_MICRO - ideal)
    )
    return found


def _log_memory(
    table: OpTable, spec: Floats, reference: Floats, out: Mapping[str, Floats]
) -> Floats:
    rho = MOST_RHO * _sigmoid(out["rho_memory"])
    log_bytes = _log(table.nbytes)
    ideal = log_bytes - (1 - rho) * spec[0] - rho * reference[0]
    short = _softplus(out["short_memory"] + LOG_MICRO - ideal)
    gain = np.log1p(np.exp(out["cache"]) * _sigmoid(spec[1] - log_bytes))
    found: Floats = ideal + out["memory"] + _sigmoid(out["share_memory"]) * short - gain
    return found


def _log(values: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(values, _LEAST))
    return logs


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def _softplus(x: Floats) -> Floats:
    found: Floats = np.logaddexp(0.0, x)
    return found


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)
