"""Kernels that several measured models have in common, told apart exactly.

Libraries pick a kernel by rules that no shape explains: what one convolution takes more or less
than its like is learned for that very convolution, and used wherever it comes again. A key is an
operator, its exact shape for one sample, its number format, and how it runs; the device and the
batch are not part of it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus, owners
from foretell.predictors.scaledl.setting import SETTING_NAMES, Setting
from foretell.predictors.scaledl.table import OpTable, alike

_FEWEST_MODELS = 3
"""That must have a kernel for it to be told apart."""
_WAYS = tuple(SETTING_NAMES.index(name) for name in ("channels_last", "compile", "cpu"))
_MIX = np.uint64(0x9E3779B97F4A7C15)

Keys = np.ndarray
"""Unsigned 64-bit hashes."""


def keys_of(table: OpTable, setting: Setting) -> Keys:
    """The key of every row of a table in a setting."""
    return _mixed(_kernels(table.shape, table.group, table.name, table.unit), _way(setting))


def keys_of_corpus(corpus: Corpus) -> Keys:
    """The key of every entry of a corpus: of each operator of each step."""
    names = [corpus.names[n] for n in corpus.name]
    kernels = _kernels(corpus.shape, corpus.group, names, corpus.unit)
    ways = np.array([_way(s) for s in corpus.settings], dtype=np.uint64)
    return _mixed(kernels[corpus.op], ways[corpus.setting[owners(corpus)]])


def shared_keys(corpus: Corpus, rows: Ints, keys: Keys) -> Keys:
    """Sorted keys that enough models among some steps have."""
    chosen = np.zeros(len(corpus), dtype=np.bool_)
    chosen[rows] = True
    owner = owners(corpus)
    kept = chosen[owner]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(corpus.keys))}
    model = np.array([numbers[key] for key in corpus.keys], dtype=np.int64)[owner[kept]]
    order = np.lexsort((model, keys[kept]))
    key, model = keys[kept][order], model[order]
    first = np.ones(len(key), dtype=np.bool_)
    first[1:] = (key[1:] != key[:-1]) | (model[1:] != model[:-1])
    found, models = np.unique(key[first], return_counts=True)
    return found[models >= _FEWEST_MODELS]


def places(keys: Keys, known: Keys) -> Ints:
    """1 + the place of each key among the sorted `known`; 0 where it is not."""
    if not len(known):
        return np.zeros(len(keys), dtype=np.int64)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: Ints = np.where(known[at] == keys, at + 1, 0)
    return found


def _way(setting: Setting) -> np.uint64:
    switches = [*(bool(setting.features[i]) for i in _WAYS), setting.is_old]
    return np.uint64(sum(int(on) << i for i, on in enumerate(switches)))


def _kernels(shape: Floats, group: Ints, names: Sequence[str], unit: Ints) -> Keys:
    bits = np.ascontiguousarray(shape, dtype=np.float32).view(np.uint32).astype(np.uint64)
    name = np.array([_text(n) for n in names], dtype=np.uint64)
    found: Keys = name ^ (group.astype(np.uint64) << np.uint64(8)) ^ alike(unit).astype(np.uint64)
    for column in bits.T:
        found = _mixed(found, column)
    return found


def _mixed(found: Keys, more: Keys | np.uint64) -> Keys:
    with np.errstate(over="ignore"):
        mixed: Keys = (found ^ (more + _MIX)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    return mixed


@functools.cache
def _text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
