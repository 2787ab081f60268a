"""timm's published benchmark files as rows, and the graphs that go with them."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sources import require
from foretell.errors import ForetellError
from foretell.graph import Graph, graph_of

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
_PRECISION = {"amp": "amp-fp16", "amp_bf16": "amp-bf16", "bf16": "bf16", "fp32": "fp32"}

# timm's deprecation map points these old names at another architecture.
_WRONG_NOW = ("ig_resnext101_32x16d", "ig_resnext101_32x32d", "ig_resnext101_32x48d")


@dataclass(frozen=True)
class Row:
    """One measured step."""

    file: str
    model: str
    mode: str
    precision: str
    channels_last: bool
    compiled: bool
    torch_version: str
    device: str
    batch: int
    image_size: int
    step_time_s: float
    parameters_m: float

    @property
    def fused_attention(self) -> bool:
        """As Recipe decides it."""
        return int(self.torch_version.split(".")[0]) >= 2

    @property
    def family(self) -> str:
        """The architecture family: the name's first part without digits."""
        return re.split(r"[_\d]", self.model)[0]


def rows(select: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """All usable rows of all files, in order."""
    found = []
    for path in sorted(require("timm").glob("benchmark-*.csv")):
        found += [row for row in _rows_of(path) if select(row)]
    return found


def _rows_of(path: Path) -> Iterable[Row]:
    match = _FILE.fullmatch(path.name)
    if not match:
        return
    mode = match["mode"]
    digits = match["torch"]
    with path.open(newline="") as stream:
        for record in csv.DictReader(stream):
            if record["model"].split(".")[0] in _WRONG_NOW or not record[f"{mode}_step_time"]:
                continue
            yield Row(
                file=path.name,
                model=record["model"].split(".")[0],
                mode=mode,
                precision=_PRECISION[match["precision"]],
                channels_last=match["layout"] == "nhwc",
                compiled=bool(match["dynamo"]),
                torch_version=f"{digits[0]}.{digits[1:3] if digits[0] == '1' else digits[1]}",
                device=_DEVICE[match["device"]],
                batch=int(float(record[f"{mode}_batch_size"])),
                image_size=int(float(record[f"{mode}_img_size"])),
                step_time_s=float(record[f"{mode}_batch_size"])
                / float(record[f"{mode}_samples_per_sec"]),
                parameters_m=float(record["param_count"]),
            )


class Graphs:
    """Graphs of rows, captured once; None for models that are gone or have changed since."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Graph | None] = {}
        self.rejected: dict[str, str] = {}

    def of(self, row: Row) -> Graph | None:
        """The graph behind a row, or None with the reason kept in `rejected`."""
        key = (
            row.model,
            row.image_size,
            row.mode,
            row.precision,
            row.channels_last,
            row.fused_attention,
        )
        if key not in self._known:
            self._known[key] = self._capture(row)
        return self._known[key]

    def _capture(self, row: Row) -> Graph | None:
        try:
            graph = graph_of(
                f"timm:{row.model}",
                image_size=row.image_size,
                mode=row.mode,
                precision=row.precision,
                channels_last=row.channels_last,
                fused_attention=row.fused_attention,
            )
        except ForetellError as error:
            self.rejected[row.model] = str(error)
            return None
        ours = graph.parameters.total / 1e6
        if abs(ours - row.parameters_m) > 0.02 * row.parameters_m + 0.01:
            self.rejected[row.model] = (
                f"measured with {row.parameters_m} M parameters, has {ours:.2f} M today"
            )
            return None
        return graph
