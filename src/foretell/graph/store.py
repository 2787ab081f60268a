"""Graphs on disk: one .npz file each, and a cache of captured ones.

A file holds plain arrays and one JSON text; nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Graph, Kinds, Parameters, Storages

FORMAT = 6
"""Raise when the columns change: older cached graphs are then captured anew."""


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write a graph; readers see the old file or the whole new one, never a half."""
    target = Path(path)
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
    columns["text"] = np.frombuffer(text.encode(), np.uint8)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, columns)
    except OSError as error:
        raise InputError(
            f"graph file {str(path)!r} cannot be written: {error.strerror or error}"
        ) from error


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
        return _from_parts(columns, text)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"graph file {str(path)!r} does not exist: check the path") from error
    except OSError as error:
        raise InputError(
            f"graph file {str(path)!r} cannot be read: {error.strerror or error}"
        ) from error
    except Exception as error:  # a damaged archive can fail in any of its layers
        raise InputError(
            f"graph file {str(path)!r} is not a saved graph ({_first_line(error)}): capture the "
            "model again"
        ) from error


class GraphCache:
    """Captured graphs under the user's cache directory, found by what they were made from.

    Where there is no such directory, nothing is found and nothing is kept.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        chosen = cache_directory() if directory is None else None
        self.directory = Path(directory) if directory else chosen and chosen / "graphs"

    def get(self, key: Mapping[str, Any]) -> Graph | None:
        """The graph made from exactly `key`, or None; damaged files count as absent."""
        path = self._path(key)
        try:
            return load_graph(path) if path is not None else None
        except InputError:
            return None

    def put(self, key: Mapping[str, Any], graph: Graph) -> None:
        """Keep a graph; a full or read-only disk only costs the next run some time."""
        path = self._path(key)
        if path is not None:
            with contextlib.suppress(InputError):
                save_graph(graph, path)

    def _path(self, key: Mapping[str, Any]) -> Path | None:
        if self.directory is None:
            return None
        text = json.dumps({**key, "format": FORMAT}, sort_keys=True, default=str)
        return self.directory / (hashlib.sha256(text.encode()).hexdigest()[:32] + ".npz")


def cache_directory() -> Path | None:
    """FORETELL_CACHE, else foretell/ under the platform's usual cache directory, if it has one."""
    chosen = os.environ.get("FORETELL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "foretell"
    except RuntimeError:  # nobody's home
        return None


def _replace(target: Path, columns: Mapping[str, Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **columns)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


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
