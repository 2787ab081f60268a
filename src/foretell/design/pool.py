"""Pool: what could be measured, what each measurement tells and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Floats, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool:
    """Candidates as every method of design takes them."""

    rows: Floats
    """[n, p]: d log time / d parameter, divided by the error of a measurement."""
    cost_s: Floats
    """Machine-seconds of one measurement."""
    information: Floats
    """[p, p]: the precision that prior and earlier measurements give; positive definite."""
    available: Ints
    """How often each candidate may be measured."""
    sizes: Floats
    """[n, q]: where candidates lie, for methods that spread over them."""
    targets: Floats
    """[p, p]: mean of r r' over rows r of what is to be predicted."""

    def __post_init__(self) -> None:
        count, width = self.rows.shape
        if not count:
            raise InputError("there is nothing to choose from: name candidates")
        square = self.information.shape == self.targets.shape == (width, width)
        if not square or len(self.sizes) != count:
            raise InputError("rows, information, targets and sizes of a pool differ in length")
        if len(self.cost_s) != count or not (self.cost_s > 0).all():
            raise InputError("every candidate needs a cost above zero seconds")
        if len(self.available) != count or not np.isfinite(self.rows).all():
            raise InputError("every candidate needs a finite row and a number of repetitions")

    def __len__(self) -> int:
        return len(self.cost_s)

    def subset(self, kept: Ints, available: Ints) -> Pool:
        """The candidates numbered `kept`, each as often as `available` says."""
        return Pool(
            rows=self.rows[kept],
            cost_s=self.cost_s[kept],
            information=self.information,
            available=available,
            sizes=self.sizes[kept],
            targets=self.targets,
        )


def pool_of(
    rows: Floats,
    cost_s: Floats,
    information: Floats,
    *,
    repeats: int = 1,
    sizes: Floats | None = None,
) -> Pool:
    """A pool in which every candidate may be measured `repeats` times and is to be predicted."""
    return Pool(
        rows=rows,
        cost_s=cost_s,
        information=information,
        available=np.full(len(rows), repeats, dtype=np.int64),
        sizes=rows if sizes is None else sizes,
        targets=rows.T @ rows / max(len(rows), 1),
    )
