"""What jobs tell each other that do not say: a mixture of well-known networks.

Figures are forecasts on V100s with 32 GB in mixed precision (`python -m benchmarks.typical_jobs`).
Which network a job is taken for depends on who runs what, so that what recurs stays the same; how
long it takes in all is what the log says.
"""

from __future__ import annotations

import hashlib

from foretell.schedule.readers import Row
from foretell.schedule.shape import Shape, Stage, data_parallel, pipeline

_DATA_PARALLEL = {
    "resnet50": (0.176, 102e6),
    "vgg16": (0.139, 553e6),
    "bert-large": (0.453, 1461e6),
}
"""Seconds of an iteration on one device, bytes of gradients."""
_STAGES_S, _STAGE_BYTES, _BETWEEN_BYTES = (1.991, 1.949, 1.920, 1.903), 1417e6, 537e6
"""A GPT of 1.3 billion parameters in four stages: seconds, gradients, and what a replica of a stage
sends the next in an iteration."""
_NETWORKS = (*_DATA_PARALLEL, "gpt-1.3b")


def typical_shape(row: Row) -> Shape:
    """The network that a job of a log is taken for."""
    network = _NETWORKS[_lot(row) % len(_NETWORKS)]
    if network in _DATA_PARALLEL:
        compute_s, nbytes = _DATA_PARALLEL[network]
        return data_parallel(row.devices, compute_s=compute_s, parameter_bytes=nbytes)
    stages = len(_STAGES_S)
    if row.devices % stages:
        compute_s, nbytes = _DATA_PARALLEL["bert-large"]
        return data_parallel(row.devices, compute_s=compute_s, parameter_bytes=nbytes)
    replicas = row.devices // stages
    return pipeline(
        [Stage(replicas, seconds, _STAGE_BYTES) for seconds in _STAGES_S],
        [_BETWEEN_BYTES * replicas] * (stages - 1),
    )


def _lot(row: Row) -> int:
    key = "/".join((row.user, row.group, row.name)) if row.user or row.name else row.id
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
