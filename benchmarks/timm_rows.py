"""timm's published benchmark files as rows, and the graphs that go with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sources import measured
from foretell.data import Record
from foretell.errors import ForetellError
from foretell.graph import Graph, graph_of


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
    """All usable rows of all files whose names tell the version of PyTorch, in order."""
    found = (_row(record) for record in measured("timm") if "torch_version" in record.options)
    return [row for row in found if select(row)]


def _row(record: Record) -> Row:
    assert record.batch is not None
    assert record.time_s is not None
    options = record.options
    return Row(
        file=Path(record.origin.rpartition(":")[0]).name,
        model=record.group,
        mode=options["mode"],
        precision=options["precision"],
        channels_last=options.get("channels_last", False),
        compiled=options.get("compile", False),
        torch_version=options["torch_version"],
        device=record.device,
        batch=record.batch,
        image_size=options["image_size"],
        step_time_s=record.time_s,
        parameters_m=record.metrics["parameters"] / 1e6,
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
