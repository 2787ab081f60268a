"""Real training and inference steps, alone or spread over processes, as PyTorch offers them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.checkpoint import checkpoint

from foretell.graph.blocks import recompute_paths, repeated_blocks
from foretell.graph.capture import Subject
from foretell.measure.real_model import loss_of, real_inputs, real_module
from foretell.measure.splits import pipeline_points, split_modules, tensor_splits
from foretell.workload import Layout, Recipe

Mark = Callable[[], None]
"""Called where forward, backward and optimizer end, by steps that run them one after another."""
Step = Callable[[Mark], None]
_AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One workload on one of the processes that run it."""

    subject: Subject
    recipe: Recipe
    layout: Layout
    device: torch.device

    @property
    def passes(self) -> int:
        """Forward passes per optimizer step."""
        return self.recipe.accumulation(self.layout.dp)


def why_not(recipe: Recipe, layout: Layout, device_type: str) -> str:
    """Why PyTorch cannot run this, in one sentence; empty when it can."""
    reasons = {
        "cp": layout.cp > 1 and "context parallelism (cp) is not run: PyTorch's is experimental",
        "ep": layout.ep > 1 and "expert parallelism (ep) is not run: PyTorch has none of its own",
        "fp8": recipe.precision == "fp8" and "precision=fp8 is not run: use bf16",
        "master": recipe.master_weights
        and "master_weights is not run: PyTorch's optimizers keep no master copy",
        "gradients": recipe.fp32_gradients
        and "fp32_gradients is not run: PyTorch keeps gradients in the format of the weights",
        "offload": recipe.offload_optimizer
        and "offload_optimizer is not run: PyTorch offers it for CUDA devices only",
        "schedule": recipe.schedule == "zero-bubble"
        and "schedule=zero-bubble is not run: PyTorch has it for several stages per rank only",
        "ddp": layout.tp > 1
        and layout.dp > 1
        and recipe.zero != 3
        and "tp with dp is run under zero=3 only: DistributedDataParallel takes no split weights",
        "pp": layout.pp > 1
        and layout.world > layout.pp
        and "pp is run alone: give as many processes as stages",
        "world": layout.world > 1 and device_type == "mps" and "MPS has no collectives",
    }
    return next((reason for reason in reasons.values() if reason), "")


def make_step(setup: Setup) -> Step:
    """The step, ready to be called again and again; every process of the layout makes its own."""
    if not setup.recipe.training:
        return _inference(setup)
    return _pipeline(setup) if setup.layout.pp > 1 else _training(setup)


def _inference(setup: Setup) -> Step:
    module, args, kwargs = _model(setup)
    module = _compiled(module, setup.recipe)

    def step(mark: Mark) -> None:
        with torch.inference_mode(), _autocast(setup):
            module(*args, **kwargs)
        mark()

    return step


def _training(setup: Setup) -> Step:
    recipe, layout, passes = setup.recipe, setup.layout, setup.passes
    splits = tensor_splits(setup.subject, recipe, layout) if layout.tp > 1 else {}
    module, args, kwargs = _model(setup)
    loss = loss_of(setup.subject)
    around: Callable[[], Any] = contextlib.nullcontext
    if layout.tp > 1:
        from torch.distributed.tensor.parallel import loss_parallel

        mesh = init_device_mesh(
            setup.device.type, (layout.dp, layout.tp), mesh_dim_names=("dp", "tp")
        )
        split_modules(module, splits, mesh["tp"])
        around = loss_parallel
        if layout.dp > 1:
            _shard(module, recipe, mesh["dp"])
    elif layout.dp > 1 and any(p.requires_grad for p in module.parameters()):
        module = _data_parallel(module, setup)
    module = _compiled(module, recipe)
    optimizer = make_optimizer(module, recipe, layout)

    def step(mark: Mark) -> None:
        for number in range(passes):
            with around(), _sync(module, last=number == passes - 1):
                with _autocast(setup):
                    value = loss(module(*args, **kwargs))
                if passes == 1:
                    mark()
                value.backward()
        mark()
        if optimizer is not None:
            optimizer.step()
        module.zero_grad(set_to_none=True)
        mark()

    return step


def _model(setup: Setup) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    recipe = setup.recipe
    paths = recompute_paths(setup.subject.module, recipe.recompute)
    module = real_module(setup.subject, recipe, setup.device)
    for path in paths:
        _recompute(module.get_submodule(path))
    args, kwargs = real_inputs(setup.subject, recipe, setup.device, recipe.batch)
    return module, args, kwargs


def _recompute(module: nn.Module) -> None:
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(inner, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    module.forward = forward


def _data_parallel(module: nn.Module, setup: Setup) -> nn.Module:
    recipe, layout = setup.recipe, setup.layout
    if recipe.zero >= 2:
        kind, copies = setup.device.type, layout.replicas // layout.shard
        if copies > 1:
            mesh = init_device_mesh(kind, (copies, layout.shard), mesh_dim_names=("copy", "shard"))
        else:
            mesh = init_device_mesh(kind, (layout.shard,))
        return _shard(module, recipe, mesh)
    devices = [setup.device] if setup.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(
        module, device_ids=devices, bucket_cap_mb=recipe.bucket_mb
    )


def _shard(module: nn.Module, recipe: Recipe, mesh: DeviceMesh) -> nn.Module:
    reshard = recipe.zero == 3 and recipe.reshard
    for path in repeated_blocks(module):
        fully_shard(module.get_submodule(path), mesh=mesh, reshard_after_forward=reshard)
    fully_shard(module, mesh=mesh)
    return module


def make_optimizer(
    module: nn.Module, recipe: Recipe, layout: Layout
) -> torch.optim.Optimizer | None:
    """The recipe's optimizer over all trainable weights; split and plain ones apart."""
    from torch.distributed.tensor import DTensor

    parameters = [p for p in module.parameters() if p.requires_grad]
    if recipe.optimizer == "none" or not parameters:
        return None
    kind, options = _OPTIMIZERS[recipe.optimizer]
    if recipe.fused_optimizer:
        options = {**options, "fused": True}
    if recipe.zero == 1 and layout.dp > 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
    groups = (
        [p for p in parameters if isinstance(p, DTensor)],
        [p for p in parameters if not isinstance(p, DTensor)],
    )
    return kind([{"params": g} for g in groups if g], **options)


_OPTIMIZERS: Mapping[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 1e-4}),
    "momentum": (torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-4}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-4}),
    "adafactor": (torch.optim.Adafactor, {"lr": 1e-4}),
}


def _pipeline(setup: Setup) -> Step:
    from torch.distributed.pipelining import SplitPoint, pipeline, schedules

    recipe, pp = setup.recipe, setup.layout.pp
    rank, passes = dist.get_rank(), setup.passes
    points = pipeline_points(setup.subject, recipe, setup.layout)
    module, args, kwargs = _model(setup)
    loss = loss_of(setup.subject)
    cut = pipeline(module, args, kwargs, split_spec=dict.fromkeys(points, SplitPoint.BEGINNING))
    mine = range(rank, pp * recipe.virtual_stages, pp)
    stages = [cut.build_stage(number, setup.device) for number in mine]
    kind = {
        "gpipe": schedules.ScheduleGPipe,
        "1f1b": schedules.Schedule1F1B,
        "interleaved": schedules.ScheduleInterleaved1F1B,
    }[recipe.schedule]
    of_stages: Any = stages if recipe.schedule == "interleaved" else stages[0]
    run = kind(of_stages, passes, loss_fn=lambda out, _: loss(out))
    parts = nn.ModuleList(cut.get_stage_module(number) for number in mine)
    optimizer = make_optimizer(parts, recipe, setup.layout)
    whole = tuple(_repeated(a, passes) for a in args)
    named = {name: _repeated(a, passes) for name, a in kwargs.items()}
    targets = torch.zeros(recipe.batch * passes, device=setup.device)
    last = rank == (pp * recipe.virtual_stages - 1) % pp

    def step(mark: Mark) -> None:
        run.step(
            *(whole if rank == 0 else ()),
            **(named if rank == 0 else {}),
            **({"target": targets} if last else {}),
            return_outputs=False,
        )
        if optimizer is not None:
            optimizer.step()
        parts.zero_grad(set_to_none=True)

    return step


def _repeated(value: Any, times: int) -> Any:
    return torch.cat([value] * times) if isinstance(value, torch.Tensor) else value


def _compiled(module: nn.Module, recipe: Recipe) -> Any:
    return torch.compile(module) if recipe.compile else module


@contextlib.contextmanager
def _autocast(setup: Setup) -> Iterator[None]:
    low = _AUTOCAST.get(setup.recipe.precision)
    if low is None:
        yield
        return
    with torch.autocast(setup.device.type, low):
        yield


@contextlib.contextmanager
def _sync(module: nn.Module, *, last: bool) -> Iterator[None]:
    """Gradients are exchanged after the last pass only, where the wrapper lets one choose."""
    if isinstance(module, nn.parallel.DistributedDataParallel) and not last:
        with module.no_sync():
            yield
        return
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    yield
