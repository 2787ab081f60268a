"""Cells: candidates of like sizes, which the layer model is likely to get wrong alike.

No roofline is exact. What it misses differs from one region of sizes to the next and is much the
same within one, so ten measurements in one cell say little more than two. A design that knows
this covers the cells, and a fit that knows it lets each cell count for the candidates it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.design.features import Features
from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.elasticity import group_shares
from foretell.predictors.analytic.fit import NOISE

CELL_ERROR = 0.4
"""Log error that the candidates of a cell may share."""
CENTRE_ERROR = 0.4
"""How much further off, per unit of distance, a candidate away from its cell's centre may be."""
_MOST_CELLS = 64
_ROUNDS = 15
_GROUP_SCALE = 6.0
"""Distance of steps that spend all their time in different groups; sizes have deviation 1."""
_NO_PRODUCT = np.array([np.log(1e-6), 0.0])
_FEWEST_FLOPS = 1e6


def sizes_of(features: Features) -> Floats:
    """[n, 5] logarithms: FLOPs, bytes, time of a tile, tiles per multiprocessor, processes.

    The two of tiles are means over the matrix products, by their FLOPs.
    """
    steps, count = features.steps, len(features)
    columns = steps.columns

    def total(values: Floats) -> Floats:
        return np.bincount(steps.step, steps.count * values, count).astype(np.float64)

    is_product = np.isfinite(columns.tile_s) & (columns.flops > 0)
    weight = np.where(is_product, columns.flops, 0.0)
    products = total(weight)
    tiles = [
        np.where(
            products > 0,
            total(weight * np.log(np.where(is_product, values, 1.0))) / np.maximum(products, 1.0),
            otherwise,
        )
        for values, otherwise in zip((columns.tile_s, columns.waves), _NO_PRODUCT, strict=True)
    ]
    return np.stack(
        [
            np.log(total(columns.flops) + _FEWEST_FLOPS),
            np.log(total(columns.nbytes) + 1.0),
            *tiles,
            np.log(features.processes),
        ],
        1,
    )


@dataclass(frozen=True, eq=False)
class Cells:
    """A division of the sizes that candidates have."""

    centres: Floats
    mean: Floats
    deviation: Floats
    share: Floats
    """Which part of the candidates each cell holds."""

    def __len__(self) -> int:
        return len(self.centres)

    def places(self, features: Features) -> tuple[Ints, Floats]:
        """The cell of each row, and its distance from the cell's centre."""
        points = _points(features, self.mean, self.deviation)
        cell = _nearest(points, self.centres)
        distance: Floats = np.sqrt(((points - self.centres[cell]) ** 2).sum(1))
        return cell, distance

    def weights(self, cell: Ints) -> Floats:
        """For how many measurements each of these stands; their mean is one.

        A cell counts for the candidates it holds, however often it was measured; less so the
        less its few measurements tell of what they share.
        """
        measured = np.bincount(cell, minlength=len(self))[cell]
        shared = measured * CELL_ERROR**2 / (measured * CELL_ERROR**2 + NOISE**2)
        counted = shared * self.share[cell] / measured * len(cell) + (1 - shared)
        weights: Floats = counted / counted.mean()
        return weights


def cells_of(features: Features) -> Cells:
    """Cells for a set of candidates, the same every time; of a few each is a cell of its own."""
    sizes = sizes_of(features)
    mean, deviation = sizes.mean(0), np.maximum(sizes.std(0), 1e-9)
    points = _points(features, mean, deviation)
    centres = _centres(points, _MOST_CELLS) if len(points) > _MOST_CELLS else points
    share = np.bincount(_nearest(points, centres), minlength=len(centres)) / len(points)
    return Cells(centres, mean, deviation, share)


def _points(features: Features, mean: Floats, deviation: Floats) -> Floats:
    scaled = (sizes_of(features) - mean) / deviation
    return np.concatenate([_GROUP_SCALE * group_shares(features.elasticities), scaled], 1)


def _centres(points: Floats, count: int) -> Floats:
    """k-means, started from random points, so that cells are small where candidates are many."""
    centres = points[np.random.default_rng(0).choice(len(points), count, replace=False)]
    for _ in range(_ROUNDS):
        cell = _nearest(points, centres)
        held = np.bincount(cell, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, cell, points)
        centres = np.where(held[:, None] > 0, sums / np.maximum(held, 1)[:, None], centres)
    return centres


def _nearest(points: Floats, centres: Floats) -> Ints:
    found: Ints = ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
    return found
