"""Methods of design by name. A third party registers its own with `register_method`."""

from __future__ import annotations

import functools
from typing import Protocol

from foretell.design.criteria import ACriterion, DCriterion
from foretell.design.pool import Pool
from foretell.design.spread import at_random, latin_hypercube
from foretell.design.walk import optimal
from foretell.errors import InputError, UnknownNameError

DEFAULT_METHOD = "d-optimal"


class Method(Protocol):
    """Chooses what to measure. The same seed gives the same answer."""

    def __call__(self, pool: Pool, budget_s: float, seed: int) -> list[int]:
        """Candidates in the order to measure them, within the budget in machine-seconds."""
        ...


_METHODS: dict[str, Method] = {
    "d-optimal": functools.partial(optimal, criterion=DCriterion()),
    "a-optimal": functools.partial(optimal, criterion=ACriterion()),
    "latin-hypercube": latin_hypercube,
    "random": at_random,
}


def register_method(name: str, method: Method) -> None:
    """Make a method available by name."""
    _METHODS[name] = method


def method_names() -> list[str]:
    """Names that `choose` accepts."""
    return list(_METHODS)


def choose(
    pool: Pool, budget_s: float, *, method: str = DEFAULT_METHOD, seed: int = 0
) -> list[int]:
    """What to measure next, in order."""
    if method not in _METHODS:
        raise UnknownNameError("method", method, _METHODS, f"use one of {', '.join(_METHODS)}")
    if not budget_s > 0:
        raise InputError(f"a budget of {budget_s:g} s buys nothing: give one above zero")
    return _METHODS[method](pool, budget_s, seed)
