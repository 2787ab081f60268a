"""AIConfigurator's tables: matrix products of inference engines, collectives of NCCL and oneCCL.

A message of a collective is counted in elements; for gathers it is the gathered output, for
reduce-scatters the whole input. Files are labelled by their folders, though a column inside often
tells another NCCL version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from foretell.data.importers.cells import cluster_text
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject
from foretell.graph.sources.op_shape import op_reference

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
_PLACE = re.compile(rf"/(?P<system>{'|'.join(sorted(_DEVICE, key=len, reverse=True))})[/_]")
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
_BATCH_ROWS = 32_768


def read(folder: Path) -> Rows:
    """All rows of all tables, file by file."""
    for path in find(folder, *SOURCE.files):
        name = path.relative_to(folder).as_posix()
        make = _gemms if path.name.endswith("gemm_perf.parquet") else _collectives
        yield from _table(name, path, make)


def _table(name: str, path: Path, make: Callable[..., Rows]) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = _PLACE.search(f"/{name}")
    device = _DEVICE[place["system"]] if place else ""
    version = _VERSION.search(name)
    library = version.groupdict() if version else {}
    start = 0
    try:
        file = pq.ParquetFile(path)
        if not file.metadata.num_rows:
            yield Reject(name, "file holds no rows")
        for batch in file.iter_batches(_BATCH_ROWS):
            columns = batch.to_pydict()
            places = range(start, start + batch.num_rows)
            start += batch.num_rows
            if not device:
                yield from (Reject(f"{name}:{i}", "the device is not told") for i in places)
            else:
                yield from make(name, places, columns, device, library)
    except (OSError, pa.ArrowException) as error:
        yield Reject(name, f"file cannot be read further ({type(error).__name__})")


def _gemms(
    name: str, places: range, columns: dict[str, list[Any]], device: str, library: dict[str, str]
) -> Rows:
    lacking = _lacking(columns, "gemm_dtype", "m", "n", "k", "latency")
    if lacking:
        yield from (Reject(f"{name}:{i}", lacking) for i in places)
        return
    cluster = cluster_text(device)
    kernels = columns.get("kernel_source") or [""] * len(places)
    numbers = zip(*(columns[c] for c in ("gemm_dtype", "m", "n", "k", "latency")), strict=True)
    for place, kernel, (dtype, m, n, k, latency_ms) in zip(places, kernels, numbers, strict=True):
        origin = f"{name}:{place}"
        wrong = _wrong_gemm(dtype, m, n, k, latency_ms)
        if wrong:
            yield Reject(origin, wrong)
            continue
        model = _linear(k, n)
        yield Record(
            kind="operator",
            model=model,
            cluster=cluster,
            device=device,
            batch=m,
            options=_options(dtype),
            group=model,
            time_s=latency_ms / 1e3,
            source="aiconfigurator",
            origin=origin,
            environment=_environment(kernel, **library),
        )


def _wrong_gemm(dtype: Any, m: Any, n: Any, k: Any, latency_ms: Any) -> str:
    if dtype not in _DTYPE:
        return f"number format {dtype} is none that a forecast knows"
    if not all(isinstance(size, int) and size > 0 for size in (m, n, k)):
        return "a size is not a whole number above zero"
    return "" if _is_time(latency_ms) else "latency is not above zero"


def _collectives(
    name: str, places: range, columns: dict[str, list[Any]], device: str, library: dict[str, str]
) -> Rows:
    needed = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
    lacking = _lacking(columns, *needed)
    if lacking:
        yield from (Reject(f"{name}:{i}", lacking) for i in places)
        return
    for place, *values in zip(places, *(columns[c] for c in needed), strict=True):
        op, dtype, ranks, elements, latency_ms = values
        origin = f"{name}:{place}"
        wrong = _wrong_collective(*values)
        if wrong:
            yield Reject(origin, wrong)
            continue
        format_name, itemsize = _MESSAGE[dtype]
        yield Record(
            kind="collective",
            model=f"collective:{_COLLECTIVE[op]}",
            cluster=cluster_text(device, ranks),
            device=device,
            devices=ranks,
            options={"nbytes": elements * itemsize, "dtype": format_name},
            group=device,
            time_s=latency_ms / 1e3,
            source="aiconfigurator",
            origin=origin,
            environment=_environment("", **library),
        )


def _wrong_collective(op: Any, dtype: Any, ranks: Any, elements: Any, latency_ms: Any) -> str:
    if op not in _COLLECTIVE:
        return f"collective {op} is not known"
    if dtype not in _MESSAGE:
        return f"number format {dtype} is not known"
    if not all(isinstance(size, int) and size > 0 for size in (ranks, elements)):
        return "a size is not a whole number above zero"
    return "" if _is_time(latency_ms) else "latency is not above zero"


def _lacking(columns: dict[str, list[Any]], *needed: str) -> str:
    missing = [name for name in needed if name not in columns]
    return f"column {missing[0]!r} is missing" if missing else ""


def _is_time(value: Any) -> bool:
    return isinstance(value, float | int) and 0 < value < float("inf")


@cache
def _linear(inner: int, outer: int) -> str:
    return op_reference("linear", **{"in": inner, "out": outer})


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
