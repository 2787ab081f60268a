"""Tensor parallelism planned from the graph: who is split, how, and what must be exchanged.

Walking forward from replicated activations, a linear layer splits its columns, and what follows
works on a share of the features (heads, hidden units) until a linear layer splits its rows and
its partial sums are added up. Where the share meets something that needs all of it, the linear
layers it came from stay whole. The last linear layer may end in a loss over split classes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatch

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Bools, Graph, Ints
from foretell.graph.ops import OpClass, Phase

_LARGE_TABLE = 2**20
_ON_SHARES = {
    OpClass.ELEMENTWISE,
    OpClass.COPY,
    OpClass.RANDOM,
    OpClass.SOFTMAX,
    OpClass.INDEX,
    OpClass.BMM,
    OpClass.ATTENTION,
    OpClass.FILL,
    OpClass.NORM,
    OpClass.REDUCTION,
    OpClass.LOSS,
}
_SAME_SIZE = {OpClass.ELEMENTWISE, OpClass.COPY, OpClass.RANDOM}


class Split(IntEnum):
    """What tensor parallelism does to an operator or a parameter."""

    WHOLE = 0
    SHARE = 1
    """Works on a share of the features."""
    COLUMN = 2
    ROW = 3
    ROWS_OF_TABLE = 4
    """An embedding table split by entries."""


CHOICES = {"column": Split.COLUMN, "row": Split.ROW, "whole": Split.WHOLE}


@dataclass(frozen=True, eq=False)
class TensorPlan:
    """The split of every operator and parameter, and where shares begin and end."""

    op_split: Ints
    parameter_split: Ints
    entries: dict[int, tuple[int, ...]]
    """Producer of a replicated activation -> the column-split operators that read it."""
    exits: tuple[int, ...]
    """Operators whose outputs are partial sums."""
    losses: tuple[int, ...]
    """Operators over split classes."""


@functools.lru_cache(maxsize=64)
def plan_tensor(graph: Graph, tp: int, named: tuple[tuple[str, str], ...] = ()) -> TensorPlan:
    """The plan for `tp` ranks; `named` are (module pattern, column | row | whole)."""
    walk = _Walk(graph, tp, named)
    while walk.run():
        pass
    walk.check()
    return walk.plan()


def whole_plan(graph: Graph) -> TensorPlan:
    """Nothing is split."""
    return TensorPlan(
        op_split=np.zeros(len(graph), dtype=np.int64),
        parameter_split=np.zeros(len(graph.parameters), dtype=np.int64),
        entries={},
        exits=(),
        losses=(),
    )


class _Walk:
    """One forward walk after another, until no split has to be taken back."""

    def __init__(self, graph: Graph, tp: int, named: Sequence[tuple[str, str]]) -> None:
        self.graph, self.tp = graph, tp
        self.choice = _named_parameters(graph, named)
        self.whole: set[int] = {p for p, split in self.choice.items() if split is Split.WHOLE}
        self.op_class = graph.op_class
        self.inputs = _producers(graph)
        self.elements, self.power = _output_sizes(graph)
        kinds = graph.kinds
        varies: Bools = np.any(kinds.bytes_read[:, 1:] | kinds.bytes_written[:, 1:], axis=1)
        self.varies: Bools = varies[graph.op_kind]
        self.forward = np.flatnonzero(graph.phase_mask(Phase.FORWARD, Phase.RECOMPUTE))

    def run(self) -> bool:
        """Walk once; True when a split was taken back and the walk must be repeated."""
        self.split = np.zeros(len(self.graph), dtype=np.int64)
        self.origin: dict[int, frozenset[int]] = {}
        self.entries: dict[int, list[int]] = {}
        self.exits: list[int] = []
        self.losses: list[int] = []
        before = len(self.whole)
        for op in self.forward.tolist():
            self._visit(op)
        return len(self.whole) > before

    def _visit(self, op: int) -> None:
        graph = self.graph
        shared = [p for p in self.inputs[op] if p in self.origin]
        parameter = int(graph.op_parameter[op])
        op_class = self.op_class[op]
        if parameter >= 0 and not self.varies[op]:
            return  # a cast of the parameter itself
        if parameter >= 0 and op_class in (OpClass.MATMUL, OpClass.BMM):
            self._visit_linear(op, parameter, shared)
        elif parameter >= 0 and op_class == OpClass.EMBEDDING:
            if graph.parameters.numel[parameter] >= _LARGE_TABLE and parameter not in self.whole:
                self.split[op] = Split.ROWS_OF_TABLE
                self.exits.append(op)
        elif shared:
            origins = frozenset().union(*(self.origin[p] for p in shared))
            if self._needs_all(op, origins, shared):
                self._take_back(op, origins)
                return
            self.split[op] = Split.SHARE
            if op_class == OpClass.LOSS:
                self.losses.append(op)
            else:
                self.origin[op] = origins

    def _visit_linear(self, op: int, parameter: int, shared: list[int]) -> None:
        chosen = self.choice.get(parameter)
        if (shared and chosen is not Split.COLUMN) or chosen is Split.ROW:
            self.split[op] = Split.ROW
            self.exits.append(op)
        elif parameter not in self.whole:
            if shared:
                origins = frozenset().union(*(self.origin[p] for p in shared))
                self._take_back(op, origins)
            self.split[op] = Split.COLUMN
            self.origin[op] = frozenset((parameter,))
            sources = [p for p in self.inputs[op] if self.varies[p]]
            self.entries.setdefault(sources[0] if sources else -1, []).append(op)

    def _needs_all(self, op: int, origins: frozenset[int], shared: list[int]) -> bool:
        op_class = self.op_class[op]
        if op_class not in _ON_SHARES:
            return True
        widths = {self._width(p) for p in origins}
        parameter = int(self.graph.op_parameter[op])
        if op_class == OpClass.NORM:
            return parameter < 0 or int(self.graph.parameters.numel[parameter]) in widths
        if op_class == OpClass.REDUCTION:
            shapes = self.graph.shapes(int(self.graph.op_kind[op]), outputs=False)
            return bool(shapes and shapes[0] and shapes[0][-1] in widths)
        if op_class == OpClass.ATTENTION:
            return self._keys_cannot_split(op)
        if op_class in _SAME_SIZE:
            whole = [p for p in self.inputs[op] if p not in self.origin and self.varies[p]]
            return any(
                self.elements[p] == self.elements[op] and self.power[p] == self.power[op]
                for p in whole
            )
        return False

    def _keys_cannot_split(self, op: int) -> bool:
        """Whether there are fewer key heads than ranks; then keys and values stay whole."""
        query, key = self.graph.shapes(int(self.graph.op_kind[op]), outputs=False)[:2]
        if key[1] % self.tp == 0 or query[1] % self.tp:
            return False
        by_width = {p: self._width(p) for o in self.inputs[op] for p in self.origin.get(o, ())}
        narrow = {p for p, width in by_width.items() if width == key[1] * key[-1]}
        if not narrow or len(narrow) == len(by_width):
            raise InputError(
                f"tp={self.tp} does not divide the {key[1]} key-value heads of "
                f"{self._module(op)}: choose a divisor of {key[1]}"
            )
        self.whole |= narrow
        return False

    def _take_back(self, op: int, origins: frozenset[int]) -> None:
        forced = [p for p in origins if p in self.choice]
        if forced:
            raise InputError(
                f"tp_plan splits {self.graph.parameters.name[forced[0]]!r} by columns, but "
                f"{self.graph.op_name[op]} in {self._module(op)} needs all of its output: "
                "leave it out of the plan"
            )
        self.whole |= origins

    def check(self) -> None:
        """Every split dimension must divide by the number of ranks."""
        # A degree that does not divide heads seldom divides widths: heads are what people know.
        self._check_heads()
        self._check_widths()

    def _check_heads(self) -> None:
        attention = (self.op_class == OpClass.ATTENTION) & (self.split == Split.SHARE)
        for op in np.intersect1d(self.forward, np.flatnonzero(attention)).tolist():
            heads = self.graph.shapes(int(self.graph.op_kind[op]), outputs=False)[0][1]
            if heads % self.tp:
                raise InputError(
                    f"tp={self.tp} does not divide the {heads} attention heads of "
                    f"{self._module(op)}: choose a divisor of {heads}"
                )

    def _check_widths(self) -> None:
        gemm = self.graph.kind_gemm
        for op in self.forward.tolist():
            split = self.split[op]
            if split in (Split.COLUMN, Split.ROW) and op not in self._before_loss:
                column = split == Split.COLUMN
                size = int(gemm[self.graph.op_kind[op], 2 if column else 3])
                if size % self.tp:
                    raise InputError(
                        f"tp={self.tp} does not divide the {size} "
                        f"{'outputs' if column else 'inputs'} of "
                        f"{self._module(op)}: choose a divisor of {size}"
                    )

    @functools.cached_property
    def _before_loss(self) -> set[int]:
        """Class projections, which frameworks pad: split layers whose share no other ends."""
        consumed = {
            p
            for op in self.forward.tolist()
            if self.split[op] == Split.ROW
            for i in self.inputs[op]
            for p in self.origin.get(i, ())
        }
        return {
            op
            for op in self.forward.tolist()
            if self.split[op] == Split.COLUMN and int(self.graph.op_parameter[op]) not in consumed
        }

    def plan(self) -> TensorPlan:
        """The walk's result, carried over to parameters."""
        return TensorPlan(
            op_split=self.split,
            parameter_split=self._parameter_splits(),
            entries={source: tuple(ops) for source, ops in self.entries.items()},
            exits=tuple(self.exits),
            losses=tuple(self.losses),
        )

    def _parameter_splits(self) -> Ints:
        parameters = self.graph.parameters
        result = np.zeros(len(parameters), dtype=np.int64)
        for op in self.forward.tolist():
            split, parameter = self.split[op], int(self.graph.op_parameter[op])
            if parameter < 0 or split not in (Split.COLUMN, Split.ROW, Split.ROWS_OF_TABLE):
                continue
            mates = np.flatnonzero(parameters.module == parameters.module[parameter])
            for mate in [parameter, *(mates.tolist() if len(mates) <= 2 else [])]:
                is_bias = len(parameters.shape[mate]) == 1
                if not (is_bias and split == Split.ROW):
                    result[mate] = split
        return result

    def _width(self, parameter: int) -> int:
        """Output features of a column-split layer."""
        widths = self._column_width
        return widths.get(parameter, 0)

    @functools.cached_property
    def _column_width(self) -> dict[int, int]:
        gemm = self.graph.kind_gemm
        return {
            int(self.graph.op_parameter[op]): int(gemm[self.graph.op_kind[op], 2])
            for op in self.forward.tolist()
            if self.graph.op_parameter[op] >= 0
            and self.op_class[op] in (OpClass.MATMUL, OpClass.BMM)
        }

    def _module(self, op: int) -> str:
        return self.graph.modules[self.graph.op_module[op]] or "the model"


def _named_parameters(graph: Graph, named: Sequence[tuple[str, str]]) -> dict[int, Split]:
    found: dict[int, Split] = {}
    for pattern, choice in named:
        if choice not in CHOICES:
            raise InputError(
                f"tp_plan gives {pattern!r} the split {choice!r}: use column, row or whole"
            )
        hits = [
            i
            for i, module in enumerate(graph.parameters.module)
            if fnmatch(graph.modules[module], pattern)
            or fnmatch(graph.modules[module], f"*.{pattern}")
        ]
        if not hits:
            raise InputError(f"tp_plan names {pattern!r}, which no module with parameters matches")
        found |= dict.fromkeys(hits, CHOICES[choice])
    return found


def _producers(graph: Graph) -> list[list[int]]:
    """Operators whose outputs each operator reads."""
    found: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        found[target].append(source)
    return found


def _output_sizes(graph: Graph) -> tuple[Ints, Ints]:
    """Elements (at one sample) and power of the batch of each operator's first output."""
    kinds = graph.kinds
    elements = np.zeros(len(kinds), dtype=np.int64)
    power = np.zeros(len(kinds), dtype=np.int64)
    for kind in range(len(kinds)):
        tensors = np.arange(kinds.tensor_start[kind], kinds.tensor_start[kind + 1])
        outputs = tensors[kinds.tensor_is_output[tensors]]
        if len(outputs):
            axes = slice(kinds.dim_start[outputs[0]], kinds.dim_start[outputs[0] + 1])
            elements[kind] = np.prod(kinds.dim[axes])
            power[kind] = kinds.dim_power[axes].sum()
    return elements[graph.op_kind], power[graph.op_kind]
