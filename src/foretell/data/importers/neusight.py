"""NeuSight's single operators in fp32, and its end-to-end steps of language models.

Operators were timed forward alone, whatever the folder (train, test) says: it tells what upstream
trained its predictor on. Several tables repeat others (vec.csv and habitat.csv hold what elem.csv,
ln.csv and softmax.csv hold); a row that was read before is rejected.

A label file is one step: forward and backward with unfused attention, without an optimizer. The
table summary/distributed.csv repeats labels, rounded, beside upstream's predictions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from foretell.data.importers.hardware import known_cluster
from foretell.data.importers.operators import linear, operator_record, rowwise
from foretell.data.importers.rows import (
    BadRowError,
    Row,
    csv_file,
    each,
    file_reader,
    json_object,
    place,
    taken,
)
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject
from foretell.graph.sources.op_shape import op_reference

_OPERATORS, _LABELS, _SUMMARY = (
    "dataset*/**/*.csv",
    "label/*/*.json",
    "summary/distributed.csv",
)
_DEVICE = {
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla V100-PCIE-32GB": "v100-32gb-pcie",
    "Tesla T4": "t4",
    "NVIDIA L4": "l4",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "AMD Instinct MI100": "mi100",
    "AMD Instinct MI210": "mi210",
    "AMD Instinct MI250": "mi250",
}
_FOLDER_DEVICE = {name.replace(" ", "_"): known for name, known in _DEVICE.items()}
_OPTIONS = {"mode": "infer", "precision": "fp32"}
# Upstream's names of operators over rows of H numbers -> ours; others keep their own.
_ROWWISE = {
    "add": "add",
    "mul": "mul",
    "relu": "relu",
    "gelu": "gelu",
    "tanh": "tanh",
    "softmax": "softmax",
    "ln": "layer_norm",
}
_OTHER_ROWWISE = ("div", "pow", "addu", "mulu", "divu", "powu")
_CONV = ("Input_Channel", "Output_Channel", "Input_Size", "Kernel_Szie", "Stride")
_REPEATING = ("vec.csv", "habitat.csv")
_TOLD_APART = ("OPName", "Device", "Latency", "B", "M", "N", "K", "H", *_CONV, "Padding")

_GPT3 = "transformer:layers={},hidden={},heads={},seq=2048,vocab=50257,tied,dropout"
_MODEL = {
    "gpt2_med": "hf:openai-community/gpt2-medium",
    "gpt2_large": "hf:openai-community/gpt2-large",
    "gpt2_xl": "hf:openai-community/gpt2-xl",
    "gpt3_xl": _GPT3.format(24, 3072, 24),
    "gpt3_27": _GPT3.format(32, 2560, 32),
    "gpt3_67": _GPT3.format(32, 4096, 32),
    "gpt3_13": _GPT3.format(40, 5120, 40),
    "opt_13": "hf:facebook/opt-1.3b",
}
_LABEL = re.compile(
    r"(?P<model>[a-z0-9_]+)-(?P<mode>inf|train)-(?P<seq>\d+)-(?P<batch>\d+)"
    r"(?:-(?P<option>fusion|dp\d+|tp\d+|pp\d+_\d+))?"
)
_KIND, _BATCH = "kind of figure", "Global batch size"
_SUMMARY_MODEL = {"GPT2-Large": ("gpt2_large", 1024), "GPT3-XL": ("gpt3_xl", 2048)}
_SUMMARY_DEVICE = {"A100x4": "NVIDIA_A100-SXM4-40GB", "H100x4": "NVIDIA_H100_80GB_HBM3"}
_SUMMARY_OPTION = {"DP": "dp4", "TP": "tp4", "PP": "pp4_1"}


def read(folder: Path) -> Rows:
    """Operators, then steps."""
    seen: dict[int, str] = {}
    tables = [p for p in find(folder, _OPERATORS) if "dims" not in p.parts]
    for path in sorted(tables, key=lambda p: p.name.removesuffix(".gz") in _REPEATING):
        yield from each(csv_file(folder, path), _first, seen)
    labels = set()
    for path in find(folder, _LABELS):
        labels.add((path.parent.name, path.name.split(".")[0]))
        content = json_object(folder, path)
        if isinstance(content, Reject):
            yield content
        else:
            cells = {name: str(value) for name, value in content.items()}
            yield taken(Row(place(folder, path), cells), _label, path)
    for path in find(folder, _SUMMARY):
        yield from each(_distributed(folder, path), _cell, labels)


def _first(row: Row, seen: dict[int, str]) -> Record:
    """An operator, unless an earlier table holds the very same row."""
    key = hash(tuple(map(row.cells.get, _TOLD_APART)))
    if key in seen:
        raise BadRowError(f"repeats a row of {seen[key]}")
    record = _operator(row)
    seen[key] = row.origin.rpartition(":")[0]
    return record


def _operator(row: Row) -> Record:
    name, where = row.filled("OPName"), row.filled("Device")
    model, batch = _reference(name, row)
    return operator_record(
        model,
        _DEVICE.get(where, where),
        batch=batch,
        options=_OPTIONS,
        time_s=row.positive("Latency") / 1e3,
        source=SOURCE.name,
        origin=row.origin,
        environment=_versions(
            row.cells.get("Torch Version", ""), row.cells.get("CUDA Version", "")
        ),
    )


def _reference(name: str, row: Row) -> tuple[str, int]:
    """(model, batch): the sizes without the rows, and the rows."""
    if name == "linear":
        return linear(row.count("K"), row.count("N")), row.count("B") * row.count("M")
    if name == "bmm":
        m, n, k = (row.count(size) for size in "MNK")
        return op_reference("bmm", m=m, n=n, k=k), row.count("B")
    if name == "conv":
        return _conv(row), row.count("B")
    if name in _ROWWISE:
        return rowwise(_ROWWISE[name], row.count("H")), row.count("B")
    if name in _OTHER_ROWWISE:
        return f"{name},width={row.count('H')}", row.count("B")
    raise BadRowError("OPName is not known")


def _conv(row: Row) -> str:
    inner, outer, size, kernel, stride = (row.count(column) for column in _CONV)
    if row.number("Padding") != kernel // 2:
        raise BadRowError("a convolution whose padding is not half its kernel")
    sizes = {"in": inner, "out": outer, "size": size, "kernel": kernel, "stride": stride}
    return op_reference("conv2d", **sizes)


@cache
def _versions(torch: str, cuda: str) -> dict[str, str]:
    said = {"torch": torch.removeprefix("p"), "cuda": cuda.removeprefix("cu")}
    return {name: value for name, value in said.items() if value}


def _label(row: Row, path: Path) -> Record:
    match = _LABEL.fullmatch(path.name.split(".")[0])
    if match is None:
        raise BadRowError("the file's name does not say what was measured")
    return _step(row, path.parent.name, match.groupdict())


def _step(row: Row, where: str, said: dict[str, Any]) -> Record:
    device = _FOLDER_DEVICE.get(where, where.replace("_", " "))
    training, option = said["mode"] == "train", said["option"] or ""
    batch, options, devices = _spread(int(said["batch"]), option)
    forward_s = row.number("fw_latency") / 1e3
    model = _MODEL.get(said["model"], said["model"])
    return Record(
        model=model,
        cluster=known_cluster(device, devices),
        device=device,
        devices=devices,
        batch=batch,
        options={
            "mode": "train" if training else "infer",
            "precision": "fp32",
            "seq": int(said["seq"]),
            **({"optimizer": "none"} if training else {}),
            **options,
        },
        group=model,
        time_s=row.positive("e2e_latency") / 1e3,
        # Jobs on several devices write zeros.
        forward_s=forward_s or None,
        backward_s=row.number("bwall_latency") / 1e3 or None,
        source=SOURCE.name,
        origin=row.origin,
        environment={"attention": "eager"},
    )


def _spread(batch: int, option: str) -> tuple[int, dict[str, Any], int]:
    """Upstream's option -> batch per device and pass, options, devices."""
    if not option or option == "fusion":
        return batch, {"compile": True} if option else {}, 1
    kind, degree = option[:2], int(option[2:].split("_")[0])
    passes = {"dp": degree, "tp": 1, "pp": int(option.rpartition("_")[2]) if "_" in option else 1}
    if batch % passes[kind]:
        raise BadRowError("the batch does not divide over its passes")
    options: dict[str, Any] = {} if kind == "dp" else {kind: degree}
    return batch // passes[kind], {**options, "global_batch": batch}, degree


@file_reader
def _distributed(name: str, stream: TextIO) -> Iterator[Row]:
    """Each cell of upstream's table of four-GPU jobs, which has two lines of headings."""
    devices: list[str] = []
    options: list[str] = []
    model = ""
    reader = csv.reader(stream)
    for cells in reader:
        if not devices:
            devices = _filled(cells)
        elif not options:
            options = cells
        elif any(cells):
            model = cells[0] or model
            for column in range(3, min(len(cells), len(options), len(devices))):
                if options[column]:
                    about = {"model": model, "device": devices[column], "option": options[column]}
                    about |= {_BATCH: cells[1], _KIND: cells[2], "e2e_latency": cells[column]}
                    yield Row(f"{name}:{reader.line_num}:{column + 1}", about)


def _cell(row: Row, labels: set[tuple[str, str]]) -> Record:
    model, device, option = (row.text(name) for name in ("model", "device", "option"))
    if "Measured" not in row.text(_KIND):
        raise BadRowError("a prediction of upstream, not a measurement")
    if model not in _SUMMARY_MODEL or device not in _SUMMARY_DEVICE:
        raise BadRowError("the model or the device is not known")
    if option not in _SUMMARY_OPTION:
        raise BadRowError("the parallelism is not known")
    (own, seq), where = _SUMMARY_MODEL[model], _SUMMARY_DEVICE[device]
    said = {"model": own, "mode": "train", "seq": seq, "batch": row.count(_BATCH)}
    said["option"] = _SUMMARY_OPTION[option]
    if (where, "{model}-{mode}-{seq}-{batch}-{option}".format(**said)) in labels:
        raise BadRowError("repeats a label file")
    zeros = {"fw_latency": "0", "bwall_latency": "0"}
    return _step(Row(row.origin, {**row.cells, **zeros}), where, said)


def _filled(cells: list[str]) -> list[str]:
    """Each empty cell takes the heading left of it."""
    last, found = "", []
    for cell in cells:
        last = cell or last
        found.append(last)
    return found


SOURCE = Source(
    name="neusight",
    repository="https://github.com/sitar-lab/NeuSight",
    commit="6945927d9afcca2b9daf021f8395e53edc5b4eef",
    licence="MIT",
    use="fit",
    files=(_OPERATORS, _LABELS, _SUMMARY),
    read=read,
)
