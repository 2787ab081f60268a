"""Measured records as workloads: which of them can be used, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foretell.api import Case, workload_of
from foretell.cluster import Device
from foretell.data import Record, Reject
from foretell.errors import ForetellError
from foretell.fit.own import described
from foretell.predictors.assemble import slowest
from foretell.workload import Workload

_OTHER_SIZE = 0.02
"""A model whose parameters differ by more from those measured is another one today."""
_ROUNDED = 1e4
_IN_PLACE_NORM = "tresnet"
"""Families measured with a fused in-place batch norm, which timm gave up before PyTorch 2."""


@dataclass(frozen=True, eq=False)
class Step:
    """A measured step or operator, and what ran."""

    record: Record
    workload: Workload
    device: Device

    @property
    def time_s(self) -> float:
        """What was measured."""
        assert self.record.time_s is not None
        return self.record.time_s


def case_of(record: Record) -> Case:
    """What a record measured, as a case; timm trains with momentum."""
    options = record.case_options()
    if record.device and record.devices == 1:
        told = described(record)
        options.setdefault("cluster", record.device if told is None else told.vendor)
    if record.source == "timm" and options.get("mode") == "train":
        options.setdefault("optimizer", "momentum")
    return Case.from_mapping(options)


def steps_of(records: Iterable[Record]) -> Iterator[Step | Reject]:
    """Every record with a time, as a step or as the reason why not.

    Records of one model should follow each other: its graph is then read once.
    """
    for record in records:
        if record.ok and record.time_s is not None and record.kind != "collective":
            try:
                yield _step(record)
            except ForetellError as error:
                yield Reject(record.origin, str(error))


def _step(record: Record) -> Step:
    old = str(record.options.get("torch_version", "")).startswith("1.")
    if old and record.source == "timm" and record.group.startswith(_IN_PLACE_NORM):
        raise ForetellError(f"{record.model} was measured with a batch norm that timm gave up")
    workload, cluster = workload_of(case_of(record))
    measured = record.metrics.get("parameters")
    if measured is not None:
        found = workload.graph.parameters.total
        if abs(found - measured) > _OTHER_SIZE * measured + _ROUNDED:
            raise ForetellError(
                f"{record.model} was measured with {measured / 1e6:g} M parameters and has "
                f"{found / 1e6:.2f} M today"
            )
    return Step(record, workload, described(record) or slowest(cluster))


def one_thread() -> None:
    """For worker processes: the cores are dealt out already."""
    import torch

    torch.set_num_threads(1)
