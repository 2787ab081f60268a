"""Elasticities of steps that several processes share: the step is played with each constant moved.

Exchanges hide behind compute, pipelines wait for their slowest stage: what one constant does to
such a step follows no formula, so it is tried.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from foretell.comm import Constants as CommConstants
from foretell.comm.constants import Protocol, shipped_constants
from foretell.graph.graph import Bools, Floats
from foretell.parallel import OpTimes, Placed, run_step
from foretell.predictors.analytic.constants import NAMES, FamilyConstants
from foretell.predictors.analytic.elasticity import priced_on, stack
from foretell.predictors.analytic.roofline import op_times, price_step
from foretell.predictors.assemble import slowest

EXCHANGE = ("exchange_start", "exchange_byte")
"""Time before an exchange is under way and between its steps; time of its bytes."""
_MOVE = 1e-4
_NO_MATTER = 1e-7


def played_elasticities(placed: Placed, constants: FamilyConstants) -> tuple[float, Floats]:
    """Seconds of the step, and d log of it / d log of each of NAMES and EXCHANGE."""
    step_s = _player(placed)
    logs = constants.logs()

    def slope(at: Callable[[float], float]) -> float:
        return float(np.log(at(_MOVE) / at(-_MOVE)) / (2 * _MOVE))

    def moved(index: int) -> Callable[[float], float]:
        direction = np.eye(len(NAMES))[index]
        return lambda by: step_s(FamilyConstants.from_logs(logs + by * direction), (0.0, 0.0))

    found = np.zeros(len(NAMES) + len(EXCHANGE))
    for index in np.flatnonzero(_may_matter(placed, constants)):
        found[index] = slope(moved(int(index)))
    found[-2] = slope(lambda by: step_s(constants, (by, 0.0)))
    found[-1] = slope(lambda by: step_s(constants, (0.0, by)))
    return step_s(constants, (0.0, 0.0)), found


def _may_matter(placed: Placed, constants: FamilyConstants) -> Bools:
    """Constants that some operator of the step answers to."""
    step = priced_on(placed.local, slowest(placed.cluster), placed.microbatches)
    rows = stack([step]).elasticities(constants)[1][0]
    matters: Bools = np.abs(rows) > _NO_MATTER
    matters[NAMES.index("dispatch_s")] = True
    return matters


def _player(placed: Placed) -> Callable[[FamilyConstants, tuple[float, float]], float]:
    """A function from constants, and logarithms on exchanges, to the time of the step."""
    device, recipe = slowest(placed.cluster), placed.whole.recipe
    priced = price_step(placed.local.step, device, recipe.precision, compiled=recipe.compile)
    launches = priced.columns.launches[priced.row]

    def step_s(constants: FamilyConstants, exchange: tuple[float, float]) -> float:
        times = OpTimes(
            device_s=op_times(priced.columns, device, constants)[priced.row],
            host_s=launches * constants.dispatch_s,
        )
        return run_step(placed, times, _exchanges(*exchange)).step_s

    return step_s


@functools.lru_cache(maxsize=16)
def _exchanges(start: float, byte: float) -> CommConstants:
    """The shipped constants of collectives with e^start on latencies and e^byte per byte."""
    shipped = shipped_constants()

    def moved(protocol: Protocol) -> Protocol:
        return Protocol(
            start_s=protocol.start_s * np.exp(start),
            hop=protocol.hop * np.exp(start),
            efficiency=protocol.efficiency * np.exp(-byte),
        )

    links = {
        link: {
            name: dataclasses.replace(
                pattern, protocols={p: moved(q) for p, q in pattern.protocols.items()}
            )
            for name, pattern in patterns.items()
        }
        for link, patterns in shipped.links.items()
    }
    return dataclasses.replace(shipped, links=links)
