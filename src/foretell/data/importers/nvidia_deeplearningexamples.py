"""NVIDIA's example trainings: the throughput tables of their README files.

Reads readme_tables.jsonl, one line per row of a table with its file and headings. A row becomes a
record for every throughput it holds if row and heading tell unit, batch, GPUs, device and
precision. Models keep the name of their folder: most are written for other frameworks, and heads,
losses or inputs of the rest differ from the references. Three networks of convolutions are timm's
under another name; their tables leave out the batch, which PyTorch/Classification/ConvNets/
configs.yml of the same repository states, with the order of tensors and the optimizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import known_cluster, single_precision
from foretell.data.importers.rows import LINE, BadRowError, Row, lines, taken
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject

_DEVICE = {
    ("A100", "80"): "a100-80gb",
    ("A100", "40"): "a100-40gb",
    ("V100", "32"): "v100-32gb",
    ("V100", "16"): "v100-16gb",
}
_SYSTEM = re.compile(r"(?P<gpus>\d+)\s*x\s*(?P<name>A100|V100)\s*(?P<memory>\d+)\s*GB?\b", re.I)
_UNIT = re.compile(
    r"\b(?P<what>imgs?|images|seq|sequences|samples|mol|tok|tokens|mels)\s*/\s*"
    r"(?P<per>ms|s|sec|second)\b",
    re.I,
)
_SAMPLES = ("img", "imgs", "images", "seq", "sequences", "samples", "mol")
_NUMBER = re.compile(r"(?P<digits>\d[\d ,]*(?:\.\d+)?)\s*(?P<scale>[kM]?)\b")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}
_MENTION = re.compile(r"mixed precision|\b(?:TF32|FP32|AMP|FP16|BF16|TF)\b", re.I)
_PRECISION = {
    "tf32": "tf32",
    "tf": "tf32",
    "fp32": "fp32",
    "mixed precision": "amp-fp16",
    "amp": "amp-fp16",
    "fp16": "amp-fp16",
}
_CONVNETS = "PyTorch/Classification/ConvNets/"
_SAME_AS = {
    "resnet50v1.5": "timm:resnet50",
    "resnext101-32x4d": "timm:resnext101_32x4d",
    "se-resnext101-32x4d": "timm:seresnext101_32x4d",
}
_CONVNET_BATCH = {
    ("resnet50v1.5", "v100"): {"amp-fp16": 256, "fp32": 112},
    ("resnet50v1.5", "a100"): {"amp-fp16": 256, "tf32": 256},
    ("resnext101-32x4d", "v100"): {"amp-fp16": 128, "fp32": 64},
    ("resnext101-32x4d", "a100"): {"amp-fp16": 128, "tf32": 128},
    ("se-resnext101-32x4d", "v100"): {"amp-fp16": 112, "fp32": 64},
    ("se-resnext101-32x4d", "a100"): {"amp-fp16": 128, "tf32": 128},
}
_CONVNET_TORCH = "1.9"
"""Of the container that their Dockerfile names."""
_NO_THROUGHPUT = ("speedup", "speed-up", "scaling", "time", "ratio", "asp", "qat", "overhead")


def read(folder: Path) -> Rows:
    """All rows of all tables."""
    for path in find(folder, *SOURCE.files):
        for line in lines(folder, path):
            parsed = taken(line, _parsed)
            if isinstance(parsed, Reject):
                yield parsed
            else:
                row, columns, about = parsed
                for column in columns:
                    origin = f"{row.origin}:{column}" if len(columns) > 1 else row.origin
                    yield taken(Row(origin, row.cells), _record, column, about)


def _parsed(line: Row) -> tuple[Row, list[str], dict[str, str]]:
    """The row of a table that a line holds, its throughputs, and what is told above the table."""
    try:
        content = json.loads(line.text(LINE))
        file, section = str(content["file"]), str(content["section"])
        cells = {_plain(name): _plain(value) for name, value in content["row"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadRowError("the line is not a row of a table") from None
    last = section.lower().rpartition(" > ")[2]
    if "training performance" not in section.lower() or re.search("inference|evaluation", last):
        raise BadRowError("not under a heading of training performance")
    columns = [name for name in cells if _throughput(name, cells[name])]
    if not columns:
        raise BadRowError("no throughput whose unit is told")
    about = {"model": file.rpartition("/")[0], "section": section}
    return Row(line.origin, cells), columns, about


def _plain(value: Any) -> str:
    """Without the marks of Markdown and HTML."""
    return " ".join(re.sub(r"\*\*|<br\s*/?>", " ", str(value)).split())


def _throughput(name: str, value: str) -> bool:
    if any(word in name.lower() for word in _NO_THROUGHPUT):
        return False
    return bool(_UNIT.search(name) or _UNIT.search(value))


def _record(row: Row, column: str, about: Mapping[str, str]) -> Record:
    cells = row.cells
    per_s = _per_second(column, cells[column])
    system = list(_SYSTEM.finditer(about["section"]))
    if not system:
        raise BadRowError("the device is not told")
    device = _DEVICE.get((system[-1]["name"].upper(), system[-1]["memory"]))
    if device is None:
        raise BadRowError("the device is not known")
    nodes, gpus = _gpus(cells, int(system[-1]["gpus"]))
    label = _label(column)
    precision = single_precision(device) if label == "fp32" else label
    convnet = about["model"].removeprefix(_CONVNETS)
    known = _CONVNET_BATCH.get((convnet, device.partition("-")[0]), {})
    batch, passes = (known[precision], 1) if precision in known else _batch(cells, label)
    global_batch = batch * passes * gpus
    seq = _one_number(cells, "sequence length")
    return Record(
        model=_SAME_AS[convnet] if known else about["model"],
        cluster=known_cluster(device, gpus // nodes, nodes),
        device=device,
        devices=gpus,
        nodes=nodes,
        batch=batch,
        options={
            "mode": "train",
            "precision": precision,
            **({"seq": seq} if seq else {}),
            **({"global_batch": global_batch} if passes > 1 else {}),
            **(_convnet_options(precision) if known else {}),
        },
        group=about["model"],
        time_s=global_batch / per_s,
        metrics={"throughput_per_s": per_s},
        source=SOURCE.name,
        origin=row.origin,
        environment={"table": about["section"], **_distinctions(cells)},
    )


def _convnet_options(precision: str) -> dict[str, Any]:
    found = {"image_size": 224, "optimizer": "momentum", "torch_version": _CONVNET_TORCH}
    return {**found, "channels_last": True} if precision == "amp-fp16" else found


def _per_second(column: str, value: str) -> float:
    unit = _UNIT.search(column) or _UNIT.search(value)
    if unit is None or unit["what"].lower() not in _SAMPLES:
        raise BadRowError("throughput does not count samples")
    found = _NUMBER.match(value)
    if found is None:
        raise BadRowError("throughput is empty")
    digits = float(re.sub("[ ,]", "", found["digits"]))
    if digits <= 0:
        raise BadRowError("throughput is not above zero")
    return digits * _SCALE[found["scale"]] * (1e3 if unit["per"].lower() == "ms" else 1.0)


def _label(column: str) -> str:
    """The precision a column is about, as it is written."""
    named = [match[0].lower() for match in _MENTION.finditer(column)]
    if len(named) != 1 or named[0] not in _PRECISION:
        raise BadRowError("precision is not told")
    return _PRECISION[named[0]]


def _gpus(cells: Mapping[str, str], per_node: int) -> tuple[int, int]:
    """(nodes, GPUs in all)."""
    nodes = _one_number(cells, "nodes", "num nodes")
    gpus = _one_number(cells, "gpus", "number of gpus")
    if nodes and not gpus:
        return nodes, nodes * (_one_number(cells, "gpus / node") or per_node)
    if not gpus:
        raise BadRowError("the number of GPUs is not told")
    return 1 if gpus <= per_node else gpus // per_node, gpus


def _batch(cells: Mapping[str, str], precision: str) -> tuple[int, int]:
    """(batch of one GPU and pass, passes per step) at a precision."""
    found = [n for n in cells if re.match(r"batch size( / gpu| per gpu)", n.lower())]
    if not found:
        raise BadRowError("the batch of one GPU is not told")
    batch = _at(found[0], cells[found[0]], precision)
    accumulation = [n for n in cells if re.search("accumulation", n.lower())]
    if not accumulation:
        return batch, 1
    passes = _at(accumulation[0], cells[accumulation[0]], precision)
    if passes < 1:
        raise BadRowError("gradients accumulate over no pass")
    accumulated = any(n.lower().startswith("accumulated batch") for n in cells)
    if accumulated or batch < passes or batch % passes:
        return batch, passes
    return batch // passes, passes  # the batch of all passes stands in the column


def _at(name: str, value: str, precision: str) -> int:
    """The number that goes with a precision, of '64', '128 and 256' or '64 (FP32) / 96 (AMP)'."""
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", _bare(value))]
    if len(numbers) == 1:
        return numbers[0]
    labels = _MENTION.findall(value) or _MENTION.findall(name)
    named = [_PRECISION.get(label.lower()) for label in labels]
    if len(numbers) != 2 or len(named) != 2 or precision not in named:
        raise BadRowError("the batch of one GPU is not told")
    return numbers[named.index(precision)]


def _bare(value: str) -> str:
    """Without labels of precision; '4,2' is two numbers, '131,072' one."""
    return re.sub(r",(?!\d{3}\b)", " ", _MENTION.sub(" ", value))


def _one_number(cells: Mapping[str, str], *names: str) -> int | None:
    for name, value in cells.items():
        if name.lower() in names and value.isdigit() and int(value) > 0:
            return int(value)
    return None


def _distinctions(cells: Mapping[str, str]) -> dict[str, str]:
    """Which of several variants of the model a row is about."""
    names = ("model", "model size", "dimension", "dataset", "xla")
    return {name.lower(): value for name, value in cells.items() if name.lower() in names}


SOURCE = Source(
    name="nvidia_deeplearningexamples",
    repository="https://github.com/NVIDIA/DeepLearningExamples",
    commit="729963dd47e7c8bd462ad10bfac7a7b0b604e6dd",
    licence="per folder, mostly Apache-2.0 and BSD",
    use="fit",
    files=("readme_tables.jsonl",),
    read=read,
)
