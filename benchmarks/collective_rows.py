"""Measured collectives of AIConfigurator, Vidur and vTrain as rows, and why some are left out.

Left out:
- Intel B60 (AIConfigurator): oneCCL on a device the catalogue does not have.
- Vidur's send_recv of H100 pairs: byte for byte the file of the A100 pairs.
- Vidur's send_recv of A40 pairs: named after a bridge of 56 GB/s, it reaches 4 GB/s; which way
  the bytes went is not told.
- Vidur between nodes except send_recv of the H100 DGX: the network is not named. The A100 DGX
  reaches 8 GB/s where its usual network has 25, and its all-reduce is slower with 16 ranks than
  with 8; the A100 pairs fall from 6.7 to 1.1 GB/s as messages grow.
- Vidur's all-reduce below 4 MiB: neighbouring sizes jump between 7 and 66 us, which is the host's
  launch and not the link.
Vidur and vTrain measured about a thousand sizes in equal steps; rows are thinned to sizes in equal
ratios, or large messages would outvote all others. AIConfigurator's files are labelled by their
names, though a column inside often tells another NCCL version (2.29.2).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from benchmarks.sources import measured
from foretell.cluster import device, devices, link, node_group
from foretell.comm import Collective, Group
from foretell.data import Record

# System -> device, link inside the node, devices per node.
_VIDUR = {
    "a100_dgx": ("a100-80gb", "nvlink3", 8),
    "a100_pairwise_nvlink": ("a100-80gb-pcie", "nvlink3", 4),
    "h100_dgx": ("h100-sxm", "nvlink4", 8),
    "h100_pairwise_nvlink": ("h100-nvl", "nvlink4-bridge", 4),
}
_SHORTEST_VIDUR_BYTES = 4 * 2**20
_RATIO = 1.25
_Key = tuple[str, str, str, str, int, int]


@dataclass(frozen=True)
class Row:
    """One measured collective."""

    source: str
    system: str
    kind: Collective
    group: Group
    nbytes: float
    measured_s: float
    in_switch: bool = True


def rows() -> list[Row]:
    """Everything there is to fit and judge."""
    return [*_aiconfigurator(), *_vidur(), *_vtrain()]


def _aiconfigurator() -> Iterator[Row]:
    records = measured("aiconfigurator", "nccl")
    for _, table in groupby(records, key=lambda r: r.origin.rpartition(":")[0]):
        repeats: dict[_Key, list[float]] = defaultdict(list)
        for record in table:
            if record.device not in devices():
                continue
            label = "{library}_{version}".format(**record.environment)
            nbytes, dtype = record.options["nbytes"], record.options["dtype"]
            key = (label, record.device, record.model, dtype, record.devices, nbytes)
            repeats[key].append(_seconds(record))
        for (label, name, model, dtype, ranks, nbytes), seconds in repeats.items():
            yield Row(
                source=f"aiconfigurator {label}",
                system=name,
                kind=_kind(model),
                group=_group(name, ranks, ranks),
                nbytes=nbytes,
                measured_s=statistics.median(seconds),
                in_switch=dtype == "fp16",
            )


def _vidur() -> Iterator[Row]:
    records = measured("vidur", "network")
    for (folder, model), table in groupby(
        records, key=lambda r: (r.environment["system"], r.model)
    ):
        if folder not in _VIDUR:
            continue
        name, gpu_link, gpus = _VIDUR[folder]
        kind = _kind(model)
        by_shape: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        for record in table:
            shape = record.devices, record.devices // record.nodes
            by_shape[shape][record.options["nbytes"]] = _seconds(record)
        for (ranks, per_node), times in by_shape.items():
            known_network = folder == "h100_dgx" and kind is Collective.SEND_RECV
            if ranks > per_node and not known_network:
                continue
            group = _group(name, ranks, per_node, gpu_link, gpus)
            shortest = _SHORTEST_VIDUR_BYTES if kind is Collective.ALL_REDUCE else 0
            for nbytes in _thinned(size for size in times if size >= shortest):
                yield Row(f"vidur {folder}", name, kind, group, nbytes, times[nbytes])


def _vtrain() -> Iterator[Row]:
    records = measured("vtrain", "allreduce_lut")
    for (name, ranks, model), table in groupby(
        records, key=lambda r: (r.device, r.devices, r.model)
    ):
        times = {record.options["nbytes"]: _seconds(record) for record in table}
        group = _group(name, ranks, ranks)
        for nbytes in _thinned(times):
            yield Row("vtrain", name, _kind(model), group, nbytes, times[nbytes])


def _kind(model: str) -> Collective:
    return Collective(model.removeprefix("collective:"))


def _seconds(record: Record) -> float:
    assert record.time_s is not None
    return record.time_s


def _group(
    name: str, ranks: int, per_node: int, gpu_link: str | None = None, gpus: int = 8
) -> Group:
    where = device(name)
    if name == "a100-80gb-pcie" and per_node > 2:
        gpu_link = where.host_link  # the bridges join pairs, four meet over PCIe
    nodes = node_group(
        where,
        count=ranks // per_node,
        gpus_per_node=gpus,
        gpu_link=link(gpu_link) if gpu_link else None,
    )
    return Group(ranks, per_node, nodes)


def _thinned(sizes: Iterable[int]) -> Iterator[int]:
    last = 0.0
    for size in sorted(sizes):
        if size >= last * _RATIO:
            last = size
            yield size
