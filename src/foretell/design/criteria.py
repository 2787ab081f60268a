"""What a design maximises: how much one more measurement, or another one instead, is worth."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from foretell.design.pool import Pool
from foretell.design.state import State
from foretell.graph.graph import Floats


class Criterion(Protocol):
    """A number that grows with what is known."""

    def start(self, pool: Pool) -> State:
        """A state of nothing chosen."""
        ...

    def value(self, state: State) -> float:
        """What is known in a state."""
        ...

    def gains(self, state: State) -> Floats:
        """By how much each candidate, added, would raise it."""
        ...

    def swap_gains(self, state: State, given_up: int) -> Floats:
        """By how much each candidate would raise it in place of a chosen one."""
        ...


_LEAST = -1 + 1e-12
"""Rounding must not let a determinant vanish."""


class DCriterion:
    """log det of the information: the volume of what the constants may still be."""

    def start(self, pool: Pool) -> State:
        """A state that keeps variances only."""
        return State(pool)

    def value(self, state: State) -> float:
        """log det M."""
        return -float(np.linalg.slogdet(state.inverse)[1])

    def gains(self, state: State) -> Floats:
        """log(1 + d_j)."""
        gains: Floats = np.log1p(state.variance)
        return gains

    def swap_gains(self, state: State, given_up: int) -> Floats:
        """log(1 + d_j - d_i - (d_i d_j - d_ij^2)), Fedorov's exchange."""
        _, covariance = state.reach(given_up)
        mine = state.variance[given_up]
        change = state.variance - mine - (mine * state.variance - covariance**2)
        gains: Floats = np.log1p(np.maximum(change, _LEAST))
        return gains


class TraceCriterion:
    """Minus the trace of W V: a weighted sum of what is still uncertain."""

    def start(self, pool: Pool) -> State:
        """A state that keeps squares as well; here W = 1, Ernest's A-optimality."""
        return State(pool, np.eye(pool.rows.shape[1]))

    def value(self, state: State) -> float:
        """-trace W V."""
        return -float(np.einsum("ij,ji->", _weights(state), state.inverse))

    def gains(self, state: State) -> Floats:
        """x_j' V W V x_j / (1 + d_j)."""
        gains: Floats = state.squares / (1 + state.variance)
        return gains

    def swap_gains(self, state: State, given_up: int) -> Floats:
        """The same after the other was removed, less what removing it costs."""
        towards, covariance = state.reach(given_up)
        weighted = _weights(state) @ towards
        kept = 1 - state.variance[given_up]
        through = state.pool.rows @ (state.inverse @ weighted)
        own = float(towards @ weighted)
        squares = state.squares + 2 * covariance * through / kept + (covariance / kept) ** 2 * own
        gains: Floats = squares / (1 + state.variance + covariance**2 / kept) - own / kept
        return gains


class PredictionCriterion(TraceCriterion):
    """Minus the mean variance of what is to be predicted: V-optimality."""

    def start(self, pool: Pool) -> State:
        """W holds the rows of what is to be predicted."""
        return State(pool, pool.targets)


def _weights(state: State) -> Floats:
    assert state.weights is not None, "made by another criterion"
    return state.weights
