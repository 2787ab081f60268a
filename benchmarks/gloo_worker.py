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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gloo_models import MODELS
from benchmarks.gloo_steps import distributed_step, local_step, two_processes
from benchmarks.netns import INTERFACE

HEADER_BYTES = 66
"""Ethernet 14, IPv4 20, TCP 32 (with timestamps): what every packet adds to its payload."""
_SETTLE_S = 0.02


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


def network(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Seconds of collectives by size, and the share of a core they take."""
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
            busy_s, seconds = time.process_time(), []
            for _ in range(repeats):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            busy = (time.process_time() - busy_s) / sum(seconds)
            ways = 2 if name == "send_recv" else 1
            rows.append(
                {"collective": name, "nbytes": nbytes, "core_share": busy}
                | {"seconds": sorted(seconds)[len(seconds) // 2] / ways}
            )
    return rows


def _there_and_back(tensor: torch.Tensor) -> None:
    turns = (dist.send, dist.recv) if dist.get_rank() == 0 else (dist.recv, dist.send)
    for turn in turns:
        turn(tensor, 1 - dist.get_rank())


class Case:
    """A model made ready to be stepped alone and together."""

    def __init__(
        self, model: str, strategy: str, splits: dict[str, str], first_of_second: str
    ) -> None:
        chosen = next(m for m in MODELS if m.name == model)
        self.alone = local_step(chosen)
        self.together = distributed_step(chosen, strategy, splits, first_of_second)
        for _ in range(2):  # the second has what the first made: optimizer state, bucket order
            self.alone()
            self.together()

    def measure(self, repeats: int, warm: int) -> dict[str, Any]:
        """Steps alone and together in turns: their seconds, and the payload this process sent."""
        local, seconds, sent = [], [], []
        for turn in range(warm + repeats):
            dist.barrier()
            local_s = self.alone()
            dist.barrier()
            time.sleep(_SETTLE_S)
            before = _payload_bytes()
            start = time.perf_counter()
            self.together()
            step_s = time.perf_counter() - start
            time.sleep(_SETTLE_S)
            if turn >= warm:
                local.append(local_s)
                seconds.append(step_s)
                sent.append(_payload_bytes() - before)
        return {"local_s": local, "step_s": seconds, "sent_bytes": sent}


def _payload_bytes() -> int:
    """What this host has sent so far, without headers."""
    counters = Path("/sys/class/net", INTERFACE, "statistics")
    nbytes, packets = (int((counters / n).read_text()) for n in ("tx_bytes", "tx_packets"))
    return nbytes - HEADER_BYTES * packets


if __name__ == "__main__":
    main()
