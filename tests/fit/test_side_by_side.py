"""Fits in processes of their own end like fits in this one, and are not done twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.fit import side_by_side
from foretell.fit.members import read_kept
from foretell.fit.side_by_side import Task, fit_all
from foretell.predictors.scaledl.train import Effort
from tests.fit.test_parts import corpus_with

CORPUS = corpus_with(
    ("a", "timm:resnet10t", 8), ("b", "timm:lcnet_035", 4), ("c", "timm:tinynet_e", 4)
)


def tasks(folder: Path) -> list[Task]:
    effort = Effort(epochs=2, steps_per_batch=1, cross=True)
    return [Task(np.arange(3) == i, effort, folder / f"without-{i}") for i in range(2)]


def test_processes_fit_what_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[str, float] = {}
    fit_all(CORPUS, tasks(tmp_path / "here"), 2, heard.__setitem__)
    assert heard == {"without-0": 1.0, "without-1": 1.0}
    monkeypatch.setattr(side_by_side, "_FEW", 0)
    heard.clear()
    fit_all(CORPUS, tasks(tmp_path / "apart"), 2, heard.__setitem__)
    assert set(heard) == {"without-0", "without-1"}
    for mine, theirs in zip(tasks(tmp_path / "here"), tasks(tmp_path / "apart"), strict=True):
        said, also = (read_kept(task.kept)[1].predicted_s for task in (mine, theirs))
        assert said == pytest.approx(also, rel=1e-3)


def test_what_is_kept_is_not_fitted_again(tmp_path: Path) -> None:
    fit_all(CORPUS, tasks(tmp_path), 1, lambda name, share: None)
    heard: list[str] = []
    fit_all(CORPUS, tasks(tmp_path), 1, lambda name, share: heard.append(name))
    assert not heard


def test_a_fit_that_fails_in_a_process_fails_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "_FEW", 0)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="file"):
        fit_all(CORPUS, tasks(tmp_path / "file"), 2, lambda name, share: None)
