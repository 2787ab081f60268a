"""Methods of design by name. A third party registers its own with `register_method`."""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np

from foretell.design.criteria import DCriterion, PredictionCriterion, TraceCriterion
from foretell.design.pool import Pool
from foretell.design.spread import at_random, latin_hypercube
from foretell.design.walk import optimal
from foretell.errors import InputError, UnknownNameError

DEFAULT_METHOD = "v-optimal"


class Method(Protocol):
    """Chooses what to measure. The same seed gives the same answer."""

    def __call__(self, pool: Pool, budget_s: float, seed: int) -> list[int]:
        """Candidates in the order to measure them, within the budget in machine-seconds."""
        ...


_METHODS: dict[str, Method] = {
    "v-optimal": functools.partial(optimal, criterion=PredictionCriterion()),
    "d-optimal": functools.partial(optimal, criterion=DCriterion()),
    "a-optimal": functools.partial(optimal, criterion=TraceCriterion()),
    "latin-hypercube": latin_hypercube,
    "random": at_random,
}


def register_method(name: str, method: Method) -> None:
    """Make a method available by name."""
    _METHODS[name] = method


def method_names() -> list[str]:
    """Names that `choose` accepts."""
    return list(_METHODS)


def check_method(name: str) -> None:
    """Refuse a name nobody knows."""
    if name not in _METHODS:
        raise UnknownNameError("method", name, _METHODS, f"use one of {', '.join(_METHODS)}")


def choose(
    pool: Pool, budget_s: float, *, method: str = DEFAULT_METHOD, seed: int = 0
) -> list[int]:
    """What to measure next, in order."""
    check_method(method)
    if not budget_s > 0:
        raise InputError(f"a budget of {budget_s:g} s buys nothing: give one above zero")
    # Candidates that tell the same are as good as each other: chance decides, not their order.
    order = np.random.default_rng(seed).permutation(len(pool))
    chosen = _METHODS[method](pool.subset(order, pool.available[order]), budget_s, seed)
    return order[chosen].tolist() if chosen else []
