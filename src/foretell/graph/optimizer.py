"""Add the optimizer step to a captured graph: one operator per trainable parameter.

Byte counts are what PyTorch's multi-tensor (foreach) implementations move per element: each
elementary pass reads its operands and writes its result. State counts are what stays in memory
between steps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from foretell.errors import InputError, UnknownNameError
from foretell.graph.graph import ATTRS, Graph, Ints, Kinds, Parameters, itemsize_of
from foretell.graph.ops import OpClass, Phase

_USUAL = [1, 1, 1] + [0] * (len(ATTRS) - 3)
"""Stride, groups and dilation of what has none."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What one optimizer reads, writes and keeps, in parameter-sized arrays."""

    name: str
    arrays_read: int
    arrays_written: int
    passes: int
    """Kernel launches per group of tensors."""
    state_arrays: int
    """Parameter-sized arrays kept between steps."""
    factored: bool = False
    """State is a row and a column per matrix instead of a full array."""

    def state_elements(self, parameters: Parameters) -> Ints:
        """Optimizer state elements per parameter."""
        if not self.factored:
            return parameters.numel * self.state_arrays
        rows_and_columns = [
            int(np.prod(s[:-1]) + np.prod(s[:-2] + s[-1:])) if len(s) >= 2 else int(np.prod(s))
            for s in parameters.shape
        ]
        return np.array(rows_and_columns, dtype=np.int64)


OPTIMIZERS = {
    o.name: o
    for o in (
        Optimizer(name="none", arrays_read=0, arrays_written=0, passes=0, state_arrays=0),
        Optimizer(name="sgd", arrays_read=2, arrays_written=1, passes=1, state_arrays=0),
        # buf*=m; buf+=g; p-=lr*buf
        Optimizer(name="momentum", arrays_read=5, arrays_written=3, passes=3, state_arrays=1),
        # lerp m; v*=b2; v+=g*g; sqrt; /=; +=eps; p-=m/denominator
        Optimizer(name="adam", arrays_read=11, arrays_written=7, passes=7, state_arrays=2),
        # the same after p*=1-lr*wd
        Optimizer(name="adamw", arrays_read=12, arrays_written=8, passes=8, state_arrays=2),
        # g*g, its row and column means, outer product, rsqrt, scaling, clipping norm, update
        Optimizer(
            name="adafactor",
            arrays_read=9,
            arrays_written=5,
            passes=12,
            state_arrays=0,
            factored=True,
        ),
    )
}


# Parameter, gradient and state are each read once, parameter and state written once.
FUSED = ("sgd", "momentum", "adam", "adamw")


def fused(rule: Optimizer) -> Optimizer:
    """The same update in one kernel."""
    if rule.name not in FUSED:
        raise InputError(f"fused_optimizer: there is no fused {rule.name}, only {', '.join(FUSED)}")
    return dataclasses.replace(
        rule, arrays_read=2 + rule.state_arrays, arrays_written=1 + rule.state_arrays, passes=1
    )


def optimizer(name: str) -> Optimizer:
    """Look an optimizer up by name."""
    try:
        return OPTIMIZERS[name]
    except KeyError:
        hint = f"use one of {', '.join(OPTIMIZERS)}"
        raise UnknownNameError("optimizer", name, OPTIMIZERS, hint) from None


def with_optimizer(
    graph: Graph, name: str, *, master_weights: bool = False, one_kernel: bool = False
) -> Graph:
    """The graph followed by an optimizer step; unchanged for 'none' and for inference.

    With master weights the step works in fp32 and copies the result to the parameters.
    """
    rule = fused(optimizer(name)) if one_kernel else optimizer(name)
    chosen = np.flatnonzero(graph.parameters.trainable)
    if not rule.passes or not graph.is_training or not len(chosen):
        return graph
    numel, inverse = np.unique(
        np.stack([graph.parameters.numel[chosen], graph.parameters.dtype[chosen]], 1),
        axis=0,
        return_inverse=True,
    )
    kinds = _append_kinds(graph.kinds, rule, numel[:, 0], numel[:, 1], master_weights)
    added = len(chosen)
    count = len(graph)
    step_ops = np.arange(count, count + added)
    filler = np.full(added, -1, dtype=np.int64)
    return dataclasses.replace(
        graph,
        kinds=kinds,
        op_kind=np.concatenate([graph.op_kind, len(graph.kinds) + inverse.reshape(-1)]),
        op_phase=np.concatenate([graph.op_phase, np.full(added, Phase.OPTIMIZER)]),
        op_module=np.concatenate([graph.op_module, graph.parameters.module[chosen]]),
        op_forward=np.concatenate([graph.op_forward, filler]),
        op_parameter=np.concatenate([graph.op_parameter, chosen]),
        edge_src=np.concatenate([graph.edge_src, np.full(added, count - 1)]),
        edge_dst=np.concatenate([graph.edge_dst, step_ops]),
        storages=dataclasses.replace(
            graph.storages,
            free_op=np.where(
                graph.storages.free_op >= count, count + added, graph.storages.free_op
            ),
        ),
    )


def _append_kinds(
    kinds: Kinds, rule: Optimizer, numel: Ints, dtype: Ints, master_weights: bool
) -> Kinds:
    count = len(numel)
    itemsize = itemsize_of(dtype)
    copied = numel * itemsize * (master_weights & (itemsize < 4))
    nbytes = numel * (np.maximum(itemsize, 4) if master_weights else itemsize)
    zeros = np.zeros((count, 3), dtype=np.int64)

    def constant(values: Ints) -> Ints:
        column = zeros.copy()
        column[:, 0] = values
        return column

    def more(old: Ints, new: Ints) -> Ints:
        return np.concatenate([old, new])

    return Kinds(
        name=kinds.name + (f"optimizer_{rule.name}",) * count,
        op_class=more(kinds.op_class, np.full(count, OpClass.OPTIMIZER)),
        dtype=more(kinds.dtype, dtype),
        flops=more(kinds.flops, zeros),
        bytes_read=more(kinds.bytes_read, constant(nbytes * rule.arrays_read)),
        bytes_written=more(kinds.bytes_written, constant(nbytes * rule.arrays_written + copied)),
        gemm=more(kinds.gemm, np.zeros((count, 4), dtype=np.int64)),
        gemm_power=more(kinds.gemm_power, np.zeros((count, 4), dtype=np.int64)),
        attrs=more(kinds.attrs, np.tile(_USUAL, (count, 1))),
        tensor_start=more(kinds.tensor_start, kinds.tensor_start[-1] + np.arange(1, count + 1)),
        tensor_is_output=np.concatenate([kinds.tensor_is_output, np.ones(count, dtype=np.bool_)]),
        tensor_dtype=more(kinds.tensor_dtype, dtype),
        dim_start=more(kinds.dim_start, kinds.dim_start[-1] + np.arange(1, count + 1)),
        dim=more(kinds.dim, numel),
        dim_power=more(kinds.dim_power, np.zeros(count, dtype=np.int64)),
    )
