"""Graphs on disk: one .npz file each, and a cache of captured ones.

A file holds plain arrays and one JSON text; nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Graph, Kinds, Parameters, Storages

FORMAT = 3
"""Raise when the columns change: older cached graphs are then captured anew."""


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write a graph; readers see the old file or the whole new one, never a half."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            "format": FORMAT,
            "batch": graph.batch,
            "only_batch": graph.only_batch,
            "meta": dict(graph.meta),
            "labels": graph.labels(),
            "hash": graph.content_hash,
        }
    )
    columns = {name: _shrink(array) for name, array in graph.columns().items()}
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(
                stream, allow_pickle=False, text=np.frombuffer(text.encode(), np.uint8), **columns
            )
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def load_graph(path: str | Path) -> Graph:
    """Read a graph written by save_graph."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            text = json.loads(archive["text"].tobytes().decode())
            if text["format"] != FORMAT:
                raise InputError(
                    f"graph file {str(path)!r} has format {text['format']}, this version reads "
                    f"{FORMAT}: capture the model again"
                )
            columns = {n: archive[n] for n in archive.files if n != "text"}
    except FileNotFoundError as error:
        raise InputError(f"graph file {str(path)!r} does not exist: check the path") from error
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise InputError(
            f"graph file {str(path)!r} is not a saved graph ({error}): capture the model again"
        ) from error
    return _from_parts(columns, text)


class GraphCache:
    """Captured graphs under the user's cache directory, found by what they were made from."""

    def __init__(self, directory: str | Path | None = None) -> None:
        self.directory = Path(directory) if directory else cache_directory() / "graphs"

    def get(self, key: Mapping[str, Any]) -> Graph | None:
        """The graph made from exactly `key`, or None; damaged files count as absent."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            return load_graph(path)
        except InputError:
            return None

    def put(self, key: Mapping[str, Any], graph: Graph) -> None:
        """Keep a graph; a full or read-only disk only costs the next run some time."""
        with contextlib.suppress(OSError):
            save_graph(graph, self._path(key))

    def _path(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps({**key, "format": FORMAT}, sort_keys=True, default=str)
        return self.directory / (hashlib.sha256(text.encode()).hexdigest()[:32] + ".npz")


def cache_directory() -> Path:
    """FORETELL_CACHE, else foretell/ under the platform's usual cache directory."""
    chosen = os.environ.get("FORETELL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "foretell"


def _shrink(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype != np.int64 or not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    for small in (np.int8, np.int16, np.int32):
        if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
            return array.astype(small)
    return array


def _from_parts(columns: Mapping[str, Any], text: Mapping[str, Any]) -> Graph:
    labels = text["labels"]
    wide = {
        name: array if array.dtype == np.bool_ else array.astype(np.int64)
        for name, array in columns.items()
    }

    def table(prefix: str) -> dict[str, Any]:
        return {n[len(prefix) :]: a for n, a in wide.items() if n.startswith(prefix)}

    return Graph(
        kinds=Kinds(name=tuple(labels["kinds.name"]), **table("kinds.")),
        storages=Storages(**table("storages.")),
        parameters=Parameters(
            name=tuple(labels["parameters.name"]),
            shape=tuple(tuple(s) for s in labels["parameters.shape"]),
            **table("parameters."),
        ),
        modules=tuple(labels["modules"]),
        batch=int(text["batch"]),
        meta=text["meta"],
        only_batch=text.get("only_batch"),
        **{n: a for n, a in wide.items() if "." not in n},
    )
