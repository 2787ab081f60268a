"""Times of collectives by size, each after a piece of work, as in a training step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from foretell.errors import CannotError
from foretell.measure.clock import Reference, now_s
from foretell.measure.task import Task

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
SIZES_BYTES = tuple(2**power for power in range(12, 27, 2))
_FEWEST, _MOST = 5, 50
_PATIENCE, _LEAST = 4, 2
"""Over slow links, so few are enough once so many times the share of the time is spent."""


def collective_rows(task: Task, device: torch.device) -> list[dict[str, Any]]:
    """Median seconds of every size of the collective that a task names."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        raise CannotError("collectives need at least two processes: give --nproc 2")
    name = str(task.options["model"]).partition(":")[2]
    reference, rows = Reference(device), []
    for nbytes in task.options["sizes"]:
        call = _call(name, int(nbytes), device)
        call()
        started = time.monotonic()
        seconds: list[float] = []
        while len(seconds) < _MOST:
            reference.seconds()
            start = now_s(device)
            call()
            seconds.append(now_s(device) - start)
            spent = (time.monotonic() - started) / (task.seconds / len(task.options["sizes"]))
            enough = spent > 1 and len(seconds) >= (_FEWEST if spent < _PATIENCE else _LEAST)
            stop = torch.tensor([int(enough)], device=device)
            dist.broadcast(stop, 0)
            if stop.item():
                break
        rows.append({"nbytes": int(nbytes), "seconds": _slowest(seconds)})
    return rows


def _slowest(mine: list[float]) -> list[float]:
    """Per repetition the time of the process that waited least: the others wait for it to come."""
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    return [min(times) for times in zip(*everybody, strict=True)]


def _call(name: str, nbytes: int, device: torch.device) -> Callable[[], Any]:
    """One collective whose full buffer has `nbytes` bytes of fp32."""
    world, rank = dist.get_world_size(), dist.get_rank()
    part = max(1, nbytes // 4 // world)
    whole = torch.zeros(part * world, device=device)
    mine = torch.zeros(part, device=device)
    other = torch.zeros_like(whole)

    def send_recv() -> None:
        if rank > 1:
            return
        turns = (dist.send, dist.recv) if rank == 0 else (dist.recv, dist.send)
        for turn in turns:
            turn(whole, 1 - rank)

    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, mine),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(mine, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "send_recv": send_recv,
    }
    return calls[name]
