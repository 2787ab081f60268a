"""Capture of a user's own module, which may do anything with the batch size.

A graph that scales is recorded at one large prime batch. Code with loops or branches over the
batch breaks that, so the step is also run directly at small batches: where both agree operator by
operator the graph scales, else it holds for the batch it was run at and says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
from collections.abc import Iterator

import numpy as np
import torch

from foretell.errors import CaptureError, InputError
from foretell.graph.capture import CaptureOptions, Subject, record
from foretell.graph.graph import Graph

_SMALL_BATCH = 2
_MOST_CALLS = 500_000


def capture_own(
    subject: Subject, options: CaptureOptions | None = None, *, batch: int | None = None
) -> Graph:
    """The Graph of a user's module; `batch` is the one it will be asked about, if known."""
    options = options or CaptureOptions()
    if batch is not None and batch < 1:
        raise InputError(f"batch={batch} must be at least 1")
    with contextlib.redirect_stdout(sys.stderr):
        direct: dict[int, Graph] = {}
        scaling = _scaling(subject, options, batch, direct)
        if scaling is not None:
            return scaling
        asked = batch or subject.example_batch
        if asked not in direct:
            direct[asked], _ = _record(subject, options, batch=asked, most_calls=_MOST_CALLS)
        return _for_one_batch(direct[asked])


def same_step(left: Graph, right: Graph) -> bool:
    """Whether two graphs are the same operators with the same shapes, costs and memory."""
    if left.op_name != right.op_name or not np.array_equal(left.op_phase, right.op_phase):
        return False
    for column in ("kind_flops", "kind_bytes_read", "kind_bytes_written"):
        ours, theirs = getattr(left, column)[left.op_kind], getattr(right, column)[right.op_kind]
        if not np.allclose(ours, theirs, rtol=1e-12, atol=0):
            return False
    ours, theirs = np.sort(left.storage_bytes), np.sort(right.storage_bytes)
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-12, atol=0):
        return False
    return all(
        np.array_equal(left.kinds.attrs[a], right.kinds.attrs[b])
        and left.shapes(a, outputs=False) == right.shapes(b, outputs=False)
        and left.shapes(a, outputs=True) == right.shapes(b, outputs=True)
        for a, b in set(zip(left.op_kind.tolist(), right.op_kind.tolist(), strict=True))
    )


def _scaling(
    subject: Subject, options: CaptureOptions, batch: int | None, direct: dict[int, Graph]
) -> Graph | None:
    """The graph that scales, or None where the step depends on the batch size.

    What was run directly on the way is left in `direct`.
    """
    calls = 0
    for size in dict.fromkeys((batch or _SMALL_BATCH, _SMALL_BATCH)):
        try:
            direct[size], made = _record(subject, options, batch=size, most_calls=_MOST_CALLS)
        except CaptureError:
            if size == batch:
                raise
            return None
        calls = max(calls, made)
    try:
        # The same step makes the same calls: one more, and it loops over the batch.
        scaling, _ = _record(subject, options, most_calls=calls)
    except CaptureError:
        return None
    alike = all(
        (same_step if size > 1 else _same_work)(scaling.at(size), graph)
        for size, graph in direct.items()
    )
    return scaling if alike else None


def _same_work(left: Graph, right: Graph) -> bool:
    """Equal FLOPs and nearly equal traffic: a batch of one spares PyTorch some copies."""

    def moved(graph: Graph) -> float:
        return float((graph.kind_bytes_read + graph.kind_bytes_written) @ graph.kind_counts)

    return left.flops == right.flops and abs(moved(left) - moved(right)) <= 0.1 * moved(right)


def _for_one_batch(graph: Graph) -> Graph:
    note = (
        "the model's operators depend on the batch size; this graph holds for batch "
        f"{graph.batch} only"
    )
    return dataclasses.replace(graph, meta={**graph.meta, "notes": [*graph.notes, note]})


def _record(
    subject: Subject, options: CaptureOptions, *, most_calls: int, batch: int | None = None
) -> tuple[Graph, int]:
    with _same_chance():
        return record(subject, options, batch=batch, most_calls=most_calls)


@contextlib.contextmanager
def _same_chance() -> Iterator[None]:
    """Every run draws the same random numbers; the user's generators go on as if none ran."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
