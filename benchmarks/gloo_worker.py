"""One of two processes that train together: reads jobs as JSON lines, answers with what it saw.

python -m benchmarks.gloo_worker RANK MEETING_FILE
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gloo_models import MODELS, PIPELINES
from benchmarks.gloo_steps import distributed_step, local_step, two_processes
from foretell.measure.clock import sent_bytes
from foretell.measure.namespaces import INTERFACE

_SETTLE_S = 0.03
_BURST_WIDTH = 512
_COPY_BYTES = 2**22


def main() -> None:
    """Work until the input ends."""
    rank, meeting_file = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no answer
    jobs = _jobs()
    with two_processes(rank, meeting_file):
        case: Case | None = None
        while (job := jobs.get()) is not None:
            kind = job.pop("kind")
            answer: Any = None
            if kind == "network":
                answer = network(**job)
            elif kind == "prepare":
                case = Case(**job)
            elif case is not None:
                answer = case.measure(**job)
            print(json.dumps(answer), file=answers, flush=True)


def _jobs() -> queue.Queue[dict[str, Any] | None]:
    """Jobs as they come; a parent that is gone ends this process, wherever it waits."""
    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            job = json.loads(line)
            jobs.put(job)
            if job is None:
                return
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return jobs


def network(sizes: list[int], repeats: int) -> dict[str, Any]:
    """Seconds that collectives add to compute, by size, and the share of a core they take.

    Compute comes before every collective, as in a step: the other process may be late, and
    threads that waited have to be woken.
    """
    factor = torch.full((_BURST_WIDTH, _BURST_WIDTH), 0.01)
    rows = []
    for nbytes in sizes:
        whole, half = torch.zeros(nbytes // 4), torch.zeros(nbytes // 8)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda w=whole: dist.all_reduce(w),
            "all_gather": lambda w=whole, h=half: dist.all_gather_into_tensor(w, h),
            "reduce_scatter": lambda w=whole, h=half: dist.reduce_scatter_tensor(h, w),
            "send_recv": lambda w=whole: _there_and_back(w),
        }
        for name, call in calls.items():
            call()
            dist.barrier()
            busy_s = spent_s = compute_s = 0.0
            for _ in range(repeats):
                start = time.perf_counter()
                torch.mm(factor, factor)
                between, busy = time.perf_counter(), time.process_time()
                call()
                spent_s += time.perf_counter() - start
                compute_s += between - start
                busy_s += time.process_time() - busy
            ways = 2 if name == "send_recv" else 1
            seconds = (spent_s - compute_s) / repeats / ways
            row = {"collective": name, "nbytes": nbytes, "seconds": seconds}
            rows.append(row | {"core_share": busy_s / (spent_s - compute_s)})
    return {"rows": rows, "copy_bytes_per_s": _copy_rate(repeats)}


def _copy_rate(repeats: int) -> float:
    """Bytes per second from one buffer to another."""
    source, target = torch.zeros(_COPY_BYTES // 4), torch.zeros(_COPY_BYTES // 4)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - start)
    return _COPY_BYTES / sorted(seconds)[len(seconds) // 2]


def _there_and_back(tensor: torch.Tensor) -> None:
    turns = (dist.send, dist.recv) if dist.get_rank() == 0 else (dist.recv, dist.send)
    for turn in turns:
        turn(tensor, 1 - dist.get_rank())


class Case:
    """A model made ready to be stepped alone and together."""

    def __init__(self, model: str, strategy: str, splits: dict[str, str]) -> None:
        chosen = next(m for m in MODELS if m.name == model)
        self.alone = local_step(chosen)
        self.wrapped = local_step(chosen, splits) if strategy == "tp" else None
        self.in_turns = strategy in PIPELINES
        self.together = distributed_step(chosen, strategy)
        for _ in range(2):  # the second has what the first made: optimizer state, bucket order
            self.alone()
            self.together()
            if self.wrapped:
                self.wrapped()

    def measure(self, repeats: int, warm: int) -> dict[str, Any]:
        """Steps alone and together by turns: their seconds, and the payload this process sent.

        "solo" are steps while the other process rests, as pipeline stages do at both ends;
        "wrapped" are steps alone through the classes of the strategy.
        """
        local, solo, wrapped, seconds, sent = [], [], [], [], []
        for turn in range(warm + repeats):
            dist.barrier()
            local_s = self.alone()
            dist.barrier()
            solo_s = self._solo() if self.in_turns else local_s
            wrapped_s = self.wrapped() if self.wrapped else local_s
            before = _payload_bytes()
            start = time.perf_counter()
            self.together()
            step_s = time.perf_counter() - start
            after = _payload_bytes()
            if turn >= warm:
                local.append(local_s)
                solo.append(solo_s)
                wrapped.append(wrapped_s)
                seconds.append(step_s)
                sent.append(after - before)
        times = {"local_s": local, "solo_s": solo, "wrapped_s": wrapped, "step_s": seconds}
        return {**times, "sent_bytes": sent}

    def _solo(self) -> tuple[float, float, float]:
        mine = (0.0, 0.0, 0.0)
        for rank in range(2):
            if rank == dist.get_rank():
                mine = self.alone()
            dist.barrier()
        return mine


def _payload_bytes() -> int:
    """What this host has sent so far, without headers, once nothing is on its way any more."""
    before = -1
    while (payload := sent_bytes(INTERFACE)) != before:
        before = payload
        time.sleep(_SETTLE_S)
    return payload


if __name__ == "__main__":
    main()
