"""Trees that answer one question at a time quickly: a random forest, and boosted ones.

scikit-learn fits them; asked for single rows it would take milliseconds, walking its trees as plain
lists takes microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from foretell.graph.graph import Floats
from foretell.schedule.guess import COUNT, SHARES, Guess, normal

_TREES, _DEEPEST, _LEAF = 24, 12, 50
_ROWS_PER_TREE = 6000
_STEPS, _RATE, _STEP_DEEPEST = 120, 0.08, 5
_JUDGED = 0.2
"""Of the rows, the last ones: kept to see how far boosted trees are off."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """By node: what it asks, where it goes on, and what it says if it is a leaf."""

    feature: list[int]
    threshold: list[float]
    left: list[int]
    right: list[int]
    says: list[Any]

    def leaf(self, row: Sequence[float]) -> int:
        """Where a row ends."""
        feature, left, threshold, right = self.feature, self.left, self.threshold, self.right
        node = 0
        while (asked := feature[node]) >= 0:
            node = left[node] if row[asked] <= threshold[node] else right[node]
        return node


class Guesser(Protocol):
    """Says how long a job is from what is known of it."""

    def guess(self, row: Sequence[float]) -> Guess:
        """Equally likely logarithms."""


class Forest:
    """Fitted trees; leaves know what the jobs in them did, the short and the long ones."""

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
        return cls([_of_shares(each.tree_, rows, targets) for each in forest.estimators_])

    def guess(self, row: Sequence[float]) -> Guess:
        """Of a single row: each value is the mean of what the trees say."""
        total = np.zeros(COUNT)
        for tree in self._trees:
            total += tree.says[tree.leaf(row)]
        found: list[float] = (total / len(self._trees)).tolist()
        return found


class Boosted:
    """Trees that each mend what those before got wrong; to compare with."""

    def __init__(self, start: float, trees: Sequence[_Tree], deviation: float) -> None:
        self._start, self._trees, self._deviation = start, trees, deviation

    @classmethod
    def fitted(cls, rows: Floats, targets: Floats, seed: int) -> Boosted:
        """To rows of features, in the order in which jobs ended."""
        judged = max(1, round(_JUDGED * len(rows)))
        earlier = cls._of(rows[:-judged], targets[:-judged], seed, math.nan)
        off = [
            earlier.middle(row) - target
            for row, target in zip(rows[-judged:].tolist(), targets[-judged:], strict=True)
        ]
        return cls._of(rows, targets, seed, float(np.sqrt(np.mean(np.square(off)))))

    @classmethod
    def _of(cls, rows: Floats, targets: Floats, seed: int, deviation: float) -> Boosted:
        from sklearn.ensemble import GradientBoostingRegressor

        fitted = GradientBoostingRegressor(
            n_estimators=_STEPS,
            learning_rate=_RATE,
            max_depth=_STEP_DEEPEST,
            loss="absolute_error",
            min_samples_leaf=_LEAF,
            max_features=1 / 3,
            subsample=min(1.0, _ROWS_PER_TREE / len(rows)),
            init="zero",
            random_state=seed,
        ).fit(rows, targets - np.median(targets))
        trees = [_listed(each.tree_) for each in fitted.estimators_[:, 0]]
        return cls(float(np.median(targets)), trees, deviation)

    def guess(self, row: Sequence[float]) -> Guess:
        """Of a single row; every one is as uncertain as the next."""
        return normal(self.middle(row), self._deviation)

    def middle(self, row: Sequence[float]) -> float:
        """What is most likely."""
        said: float = sum(tree.says[tree.leaf(row)] for tree in self._trees)
        return self._start + _RATE * said


def _of_shares(tree: Any, rows: Floats, targets: Floats) -> _Tree:
    """With as many values in every leaf as a guess has."""
    found, leaf = _listed(tree), tree.apply(rows.astype(np.float32))
    order = np.argsort(leaf, kind="stable")
    leaves, first = np.unique(leaf[order], return_index=True)
    for node, inside in zip(leaves.tolist(), np.split(targets[order], first[1:]), strict=True):
        found.says[node] = np.quantile(inside, SHARES)
    return found


def _listed(tree: Any) -> _Tree:
    return _Tree(
        np.where(tree.children_left < 0, -1, tree.feature).tolist(),
        tree.threshold.tolist(),
        tree.children_left.tolist(),
        tree.children_right.tolist(),
        tree.value[:, 0, 0].tolist(),
    )
