"""A random forest that answers one question at a time quickly.

scikit-learn fits it; asked for single rows it would take milliseconds, walking its trees as plain
lists takes microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.graph.graph import Floats

_TREES, _DEEPEST, _LEAF = 24, 12, 5
_ROWS_PER_TREE = 6000


@dataclass(frozen=True, slots=True)
class Guess:
    """A normal distribution."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class _Tree:
    """By node: what it asks, where it goes on, and what it says if it is a leaf."""

    feature: list[int]
    threshold: list[float]
    left: list[int]
    right: list[int]
    mean: list[float]
    variance: list[float]


class Forest:
    """Fitted trees."""

    def __init__(self, trees: Sequence[_Tree]) -> None:
        self._trees = trees

    @classmethod
    def fitted(cls, rows: Floats, targets: Floats, seed: int) -> Forest:
        """To rows of features."""
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            n_estimators=_TREES,
            max_depth=_DEEPEST,
            min_samples_leaf=_LEAF,
            max_features=1 / 3,
            max_samples=min(1.0, _ROWS_PER_TREE / len(rows)),
            random_state=seed,
        ).fit(rows, targets)
        return cls([_listed(each.tree_) for each in forest.estimators_])

    def guess(self, row: Sequence[float]) -> Guess:
        """Of a single row: the mean of all trees, and how far they and their leaves spread."""
        total = squares = inside = 0.0
        for tree in self._trees:
            feature, left = tree.feature, tree.left
            threshold, right = tree.threshold, tree.right
            node = 0
            while (asked := feature[node]) >= 0:
                node = left[node] if row[asked] <= threshold[node] else right[node]
            said = tree.mean[node]
            total += said
            squares += said * said
            inside += tree.variance[node]
        count = len(self._trees)
        mean = total / count
        return Guess(mean, math.sqrt(max(0.0, squares / count - mean * mean + inside / count)))


def _listed(tree: Any) -> _Tree:
    return _Tree(
        np.where(tree.children_left < 0, -1, tree.feature).tolist(),
        tree.threshold.tolist(),
        tree.children_left.tolist(),
        tree.children_right.tolist(),
        tree.value[:, 0, 0].tolist(),
        tree.impurity.tolist(),
    )
