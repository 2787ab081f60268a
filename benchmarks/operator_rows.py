"""Operator measurements of NeuSight and AIConfigurator as samples for the roofline fit."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.roofline_fit import Sample
from benchmarks.sources import measured, require
from foretell.cluster import Device, device
from foretell.data import Record, Reject
from foretell.data.importers import source
from foretell.graph.sources.op_shape import parse_op
from foretell.predictors.analytic.rates import GROUP_INDEX
from foretell.predictors.analytic.roofline import shape_columns

_PER_TABLE = 1500
_SHORTEST_S = 1e-4
_THREE_ARRAYS = ("add", "mul", "div", "pow")
_ROW_GROUP = {"softmax": "softmax", "layer_norm": "norm"}
_PICKED_PER_FILE = 6000


def operator_samples(seed: int = 0) -> dict[str, tuple[list[Sample], set[str]]]:
    """family -> (samples, precisions), at most _PER_TABLE rows of each table."""
    rng = random.Random(seed)
    # Alone, a short kernel is timed with its launch, which a running model hides.
    found: dict[str, tuple[list[Sample], set[str]]] = defaultdict(lambda: ([], set()))
    for precision, table in (*_neusight(), *_aiconfigurator()):
        long = [s for s in table if s.measured_s >= _SHORTEST_S]
        for sample in rng.sample(long, min(len(long), _PER_TABLE)):
            samples, precisions = found[sample.device.family]
            samples.append(sample)
            precisions.add(precision)
    return dict(found)


def _neusight() -> Iterator[tuple[str, list[Sample]]]:
    amd: dict[str, list[Sample]] = {}
    for file, table in groupby(measured("neusight"), key=_file):
        if "/train/" not in file:
            continue
        samples = [_neusight_sample(record) for record in table]
        yield from (("fp32", own) for own in _by_device(samples))
        if "dataset_amd" in file:
            amd[Path(file).name.split(".")[0]] = samples
    # Upstream also has the three as one table, which the constants were fitted to beside them.
    joined = [sample for name in ("ln", "softmax", "elem") for sample in amd[name]]
    yield from (("fp32", own) for own in _by_device(joined))


def _by_device(samples: Iterable[Sample]) -> Iterable[list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.device.id].append(sample)
    return found.values()


def _neusight_sample(record: Record) -> Sample:
    assert record.batch is not None
    assert record.time_s is not None
    target, rows, seconds = device(record.device), record.batch, record.time_s
    name, sizes = _shape(record.model)
    peak = target.peak("fp32")
    if name == "linear":
        return _gemm_sample(
            target, "matmul", (1, rows, sizes["out"], sizes["in"]), peak, 4, seconds
        )
    if name == "bmm":
        gemm = (rows, sizes["m"], sizes["n"], sizes["k"])
        return _gemm_sample(target, "bmm", gemm, peak, 4, seconds)
    if name == "conv2d":
        return _conv_sample(sizes, rows, target, seconds)
    arrays = 3 if name in _THREE_ARRAYS else 2
    group = _ROW_GROUP.get(name, "elementwise")
    nbytes = 4.0 * arrays * rows * sizes["width"]
    return _sample(target, group, (0, 0, 0, 0), peak, nbytes, seconds)


@cache
def _shape(model: str) -> tuple[str, Mapping[str, int]]:
    """Name and sizes of op:NAME,size=..., or of NAME,width=... that no reference describes."""
    if model.startswith("op:"):
        shape = parse_op(model.removeprefix("op:"))
        return shape.name, shape.sizes
    name, _, width = model.partition(",width=")
    return name, {"width": int(width)}


def _conv_sample(sizes: Mapping[str, int], rows: int, target: Device, seconds: float) -> Sample:
    c_in, c_out, size, kernel = (sizes[name] for name in ("in", "out", "size", "kernel"))
    out = (size + 2 * (kernel // 2) - kernel) // sizes["stride"] + 1
    gemm = (1, rows * out * out, c_out, c_in * kernel * kernel)
    nbytes = 4.0 * (rows * c_in * size * size + c_out * c_in * kernel**2 + rows * c_out * out * out)
    group = "pointwise" if kernel == 1 else "conv"
    return _sample(target, group, gemm, target.peak("fp32"), nbytes, seconds)  # TF32 was off


def _aiconfigurator() -> Iterator[tuple[str, list[Sample]]]:
    name = "aiconfigurator"
    products = source(name).read(require(name) / "gemm")
    for _, table in groupby(products, key=_file):
        # Rejected rows count as well: what is picked must not depend on what is read.
        rows = [None if isinstance(row, Reject) else _product(row) for row in table]
        by_dtype: dict[str, list[Sample]] = defaultdict(list)
        for place in random.Random(0).sample(range(len(rows)), min(len(rows), _PICKED_PER_FILE)):
            row = rows[place]
            if row is None or not device(row[0]).supports(row[1]):
                continue
            where, dtype, gemm, seconds = row
            target, itemsize = device(where), 1 if dtype == "fp8" else 2
            by_dtype[dtype].append(
                _gemm_sample(target, "matmul", gemm, target.peak(dtype), itemsize, seconds)
            )
        yield from by_dtype.items()


def _product(record: Record) -> tuple[str, str, tuple[int, int, int, int], float]:
    """Device, number format, sizes and time: all that has to stay in memory of a row."""
    assert record.batch is not None
    assert record.time_s is not None
    _, sizes = _shape(record.model)
    gemm = (1, record.batch, sizes["out"], sizes["in"])
    return record.device, record.options["precision"], gemm, record.time_s


def _file(row: Record | Reject) -> str:
    return row.origin.rpartition(":")[0]


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
    return Sample(columns, np.array([1]), 0.0, target, seconds)
