"""One efficiency curve per device and source: a few multipliers on the analytic constants.

Fitted on the training part of a source by damped Gauss-Newton on the log error, pulled towards 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.optimizer import optimizer
from foretell.parallel import OpTimes, Placed, run_step
from foretell.predictors.analytic.constants import FamilyConstants
from foretell.predictors.analytic.predictor import AnalyticPredictor
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.analytic.roofline import OpColumns, op_times, price_step
from foretell.predictors.assemble import slowest
from foretell.workload.recipe import torch_release

KNOBS = (
    "compute",
    "memory",
    "dispatch",
    "overhead",
    "tile_latency",
    "half_waves",
    "attention",
    "exchange",
    "message",
    "optimizer",
    "network",
    "loop",
)
_ATTENTION = [i for i, g in enumerate(GROUPS) if g.startswith(("attention", "bmm", "softmax"))]
_OPTIMIZER, _RNN = GROUPS.index("optimizer"), GROUPS.index("rnn")
_PULL = 0.05
_FOREACH = (2, 0)
"""From this release of PyTorch on, optimizers launch kernels for many parameters at once."""
_LOOP_S = 1e-4
"""What a training loop does at least outside the model, each step."""


@dataclass
class Priced:
    """A measured job, ready to be predicted again and again with other constants."""

    placed: Placed
    columns: OpColumns
    row: np.ndarray
    constants: FamilyConstants
    measured_s: float
    name: str
    key: str
    """Cases with the same key go to the same fold."""

    def _host_launches(self, slower: float) -> np.ndarray:
        """Launches in units of a fast host's; steps of an RNN are launched inside one call."""
        launches = self.columns.launches
        calls = np.where(self.columns.group == _RNN, np.minimum(launches, 1), launches)
        return launches + (slower - 1) * calls

    def predict(self, log_knobs: np.ndarray) -> float:
        """Seconds of the step with these multipliers."""
        k = dict(zip(KNOBS, np.exp(log_knobs), strict=True))
        c = self.constants
        compute, memory = c.compute * k["compute"], c.memory * k["memory"]
        compute[_ATTENTION] *= k["attention"]
        memory[_ATTENTION] *= k["attention"]
        memory[_OPTIMIZER] = c.memory[_OPTIMIZER] * k["optimizer"]
        changed = dataclasses.replace(
            c,
            compute=compute,
            memory=memory,
            overhead_s=c.overhead_s * k["overhead"],
            tile_latency_s=c.tile_latency_s * k["tile_latency"],
            half_waves=c.half_waves * k["half_waves"],
        )
        device_s = op_times(self.columns, slowest(self.placed.cluster), changed)[self.row]
        host_s = self._host_launches(k["dispatch"])[self.row] * c.dispatch_s
        times = OpTimes(
            device_s,
            host_s,
            message_host_s=2e-5 * k["message"],
            exchange_factor=k["exchange"],
            network_factor=k["network"],
            loop_s=_LOOP_S * k["loop"],
        )
        return run_step(self.placed, times).step_s


def priced(placed: Placed, measured_s: float, name: str, key: str) -> Priced:
    """Do once what does not depend on the multipliers."""
    predictor = AnalyticPredictor.shipped()
    recipe, device = placed.whole.recipe, slowest(placed.cluster)
    constants = predictor.constants_for(recipe, device)
    step = price_step(placed.local.step, device, recipe.precision, compiled=recipe.compile)
    columns = step.columns
    release = torch_release(recipe.torch_version)
    if release is not None and release < _FOREACH:
        looped = np.where(
            columns.group == _OPTIMIZER, optimizer(recipe.optimizer).passes, columns.launches
        )
        columns = dataclasses.replace(columns, launches=looped)
    return Priced(placed, columns, step.row, constants, measured_s, name, key)


def fit_knobs(
    cases: Sequence[Priced],
    free: Sequence[str] = KNOBS,
    *,
    rounds: int = 8,
    start: np.ndarray | None = None,
    progress: Callable[[float], None] = lambda loss: None,
) -> np.ndarray:
    """Log multipliers that explain the cases."""
    knobs = np.zeros(len(KNOBS)) if start is None else start.copy()
    chosen = [KNOBS.index(name) for name in free]
    target = np.log([c.measured_s for c in cases])

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log([c.predict(at) for c in cases]) - target

    now = residuals(knobs)
    damping = 1e-2
    for _ in range(rounds):
        slope = np.empty((len(cases), len(chosen)))
        for column, index in enumerate(chosen):
            moved = knobs.copy()
            moved[index] += 0.05
            slope[:, column] = (residuals(moved) - now) / 0.05
        weight = 1 / np.maximum(np.abs(now), 0.02)  # towards the absolute error
        weight /= weight.mean()
        pull = _PULL * len(cases) * 0.02
        left = slope.T @ (weight[:, None] * slope) + pull * np.eye(len(chosen))
        left += damping * np.diag(np.diag(left))
        right = -(slope.T @ (weight * now)) - pull * knobs[chosen]
        step = np.clip(np.linalg.solve(left, right), -0.7, 0.7)
        moved = knobs.copy()
        moved[chosen] += step
        new = residuals(moved)
        if np.abs(new).mean() < np.abs(now).mean():
            knobs, now, damping = moved, new, damping / 3
        else:
            damping *= 10
        progress(float(np.abs(now).mean()))
        if np.abs(step).max() < 0.01 or damping > 1e4:
            break
    return knobs
