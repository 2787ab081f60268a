"""AIConfigurator's tables: matrix products of inference engines, collectives of NCCL and oneCCL.

A message of a collective is counted in elements; for gathers it is the gathered output, for
reduce-scatters the whole input. Files are labelled by their folders, though a column inside often
tells another NCCL version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import known_cluster
from foretell.data.importers.operators import linear, operator_record
from foretell.data.importers.rows import (
    NO_ROWS,
    BadRowError,
    Row,
    missing,
    place,
    taken,
    unreadable,
)
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject

_DEVICE = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "l40s": "l40s",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000",
    "b60": "b60",
}
_SYSTEM = re.compile(rf"/({'|'.join(sorted(_DEVICE, key=len, reverse=True))})[/_]")
_VERSION = re.compile(
    r"[/_](?P<library>[a-z]+)[/_](?P<version>\d[^/_]*)[/_](?:[a-z]+)_perf\.parquet$"
)
_DTYPE = {"float16": "fp16", "bfloat16": "bf16", "fp8": "fp8"}
_COLLECTIVE = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_MESSAGE = {"half": ("fp16", 2), "int8": ("int8", 1)}
_KERNEL = "kernel_source"
_PRODUCT_COLUMNS = ("gemm_dtype", "m", "n", "k", "latency")
_COLLECTIVE_COLUMNS = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_BATCH_ROWS = 32_768


def read(folder: Path) -> Rows:
    """All rows of all tables, file by file."""
    for path in find(folder, *SOURCE.files):
        if path.name.endswith("gemm_perf.parquet"):
            yield from _table(place(folder, path), path, _PRODUCT_COLUMNS, _product)
        else:
            yield from _table(place(folder, path), path, _COLLECTIVE_COLUMNS, _collective)


def _table(name: str, path: Path, needed: tuple[str, ...], make: Callable[..., Record]) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    system = _SYSTEM.search(f"/{name}")
    device = _DEVICE[system[1]] if system else ""
    version = _VERSION.search(name)
    library = version.groupdict() if version else {}
    start = 0
    try:
        file = pq.ParquetFile(path)
        if not file.metadata.num_rows:
            yield Reject(name, NO_ROWS)
        for batch in file.iter_batches(_BATCH_ROWS):
            columns = {_KERNEL: [""] * batch.num_rows, **batch.to_pydict()}
            flaws = [missing(column) for column in needed if column not in columns]
            flaw = "the device is not told" if not device else flaws[0] if flaws else ""
            values = zip(*(columns[c] for c in (*needed, _KERNEL) if c in columns), strict=True)
            for number, cells in enumerate(values, start):
                yield taken(Row(f"{name}:{number}", {}, flaw), make, cells, device, library)
            start += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        yield Reject(name, unreadable(error))


def _product(row: Row, cells: tuple[Any, ...], device: str, library: dict[str, str]) -> Record:
    dtype, m, n, k, latency_ms, kernel = cells
    if dtype not in _DTYPE:
        raise BadRowError(f"number format {dtype} is none that a forecast knows")
    _check(latency_ms, m, n, k)
    return operator_record(
        linear(k, n),
        device,
        batch=m,
        options=_options(dtype),
        time_s=latency_ms / 1e3,
        source=SOURCE.name,
        origin=row.origin,
        environment=_environment(kernel, **library),
    )


def _collective(row: Row, cells: tuple[Any, ...], device: str, library: dict[str, str]) -> Record:
    op, dtype, ranks, elements, latency_ms, _ = cells
    if op not in _COLLECTIVE:
        raise BadRowError(f"collective {op} is not known")
    if dtype not in _MESSAGE:
        raise BadRowError(f"number format {dtype} is not known")
    _check(latency_ms, ranks, elements)
    format_name, itemsize = _MESSAGE[dtype]
    return Record(
        kind="collective",
        model=f"collective:{_COLLECTIVE[op]}",
        cluster=known_cluster(device, ranks),
        device=device,
        devices=ranks,
        options={"nbytes": elements * itemsize, "dtype": format_name},
        group=device,
        time_s=latency_ms / 1e3,
        source=SOURCE.name,
        origin=row.origin,
        environment=_environment("", **library),
    )


def _check(latency_ms: Any, *sizes: Any) -> None:
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise BadRowError("a size is not a whole number above zero")
    if not isinstance(latency_ms, float | int) or not 0 < latency_ms < math.inf:
        raise BadRowError("latency is not above zero")


@cache
def _options(dtype: str) -> dict[str, str]:
    return {"mode": "infer", "precision": _DTYPE[dtype]}


@cache
def _environment(kernel: str, library: str = "", version: str = "") -> dict[str, str]:
    said = {"kernel": kernel, "library": library, "version": version}
    return {name: value for name, value in said.items() if value}


SOURCE = Source(
    name="aiconfigurator",
    repository="https://github.com/ai-dynamo/aiconfigurator",
    commit="095f58a51c4ca8e61b66ec108d86f223f8d559ce",
    licence="Apache-2.0",
    use="fit",
    files=("*gemm_perf.parquet", "*nccl_perf.parquet", "*oneccl_perf.parquet"),
    read=read,
)
