"""Kernels that several measured models have in common, told apart from those of similar shape.

Libraries pick a kernel by rules that no shape explains: what one convolution takes more or less
than its like is learned for that convolution, and used wherever it comes again. Every operator has
three keys, whose corrections add up: one of its exact shape for one sample, one of what libraries
decide by, whatever the image's size (channels per group, window, stride), and the latter on one
device. All hold its name, its number format and how it runs; the batch is part of none.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus, owners
from foretell.predictors.scaledl.setting import SETTING_NAMES, Setting
from foretell.predictors.scaledl.table import COLUMNS, OpTable, alike

_FEWEST_MODELS = 3
"""That must have a kernel for it to be told apart."""
LEVELS = 3
ON_DEVICE = 2
"""The level that says nothing of devices not seen."""
_WAYS = tuple(SETTING_NAMES.index(name) for name in ("channels_last", "compile", "cpu"))
_DECIDING = [
    COLUMNS.index(name)
    for name in (
        "log_kernel",
        "log_kernel_width",
        "log_stride",
        "log_in_per_group",
        "log_out_per_group",
        "dilated",
        "odd_channels",
        "channels_last_input",
        "permuted",
        "sliced",
    )
]
_MIX = np.uint64(0x9E3779B97F4A7C15)

Keys = np.ndarray
"""Unsigned 64-bit hashes."""


def keys_of(table: OpTable, setting: Setting) -> Keys:
    """[rows, LEVELS] the keys of every row of a table in a setting."""
    kernels = _kernels(table.shape, table.group, table.name, table.unit)
    return _mixed(kernels, _ways(setting))


def keys_of_corpus(corpus: Corpus) -> Keys:
    """[entries, LEVELS] the keys of each operator of each step."""
    names = [corpus.names[n] for n in corpus.name]
    kernels = _kernels(corpus.shape, corpus.group, names, corpus.unit)
    ways = np.array([_ways(s) for s in corpus.settings], dtype=np.uint64)
    return _mixed(kernels[corpus.op], ways[corpus.setting[owners(corpus)]])


def shared_keys(corpus: Corpus, rows: Ints, keys: Keys) -> Keys:
    """Sorted keys that enough models among some steps have."""
    chosen = np.zeros(len(corpus), dtype=np.bool_)
    chosen[rows] = True
    owner = owners(corpus)
    kept = chosen[owner]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(corpus.keys))}
    model = np.array([numbers[key] for key in corpus.keys], dtype=np.int64)[owner[kept]]
    key, model = keys[kept].ravel(), np.repeat(model, LEVELS)
    order = np.lexsort((model, key))
    key, model = key[order], model[order]
    first = np.ones(len(key), dtype=np.bool_)
    first[1:] = (key[1:] != key[:-1]) | (model[1:] != model[:-1])
    found, models = np.unique(key[first], return_counts=True)
    return found[models >= _FEWEST_MODELS]


def places(keys: Keys, known: Keys) -> Ints:
    """1 + the place of each key among the sorted `known`; 0 where it is not."""
    if not len(known):
        return np.zeros(keys.shape, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: Ints = np.where(known[at] == keys, at + 1, 0)
    return found


def _ways(setting: Setting) -> Keys:
    """What of the setting is part of the key of each level: only the first spans releases."""
    switches = [bool(setting.features[i]) for i in _WAYS]
    coarse = sum(int(on) << i for i, on in enumerate([*switches, setting.is_old]))
    fine = sum(int(on) << i for i, on in enumerate(switches))
    fine += setting.release + 2 << len(switches)
    return np.array([coarse, fine, fine ^ _text(setting.device)], dtype=np.uint64)


def _kernels(shape: Floats, group: Ints, names: Sequence[str], unit: Ints) -> Keys:
    """[operators, LEVELS] what of the operator is part of each key."""
    bits = np.ascontiguousarray(shape, dtype=np.float32).view(np.uint32).astype(np.uint64)
    name = np.array([_text(n) for n in names], dtype=np.uint64)
    start: Keys = name ^ (group.astype(np.uint64) << np.uint64(8)) ^ alike(unit).astype(np.uint64)
    found = []
    for columns in (bits, bits[:, _DECIDING]):
        level = start
        for column in columns.T:
            level = _mixed(level, column)
        found.append(level)
    exact, like = found
    return np.stack([exact, like, like], 1)


def _mixed(found: Keys, more: Keys | np.uint64) -> Keys:
    with np.errstate(over="ignore"):
        mixed: Keys = (found ^ (more + _MIX)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    return mixed


@functools.cache
def _text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
