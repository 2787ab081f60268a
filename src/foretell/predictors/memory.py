"""Device memory of a step: who holds it at the moment of its peak.

Liveness over the graph: every storage is there from the operator that allocates it through the
last one that needs it, as autograd really held it when the graph was captured. On top come what
PyTorch and the device keep: optimizer state, kernel workspaces, the context, and the gap between
what tensors ask for and what the caching allocator reserves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretell.errors import CannotError
from foretell.graph.graph import Bools, Floats, Graph, Ints, itemsize_of
from foretell.graph.ops import OpClass, Phase, Role
from foretell.graph.optimizer import optimizer
from foretell.workload import Workload

_BLOCK_BYTES = 512
_MIB = 1024**2

# Parameter-sized arrays an optimizer allocates while it steps, beyond its state.
_STEP_ARRAYS = {"adam": 1, "adamw": 1, "adafactor": 0}


@dataclass(frozen=True, kw_only=True)
class MemoryConstants:
    """What a device and its libraries take beyond tensors."""

    context_bytes: int = 600 * _MIB
    """Driver context, kernels and library handles."""
    workspace_bytes: int = 72 * _MIB
    """Matrix-product workspaces, once per process."""
    conv_workspace_share: float = 0.08
    """Convolution scratch, as a share of the largest convolution's tensors."""
    reserve_share: float = 0.04
    """What the caching allocator holds beyond what is allocated, as a share of it."""


CUDA_MEMORY = MemoryConstants()
CPU_MEMORY = MemoryConstants(
    context_bytes=250 * _MIB, workspace_bytes=0, conv_workspace_share=0.0, reserve_share=0.0
)


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Bytes at the peak, by holder."""

    parameters: float
    buffers: float
    inputs: float
    gradients: float
    optimizer_state: float
    master_weights: float
    saved_activations: float
    temporaries: float
    workspace: float
    reserve: float
    context: float

    @property
    def allocated_bytes(self) -> float:
        """What tensors hold at the peak: torch.cuda.max_memory_allocated's number."""
        return self.total_bytes - self.reserve - self.context

    @property
    def total_bytes(self) -> float:
        """What the device must have."""
        return float(sum(self.by_holder().values()))

    def by_holder(self) -> dict[str, float]:
        """Bytes by holder, in the order people think of them."""
        return {name: float(getattr(self, name)) for name in self.__dataclass_fields__}


def memory_use(
    workload: Workload, constants: MemoryConstants = CUDA_MEMORY, *, passes: int = 1
) -> MemoryUse:
    """Peak device memory of one training or inference step of `passes` forward passes.

    From the second pass on the gradients of the passes before it are there all the time.
    """
    step = workload.step
    nbytes = _rounded(step.storage_bytes)
    lifetimes = _lifetimes(step, keep_gradients=passes > 1)
    static = _static_bytes(workload)
    timeline = _live_bytes(step, nbytes, lifetimes, static)
    peak_op = int(np.argmax(timeline)) if len(timeline) else 0
    held = _held_by_role(step, nbytes, (lifetimes[0] <= peak_op) & (lifetimes[1] >= peak_op))
    workspace = constants.workspace_bytes + constants.conv_workspace_share * _largest_conv(step)
    tensors = sum(held.values()) + static["optimizer_state"] + static["master_weights"]
    temporaries = held[Role.TEMPORARY]
    if passes > 1:
        # A new gradient is there until it has been added to the old one.
        newest = float(nbytes[step.storages.role == Role.GRADIENT].max(initial=0.0))
        temporaries += newest
        tensors += newest
    if peak_op >= _first(step, Phase.OPTIMIZER):
        temporaries += static["step_arrays"]
        tensors += static["step_arrays"]
    return MemoryUse(
        parameters=held[Role.PARAMETER],
        buffers=held[Role.BUFFER],
        inputs=held[Role.INPUT],
        gradients=held[Role.GRADIENT],
        optimizer_state=static["optimizer_state"],
        master_weights=static["master_weights"],
        saved_activations=held[Role.SAVED],
        temporaries=temporaries,
        workspace=workspace,
        reserve=constants.reserve_share * (tensors + workspace),
        context=float(constants.context_bytes),
    )


def largest_batch(
    workload: Workload, memory_bytes: float, constants: MemoryConstants = CUDA_MEMORY
) -> int:
    """The largest batch per device whose step fits in `memory_bytes`; 0 when none does."""
    if workload.graph.only_batch is not None:
        raise CannotError(
            "the largest batch cannot be searched for: the model's operators depend on the batch "
            "size; ask for one batch at a time"
        )

    def fits(batch: int) -> bool:
        return memory_use(workload.at_batch(batch), constants).total_bytes <= memory_bytes

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high) and high < 2**24:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def memory_timeline(workload: Workload) -> Floats:
    """Bytes of tensors alive during each operator of the step."""
    step = workload.step
    nbytes = _rounded(step.storage_bytes)
    lifetimes = _lifetimes(step, keep_gradients=False)
    return _live_bytes(step, nbytes, lifetimes, _static_bytes(workload))


def _lifetimes(step: Graph, *, keep_gradients: bool) -> tuple[Ints, Ints]:
    """First and last operator of every storage."""
    s = step.storages
    kept = (s.role == Role.GRADIENT) & keep_gradients
    return np.where(kept, 0, s.alloc_op), np.where(kept, len(step), s.free_op)


def _live_bytes(
    step: Graph, nbytes: Floats, lifetimes: tuple[Ints, Ints], static: Mapping[str, float]
) -> Floats:
    count = len(step)
    first, last = lifetimes
    change = np.zeros(count + 1)
    np.add.at(change, np.clip(first, 0, count), nbytes)
    np.add.at(change, np.clip(last + 1, 0, count), -nbytes)
    timeline = np.cumsum(change)[:count]
    timeline += static["optimizer_state"] + static["master_weights"]
    timeline[step.op_phase == Phase.OPTIMIZER] += static["step_arrays"]
    return timeline


def _held_by_role(step: Graph, nbytes: Floats, live: Bools) -> dict[Role, float]:
    return {role: float(nbytes[live & (step.storages.role == role)].sum()) for role in Role}


def _static_bytes(workload: Workload) -> dict[str, float]:
    """Optimizer state and master weights, and what the optimizer allocates while stepping."""
    parameters = workload.graph.parameters
    recipe = workload.recipe
    if not recipe.training:
        return {"optimizer_state": 0.0, "master_weights": 0.0, "step_arrays": 0.0}
    rule = optimizer(recipe.optimizer)
    trainable = parameters.trainable
    state_itemsize = (
        np.full(len(parameters), 4) if recipe.master_weights else itemsize_of(parameters.dtype)
    )
    sizes = parameters.numel * itemsize_of(parameters.dtype)
    low = trainable & (itemsize_of(parameters.dtype) < 4)
    state = rule.state_elements(parameters) * state_itemsize
    arrays = _STEP_ARRAYS.get(recipe.optimizer, 0)
    return {
        "optimizer_state": float(state[trainable].sum()),
        "master_weights": float(parameters.numel[low].sum() * 4) if recipe.master_weights else 0.0,
        "step_arrays": float(sizes[trainable].sum() * arrays),
    }


def _largest_conv(step: Graph) -> float:
    is_conv = step.kinds.op_class == OpClass.CONV
    if not is_conv.any():
        return 0.0
    moved = step.kind_bytes_read[is_conv] + step.kind_bytes_written[is_conv]
    return float(moved.max())


def _rounded(nbytes: Floats) -> Floats:
    """Sizes as the caching allocator hands them out."""
    result: Floats = np.ceil(nbytes / _BLOCK_BYTES) * _BLOCK_BYTES
    return result


def _first(step: Graph, phase: Phase) -> int:
    found = np.flatnonzero(step.op_phase == phase)
    return int(found[0]) if len(found) else len(step)
