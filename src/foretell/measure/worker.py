"""One process of a crew: takes tasks from a folder, runs them with its peers, writes answers.

Started by torchrun as python -m foretell.measure.worker FOLDER. Only the first process looks for
tasks; the others are told by it. A failure that leaves peers waiting ends the process, after it has
left its reason in the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist

from foretell.errors import ForetellError, one_line
from foretell.graph.sources import subject_of
from foretell.measure.clock import backend_of, chosen_device
from foretell.measure.collectives import collective_rows
from foretell.measure.folder import OWNER, Folder
from foretell.measure.profile import operator_rows
from foretell.measure.sampler import UsageSampler
from foretell.measure.sampling import Samples, StepSampler, gathered
from foretell.measure.steps import Setup, make_step, why_not
from foretell.measure.task import Answer, Task

_PATIENCE = datetime.timedelta(hours=2)
_LOOK_AGAIN_S = 0.02
_WATCH_HZ = 50.0


def main() -> None:
    """Work until told to stop."""
    folder = Folder(Path(sys.argv[1]))
    rank = int(os.environ.get("RANK", "0"))
    device = chosen_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_flush_denormal(True)
    with _process_group(device):
        worker = Worker(device, os.environ.get("FORETELL_INTERFACE", "lo"))
        while (job := _next(folder, rank)) is not None:
            number, task = job
            answer = worker.answer(task, number, folder)
            if rank == 0:
                folder.write_answer(number, answer)


class Worker:
    """Runs tasks on this process."""

    def __init__(self, device: torch.device, interface: str) -> None:
        self.device, self.interface = device, interface
        self.alone = not dist.is_initialized() or dist.get_world_size() == 1
        self._watching: UsageSampler | None = None

    def answer(self, task: Task, number: int, folder: Folder) -> Answer:
        """What came of a task; a failure that leaves peers waiting ends the process instead."""
        started = time.monotonic()
        try:
            answer = self._run(task)
        except ForetellError as error:
            return Answer(outcome="refused", reason=one_line(error))
        except Exception as error:  # whatever a user's model does is an outcome
            answer = Answer(outcome=_outcome(error), reason=_sentence(error))
            if not self.alone:
                folder.write_failure(number, answer)
                os._exit(1)
        finally:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return dataclasses.replace(answer, spent_s=time.monotonic() - started)

    def _run(self, task: Task) -> Answer:
        if task.options.get("model", "").startswith("collective:"):
            return Answer(rows=collective_rows(task, self.device))
        case = task.case
        world = 1 if self.alone else dist.get_world_size()
        recipe, layout = case.recipe(world), case.layout(world)
        reason = why_not(recipe, layout, self.device.type)
        if reason:
            return Answer(outcome="refused", reason=reason)
        subject = subject_of(case.model, image_size=case.image_size, seq=case.seq)
        setup = Setup(subject=subject, recipe=recipe, layout=layout, device=self.device)
        step = make_step(setup)
        usage = self._usage() if task.probe else None
        mine = StepSampler(self.device, self.interface, usage).sample(step, task)
        answer = _joined(gathered(mine))
        if task.profile:
            answer = dataclasses.replace(answer, operators=operator_rows(step))
        return answer

    def _usage(self) -> UsageSampler | None:
        """The first process is watched; the others do the same at the same time."""
        if not self.alone and dist.get_rank():
            return None
        if self._watching is None:
            self._watching = UsageSampler(_WATCH_HZ)
        return self._watching


def _joined(everybody: list[Samples]) -> Answer:
    """A step takes as long as its slowest process; memory is that of the fullest."""
    steps = np.max([s.step_s for s in everybody], axis=0)
    phases = [np.median(s.phase_s, axis=0) for s in everybody if s.phase_s]
    names = {name for s in everybody for name in s.memory}
    return Answer(
        step_s=steps.tolist(),
        phase_s=np.max(phases, axis=0).tolist() if phases else [],
        reference_s=float(np.median([s.reference_s for s in everybody])),
        memory={n: max(s.memory.get(n, 0.0) for s in everybody) for n in sorted(names)},
        sent_bytes=float(np.mean([s.sent_bytes for s in everybody])),
        series=everybody[0].series,
    )


def _next(folder: Folder, rank: int) -> tuple[int, Task] | None:
    """The next task, the same on all processes; None when there will be none."""
    job: list[Any] = [None]
    if rank == 0:
        while (found := folder.next_task()) is None and not folder.stopped:
            if not psutil.pid_exists(int(os.environ[OWNER])):
                folder.remove()
            time.sleep(_LOOK_AGAIN_S)
        if found is not None:
            job = [(found[0], found[1].to_dict())]
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.broadcast_object_list(job, 0)
    return None if job[0] is None else (job[0][0], Task(**job[0][1]))


@contextlib.contextmanager
def _process_group(device: torch.device) -> Iterator[None]:
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group(backend_of(device), timeout=_PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _outcome(error: Exception) -> str:
    text = str(error).lower()
    full = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in text
    return "out-of-memory" if full else "crashed"


def _sentence(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


if __name__ == "__main__":
    main()
