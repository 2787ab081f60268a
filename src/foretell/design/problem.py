"""From features to a pool: what is unknown, how well, and what measurements are worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.design.cells import CELL_ERROR, CENTRE_ERROR, Cells, sizes_of
from foretell.design.features import FEATURES, Features
from foretell.design.played import EXCHANGE
from foretell.design.pool import Pool
from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.elasticity import group_shares
from foretell.predictors.analytic.fit import DOUBT

EXCHANGE_DOUBT = 1.0
"""How far, in logarithms, the constants of exchanges may well be from those shipped."""
_DOUBTS = np.concatenate([DOUBT, np.full(len(EXCHANGE), EXCHANGE_DOUBT)])
assert len(_DOUBTS) == len(FEATURES)


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Candidates and what is known before any of them is measured."""

    pool: Pool
    rows: Floats
    """[n, p]: d log time / d unknown; the unknowns are constants and what cells share."""

    def uncertainty(self, chosen: list[int]) -> float:
        """Mean standard error of the candidates' predicted log times once these are measured."""
        picked = self.pool.rows[chosen]
        inverse = np.linalg.inv(self.pool.information + picked.T @ picked)
        variance = np.einsum("ij,ij->i", self.rows @ inverse, self.rows)
        return float(np.sqrt(np.maximum(variance, 0.0)).mean())

    def information_bits(self, chosen: list[int]) -> Floats:
        """What each measurement adds in this order, in bits."""
        inverse = np.linalg.inv(self.pool.information)
        gained = []
        for row in self.pool.rows[chosen]:
            towards = inverse @ row
            grown = 1 + float(row @ towards)
            inverse -= np.outer(towards, towards) / grown
            gained.append(np.log2(grown) / 2)
        return np.array(gained)


def problem_of(
    features: Features,
    cost_s: Floats,
    group_noise: Floats,
    cells: Cells,
    *,
    measured: Features | None = None,
    available: Ints | None = None,
) -> Problem:
    """The choice between candidates; `measured` are rows of what was measured before.

    Which case of a cell is measured must not depend on what the layer model says of it: it would
    be led to where it errs. So a case has the mean row of its cell, and the mean cost as well,
    which is predicted too.
    """
    cell, distance = cells.places(features)
    own = _rows(features.elasticities, cell, len(cells))

    def alike(values: Floats) -> Floats:
        return _means(values, cell, len(cells))[cell]

    noise = alike(group_shares(features.elasticities) @ group_noise)
    error = np.hypot(noise, CENTRE_ERROR * np.sqrt(alike(distance**2)))
    information = np.diag(np.concatenate([_DOUBTS**-2.0, np.ones(len(cells))]))
    used = np.abs(own).any(0)
    if measured is not None and len(measured):
        earlier = _measured_rows(measured, group_noise, cells)
        information = information + earlier.T @ earlier
        used |= np.abs(earlier).any(0)
    pool = Pool(
        rows=(alike(own) / error[:, None])[:, used],
        cost_s=alike(cost_s),
        information=information[np.ix_(used, used)],
        available=np.ones(len(features), dtype=np.int64) if available is None else available,
        sizes=_spread_over(features),
        targets=own[:, used].T @ own[:, used] / len(own),
    )
    return Problem(pool=pool, rows=own[:, used])


def _rows(elasticities: Floats, cell: Ints, cells: int) -> Floats:
    """Rows of all unknowns."""
    return np.concatenate([elasticities, CELL_ERROR * np.eye(cells)[cell]], 1)


def _measured_rows(measured: Features, group_noise: Floats, cells: Cells) -> Floats:
    """Rows in units of their error."""
    cell, distance = cells.places(measured)
    noise = group_shares(measured.elasticities) @ group_noise
    error = np.hypot(noise, CENTRE_ERROR * distance)
    rows: Floats = _rows(measured.elasticities, cell, len(cells)) / error[:, None]
    return rows


def _means(values: Floats, cell: Ints, cells: int) -> Floats:
    """Mean over each cell; zero where no candidate is."""
    sums = np.zeros((cells, *values.shape[1:]))
    np.add.at(sums, cell, values)
    count = np.maximum(np.bincount(cell, minlength=cells), 1)
    means: Floats = sums / count.reshape(-1, *[1] * (values.ndim - 1))
    return means


def _spread_over(features: Features) -> Floats:
    """Sizes and, as one more of them, the group that takes most of the time."""
    leading = group_shares(features.elasticities).argmax(1)
    return np.concatenate([sizes_of(features), leading[:, None]], 1)
