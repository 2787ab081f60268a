"""Shared fixtures: a test run has a graph cache and a store of measurements of its own.

Files of tests run side by side (pytest-xdist), except those that run and time real jobs: these take
turns, the first of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from foretell.graph.sources.torchvision_repair import repair_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
repair_torchvision()
if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are dealt out already
    torch.set_num_threads(1)

_REAL = "real runs"
_REAL_FILES = (
    "tests/measure/",
    "tests/calibrate/",
    "tests/cli/test_measure.py",
    "tests/cli/test_calibrate.py",
    "tests/parallel/test_real_runs.py",
)


class _InTurns(LoadScopeScheduling):
    """A file of tests stays in one process, and so do all real runs."""

    def _split_scope(self, nodeid: str) -> str:
        return _REAL if nodeid.startswith(_REAL_FILES) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _InTurns:
    """Who runs what."""
    return _InTurns(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real runs first: they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(_REAL_FILES))


@pytest.fixture(autouse=True, scope="session")
def own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Captured graphs and measurements go to directories that vanish with the test run."""
    mine = tmp_path_factory.getbasetemp()
    everybody = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_CACHE", str(everybody / "cache"))
        patch.setenv("FORETELL_STORE", str(tmp_path_factory.mktemp("store")))
        yield
