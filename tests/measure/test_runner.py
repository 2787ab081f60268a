"""Measuring many workloads into the store: rounds, budget, memory, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.data.store import Store
from foretell.errors import InputError
from foretell.measure.jobs import (
    case_jobs,
    collective_jobs,
    not_yet_measured,
    workload_jobs,
    worlds,
)
from foretell.measure.runner import Job, Plan, run_jobs
from foretell.measure.task import Task

SHORT = Task(options={}, seconds=0.2)
MODELS = ["op:linear,in=64,out=64", "op:relu,width=4096"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def here(models: list[str], batches: list[int | None], **options: object) -> list[Job]:
    return workload_jobs(models, batches, worlds([1], ["1"], 1), options, SHORT)


def test_every_workload_becomes_a_record_that_says_how_it_was_run(store: Store) -> None:
    report = run_jobs(here(MODELS, [8, 16], optimizer="sgd"), store, Plan(rounds=2))
    records = list(store.records())
    assert sorted((r.model, r.batch) for r in records) == sorted(
        (m, b) for m in MODELS for b in (8, 16)
    )
    assert [r.id for r in report.records] == [r.id for r in records]
    for record in records:
        assert record.ok, record.reason
        assert record.time_low_s <= record.time_s <= record.time_high_s  # type: ignore[operator]
        assert record.metrics["rounds"] == 2
        assert record.options == {"optimizer": "sgd"}
        assert record.environment["threads"] == 1
        assert record.environment["device"]["id"] == "local@1"
        assert record.cluster == "1xlocal@1"


def test_what_would_fill_the_machine_is_not_begun(store: Store) -> None:
    report = run_jobs(here(["op:linear,in=300000,out=300000"], [1]), store, Plan(rounds=1))
    assert [r.outcome for r in report.records] == ["does-not-fit"]
    assert "GiB" in report.records[0].reason


def test_nothing_new_is_begun_once_the_budget_is_spent(store: Store) -> None:
    jobs = here(["op:relu,width=64"], list(range(1, 41)))
    report = run_jobs(jobs, store, Plan(rounds=1, budget_s=8.0))
    assert report.left + len(report.records) == len(jobs)
    assert report.left > 0


def test_what_the_store_has_is_left_out_when_resuming(store: Store) -> None:
    jobs = here(MODELS, [8, 16])
    run_jobs(jobs[:3], store, Plan(rounds=1))
    assert not_yet_measured(jobs, store.records()) == jobs[3:]


def test_a_failed_workload_is_recorded_and_the_rest_measured(store: Store) -> None:
    jobs = here(["op:linear,in=8,out=8"], [4]) + here(["op:linear,in=8,out=8"], [4], cp=1, zero=0)
    bad = here(["timm:no_such_model"], [4])
    report = run_jobs([*bad, *jobs], store, Plan(rounds=1))
    outcomes = {r.model: r.outcome for r in report.records}
    assert outcomes == {"timm:no_such_model": "refused", "op:linear,in=8,out=8": "ok"}
    assert "no_such_model" in report.records[0].reason


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"model": "op:relu,width=8", "batch": 0}', "batch"),
        ('{"model": "op:relu,width=8", "batsh": 4}', "batsh"),
        ("[1]", "JSON object"),
        ("{", "line 1"),
    ],
)
def test_wrong_cases_are_named_by_their_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=says):
        case_jobs(path, worlds([1], ["1"], 1), SHORT)


def test_collectives_ask_for_a_second_process() -> None:
    with pytest.raises(InputError, match="--nproc 2"):
        collective_jobs(worlds([1], ["1"], 1), SHORT)
