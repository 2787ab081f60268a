"""Device memory of a step: who holds it at the moment of its peak.

Liveness over the graph: every storage is there from the operator that allocates it through the
last one that needs it, as autograd really held it when the graph was captured. On top come what
PyTorch and the device keep: optimizer state, kernel workspaces, the context, and the gap between
what tensors ask for and what the caching allocator reserves; and what parallelism adds or takes
away on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretell.cluster import Cluster
from foretell.errors import CannotError
from foretell.graph.graph import Bools, Floats, Graph, Ints, itemsize_of
from foretell.graph.ops import OpClass, Phase, Role
from foretell.graph.optimizer import optimizer
from foretell.parallel import ALONE, Holding, Placed, place, rank_workloads
from foretell.parallel.schedule import BACKWARD, FORWARD
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
    gathered: float = 0.0
    collective_buffers: float = 0.0
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
    workload: Workload, constants: MemoryConstants = CUDA_MEMORY, holding: Holding = ALONE
) -> MemoryUse:
    """Peak device memory of one training or inference step."""
    live = _Liveness(workload, holding)
    held = live.held_at_peak()
    static = live.static
    saved = held[Role.SAVED] + float(live.beside[live.peak_op])
    temporaries = held[Role.TEMPORARY] + float(live.arriving[live.peak_op])
    if live.peak_op >= _first(workload.step, Phase.OPTIMIZER):
        temporaries += static.step_bytes
    workspace = constants.workspace_bytes + constants.conv_workspace_share * _largest_conv(
        workload.step
    )
    tensors = (
        *(held[r] for r in (Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.GRADIENT)),
        *(static.state_bytes, static.master_bytes, saved, temporaries, workspace),
        *(holding.gathered_bytes, holding.buffer_bytes),
    )
    return MemoryUse(
        parameters=held[Role.PARAMETER],
        buffers=held[Role.BUFFER],
        inputs=held[Role.INPUT],
        gradients=held[Role.GRADIENT],
        optimizer_state=static.state_bytes,
        master_weights=static.master_bytes,
        saved_activations=saved,
        temporaries=temporaries,
        gathered=holding.gathered_bytes,
        collective_buffers=holding.buffer_bytes,
        workspace=workspace,
        reserve=constants.reserve_share * sum(tensors),
        context=float(constants.context_bytes),
    )


def rank_memory(placed: Placed, constants: MemoryConstants = CUDA_MEMORY) -> list[MemoryUse]:
    """Peak device memory of every pipeline rank."""
    return [memory_use(work, constants, holding) for work, holding in rank_workloads(placed)]


def largest_batch(
    workload: Workload,
    cluster: Cluster,
    memory_bytes: float,
    constants: MemoryConstants = CUDA_MEMORY,
) -> int:
    """The largest batch per model copy whose step fits in `memory_bytes`; 0 when none does.

    With a global batch only those count that make it up in whole passes.
    """
    if workload.graph.only_batch is not None:
        raise CannotError(
            "the largest batch cannot be searched for: the model's operators depend on the batch "
            "size; ask for one batch at a time"
        )

    def fits(batch: int) -> bool:
        placed = place(workload.at_batch(batch), cluster)
        return max(m.total_bytes for m in rank_memory(placed, constants)) <= memory_bytes

    if workload.recipe.global_batch is not None:
        replicas = workload.recipe.layout(cluster.total_devices).dp
        workload.at_batch(1).recipe.accumulation(replicas)  # says why no batch does
        # More passes hold gradients longer, so a smaller batch may need more: none is skipped.
        return next(filter(fits, workload.recipe.batches(replicas)), 0)
    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high) and high < 2**24:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def memory_timeline(workload: Workload, holding: Holding = ALONE) -> Floats:
    """Bytes of tensors alive during each operator of the step."""
    return _Liveness(workload, holding).timeline


@dataclass(frozen=True, kw_only=True)
class _Static:
    """What is there all the time, and while the optimizer steps."""

    state_bytes: float = 0.0
    master_bytes: float = 0.0
    step_bytes: float = 0.0


_PASSES = {FORWARD: (Phase.FORWARD,), BACKWARD: (Phase.BACKWARD, Phase.RECOMPUTE)}


@dataclass
class _Liveness:
    """Who is alive when, on one rank."""

    workload: Workload
    holding: Holding
    nbytes: Floats = field(init=False)
    first: Ints = field(init=False)
    last: Ints = field(init=False)
    chunk: Ints = field(init=False)
    """Model chunk of each operator."""
    owner: Ints = field(init=False)
    """Model chunk whose pass a storage belongs to, -1 for what all of them share."""
    beside: Floats = field(init=False)
    """Saved activations of other microbatches during each operator."""
    arriving: Floats = field(init=False)
    """Gradients on their way to those that add up."""
    timeline: Floats = field(init=False)
    static: _Static = field(init=False)

    def __post_init__(self) -> None:
        step, s = self.workload.step, self.workload.step.storages
        self.static = _static(self.workload, self.holding)
        share = np.ones(len(s))
        of_parameters = np.flatnonzero(s.role == Role.PARAMETER)
        count = min(len(of_parameters), len(step.parameters))
        shares = np.broadcast_to(self.holding.parameter_share, len(step.parameters))
        share[of_parameters[:count]] = shares[:count]
        share[s.role == Role.GRADIENT] = self.holding.gradient_share
        self.nbytes = _rounded(step.storage_bytes * share)
        kept = (s.role == Role.GRADIENT) & (self.holding.passes > 1)
        self.first = np.where(kept, 0, s.alloc_op)
        self.last = np.where(kept, len(step), s.free_op)
        self.chunk = np.zeros(len(step), dtype=np.int64)
        self.chunk[: len(self.holding.op_chunk)] = self.holding.op_chunk
        in_step = (s.alloc_op >= 0) & (s.alloc_op < len(step))
        of_pass = np.isin(s.role, (Role.SAVED, Role.TEMPORARY)) & in_step
        self.owner = np.full(len(s), -1)
        self.owner[of_pass] = self.chunk[s.alloc_op[of_pass]]
        self.beside = self._beside(step)
        self.arriving = self._arriving(step)
        self.timeline = self._timeline(step)

    def _timeline(self, step: Graph) -> Floats:
        timeline = self._alive(self.owner == -1)
        for chunk in np.unique(self.chunk):
            timeline += np.where(self.chunk == chunk, self._alive(self.owner == chunk), 0.0)
        timeline += self.static.state_bytes + self.static.master_bytes
        optimizing = step.op_phase == Phase.OPTIMIZER
        timeline[optimizing] += self.static.step_bytes
        timeline[~optimizing] += self.holding.gathered_bytes
        return timeline + self.beside + self.arriving

    def _alive(self, chosen: Bools) -> Floats:
        """Bytes of some storages during each operator."""
        count = len(self.chunk)
        change = np.zeros(count + 1)
        np.add.at(change, np.clip(self.first[chosen], 0, count), self.nbytes[chosen])
        np.add.at(change, np.clip(self.last[chosen] + 1, 0, count), -self.nbytes[chosen])
        alive: Floats = np.cumsum(change)[:count]
        return alive

    def _beside(self, step: Graph) -> Floats:
        saved = step.storages.role == Role.SAVED
        moments = self.holding.moments
        chunks = max(len(moments[0].beside), int(self.chunk.max(initial=0)) + 1)
        of_chunk = np.bincount(
            np.maximum(self.owner[saved], 0), weights=self.nbytes[saved], minlength=chunks
        )
        result = np.zeros(len(step))
        for what, phases in _PASSES.items():
            for chunk in range(chunks):
                held = [m.beside for m in moments if (m.what, m.chunk) == (what, chunk)]
                if held:
                    most = float((np.array(held) @ of_chunk).max())
                    result[step.phase_mask(*phases) & (self.chunk == chunk)] = most
        return result

    def _arriving(self, step: Graph) -> Floats:
        """A new gradient is there until it has been added to the old one."""
        result = np.zeros(len(step))
        s = step.storages
        gradients = (s.role == Role.GRADIENT) & (s.alloc_op >= 0) & (s.alloc_op < len(step))
        if self.holding.passes > 1 or self.workload.recipe.fp32_gradients:
            np.add.at(result, s.alloc_op[gradients], step.storage_bytes[gradients])
        return result

    @property
    def peak_op(self) -> int:
        return int(np.argmax(self.timeline)) if len(self.timeline) else 0

    def held_at_peak(self) -> dict[Role, float]:
        at = self.peak_op
        here = (self.owner == -1) | (self.owner == self.chunk[at])
        alive: Bools = (self.first <= at) & (self.last >= at) & here
        role = self.workload.step.storages.role
        return {r: float(self.nbytes[alive & (role == r)].sum()) for r in Role}


def _static(workload: Workload, holding: Holding) -> _Static:
    parameters, recipe = workload.graph.parameters, workload.recipe
    if not recipe.training:
        return _Static()
    rule = optimizer(recipe.optimizer)
    trainable = parameters.trainable
    itemsize = itemsize_of(parameters.dtype)
    share = np.broadcast_to(holding.state_share, len(parameters))
    state_itemsize = np.full(len(parameters), 4) if recipe.master_weights else itemsize
    state = float((rule.state_elements(parameters) * state_itemsize * share)[trainable].sum())
    low = trainable & (itemsize < 4)
    master = float((parameters.numel * share)[low].sum() * 4) if recipe.master_weights else 0.0
    stepped = float((parameters.numel * itemsize * share)[trainable].sum())
    arrays = 0 if recipe.fused_optimizer else _STEP_ARRAYS.get(recipe.optimizer, 0)
    return _Static(
        state_bytes=state,
        master_bytes=master,
        step_bytes=stepped * arrays,
    )


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
