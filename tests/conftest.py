"""Shared fixtures: every test has a graph cache of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.graph.sources.torchvision_repair import repair_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
repair_torchvision()


@pytest.fixture(autouse=True, scope="session")
def graph_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Captured graphs go to a directory that vanishes with the test run."""
    directory = tmp_path_factory.mktemp("cache")
    previous = os.environ.get("FORETELL_CACHE")
    os.environ["FORETELL_CACHE"] = str(directory)
    yield directory
    if previous is None:
        del os.environ["FORETELL_CACHE"]
    else:
        os.environ["FORETELL_CACHE"] = previous
