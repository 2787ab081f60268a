"""Graphs on disk: damage, missing rights and missing homes never stop a forecast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import foretell
from foretell.graph import Graph, GraphCache, graph_of, load_graph, save_graph
from foretell.graph.store import FORMAT, cache_directory

SMALL = "transformer:layers=1,hidden=16,heads=2,seq=4,vocab=20"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(SMALL)


def test_a_cached_file_damaged_anywhere_is_captured_anew(tmp_path: Path, graph: Graph) -> None:
    cache = GraphCache(tmp_path)
    graph_of(SMALL, cache=cache)
    (path,) = tmp_path.glob("*.npz")
    whole = path.read_bytes()
    for start in range(0, len(whole), len(whole) // 30):
        bad = bytes(b ^ 0x5A for b in whole[start : start + 40])
        path.write_bytes(whole[:start] + bad + whole[start + 40 :])
        assert graph_of(SMALL, cache=cache).content_hash == graph.content_hash
        assert load_graph(path).content_hash == graph.content_hash


@pytest.mark.parametrize(
    "text", [[], {"format": FORMAT}, {"format": FORMAT, "labels": 1, "batch": "x"}]
)
def test_a_file_with_the_wrong_contents_is_refused(tmp_path: Path, text: object) -> None:
    np.savez(tmp_path / "g.npz", text=np.frombuffer(json.dumps(text).encode(), np.uint8))
    with pytest.raises(foretell.InputError, match="not a saved graph"):
        load_graph(tmp_path / "g.npz")


def test_old_files_without_the_field_hold_for_every_batch(tmp_path: Path, graph: Graph) -> None:
    save_graph(graph, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as archive:
        parts = dict(archive)
    text = json.loads(parts["text"].tobytes())
    del text["only_batch"]
    parts["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    np.savez(tmp_path / "old.npz", **parts)
    assert load_graph(tmp_path / "old.npz").at(7).batch == 7


def test_paths_that_cannot_be_read_or_written_are_named(tmp_path: Path, graph: Graph) -> None:
    with pytest.raises(foretell.InputError, match="cannot be read"):
        load_graph(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(foretell.InputError, match="cannot be written"):
        save_graph(graph, tmp_path / "file" / "g.npz")


def test_a_cache_that_is_no_directory_is_gone_without(
    tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "file"))
    assert graph_of(SMALL).content_hash == graph.content_hash


def test_without_a_home_there_is_no_cache(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FORETELL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert cache_directory() is None
    assert graph_of(SMALL).content_hash == graph.content_hash
