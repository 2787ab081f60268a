"""What one rank runs: the graph with every operator, parameter and storage cut to its share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Bools, Floats, Graph, Ints, Kinds, Parameters, Storages
from foretell.graph.ops import OpClass, Phase, Role
from foretell.parallel.tensor import Split, TensorPlan

_WEIGHT_SPLITS = (Split.COLUMN, Split.ROW, Split.ROWS_OF_TABLE)
_BATCH, _M, _N, _K = range(4)


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Into how many parts each kind of split cuts."""

    tp: int = 1
    sp: bool = False
    """What tensor parallelism leaves whole is split along the sequence instead."""
    cp: int = 1
    ep: int = 1
    joint: bool = True
    """Column-split layers that read one activation exchange it once."""

    @property
    def trivial(self) -> bool:
        """Whether nothing is cut."""
        return self.tp == self.cp == self.ep == 1


@dataclass
class _Factors:
    """Per operator: what remains of each cost. Columns "fixed" do not grow with the batch."""

    flops: Floats
    read_fixed: Floats
    read_varying: Floats
    written_fixed: Floats
    written_varying: Floats
    gemm: Floats

    @classmethod
    def whole(cls, count: int) -> _Factors:
        names = ("flops", "read_fixed", "read_varying", "written_fixed", "written_varying")
        return cls(**{n: np.ones(count) for n in names}, gemm=np.ones((count, 4)))

    def scale_varying(self, ops: Bools, parts: float, powers: Ints) -> None:
        """Cut the part that grows with the batch: fewer tokens."""
        self.flops[ops] /= parts
        self.read_varying[ops] /= parts
        self.written_varying[ops] /= parts
        rows = np.flatnonzero(ops)
        grows = powers[rows] > 0
        # One dimension carries the tokens: the sequence of batched products, else the first.
        batched = grows[:, _BATCH]
        self.gemm[rows[batched], _M] /= parts
        for axis in (_M, _N, _K):
            hit = rows[~batched & grows[:, axis]]
            self.gemm[hit, axis] /= parts


def shard_graph(graph: Graph, plan: TensorPlan, shares: Shares) -> Graph:
    """The graph of one rank."""
    if shares.trivial:
        return graph
    factors = _Factors.whole(len(graph))
    powers = graph.kinds.gemm_power[graph.op_kind]
    split = backward_splits(graph, plan)
    experts = expert_parameters(graph)
    if shares.cp > 1:
        factors.scale_varying(np.ones(len(graph), dtype=np.bool_), shares.cp, powers)
    if shares.tp > 1:
        _split_tensors(factors, graph, split, plan, shares.tp)
        if shares.sp:
            rest = (split == Split.WHOLE) & (graph.op_class != OpClass.EMBEDDING)
            factors.scale_varying(rest, shares.tp, powers)
    if shares.ep > 1:
        of_expert = _touches(graph, experts)
        factors.read_fixed[of_expert] /= shares.ep
        factors.written_fixed[of_expert] /= shares.ep
    parameter_share = np.where(np.isin(plan.parameter_split, _WEIGHT_SPLITS), 1 / shares.tp, 1.0)
    parameter_share = parameter_share / np.where(experts, shares.ep, 1)
    kinds, op_kind = _new_kinds(graph, factors)
    return dataclasses.replace(
        graph,
        kinds=kinds,
        op_kind=op_kind,
        storages=_new_storages(graph, factors, parameter_share, shares.cp),
        parameters=_new_parameters(graph.parameters, parameter_share),
    )


def backward_splits(graph: Graph, plan: TensorPlan) -> Ints:
    """The plan's splits carried over to backward operators."""
    split = plan.op_split.copy()
    backward = np.flatnonzero(graph.op_phase == Phase.BACKWARD)
    twin = graph.op_forward[backward]
    split[backward] = np.where(twin >= 0, plan.op_split[twin], Split.WHOLE)
    shared = split == Split.SHARE
    producers: dict[int, list[int]] = {}
    for source, target in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        producers.setdefault(target, []).append(source)
    for op in backward[twin < 0].tolist():
        # Joins of gradients have no forward twin: they work on what their inputs are.
        if any(shared[p] for p in producers.get(op, ())):
            split[op] = Split.SHARE
            shared[op] = True
    return split


def expert_parameters(graph: Graph) -> Bools:
    """Parameters of experts: read by grouped products, or named so."""
    found = np.array(
        ["experts" in graph.modules[m].split(".") for m in graph.parameters.module], dtype=np.bool_
    )
    grouped = [i for i, name in enumerate(graph.kinds.name) if name == "_grouped_mm"]
    readers = np.isin(graph.op_kind, grouped) & (graph.op_parameter >= 0)
    found[graph.op_parameter[readers]] = True
    return found


def _touches(graph: Graph, parameters: Bools) -> Bools:
    """Operators that read a parameter of the set, and those that differentiate them."""
    direct: Bools = np.append(parameters, False)[graph.op_parameter]
    twin = graph.op_forward
    result: Bools = direct | ((twin >= 0) & direct[twin])
    return result


def _split_tensors(factors: _Factors, graph: Graph, split: Ints, plan: TensorPlan, tp: int) -> None:
    powers = graph.kinds.gemm_power[graph.op_kind]
    gemm = graph.kinds.gemm[graph.op_kind]
    is_gemm = gemm[:, _K] > 0
    backward = graph.op_phase == Phase.BACKWARD
    share = split == Split.SHARE
    factors.flops[share] /= tp
    factors.read_varying[share] /= tp
    factors.written_varying[share] /= tp
    factors.gemm[share & is_gemm, _BATCH] /= tp

    column, row = split == Split.COLUMN, split == Split.ROW
    linear = (column | row) & is_gemm
    factors.flops[linear] /= tp
    weight_gradient = linear & backward & (powers[:, _K] > 0)
    through = linear & ~weight_gradient  # forward, or the gradient of the input
    factors.read_fixed[through] /= tp
    # A column split cuts what forward writes and backward reads; a row split the reverse.
    narrow_out = through & (column ^ backward)
    narrow_in = through & ~narrow_out
    factors.written_varying[narrow_out] /= tp
    factors.gemm[narrow_out, _N] /= tp
    factors.read_varying[narrow_in] /= tp
    factors.gemm[narrow_in, _K] /= tp
    _split_weight_gradients(factors, graph, weight_gradient, column, tp)

    other = (column | row) & ~is_gemm
    factors.read_varying[other & column] /= tp
    factors.written_varying[other & column] /= tp
    factors.read_fixed[other & column] /= tp
    factors.written_fixed[other & column] /= tp
    # Casts of parameters and of their gradients, and gradients of tables.
    of_split = np.isin(plan.parameter_split, _WEIGHT_SPLITS)
    reads_split = (graph.op_parameter >= 0) & np.append(of_split, False)[graph.op_parameter]
    table = split == Split.ROWS_OF_TABLE
    only_weights = (reads_split & ~(column | row | table)) | (table & backward)
    factors.read_fixed[only_weights] /= tp
    factors.written_fixed[only_weights] /= tp


def _split_weight_gradients(
    factors: _Factors, graph: Graph, ops: Bools, column: Bools, tp: int
) -> None:
    """Of the two activations they multiply one is split, and so is their result."""
    rows = np.flatnonzero(ops)
    gemm = graph.kinds.gemm[graph.op_kind].astype(np.float64)
    forward = graph.op_forward[rows]
    split_size = np.where(column[rows], gemm[forward, _N], gemm[forward, _K])
    on_m = gemm[rows, _M] == split_size
    axis = np.where(on_m, _M, _N)
    factors.gemm[rows, axis] /= tp
    both = gemm[rows, _M] + gemm[rows, _N]
    factors.read_varying[rows] *= (both - split_size * (1 - 1 / tp)) / both
    factors.written_fixed[rows] /= tp


def _new_kinds(graph: Graph, factors: _Factors) -> tuple[Kinds, Ints]:
    table = np.column_stack(
        [
            graph.op_kind,
            factors.flops,
            factors.read_fixed,
            factors.read_varying,
            factors.written_fixed,
            factors.written_varying,
            factors.gemm,
        ]
    )
    rows, op_kind = np.unique(table, axis=0, return_inverse=True)
    kind = rows[:, 0].astype(np.int64)
    old = graph.kinds

    def scaled(column: Ints, fixed: Floats, varying: Floats) -> Ints:
        factor = np.column_stack([fixed, varying, varying])
        return np.rint(column[kind] * factor).astype(np.int64)

    counts = np.diff(old.tensor_start)[kind]
    tensors = _ranges(old.tensor_start[kind], counts)
    dim_counts = np.diff(old.dim_start)[tensors]
    dims = _ranges(old.dim_start[tensors], dim_counts)
    kinds = Kinds(
        name=tuple(old.name[k] for k in kind),
        op_class=old.op_class[kind],
        dtype=old.dtype[kind],
        flops=scaled(old.flops, rows[:, 1], rows[:, 1]),
        bytes_read=scaled(old.bytes_read, rows[:, 2], rows[:, 3]),
        bytes_written=scaled(old.bytes_written, rows[:, 4], rows[:, 5]),
        gemm=np.maximum(np.rint(old.gemm[kind] * rows[:, 6:]), old.gemm[kind] > 0).astype(np.int64),
        gemm_power=old.gemm_power[kind],
        attrs=old.attrs[kind],
        tensor_start=_offsets(counts),
        tensor_is_output=old.tensor_is_output[tensors],
        tensor_dtype=old.tensor_dtype[tensors],
        dim_start=_offsets(dim_counts),
        dim=old.dim[dims],
        dim_power=old.dim_power[dims],
    )
    return kinds, op_kind.reshape(-1)


def _new_storages(graph: Graph, factors: _Factors, parameter_share: Floats, cp: int) -> Storages:
    storages = graph.storages
    fixed, varying = np.ones(len(storages)), np.full(len(storages), 1 / cp)
    made = storages.alloc_op >= 0
    fixed[made] = factors.written_fixed[storages.alloc_op[made]]
    varying[made] = factors.written_varying[storages.alloc_op[made]]
    is_parameter = np.flatnonzero(storages.role == Role.PARAMETER)[: len(parameter_share)]
    fixed[is_parameter] = parameter_share[: len(is_parameter)]
    nbytes = np.rint(storages.nbytes * np.column_stack([fixed, varying, varying]))
    return dataclasses.replace(storages, nbytes=nbytes.astype(np.int64))


def _new_parameters(parameters: Parameters, share: Floats) -> Parameters:
    numel = np.ceil(parameters.numel * share).astype(np.int64)
    return dataclasses.replace(parameters, numel=numel)


def _ranges(start: Ints, count: Ints) -> Ints:
    """Concatenated ranges start[i] .. start[i] + count[i]."""
    total = int(count.sum())
    before = np.repeat(np.cumsum(count) - count, count)
    return np.repeat(start, count) + np.arange(total) - before


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
