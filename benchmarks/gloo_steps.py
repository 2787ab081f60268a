"""Real training steps of a model: alone on one process, and spread over two with gloo."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import loss_parallel

from benchmarks.gloo_models import Model, recipe_of
from foretell.graph.sources import subject_of
from foretell.measure.real_model import loss_of, real_inputs, real_module
from foretell.measure.splits import split_modules
from foretell.measure.steps import Setup, make_optimizer, make_step

_CPU = torch.device("cpu")
Step = Callable[[], None]


def local_step(
    model: Model, splits: Mapping[str, str] | None = None
) -> Callable[[], tuple[float, float, float]]:
    """A step of the whole model alone; gives seconds of forward, backward and optimizer.

    With `splits`, by DTensor on a mesh of this process only, to see what its dispatch costs.
    """
    setup = _setup(model, "ddp", world=1)
    subject, recipe = setup.subject, setup.recipe
    module = real_module(subject, recipe, _CPU)
    args, kwargs = real_inputs(subject, recipe, _CPU, recipe.batch)
    loss = loss_of(subject)
    around: Callable[[], Any] = contextlib.nullcontext
    if splits:
        meshes = DeviceMesh("cpu", [[0], [1]], mesh_dim_names=("hosts", "alone"))
        split_modules(module, splits, meshes["alone"])
        around = loss_parallel
    optimizer = make_optimizer(module, recipe, setup.layout)
    assert optimizer is not None

    def step() -> tuple[float, float, float]:
        clock = [time.perf_counter()]
        with around():
            value = loss(module(*args, **kwargs))
            clock.append(time.perf_counter())
            value.backward()
        clock.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        clock.append(time.perf_counter())
        return clock[1] - clock[0], clock[2] - clock[1], clock[3] - clock[2]

    return step


def distributed_step(model: Model, strategy: str) -> Step:
    """A step spread over the two processes."""
    step = make_step(_setup(model, strategy, world=dist.get_world_size()))
    return lambda: step(lambda: None)


def _setup(model: Model, strategy: str, world: int) -> Setup:
    recipe = dataclasses.replace(recipe_of(model, strategy), fused_optimizer=True)
    subject = subject_of(model.reference, image_size=model.image_size, seq=model.seq)
    return Setup(subject=subject, recipe=recipe, layout=recipe.layout(world), device=_CPU)


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
