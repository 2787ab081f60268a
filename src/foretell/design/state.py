"""State: the information of a choice so far, kept up to date by rank-one steps.

With V the inverse of the information M and x a row, adding or removing x is (Sherman-Morrison)

    V -+ V x x' V / (1 +- x' V x)

so the variances d_j = x_j' V x_j of all candidates follow from one product X V x, and the squares
x_j' V W V x_j for weights W from one more.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from foretell.design.pool import Pool
from foretell.graph.graph import Floats, Ints


class State:
    """Which candidates are chosen, and what is known then."""

    def __init__(self, pool: Pool, weights: Floats | None = None) -> None:
        self.pool = pool
        self.weights = weights
        """W; None where no squares are needed."""
        self.chosen: list[int]
        self.left: Ints
        self.spent_s: float
        self.take([])

    def take(self, chosen: Sequence[int]) -> None:
        """Choose these candidates and no others."""
        self.chosen = list(chosen)
        self.left = self.pool.available - np.bincount(
            np.array(self.chosen, dtype=np.int64), minlength=len(self.pool)
        )
        self.spent_s = float(self.pool.cost_s[self.chosen].sum())
        self.refresh()

    def refresh(self) -> None:
        """Work everything out anew, so that rounding does not add up."""
        rows = self.pool.rows
        picked = rows[self.chosen]
        inverse = np.linalg.inv(self.pool.information + picked.T @ picked)
        self.inverse: Floats = inverse.astype(np.float64)
        through = rows @ self.inverse
        self.variance: Floats = np.einsum("ij,ij->i", through, rows)
        self.squares: Floats = np.zeros(0)
        if self.weights is not None:
            self.squares = np.einsum("ij,ij->i", through @ self.weights, through)

    def copied(self) -> State:
        """The same state, to be changed on its own."""
        other = copy.copy(self)
        other.chosen = self.chosen.copy()
        for name in ("left", "inverse", "variance", "squares"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def reach(self, candidate: int) -> tuple[Floats, Floats]:
        """V x of a candidate, and its covariances d_ij with all."""
        towards = self.inverse @ self.pool.rows[candidate]
        return towards, self.pool.rows @ towards

    def add(self, candidate: int) -> None:
        """Choose a candidate (once more)."""
        self._move(candidate, 1.0)
        self.chosen.append(candidate)

    def remove(self, candidate: int) -> None:
        """Give a chosen candidate up (once)."""
        self._move(candidate, -1.0)
        self.chosen.remove(candidate)

    def _move(self, candidate: int, sign: float) -> None:
        towards, covariance = self.reach(candidate)
        factor = sign / (1 + sign * self.variance[candidate])
        if self.weights is not None:
            through = self.pool.rows @ (self.inverse @ (self.weights @ towards))
            own = float(towards @ self.weights @ towards)
            self.squares += factor * covariance * (factor * covariance * own - 2 * through)
        self.inverse -= factor * np.outer(towards, towards)
        self.variance -= factor * covariance**2
        self.left[candidate] -= int(sign)
        self.spent_s += sign * float(self.pool.cost_s[candidate])
