"""The pieces a model is dealt out in: what comes before its blocks, the blocks, what comes after.

Pipeline stages are runs of units, FSDP gathers a unit at a time, and times are summed over units.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Bools, Floats, Graph, Ints, Parameters
from foretell.graph.ops import Phase, Role

_ALIKE = 0.05


@dataclass(frozen=True, eq=False)
class Units:
    """Unit of every operator and parameter. Unit 0 precedes the blocks, the last follows them."""

    count: int
    op: Ints
    parameter: Ints
    """The first unit that reads it."""
    parameter_last: Ints
    """The last one: another than the first where embeddings are tied."""

    @property
    def blocks(self) -> int:
        """Repeated blocks, without what comes before and after."""
        return self.count - 2

    def sums(self, values: Floats, where: Bools) -> Floats:
        """Sum of a per-operator quantity by unit."""
        result: Floats = np.bincount(
            self.op[where], weights=values[where], minlength=self.count
        ).astype(np.float64)
        return result

    def parameters_of(self, mine: Bools) -> Bools:
        """Parameters that a rank with some of the units holds."""
        here: Bools = mine[self.parameter] | mine[self.parameter_last]
        return here

    def parameter_sums(self, values: Ints) -> Floats:
        """Sum of a per-parameter quantity by the unit that reads it first."""
        sums = np.bincount(self.parameter, weights=values, minlength=self.count)
        return sums.astype(np.float64)


@functools.lru_cache(maxsize=64)
def units_of(graph: Graph) -> Units:
    """Deal a graph's operators and parameters to units."""
    blocks = list(graph.meta.get("blocks", ()))
    of_module = _module_units(graph, blocks)
    op = np.zeros(len(graph), dtype=np.int64)
    current, seen = 0, 0
    last_block_op = -1
    phases = graph.op_phase.tolist()
    owner = of_module[graph.op_module].tolist()
    forward = [i for i, phase in enumerate(phases) if phase == Phase.FORWARD]
    for i in forward:
        if owner[i] > 0:
            current = seen = max(seen, owner[i])
            last_block_op = i
        op[i] = current
    for i in forward:
        if i > last_block_op >= 0:
            op[i] = len(blocks) + 1
    carried = len(blocks) + 1
    for i, phase in enumerate(phases):
        if phase == Phase.FORWARD:
            continue
        twin = int(graph.op_forward[i])
        if phase == Phase.RECOMPUTE:
            carried = owner[i] or carried
        elif phase == Phase.BACKWARD and twin >= 0:
            carried = int(op[twin])
        op[i] = carried
    return Units(len(blocks) + 2, op, *_parameter_units(graph, op, of_module))


def _module_units(graph: Graph, blocks: list[str]) -> Ints:
    """Unit of each module path; 0 for modules outside blocks."""
    number = {path: i + 1 for i, path in enumerate(blocks)}
    found = np.zeros(len(graph.modules), dtype=np.int64)
    for i, path in enumerate(graph.modules):
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            unit = number.get(".".join(parts[:end]))
            if unit:
                found[i] = unit
                break
    return found


def _parameter_units(graph: Graph, op: Ints, of_module: Ints) -> tuple[Ints, Ints]:
    first = of_module[graph.parameters.module]
    last = first.copy()
    forward = np.flatnonzero((graph.op_phase == Phase.FORWARD) & (graph.op_parameter >= 0))
    readers: dict[int, list[int]] = {}
    for i in forward.tolist():
        readers.setdefault(int(graph.op_parameter[i]), []).append(int(op[i]))
    by_module: dict[int, list[int]] = {}
    for parameter, found in readers.items():
        by_module.setdefault(int(graph.parameters.module[parameter]), []).extend(found)
    for parameter in np.flatnonzero(first == 0).tolist():
        found = readers.get(parameter) or by_module.get(int(graph.parameters.module[parameter]), [])
        if found:
            first[parameter], last[parameter] = min(found), max(found)
    return first, last


def split_stages(units: Units, unit_s: Floats, stages: int, *, what: str) -> Ints:
    """Stage of each unit: contiguous, even for equal blocks, else with the least longest stage."""
    if stages == 1:
        return np.zeros(units.count, dtype=np.int64)
    if 0 < units.blocks < stages <= units.count:
        # Frameworks may let the embedding, and the head and loss, take a block's place.
        first = [0] if stages == units.count else []
        inner = np.arange(units.blocks) + len(first)
        return np.array([0, *inner, stages - 1], dtype=np.int64)
    if units.blocks < stages:
        raise InputError(
            f"{what} = {stages} stages, but the model has {units.blocks} repeated blocks to deal "
            "out: use fewer stages"
        )
    block_s = unit_s[1:-1]
    if units.blocks % stages == 0 and np.ptp(block_s) <= _ALIKE * block_s.max():
        inner = np.repeat(np.arange(stages), units.blocks // stages)
    else:
        inner = _least_longest(unit_s, stages)
    return np.concatenate([[0], inner, [stages - 1]]).astype(np.int64)


def _least_longest(unit_s: Floats, stages: int) -> Ints:
    """Stages of the blocks so that the slowest stage is as fast as can be."""
    block_s = unit_s[1:-1].copy()
    block_s[0] += unit_s[0]
    block_s[-1] += unit_s[-1]
    ends = np.concatenate([[0.0], np.cumsum(block_s)])
    count = len(block_s)
    best = np.full((stages + 1, count + 1), np.inf)
    cut = np.zeros((stages + 1, count + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for stage in range(1, stages + 1):
        for end in range(stage, count - (stages - stage) + 1):
            starts = np.arange(stage - 1, end)
            longest = np.maximum(best[stage - 1, starts], ends[end] - ends[starts])
            pick = int(np.argmin(longest))
            best[stage, end], cut[stage, end] = longest[pick], starts[pick]
    result = np.zeros(count, dtype=np.int64)
    end = count
    for stage in range(stages, 0, -1):
        start = int(cut[stage, end])
        result[start:end] = stage - 1
        end = start
    return result


def stage_graph(graph: Graph, units: Units, stage_of_unit: Ints, mine: Bools) -> Graph:
    """The part of a graph that one rank with some of the units runs and holds.

    Activations that a stage gets from the one before and saves are its own.
    """
    kept = mine[units.op]
    index = np.cumsum(kept) - 1
    ops = np.flatnonzero(kept)
    parameters, parameter_index = _stage_parameters(graph, units, mine)
    edges = kept[graph.edge_src] & kept[graph.edge_dst]
    s = dataclasses.replace(graph.storages, alloc_op=_received_at(graph, stage_of_unit[units.op]))
    made_here = (s.alloc_op >= 0) & kept[np.maximum(s.alloc_op, 0)]
    before = s.alloc_op < 0
    of_parameter = np.full(len(s), -1)
    numbered = np.flatnonzero(s.role == Role.PARAMETER)[: len(graph.parameters)]
    of_parameter[numbered] = np.arange(len(numbered))
    is_parameter = of_parameter >= 0
    held = made_here | (is_parameter & (parameter_index[of_parameter] >= 0))
    if mine[0]:
        held |= before & ~is_parameter
    last = np.searchsorted(ops, s.free_op, side="right") - 1
    free = np.where(s.free_op >= len(graph), len(ops), np.maximum(last, index[s.alloc_op]))
    op_parameter = np.where(graph.op_parameter >= 0, parameter_index[graph.op_parameter], -1)
    return dataclasses.replace(
        graph,
        op_kind=graph.op_kind[kept],
        op_phase=graph.op_phase[kept],
        op_module=graph.op_module[kept],
        op_forward=np.where(graph.op_forward >= 0, index[graph.op_forward], -1)[kept],
        op_parameter=op_parameter[kept],
        edge_src=index[graph.edge_src[edges]],
        edge_dst=index[graph.edge_dst[edges]],
        storages=dataclasses.replace(
            s,
            nbytes=s.nbytes[held],
            alloc_op=np.where(s.alloc_op >= 0, index[s.alloc_op], -1)[held],
            free_op=free[held],
            role=s.role[held],
            module=s.module[held],
        ),
        parameters=parameters,
    )


def _received_at(graph: Graph, op_stage: Ints) -> Ints:
    """alloc_op of every storage; where the next stage saves it, that stage's first operator."""
    s = graph.storages
    if not len(graph):
        return s.alloc_op
    made, freed = (op_stage[np.clip(op, 0, len(graph) - 1)] for op in (s.alloc_op, s.free_op))
    moved = (s.role == Role.SAVED) & (s.free_op < len(graph)) & (freed == made + 1)
    stages, first = np.unique(op_stage, return_index=True)
    start = np.zeros(int(stages.max()) + 2, dtype=np.int64)
    start[stages] = first
    result: Ints = np.where(moved, start[freed], s.alloc_op)
    return result


def _stage_parameters(graph: Graph, units: Units, mine: Bools) -> tuple[Parameters, Ints]:
    p = graph.parameters
    here = units.parameters_of(mine)
    index = np.where(here, np.cumsum(here) - 1, -1)
    kept = np.flatnonzero(here)
    chosen = dataclasses.replace(
        p,
        name=tuple(p.name[i] for i in kept),
        numel=p.numel[kept],
        dtype=p.dtype[kept],
        trainable=p.trainable[kept],
        module=p.module[kept],
        shape=tuple(p.shape[i] for i in kept),
    )
    return chosen, np.append(index, -1)
