"""Measuring by a real Slurm whose nodes are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.data.store import Store
from foretell.errors import CannotError
from foretell.measure.runner import Job, Plan
from foretell.measure.slurm_engine import run_on_slurm
from foretell.measure.task import Task
from foretell.measure.world import World
from tests.slurm_cluster import slurm_cluster, why_not


@pytest.fixture
def slurm(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    reason = why_not()
    if reason and os.environ.get("FORETELL_REAL_RUNS"):
        pytest.fail(f"FORETELL_REAL_RUNS is set, and {reason}")
    if reason:
        pytest.skip(reason)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


def jobs(count: int) -> list[Job]:
    world = World(processes=1, threads=1)
    options = [{"model": f"op:relu,width={64 + n}", "batch": 8} for n in range(count)]
    return [Job(Task(options=o, seconds=0.2), world) for o in options]


def test_an_array_job_measures_everything_into_one_store(slurm: None, tmp_path: Path) -> None:
    store, chosen, seen = Store(tmp_path), jobs(9), []
    plan = Plan(rounds=1, needs="kind0|kind1")
    report = run_on_slurm(chosen, store, plan, lambda done, total, _: seen.append((done, total)))
    assert report.left == 0
    assert all(r.ok for r in report.records), [r.reason for r in report.records]
    assert sorted(r.model for r in store.records()) == sorted(
        str(j.task.options["model"]) for j in chosen
    )
    assert seen[-1] == (9, 9)
    assert not list(tmp_path.glob("slurm-*"))


def test_without_slurm_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotError, match="needs sbatch"):
        run_on_slurm(jobs(1), Store(tmp_path), Plan(), lambda *_: None)
