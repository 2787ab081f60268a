"""A corpus on disk: plain arrays, nothing that could run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.export import whole_file
from foretell.graph.graph import Ints
from foretell.predictors.scaledl.context import Context, Round
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.setting import Setting

_TEXTS = ("names", "keys", "labels")
_CHOSEN = ("weight", "share")
"""What a fit decides; everything counts alike when it is read."""
_ROUND = tuple(f.name for f in dataclasses.fields(Round))
_PLAIN = tuple(
    f.name
    for f in dataclasses.fields(Corpus)
    if f.name not in (*_TEXTS, *_CHOSEN, "settings", "contexts")
)


def save_corpus(corpus: Corpus, path: Path) -> None:
    """Write it whole or not at all."""
    arrays: dict[str, Any] = {name: getattr(corpus, name) for name in _PLAIN}
    settings = [
        {"device": s.device, "features": s.features.tolist(), "spec": s.spec.tolist()}
        for s in corpus.settings
    ]
    texts = {name: list(getattr(corpus, name)) for name in _TEXTS}
    told = json.dumps({"settings": settings, **texts}).encode()
    arrays["told"] = np.frombuffer(told, dtype=np.uint8)
    for turn in ("first", "second"):
        for name in _ROUND:
            pieces = [getattr(getattr(c, turn), name) for c in corpus.contexts]
            arrays |= _flat(f"{turn}.{name}", pieces)
    arrays |= _flat("context.count", [c.count for c in corpus.contexts])
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, binary=True) as stream:
        np.savez(stream, **arrays)


def load_corpus(path: Path) -> Corpus:
    """The reverse of save_corpus; who is in which surrounding is not kept."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    told = json.loads(arrays["told"].tobytes())
    rounds = {
        turn: [
            Round(*parts)
            for parts in zip(*(_pieces(f"{turn}.{n}", arrays) for n in _ROUND), strict=True)
        ]
        for turn in ("first", "second")
    }
    nobody: Ints = np.zeros(0, dtype=np.int64)
    contexts = zip(rounds["first"], rounds["second"], _pieces("context.count", arrays), strict=True)
    columns: dict[str, Any] = {name: arrays[name] for name in _PLAIN}
    columns |= {name: tuple(told[name]) for name in _TEXTS}
    columns |= {name: np.ones(len(columns["measured_s"])) for name in _CHOSEN}
    return Corpus(
        **columns,
        settings=tuple(
            Setting(device=s["device"], features=np.array(s["features"]), spec=np.array(s["spec"]))
            for s in told["settings"]
        ),
        contexts=tuple(Context(a, b, count, nobody) for a, b, count in contexts),
    )


def _flat(name: str, pieces: list[Any]) -> dict[str, Any]:
    lengths = np.array([len(p) for p in pieces], dtype=np.int64)
    return {name: np.concatenate(pieces) if pieces else lengths, f"{name}.lengths": lengths}


def _pieces(name: str, arrays: dict[str, Any]) -> list[Any]:
    return np.split(arrays[name], np.cumsum(arrays[f"{name}.lengths"])[:-1])
