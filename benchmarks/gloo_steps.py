"""Real training steps of a model: alone on one process, and spread over two with gloo."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gloo_models import Model
from foretell.graph.blocks import repeated_blocks
from foretell.graph.capture import Subject
from foretell.graph.loss import default_loss
from foretell.graph.sources import subject_of

_IDS = 64
_HEADS = ("heads", "kv_heads", "num_heads")
Step = Callable[[], None]


def local_step(
    model: Model, splits: Mapping[str, str] | None = None
) -> Callable[[], tuple[float, float, float]]:
    """A step of the whole model alone; gives seconds of forward, backward and optimizer.

    With `splits`, by DTensor on a mesh of this process only, to see what its dispatch costs.
    """
    subject, module = real_module(model)
    args, loss = real_inputs(subject, model.batch), subject.loss or default_loss
    around: Callable[[], Any] = contextlib.nullcontext
    if splits:
        meshes = DeviceMesh("cpu", [[0], [1]], mesh_dim_names=("hosts", "alone"))
        _split(module, splits, meshes["alone"])
        around = loss_parallel
    optimizer = _optimizer(module)

    def step() -> tuple[float, float, float]:
        clock = [time.perf_counter()]
        with around():
            value = loss(module(*args))
            clock.append(time.perf_counter())
            value.backward()
        clock.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        clock.append(time.perf_counter())
        return clock[1] - clock[0], clock[2] - clock[1], clock[3] - clock[2]

    return step


def distributed_step(
    model: Model, strategy: str, splits: Mapping[str, str], first_of_second: str
) -> Step:
    """A step spread over the two processes.

    `splits` are modules and how tensor parallelism splits them; `first_of_second` is the block
    with which the second pipeline stage begins.
    """
    subject, module = real_module(model)
    if strategy in ("gpipe", "1f1b"):
        return _pipeline_step(model, subject, module, strategy, first_of_second)
    args, loss = real_inputs(subject, model.batch), subject.loss or default_loss
    around: Callable[[], Any] = contextlib.nullcontext
    if strategy == "ddp":
        module = DistributedDataParallel(module)
    elif strategy == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for path in repeated_blocks(module):
            fully_shard(module.get_submodule(path), mesh=mesh)
        fully_shard(module, mesh=mesh)
    else:
        _split(module, splits, init_device_mesh("cpu", (dist.get_world_size(),)))
        around = loss_parallel
    optimizer = _optimizer(module)

    def step() -> None:
        with around():
            loss(module(*args)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def real_module(model: Model) -> tuple[Subject, nn.Module]:
    """The model on the CPU with small random weights, the same on every process."""
    subject = subject_of(model.reference, image_size=model.image_size, seq=model.seq)
    torch.manual_seed(0)
    module = subject.module.to_empty(device="cpu").train()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.normal_(0, 0.02) if tensor.is_floating_point() else tensor.zero_()
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.fill_(1.0)
    if subject.meta["source"] == "benchmarks.gloo_models:t5":
        module.model.tie_weights()  # type: ignore[union-attr, operator]
    return subject, module


def real_inputs(subject: Subject, batch: int) -> tuple[torch.Tensor, ...]:
    """Example inputs with numbers in them."""
    args, kwargs = subject.inputs(batch)
    assert not kwargs
    return tuple(
        torch.randn(a.shape) if a.is_floating_point() else torch.randint(0, _IDS, a.shape)
        for a in args
    )


def _optimizer(module: nn.Module) -> torch.optim.Optimizer:
    parameters = list(module.parameters())
    sharded = [p for p in parameters if isinstance(p, DTensor)]
    plain = [p for p in parameters if not isinstance(p, DTensor)]
    groups = [{"params": g} for g in (sharded, plain) if g]
    return torch.optim.AdamW(groups, lr=1e-4, fused=True)


def _split(module: nn.Module, splits: Mapping[str, str], mesh: DeviceMesh) -> None:
    """Tensor parallelism as a plan from the graph says, by DTensor."""
    styles: dict[str, ParallelStyle] = {}
    for path, split in splits.items():
        if split == "column":
            styles[path] = ColwiseParallel()
        elif split == "classes":
            styles[path] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        else:
            table = split == "table"
            styles[path] = RowwiseParallel(input_layouts=Replicate() if table else Shard(-1))
    parallelize_module(module, mesh, styles)
    split_parents = {path.rpartition(".")[0] for path in splits}
    for path, part in module.named_modules():
        for name in _HEADS if path in split_parents else ():
            if hasattr(part, name):
                setattr(part, name, getattr(part, name) // mesh.size())


def _pipeline_step(
    model: Model, subject: Subject, module: nn.Module, schedule: str, first_of_second: str
) -> Step:
    rank = dist.get_rank()
    args = real_inputs(subject, model.batch)
    whole = tuple(torch.cat([a] * model.microbatches) for a in args)
    cut = pipeline(module, args, split_spec={first_of_second: SplitPoint.BEGINNING})
    stage = cut.build_stage(rank, torch.device("cpu"))
    loss = subject.loss or default_loss
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule]
    run = kind(stage, model.microbatches, loss_fn=lambda out, _: loss(out))
    optimizer = _optimizer(cut.get_stage_module(rank))
    targets = torch.zeros(model.batch * model.microbatches)

    def step() -> None:
        if rank == 0:
            run.step(*whole)
        else:
            run.step(target=targets, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextlib.contextmanager
def two_processes(rank: int, meeting_file: str) -> Iterator[None]:
    """A process group that meets in a file, so that nothing but training crosses the network."""
    init = f"file://{meeting_file}"
    patience = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=2, timeout=patience)
    try:
        yield
    finally:
        dist.destroy_process_group()
