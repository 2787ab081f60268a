"""Operator measurements of NeuSight and AIConfigurator as samples for the roofline fit."""

from __future__ import annotations

import csv
import gzip
import random
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sources import require
from foretell.cluster import Device, device
from foretell.predictors.analytic.elasticity import PricedOn
from foretell.predictors.analytic.fit import Sample
from foretell.predictors.analytic.rates import GROUP_INDEX
from foretell.predictors.analytic.roofline import shape_columns

_PER_TABLE = 1500
_GEMMS_PER_FILE = 6000
_SHORTEST_S = 1e-4
_NEUSIGHT_DEVICE = {
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla V100-PCIE-32GB": "v100-32gb-pcie",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie",
    "AMD Instinct MI100": "mi100",
    "AMD Instinct MI210": "mi210",
}
_AIC_DEVICE = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "l40s": "l40s",
    "b200_sxm": "b200",
    "gb200": "gb200",
}
_AIC_DTYPE = {"float16": "fp16", "bfloat16": "bf16", "fp8": "fp8"}


def operator_samples(seed: int = 0) -> dict[str, tuple[list[Sample], set[str]]]:
    """family -> (samples, precisions), at most _PER_TABLE rows of each table."""
    rng = random.Random(seed)
    # Alone, a short kernel is timed with its launch, which a running model hides.
    found: dict[str, tuple[list[Sample], set[str]]] = defaultdict(lambda: ([], set()))
    for precision, table in (*_neusight(), *_aiconfigurator()):
        long = [s for s in table if s.measured_s >= _SHORTEST_S]
        for sample in rng.sample(long, min(len(long), _PER_TABLE)):
            samples, precisions = found[sample.step.device.family]
            samples.append(sample)
            precisions.add(precision)
    return dict(found)


def operators_of(device_id: str) -> list[Sample]:
    """Every row of NeuSight's training tables that was measured on one device, in fp32."""
    names = [name for name, where in _NEUSIGHT_DEVICE.items() if where == device_id]
    return [
        sample
        for path in _neusight_files()
        for record in _records(path)
        if record["Device"] in names and (sample := _neusight_sample(record)) is not None
    ]


def gemms_of(device_id: str, dtype: str) -> list[Sample]:
    """Every row of AIConfigurator's matrix products on one device in one number format."""
    path = next(p for p in _gemm_files() if _AIC_DEVICE[_system(p)] == device_id)
    return _gemm_samples(path, dtypes=(dtype,))[dtype]


def _neusight_files() -> list[Path]:
    base = require("neusight") / "data"
    return sorted((*base.glob("dataset/train/**/*.gz"), *base.glob("dataset_amd/train/*.gz")))


def _records(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as stream:
        yield from csv.DictReader(stream)


def _neusight() -> Iterator[tuple[str, list[Sample]]]:
    for path in _neusight_files():
        by_device: dict[str, list[Sample]] = defaultdict(list)
        for record in _records(path):
            sample = _neusight_sample(record)
            if sample is not None:
                by_device[sample.step.device.id].append(sample)
        for samples in by_device.values():
            yield "fp32", samples


def _neusight_sample(record: dict[str, str]) -> Sample | None:
    where = _NEUSIGHT_DEVICE.get(record["Device"])
    if where is None or not record["Latency"] or float(record["Latency"]) <= 0:
        return None
    target, name = device(where), record["OPName"]
    seconds = float(record["Latency"]) / 1e3
    if name in ("linear", "bmm"):
        b, m, n, k = (int(float(record[x])) for x in ("B", "M", "N", "K"))
        group = "matmul" if name == "linear" else "bmm"
        return _gemm_sample(target, group, (b, m, n, k), target.peak("fp32"), 4, seconds)
    if name == "conv":
        return _conv_sample(record, target, seconds)
    rows, width = int(float(record["B"])), int(float(record["H"]))
    arrays = 3 if name in ("add", "mul", "div", "pow", "sub") else 2
    group = {"softmax": "softmax", "ln": "norm"}.get(name, "elementwise")
    return _sample(
        target, group, (0, 0, 0, 0), target.peak("fp32"), 4.0 * arrays * rows * width, seconds
    )


def _conv_sample(record: dict[str, str], target: Device, seconds: float) -> Sample:
    fields = (
        "B",
        "Input_Channel",
        "Output_Channel",
        "Kernel_Szie",
        "Input_Size",
        "Stride",
        "Padding",
    )
    b, c_in, c_out, kernel, size, stride, padding = (int(float(record[f])) for f in fields)
    out = (size + 2 * padding - kernel) // stride + 1
    gemm = (1, b * out * out, c_out, c_in * kernel * kernel)
    nbytes = 4.0 * (b * c_in * size * size + c_out * c_in * kernel**2 + b * c_out * out * out)
    group = "pointwise" if kernel == 1 else "conv"
    return _sample(target, group, gemm, target.peak("fp32"), nbytes, seconds)  # TF32 was off


def _aiconfigurator() -> Iterator[tuple[str, list[Sample]]]:
    for path in _gemm_files():
        yield from _gemm_samples(path, most=_GEMMS_PER_FILE).items()


def _gemm_files() -> list[Path]:
    return sorted((require("aiconfigurator") / "gemm").glob("*.parquet"))


def _gemm_samples(
    path: Path, most: int | None = None, dtypes: Collection[str] = tuple(_AIC_DTYPE.values())
) -> dict[str, list[Sample]]:
    """Samples by number format, from at most so many random rows of a table."""
    import pyarrow.parquet as pq

    target = device(_AIC_DEVICE[_system(path)])
    table = pq.read_table(path)
    columns = {c: table.column(c).to_pylist() for c in table.column_names}
    latency = columns.get("latency") or columns["latency_ms"]
    kind = columns.get("gemm_dtype") or columns["dtype"]
    by_dtype: dict[str, list[Sample]] = defaultdict(list)
    for i in random.Random(0).sample(range(len(latency)), min(len(latency), most or len(latency))):
        dtype = _AIC_DTYPE.get(str(kind[i]))
        if dtype not in dtypes or not target.supports(dtype) or not latency[i] > 0:
            continue
        gemm = (1, int(columns["m"][i]), int(columns["n"][i]), int(columns["k"][i]))
        itemsize = 1 if dtype == "fp8" else 2
        by_dtype[dtype].append(
            _gemm_sample(
                target, "matmul", gemm, target.peak(dtype), itemsize, float(latency[i]) / 1e3
            )
        )
    return by_dtype


def _system(path: Path) -> str:
    return path.name.split("_gemm")[0]


def _gemm_sample(
    target: Device, group: str, gemm: tuple[int, ...], peak: float, itemsize: int, seconds: float
) -> Sample:
    b, m, n, k = gemm
    nbytes = float(itemsize) * b * (m * k + n * k + m * n)
    return _sample(target, group, gemm, peak, nbytes, seconds)


def _sample(
    target: Device, group: str, gemm: tuple[int, ...], peak: float, nbytes: float, seconds: float
) -> Sample:
    b, m, n, k = gemm

    def one(value: Any) -> Any:
        return np.array([value], dtype=np.float64)

    columns = shape_columns(
        group=np.array([GROUP_INDEX[group]], dtype=np.int64),
        gemm=np.array([gemm], dtype=np.float64),
        flops=one(2.0 * b * m * n * k),
        nbytes=one(nbytes),
        peak_flops_per_s=one(peak),
        device=target,
    )
    return Sample(PricedOn(columns, np.ones(1), 0.0, target), seconds)
