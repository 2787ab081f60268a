"""Choices that know nothing of the model: at random, or spread evenly over the sizes."""

from __future__ import annotations

import numpy as np

from foretell.design.pool import Pool
from foretell.graph.graph import Floats, Ints

_MOST_STRATA = 4096


def at_random(pool: Pool, budget_s: float, seed: int) -> list[int]:
    """Candidates in random order, as long as they fit."""
    order = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(pool)), pool.available))
    return _that_fit(order, pool, budget_s)


def latin_hypercube(pool: Pool, budget_s: float, seed: int) -> list[int]:
    """For each point of a Latin hypercube the nearest candidate that is left.

    The cube is that of the candidates' ranks along each of their sizes. It has as many strata as
    candidates of mean cost are affordable; when some of the budget stays, another one follows.
    """
    rng = np.random.default_rng(seed)
    ranks = _ranks(pool.sizes)
    left, spent_s = pool.available.copy(), 0.0
    chosen: list[int] = []
    while True:
        open_to = (left > 0) & (pool.cost_s <= budget_s - spent_s)
        if not open_to.any():
            return chosen
        strata = int((budget_s - spent_s) / pool.cost_s[open_to].mean())
        for point in _latin_points(rng, min(max(strata, 1), _MOST_STRATA), ranks.shape[1]):
            open_to = (left > 0) & (pool.cost_s <= budget_s - spent_s)
            if not open_to.any():
                return chosen
            far = ((ranks - point) ** 2).sum(1)
            nearest = int(np.argmin(np.where(open_to, far, np.inf)))
            chosen.append(nearest)
            left[nearest] -= 1
            spent_s += float(pool.cost_s[nearest])


def _that_fit(order: Ints, pool: Pool, budget_s: float) -> list[int]:
    chosen, spent_s = [], 0.0
    for candidate in order.tolist():
        cost_s = float(pool.cost_s[candidate])
        if spent_s + cost_s <= budget_s:
            chosen.append(candidate)
            spent_s += cost_s
    return chosen


def _ranks(sizes: Floats) -> Floats:
    """Sizes as their rank between 0 and 1; equal ones share it, and constant columns vanish."""
    varied = sizes[:, np.ptp(sizes, axis=0) > 0]
    columns = []
    for column in varied.T:
        _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - counts / 2
        columns.append(middle[inverse] / len(column))
    return np.stack(columns, 1) if columns else np.zeros((len(sizes), 1))


def _latin_points(rng: np.random.Generator, count: int, dimensions: int) -> Floats:
    """Points of which each of `count` slices along every dimension holds one."""
    slices = np.stack([rng.permutation(count) for _ in range(dimensions)], 1)
    points: Floats = (slices + rng.random((count, dimensions))) / count
    return points
