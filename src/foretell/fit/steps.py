"""Measured records as workloads: which of them can be used, and why others cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from foretell.api import Case, workload_of
from foretell.cluster import Device
from foretell.data import Record, Reject
from foretell.errors import ForetellError
from foretell.predictors.assemble import slowest
from foretell.workload import Workload

_OTHER_SIZE = 0.02
"""A model whose parameters differ by more from those measured is another one today."""
_ROUNDED = 1e4
_CHUNK = 4
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
        options.setdefault("cluster", record.device)
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
    return Step(record, workload, slowest(cluster))


def capture_ahead(
    records: Sequence[Record],
    workers: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Put the graphs of all records into the cache, in several processes.

    What was captured before is only looked up, so an interrupted run goes on where it stopped.
    """
    distinct = {_graph_key(r): r for r in records if r.ok and r.kind != "collective"}
    models: dict[str, list[Record]] = {}
    for record in distinct.values():
        models.setdefault(record.model, []).append(record)
    done = 0
    with multiprocessing.get_context("spawn").Pool(workers, _one_thread) as pool:
        for count in pool.imap_unordered(_capture, models.values(), chunksize=_CHUNK):
            done += count
            tell(done, len(distinct))


def _graph_key(record: Record) -> tuple[object, ...]:
    names = ("image_size", "seq", "mode", "precision", "channels_last", "recompute")
    options = record.options
    old = str(options.get("torch_version", "2")).startswith("1.")
    return (record.model, old, *(options.get(name) for name in names))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _capture(records: Sequence[Record]) -> int:
    for record in records:
        with contextlib.suppress(Exception):  # reading the step says why; others follow
            workload_of(dataclasses.replace(case_of(record), batch=1, global_batch=None))
    return len(records)
