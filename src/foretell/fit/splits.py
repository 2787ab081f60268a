"""Which steps may judge which: models with their twins, families, devices."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from foretell.graph.graph import Ints
from foretell.predictors.scaledl.corpus import Corpus


def family_of(model: str) -> str:
    """The architecture family of a model's name: its first part, without digits."""
    name = model.partition(":")[2] or model
    return re.split(r"[_\d]", name)[0]


def twins(corpus: Corpus) -> dict[str, str]:
    """Model -> one name for all models that are the same under different names.

    Two models are twins if some measured step of theirs is made of the same operators.
    """
    parent = {key: key for key in corpus.keys}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    owner: dict[bytes, str] = {}
    for i, key in enumerate(corpus.keys):
        first, last = corpus.start[i], corpus.start[i + 1]
        order = np.argsort(corpus.op[first:last])
        parts = (corpus.op[first:last][order], corpus.count[first:last][order])
        digest = hashlib.blake2b(b"".join(p.tobytes() for p in parts), digest_size=16).digest()
        other = owner.setdefault(digest, key)
        parent[root(key)] = root(other)
    return {key: root(key) for key in parent}


def folds(names: list[str], count: int, seed: int = 0) -> Ints:
    """Fold of every step; equal names share one."""
    known = {
        name: int(hashlib.sha256(f"{seed}/{name}".encode()).hexdigest(), 16) % count
        for name in set(names)
    }
    return np.array([known[name] for name in names], dtype=np.int64)
