"""How like the training data a step is: kernels fall into cells, and cells were seen or not.

A cell is an operator, its shape to the octave, its number format, and how it runs. What share of a
step's time is in cells that training never saw is its novelty, and intervals go by it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.corpus import Corpus, slices
from foretell.predictors.scaledl.setting import SETTING_NAMES, Setting
from foretell.predictors.scaledl.shapes import LOG_UNIT
from foretell.predictors.scaledl.table import COLUMNS, OpTable, alike

_OCTAVES = tuple(
    COLUMNS.index(name)
    for name in (
        "log_n",
        "log_k",
        "log_kernel",
        "log_stride",
        "log_groups",
        "log_in_per_group",
        "log_out_per_group",
        "log_height",
        "log_head",
        "log_channels",
    )
)
_FLAGS = tuple(
    COLUMNS.index(name) for name in ("odd_n", "odd_k", "odd_in_per_group", "odd_out_per_group")
)
_WAYS = tuple(SETTING_NAMES.index(name) for name in ("train", "channels_last", "compile", "cpu"))
_CHUNK = 200_000
_SEED = np.uint64(0x9E3779B97F4A7C15)

FAR_FROM, STRANGE_FROM = 0.01, 0.3
"""Novelty from which on a step has the interval of far ones; and counts as out of domain."""

CPUS = "cpu"
"""What the interval of processors is filed under, beside places; "*" is that of everything."""

Cells = np.ndarray
"""Unsigned 64-bit hashes."""
Factors = tuple[float, float]
"""Ends of an interval over the forecast."""


def factors_at(known: Mapping[str, Factors], place: str, *, on_cpu: bool) -> Factors:
    """The interval of a place; where it has none of its own, that of its like."""
    names = (place, CPUS, "*") if on_cpu else (place, "*")
    return next(known[name] for name in names if name in known)


def level_of(novelty: float) -> str:
    """What interval a step of such novelty has."""
    return "near" if novelty < FAR_FROM else "far" if novelty < STRANGE_FROM else "strange"


def cells_of(table: OpTable, setting: Setting) -> Cells:
    """The cell of every row of a table in a setting."""
    return _cells(table.shape, table.group, table.unit, np.array(setting.features)[None, :])


def cells_of_corpus(corpus: Corpus, rows: Ints) -> tuple[Cells, Floats, Ints]:
    """(cell, count, which of `rows`) of the kernels of steps."""
    op, count, owner = slices(corpus, rows)
    features = np.array([s.features for s in corpus.settings])
    setting = corpus.setting[rows][owner]
    cells = np.zeros(len(op), dtype=np.uint64)
    for first in range(0, len(op), _CHUNK):  # all shapes at once would take gigabytes
        part = slice(first, first + _CHUNK)
        at = op[part]
        cells[part] = _cells(
            corpus.shape[at], corpus.group[at], corpus.unit[at], features[setting[part]]
        )
    return cells, count, owner


def _cells(shape: Floats, group: Ints, unit: Ints, features: Floats) -> Cells:
    octaves = np.rint(shape[:, _OCTAVES] * LOG_UNIT).astype(np.int64)
    flags = shape[:, _FLAGS].astype(np.int64)
    ways = np.broadcast_to(features[:, _WAYS], (len(shape), len(_WAYS))).astype(np.int64)
    columns = np.concatenate([group[:, None], alike(unit)[:, None], octaves, flags, ways], 1)
    found = np.zeros(len(shape), dtype=np.uint64)
    for column in columns.T:
        found = (found ^ (column.astype(np.uint64) + _SEED)) * np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(29)
    return found


def unseen(cells: Cells, seen: Cells) -> np.ndarray:
    """Which cells are not among the sorted `seen`."""
    if not len(seen):
        return np.ones(len(cells), dtype=np.bool_)
    at = np.minimum(np.searchsorted(seen, cells), len(seen) - 1)
    missing: np.ndarray = seen[at] != cells
    return missing


def novelty(cells: Cells, seconds: Floats, seen: Cells) -> float:
    """Share of the time in cells that were not seen."""
    total = seconds.sum()
    return float(seconds[unseen(cells, seen)].sum() / total) if total > 0 else 1.0


def newest_group(table: OpTable, cells: Cells, seconds: Floats, seen: Cells) -> str:
    """The group of operators that most of the new time is in."""
    new = np.bincount(table.group, np.where(unseen(cells, seen), seconds, 0.0), len(GROUPS))
    return GROUPS[int(np.argmax(new))].replace("_", " ")
