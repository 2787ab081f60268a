"""timm's benchmark tables: training and inference steps of vision models on single devices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import known_cluster
from foretell.data.importers.rows import BadRowError, Row, csv_file, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record

_DEVICE = {
    "rtx3090": "rtx3090",
    "rtx4090": "rtx4090",
    "4090": "rtx4090",
    "5090": "rtx5090",
    "pro6000maxq": "rtx-pro-6000-maxq",
    "i9_10940x": "i9-10940x",
    "i7_12700h": "i7-12700h",
}
_FILE = re.compile(
    r"benchmark-(?P<mode>train|infer)-(?P<precision>[a-z0-9_]+)-(?P<layout>nchw|nhwc)-"
    r"pt(?P<torch>\d+)-(?:cu\d+|cpu)-(?P<device>[a-z0-9_]+?)(?P<dynamo>-dynamo)?\.csv"
)
# Before the names told the version of PyTorch, only inference was published.
_OLD_FILE = re.compile(
    r"model_benchmark_(?P<precision>amp)_(?P<layout>nchw|nhwc)_(?P<device>[a-z0-9]+)\.csv"
)
_PRECISION = {"amp": "amp-fp16", "amp_bf16": "amp-bf16", "bf16": "bf16", "fp32": "fp32"}
# timm's deprecation map points these old names at another architecture.
_WRONG_NOW = ("ig_resnext101_32x16d", "ig_resnext101_32x32d", "ig_resnext101_32x48d")


def read(folder: Path) -> Rows:
    """All rows of all tables, file by file."""
    for path in find(folder, *SOURCE.files):
        about = _about(path.name.removesuffix(".gz"))
        yield from each(csv_file(folder, path), _record, about)


def _about(name: str) -> dict[str, Any]:
    """What the name of a file says; empty when it says nothing."""
    match = _FILE.fullmatch(name) or _OLD_FILE.fullmatch(name)
    if match is None or match["precision"] not in _PRECISION:
        return {}
    said = match.groupdict()
    device = said["device"]
    options = {"mode": said.get("mode") or "infer", "precision": _PRECISION[said["precision"]]}
    return {
        "device": _DEVICE.get(device, device),
        "options": options
        | ({"channels_last": True} if said["layout"] == "nhwc" else {})
        | ({"compile": True} if said.get("dynamo") else {})
        | ({"torch_version": _release(said["torch"])} if said.get("torch") else {})
        | ({"optimizer": "momentum"} if options["mode"] == "train" else {}),
    }


def _release(digits: str) -> str:
    """'112' -> '1.12', '291' -> '2.9'."""
    return f"{digits[0]}.{digits[1:3] if digits[0] == '1' else digits[1]}"


def _record(row: Row, about: dict[str, Any]) -> Record:
    if not about:
        raise BadRowError("the file's name does not say how it was measured")
    mode = about["options"]["mode"]
    name = row.filled("model")
    # The tag names the weights, which do not matter for time.
    model = name.split(".")[0]
    if model in _WRONG_NOW:
        raise BadRowError("the name stands for another architecture in timm today")
    row.positive(f"{mode}_step_time")
    batch = row.count(f"{mode}_batch_size")
    return Record(
        model=f"timm:{model}",
        cluster=known_cluster(about["device"]),
        device=about["device"],
        batch=batch,
        options={**about["options"], "image_size": row.count(f"{mode}_img_size")},
        group=model,
        time_s=batch / row.positive(f"{mode}_samples_per_sec"),
        metrics={
            # In millions with two digits: who uses the row can see that a model changed since.
            "parameters": float(round(row.positive("param_count") * 1e6)),
            **row.optional(gmacs=f"{mode}_gmacs", macts=f"{mode}_macts"),
        },
        source=SOURCE.name,
        origin=row.origin,
        environment={"name": name} if name != model else {},
    )


SOURCE = Source(
    name="timm",
    repository="https://github.com/huggingface/pytorch-image-models",
    commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
    licence="Apache-2.0",
    use="fit",
    files=("benchmark-train-*.csv", "benchmark-infer-*.csv", "model_benchmark_*.csv"),
    read=read,
)
