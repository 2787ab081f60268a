"""Measuring over a Ray cluster: portions of jobs as tasks, placed by resource, tried again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretell.data import Record
from foretell.data.store import Store
from foretell.errors import CannotError, MissingExtraError, one_line
from foretell.measure.chunks import Chunk, chunks_of
from foretell.measure.runner import Job, Plan, Progress, Report

_TRIES = 4
_A_LITTLE = 0.001  # of a named resource: enough to be placed where it is


def run_on_ray(
    jobs: Sequence[Job], store: Store, plan: Plan, progress: Progress, address: str
) -> Report:
    """Measure jobs wherever Ray finds room; what a lost node had begun is begun again elsewhere.

    The results of a portion come back once, however often it was tried.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError("--engine ray", "ray") from None
    report, done = Report(), 0
    with _connected(ray, address):
        measure = ray.remote(measure_chunk)
        waiting = {}
        for chunk in chunks_of(jobs, plan):
            options = _options(chunk, plan.needs)
            waiting[measure.options(**options).remote(chunk.to_dict())] = chunk
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            chunk = waiting.pop(ready)
            found, left = _results(ray, ready, chunk)
            store.append(found)
            report.records += found
            report.left += left
            done += len(chunk.tasks)
            progress(done, len(jobs), "")
    return report


def measure_chunk(data: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Runs in a Ray task: records as plain data, and how many jobs were left."""
    with tempfile.TemporaryDirectory(prefix="foretell-chunk-") as folder:
        report = Chunk.from_dict(data).run(Store(Path(folder)))
    return [dataclasses.asdict(record) for record in report.records], report.left


def _results(ray: Any, ready: Any, chunk: Chunk) -> tuple[list[Record], int]:
    try:
        rows, left = ray.get(ready)
    except ray.exceptions.RayError as error:
        reason = one_line(f"Ray could not run it: {str(error).splitlines()[0]}")
        lost = [
            Record(
                model=str(task.options["model"]),
                batch=task.options.get("batch"),
                options={k: v for k, v in task.options.items() if k not in ("model", "batch")},
                source="foretell",
                outcome="crashed",
                reason=reason,
            )
            for task in chunk.tasks
        ]
        return lost, 0
    return [Record(**{**row, "resources": tuple(row["resources"])}) for row in rows], left


def _options(chunk: Chunk, needs: str) -> dict[str, Any]:
    return {
        "num_cpus": chunk.cores,
        "max_retries": _TRIES - 1,
        **({"resources": {needs: _A_LITTLE}} if needs else {}),
    }


@contextlib.contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """The cluster at an address, the one RAY_ADDRESS names, one that runs here, or a new one."""
    if ray.is_initialized():
        yield
        return
    named = f"ray://{address}" if address else os.environ.get("RAY_ADDRESS")
    try:
        ray.init(address=named, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise CannotError(f"Ray at {named!r} cannot be reached: {one_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()
