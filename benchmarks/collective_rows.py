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

import csv
import gzip
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchmarks.sources import require
from foretell.cluster import device, link, node_group
from foretell.comm import Collective, Group

_AIC_DEVICE = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "l40s": "l40s",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
_AIC_KIND = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
}
_ITEMSIZE = {"half": 2, "int8": 1}
# Folder -> device, link inside the node, devices per node.
_VIDUR = {
    "a100_dgx": ("a100-80gb", "nvlink3", 8),
    "a100_pairwise_nvlink": ("a100-80gb-pcie", "nvlink3", 4),
    "h100_dgx": ("h100-sxm", "nvlink4", 8),
    "h100_pairwise_nvlink": ("h100-nvl", "nvlink4-bridge", 4),
}
_VTRAIN_DEVICE = {"a100": "a100-80gb", "v100": "v100-16gb"}
_SHORTEST_VIDUR_BYTES = 4 * 2**20
_RATIO = 1.25


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
    import pyarrow.parquet as pq

    for path in sorted((require("aiconfigurator") / "nccl").glob("*.parquet")):
        system, version = path.name.removesuffix("_nccl_perf.parquet").split("_comm_")[:2]
        if system not in _AIC_DEVICE:
            continue
        columns = pq.read_table(path).to_pydict()
        repeats: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
        names = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
        for op, dtype, ranks, elements, latency_ms in zip(*map(columns.get, names), strict=True):
            repeats[op, dtype, ranks, elements].append(latency_ms / 1e3)
        for (op, dtype, ranks, elements), seconds in repeats.items():
            yield Row(
                source=f"aiconfigurator {version}",
                system=_AIC_DEVICE[system],
                kind=_AIC_KIND[op],
                group=_group(_AIC_DEVICE[system], ranks, ranks),
                nbytes=elements * _ITEMSIZE[dtype],
                measured_s=statistics.median(seconds),
                in_switch=dtype == "half",
            )


def _vidur() -> Iterator[Row]:
    base = require("vidur") / "network"
    for folder, (name, gpu_link, gpus) in _VIDUR.items():
        for kind in (Collective.ALL_REDUCE, Collective.SEND_RECV):
            if kind is Collective.SEND_RECV and folder == "h100_pairwise_nvlink":
                continue
            by_shape: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
            with gzip.open(base / folder / f"{kind.value}.csv.gz", "rt", newline="") as stream:
                for record in csv.DictReader(stream):
                    shape = int(record["num_workers"]), int(record["devices_per_node"])
                    median_ms = float(record[f"time_stats.{kind.value}.median"])
                    by_shape[shape][int(record["size"])] = median_ms / 1e3
            for (ranks, per_node), table in by_shape.items():
                known_network = folder == "h100_dgx" and kind is Collective.SEND_RECV
                if ranks > per_node and not known_network:
                    continue
                group = _group(name, ranks, per_node, gpu_link, gpus)
                shortest = _SHORTEST_VIDUR_BYTES if kind is Collective.ALL_REDUCE else 0
                for nbytes in _thinned(size for size in table if size >= shortest):
                    yield Row(f"vidur {folder}", name, kind, group, nbytes, table[nbytes])


def _vtrain() -> Iterator[Row]:
    for path in sorted((require("vtrain") / "allreduce_lut").glob("*.csv.gz")):
        name, _, ranks = path.name.split("_")[:3]
        system = _VTRAIN_DEVICE[name]
        group = _group(system, int(ranks[3:]), int(ranks[3:]))
        with gzip.open(path, "rt", newline="") as stream:
            table = {int(r[0]): int(r[3]) / 1e9 for r in list(csv.reader(stream))[1:]}
        for nbytes in _thinned(table):
            yield Row("vtrain", system, Collective.ALL_REDUCE, group, nbytes, table[nbytes])


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
