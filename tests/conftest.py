"""Shared fixtures: a test run has a graph cache and a store of measurements of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from foretell.graph.sources.torchvision_repair import repair_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
repair_torchvision()


@pytest.fixture(autouse=True, scope="session")
def own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Captured graphs and measurements go to directories that vanish with the test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("FORETELL_STORE", str(tmp_path_factory.mktemp("store")))
        yield
