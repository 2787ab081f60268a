"""Which steps may judge which: models with their twins, families, devices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from foretell.graph.graph import Ints
from foretell.predictors.scaledl.corpus import Corpus

_WHOSE = frozenset("adv dm ens gluon ig jx legacy ssl swsl tf tv".split())
"""Parts of names that tell who trained or ported a network, not what it is."""


def family_of(model: str) -> str:
    """The architecture family of a model's name: the first part that tells it, without digits."""
    parts = (model.partition(":")[2] or model).split("_")
    first = next((part for part in parts if part not in _WHOSE), parts[0])
    return re.split(r"\d", first)[0]


def is_model(corpus: Corpus) -> np.ndarray:
    """Which steps are of whole models, not single operators."""
    alone = np.array([s.is_alone for s in corpus.settings], dtype=np.bool_)
    return ~alone[corpus.setting]


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
    for i in np.flatnonzero(is_model(corpus)):
        first, last = corpus.start[i], corpus.start[i + 1]
        order = np.argsort(corpus.op[first:last])
        parts = (corpus.op[first:last][order], corpus.count[first:last][order])
        digest = hashlib.blake2b(b"".join(p.tobytes() for p in parts), digest_size=16).digest()
        key = corpus.keys[i]
        other = owner.setdefault(digest, key)
        parent[root(key)] = root(other)
    return {key: root(key) for key in parent}


def by_model(corpus: Corpus) -> list[str]:
    """What of each step must stay together when models are held out."""
    same = twins(corpus)
    return [same[key] for key in corpus.keys]


def by_family(corpus: Corpus) -> list[str]:
    """What of each step must stay together when families are held out."""
    return [family_of(name) for name in by_model(corpus)]


def half_by_family(corpus: Corpus, seed: int) -> tuple[list[str], np.ndarray]:
    """Every other family as a whole, the others model by model; which steps are of the former."""
    models = by_model(corpus)
    families = [family_of(name) for name in models]
    whole = {name: _draw(f"{seed}/half/{name}", 2) == 0 for name in set(families)}
    names = [f if whole[f] else m for f, m in zip(families, models, strict=True)]
    return names, np.array([whole[f] for f in families], dtype=np.bool_)


def folds(names: Sequence[str], count: int, seed: int = 0) -> Ints:
    """Fold of every step; equal names share one."""
    known = {name: _draw(f"{seed}/{name}", count) for name in set(names)}
    return np.array([known[name] for name in names], dtype=np.int64)


def _draw(text: str, count: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % count
