"""A schedule for other programs: Parquet, one row per stretch of time that a job had devices."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretell.data.export import whole_file
from foretell.schedule.sweep import Plan, Result


def schedule_table(plan: Plan, results: Sequence[Result]) -> pa.Table:
    """All runs of all policies, loads and seeds."""
    return pa.concat_tables([_table(plan, result) for result in results])


def write_schedule(plan: Plan, results: Sequence[Result], path: Path) -> None:
    """Whole or not at all."""
    with whole_file(path, binary=True) as stream:
        pq.write_table(schedule_table(plan, results), stream, compression="zstd")


def _table(plan: Plan, result: Result) -> pa.Table:
    trace, _ = plan.trace(result.run.load, result.run.seed)
    history = result.played.history
    count = len(history.run_job)
    job = np.frombuffer(history.run_job, dtype=np.int64)
    ids = pa.array(trace.ids).take(pa.array(job))
    offsets = pa.array(np.frombuffer(history.run_first, dtype=np.int64), pa.int32())

    def lists(values: array[int]) -> pa.Array:
        whole = pa.array(np.frombuffer(values, dtype=np.int64), pa.int32())
        return pa.ListArray.from_arrays(offsets, whole)

    return pa.table(
        {
            "policy": pa.array([result.run.policy] * count).dictionary_encode(),
            "load": np.full(count, result.run.load),
            "seed": np.full(count, result.run.seed),
            "job": ids,
            "devices": trace.devices[job],
            "arrival_s": trace.arrival_s[job],
            "start_s": np.frombuffer(history.run_start_s),
            "end_s": np.frombuffer(history.run_end_s),
            "servers": lists(history.server),
            "devices_on_server": lists(history.server_devices),
        }
    )
