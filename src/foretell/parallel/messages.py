"""What ranks exchange inside a pass: sums and gathers of tensor, context and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Floats, Graph, Ints, itemsize_of
from foretell.graph.ops import OpClass, Phase
from foretell.parallel.shard import Shares, expert_parameters
from foretell.parallel.tensor import TensorPlan

_LOSS_SUMS = 3  # maximum, sum of exponentials, the target's logit


@dataclass(frozen=True, eq=False)
class Messages:
    """Columns, one row per message; it blocks the operators after `op`."""

    op: Ints
    collective: tuple[Collective, ...]
    nbytes: Floats
    axis: tuple[str, ...]
    """tp, cp or ep: the ranks that take part."""
    hidden_behind: Ints
    """The operator it runs beside, -1 when it stops everything."""

    def __len__(self) -> int:
        return len(self.op)


class _Rows:
    def __init__(self) -> None:
        self.rows: list[tuple[int, Collective, float, str, int]] = []

    def add(
        self, op: int, collective: Collective, nbytes: float, axis: str, beside: int = -1
    ) -> None:
        if nbytes > 0:  # what precedes the first operator is counted to it
            self.rows.append((max(op, 0), collective, nbytes, axis, beside))

    def columns(self) -> Messages:
        rows = sorted(self.rows, key=lambda r: r[0])
        return Messages(
            op=np.array([r[0] for r in rows], dtype=np.int64),
            collective=tuple(r[1] for r in rows),
            nbytes=np.array([r[2] for r in rows], dtype=np.float64),
            axis=tuple(r[3] for r in rows),
            hidden_behind=np.array([r[4] for r in rows], dtype=np.int64),
        )


def messages_of(graph: Graph, plan: TensorPlan, shares: Shares) -> Messages:
    """Messages of one forward and backward pass of the whole (unsplit) graph at its batch."""
    rows = _Rows()
    if shares.tp > 1:
        _tensor_messages(rows, graph, plan, shares)
    if shares.cp > 1:
        _ring_messages(rows, graph, shares)
    if shares.ep > 1:
        _expert_messages(rows, graph, shares)
    return rows.columns()


def _tensor_messages(rows: _Rows, graph: Graph, plan: TensorPlan, shares: Shares) -> None:
    whole_in, whole_out = _linear_bytes(graph)
    gradient_of = _input_gradients(graph)
    summed = Collective.REDUCE_SCATTER if shares.sp else Collective.ALL_REDUCE
    for op in plan.exits:
        nbytes = whole_out[op] / shares.cp
        rows.add(op, summed, nbytes, "tp")
        if shares.sp and op in gradient_of:
            rows.add(gradient_of[op] - 1, Collective.ALL_GATHER, nbytes, "tp")
    for source, columns in _entries(plan, shares):
        nbytes = whole_in[columns[0]] / shares.cp
        if shares.sp:
            rows.add(max(source, columns[0] - 1), Collective.ALL_GATHER, nbytes, "tp")
        backward = [gradient_of[c] for c in columns if c in gradient_of]
        if backward:
            if shares.sp:  # the input was given up after forward and is needed for the weights
                rows.add(min(backward) - 1, Collective.ALL_GATHER, nbytes, "tp", min(backward))
            rows.add(max(backward), summed, nbytes, "tp")
    for op in plan.losses:
        tokens = _rows_of(graph, op) / shares.cp
        for _ in range(_LOSS_SUMS):
            rows.add(op, Collective.ALL_REDUCE, 4 * tokens, "tp")


def _entries(plan: TensorPlan, shares: Shares) -> list[tuple[int, tuple[int, ...]]]:
    """Producers of whole activations and the column-split layers that share an exchange of it."""
    if shares.joint:
        return list(plan.entries.items())
    return [(source, (op,)) for source, ops in plan.entries.items() for op in ops]


def _ring_messages(rows: _Rows, graph: Graph, shares: Shares) -> None:
    """Keys and values go around a ring beside the attention that uses them."""
    for op in np.flatnonzero(graph.op_class == OpClass.ATTENTION).tolist():
        kind = int(graph.op_kind[op])
        key = graph.shapes(kind, outputs=False)[1]
        itemsize = int(itemsize_of(graph.kinds.dtype[[kind]])[0])
        local = 2 * float(np.prod(key)) * itemsize / shares.cp / shares.tp
        is_backward = graph.op_phase[op] == Phase.BACKWARD
        for _ in range(shares.cp - 1):
            rows.add(op, Collective.SEND_RECV, local * (2 if is_backward else 1), "cp", op)


def _expert_messages(rows: _Rows, graph: Graph, shares: Shares) -> None:
    """Tokens travel to their experts and back, in both passes."""
    experts = np.append(expert_parameters(graph), False)
    gemm = graph.kind_gemm[graph.op_kind]
    itemsize = itemsize_of(graph.kinds.dtype)[graph.op_kind]
    by_module: dict[tuple[int, int], list[int]] = {}
    for op in np.flatnonzero(experts[graph.op_parameter] & (gemm[:, 3] > 0)).tolist():
        by_module.setdefault((int(graph.op_module[op]), int(graph.op_phase[op])), []).append(op)
    for ops in by_module.values():
        first, last = ops[0], ops[-1]
        backward = graph.op_phase[first] == Phase.BACKWARD
        into = gemm[first, 1] * (gemm[first, 2] if backward else gemm[first, 3]) * itemsize[first]
        back = gemm[last, 1] * gemm[last, 2] * itemsize[last]
        scale = shares.cp * (shares.tp if shares.sp else 1)
        rows.add(first - 1, Collective.ALL_TO_ALL, float(into) / scale, "ep")
        rows.add(last, Collective.ALL_TO_ALL, float(back) / scale, "ep")


def _linear_bytes(graph: Graph) -> tuple[Floats, Floats]:
    """Bytes of the activation each operator reads and writes as a matrix product."""
    gemm = graph.kind_gemm
    itemsize = itemsize_of(graph.kinds.dtype)
    is_gemm = gemm[:, 3] > 0
    read = gemm[:, 0] * gemm[:, 1] * gemm[:, 3] * itemsize
    written = np.where(
        is_gemm, gemm[:, 0] * gemm[:, 1] * gemm[:, 2] * itemsize, graph.kind_bytes_written
    )
    return read[graph.op_kind], written[graph.op_kind]


def _input_gradients(graph: Graph) -> dict[int, int]:
    """Forward operator -> the backward operator that makes the gradient of its input."""
    found: dict[int, int] = {}
    powers = graph.kinds.gemm_power[graph.op_kind]
    gemm = graph.kinds.gemm[graph.op_kind]
    backward = np.flatnonzero((graph.op_phase == Phase.BACKWARD) & (graph.op_forward >= 0))
    for op in backward.tolist():
        if gemm[op, 3] > 0 and powers[op, 3] == 0:
            found[int(graph.op_forward[op])] = op
    return found


def _rows_of(graph: Graph, op: int) -> float:
    """Rows of the first input: tokens or samples."""
    shapes = graph.shapes(int(graph.op_kind[op]), outputs=False)
    return float(np.prod(shapes[0][:-1])) if shapes and shapes[0] else 0.0
