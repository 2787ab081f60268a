"""Where a forecast's own plan cuts a model, in the words of PyTorch's parallel classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from foretell.cluster import Cluster, device, node_group
from foretell.graph import Graph
from foretell.graph.capture import CaptureOptions, Subject, capture
from foretell.parallel import Placed, place
from foretell.parallel.tensor import Split
from foretell.workload import Layout, Recipe, Workload

_SPLITS = {Split.COLUMN: "column", Split.ROW: "row", Split.ROWS_OF_TABLE: "table"}
_HEADS = ("heads", "kv_heads", "num_heads", "num_attention_heads", "num_key_value_heads")


def tensor_splits(subject: Subject, recipe: Recipe, layout: Layout) -> dict[str, str]:
    """How the forecast of a model splits its modules."""
    return splits_of(_placed(subject, recipe, layout)[0])


def splits_of(placed: Placed) -> dict[str, str]:
    """Module -> column, row, table (an embedding) or classes (its output feeds a split loss)."""
    graph = placed.whole.graph
    found = {
        graph.modules[graph.parameters.module[i]]: _SPLITS[Split(int(split))]
        for i, split in enumerate(placed.plan.parameter_split)
        if split
    }
    if placed.plan.losses and found:
        found[list(found)[-1]] = "classes"
    return found


def pipeline_points(subject: Subject, recipe: Recipe, layout: Layout) -> list[str]:
    """The blocks with which the second and later model chunks begin."""
    placed, graph = _placed(subject, recipe, layout)
    starts = np.flatnonzero(np.diff(placed.stage_of_unit)) + 1
    return [graph.meta["blocks"][unit - 1] for unit in starts.tolist()]


def split_modules(module: nn.Module, splits: Mapping[str, str], mesh: DeviceMesh) -> None:
    """Split the named modules over a mesh by DTensor."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

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
    parents = {path.rpartition(".")[0] for path in splits}
    for path, part in module.named_modules():
        for name in _HEADS if path in parents else ():
            if hasattr(part, name):
                setattr(part, name, getattr(part, name) // mesh.size())


def _placed(subject: Subject, recipe: Recipe, layout: Layout) -> tuple[Placed, Graph]:
    """The plan does not depend on what the devices are, only on how many."""
    graph = capture(dataclasses.replace(subject, own=True), CaptureOptions(mode=recipe.mode))
    nodes = node_group(device("cpu"), count=layout.world, gpus_per_node=1)
    return place(Workload(graph, recipe), Cluster(groups=(nodes,))), graph
