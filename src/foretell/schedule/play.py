"""One trace under one policy: what is known, where jobs go, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretell.errors import UnknownNameError
from foretell.graph.graph import Floats
from foretell.schedule.forest import Boosted
from foretell.schedule.history import History
from foretell.schedule.learned import Learned
from foretell.schedule.metrics import Outcome, by_size, by_user, measures, outcome_of
from foretell.schedule.placement import WAYS, Placement
from foretell.schedule.policies import POLICIES, policy_named
from foretell.schedule.pool import PoolSpec
from foretell.schedule.simulator import Rules, Simulation
from foretell.schedule.sizes import Blind, LikeThose, Oracle, Sizes, Stated
from foretell.schedule.trace import Trace

ORACLE = "-oracle"
"""Ends the name of a policy that is told how long jobs are."""
_LAST = 2


Lengths = Callable[[Trace, Floats, int], Sizes]
"""Of a trace, the seconds of an iteration of each job on the fewest servers, and a seed."""
LENGTHS: dict[str, Lengths] = {
    "forest": Learned,
    "boosted": lambda trace, each_s, seed: Learned(trace, each_s, seed, Boosted.fitted),
    "last-two": lambda trace, each_s, seed: LikeThose(trace, _LAST),
    "mean": lambda trace, each_s, seed: LikeThose(trace, len(trace)),
    "stated": lambda trace, each_s, seed: Stated(),
    "oracle": lambda trace, each_s, seed: Oracle(trace.iterations * each_s),
}
"""Who says how long jobs will be, by name."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all policies of a comparison have in common."""

    pools: tuple[PoolSpec, ...]
    placement: str = "heavy-edge"
    lengths: str = "forest"
    rules: Rules = field(default_factory=Rules)
    seed: int = 0

    def __post_init__(self) -> None:
        for kind, name, known in (
            ("placement", self.placement, WAYS),
            ("source of lengths", self.lengths, LENGTHS),
        ):
            if name not in known:
                raise UnknownNameError(kind, name, known, f"use one of {', '.join(known)}")


@dataclass(frozen=True, eq=False)
class Played:
    """How a policy did."""

    policy: str
    history: History
    outcome: Outcome
    measures: dict[str, float | None]

    def tables(self, trace: Trace) -> dict[str, list[dict[str, Any]]]:
        """The same for some of the jobs."""
        return {
            "by_devices": by_size(trace, self.outcome),
            "by_user": by_user(trace, self.outcome),
        }


def check_policy(name: str) -> None:
    """Refuse a name that means nothing."""
    policy_named(name.removesuffix(ORACLE) if asks_lengths(name.removesuffix(ORACLE)) else name)


def asks_lengths(name: str) -> bool:
    """Whether a policy has an oracle twin."""
    return name in POLICIES and POLICIES[name]().asks_lengths


def play(
    trace: Trace,
    name: str,
    setup: Setup,
    sizes: Sizes | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> Played:
    """A trace under a policy, or under its oracle twin; `sizes` replaces what `setup` says."""
    check_policy(name)
    policy = policy_named(name.removesuffix(ORACLE))
    placement = Placement(trace.shapes, setup.pools, setup.placement, setup.seed)
    each_s = np.array([placement.least_s(i) for i in range(len(trace.shapes))])[trace.shape]
    if sizes is None:
        told = "oracle" if name.endswith(ORACLE) else setup.lengths
        sizes = LENGTHS[told](trace, each_s, setup.seed) if policy.asks_lengths else Blind()
    simulation = Simulation(trace, setup.pools, policy, sizes, placement, setup.rules)
    history = simulation.play(tell)
    outcome = outcome_of(trace, history, trace.iterations * each_s)
    return Played(name, history, outcome, measures(trace, history, outcome, setup.pools))
