"""Vidur's operators of language models in fp16 inference, and its collectives.

A row of mlp.csv times ten operators at once: each is a record or a reject of its own. Times are
medians over 20 passes of the kernels alone. A bias, where a layer has one, rides in its product.

What to keep in mind about the collectives: the network between nodes is not named, so those rows
have no cluster; below 4 MiB neighbouring sizes of an all-reduce jump between 7 and 66 us, which is
the host's launch and not the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from foretell.data.importers.cells import (
    BadRowError,
    Row,
    attempt,
    cluster_text,
    optional,
    positive,
    readable,
    table_rows,
    text,
    whole,
)
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject
from foretell.graph.sources.op_shape import op_reference

_COMPUTE_DEVICE = {"a40": "a40", "a100": "a100-80gb", "h100": "h100-sxm"}
# Folder -> device, link between the devices of a node (pairs have bridges).
_NETWORK_DEVICE = {
    "a40_pairwise_nvlink": ("a40", ":nvlink3-bridge"),
    "a100_dgx": ("a100-80gb", ""),
    "a100_pairwise_nvlink": ("a100-80gb-pcie", ":nvlink3"),
    "h100_dgx": ("h100-sxm", ""),
    "h100_pairwise_nvlink": ("h100-nvl", ":nvlink4-bridge"),
}
_OPTIONS = {"mode": "infer", "precision": "fp16"}
_SECOND_NORM = "post_attention_layernorm"
_OPERATORS = (
    "emb",
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    _SECOND_NORM,
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
_TIMED_PASSES = 20
_TIMED_CALLS = 3


def read(folder: Path) -> Rows:
    """Operators, then collectives."""
    for path in find(folder, SOURCE.files[0]):
        for origin, row in readable(folder, path):
            if isinstance(row, Reject):
                yield row
            else:
                yield from _operators(origin, row, path.parents[2].name, path.parent.name)
    seen: dict[int, str] = {}
    for path in find(folder, *SOURCE.files[1:]):
        yield from table_rows(folder, path, _first, path.parent.name, seen)


def _operators(origin: str, row: Row, where: str, network: str) -> Iterator[Record | Reject]:
    """One record or reject for every operator the row has times of."""
    # Models whose attention and feed-forward run side by side have one norm and no second column.
    parallel = f"time_stats.{_SECOND_NORM}.median" not in row
    for operator in _OPERATORS:
        if operator == _SECOND_NORM and parallel:
            continue
        place = f"{origin}:{operator}"
        yield attempt(place, _operator, row, operator, parallel, where, network)


def _operator(
    origin: str, row: Row, operator: str, parallel: bool, where: str, network: str
) -> Record:
    device = _COMPUTE_DEVICE.get(where, where)
    model = _reference(operator, row, parallel)
    stats = f"time_stats.{operator}"
    milliseconds = optional(
        row, mean=f"{stats}.mean", min=f"{stats}.min", max=f"{stats}.max", std=f"{stats}.std"
    )
    return Record(
        kind="operator",
        model=model,
        cluster=cluster_text(device),
        device=device,
        batch=whole(row, "num_tokens"),
        options=_OPTIONS,
        group=model,
        time_s=positive(row, f"{stats}.median") / 1e3,
        samples=_TIMED_PASSES,
        metrics={f"{name}_s": value / 1e3 for name, value in milliseconds.items()},
        source="vidur",
        origin=origin,
        environment=_environment(network, whole(row, "num_tensor_parallel_workers")),
    )


def _reference(operator: str, row: Row, parallel: bool) -> str:
    """The operator of one of the workers that share a layer."""
    width, inner = whole(row, "n_embd"), whole(row, "n_expanded_embd")
    workers = whole(row, "num_tensor_parallel_workers")
    gated = text(row, "use_gated_mlp") == "True"
    if operator == "attn_pre_proj":
        heads = whole(row, "n_head")
        outputs = (heads + 2 * whole(row, "n_kv_head")) * (width // heads)
        return _linear(width, _share(outputs, workers))
    if operator == "attn_post_proj":
        return _linear(_share(width, workers), width)
    if operator == "mlp_up_proj":
        return _linear(width, _share((2 if gated else 1) * inner, workers))
    if operator == "mlp_down_proj":
        return _linear(_share(inner, workers), width)
    if operator.endswith("layernorm"):
        return _rows("layer_norm" if parallel else "rms_norm", width)
    if operator == "emb":
        if workers > 1:
            raise BadRowError("a split embedding also masks, which no operator describes")
        return op_reference("embedding", rows=whole(row, "vocab_size"), width=width)
    if operator == "mlp_act":
        if gated:
            raise BadRowError("a gated activation in one kernel, which no operator describes")
        return _rows("gelu", _share(inner, workers))
    if operator == "add":
        if parallel:
            raise BadRowError("a sum of three, which no operator describes")
        return _rows("add", width)
    raise BadRowError("rotary positions, which no operator describes")


def _share(size: int, workers: int) -> int:
    if size % workers:
        raise BadRowError("the workers do not divide the layer")
    return size // workers


def _first(origin: str, row: Row, where: str, seen: dict[int, str]) -> Record | Reject:
    """A collective, unless a table of other hardware holds the very same row."""
    key = hash(tuple(map(str, row.values())))
    if seen.setdefault(key, where) != where:
        return Reject(origin, f"repeats {seen[key]}, digit for digit")
    return _collective(origin, row, where)


def _collective(origin: str, row: Row, where: str) -> Record:
    device, link = _NETWORK_DEVICE.get(where, (where, ""))
    kind = text(row, "collective")
    if kind not in ("all_reduce", "send_recv"):
        raise BadRowError("the collective is not known")
    ranks, per_node = whole(row, "num_workers"), whole(row, "devices_per_node")
    if ranks % per_node:
        raise BadRowError("the nodes do not share the workers evenly")
    inside = cluster_text(device, ranks) if ranks == per_node else ""
    stats = f"time_stats.{kind}"
    milliseconds = optional(
        row, mean=f"{stats}.mean", min=f"{stats}.min", max=f"{stats}.max", std=f"{stats}.std"
    )
    return Record(
        kind="collective",
        model=f"collective:{kind}",
        # Bridges join pairs; four devices meet over PCIe.
        cluster=inside + link if inside and ranks == 2 else inside,
        device=device,
        devices=ranks,
        nodes=ranks // per_node,
        options={"nbytes": whole(row, "size"), "dtype": "fp16"},
        group=device,
        time_s=positive(row, f"{stats}.median") / 1e3,
        samples=_TIMED_CALLS,
        metrics={f"{name}_s": value / 1e3 for name, value in milliseconds.items()},
        source="vidur",
        origin=origin,
        environment={"system": where, "devices_per_node": whole(row, "max_devices_per_node")},
    )


@cache
def _linear(inner: int, outer: int) -> str:
    return op_reference("linear", **{"in": inner, "out": outer})


@cache
def _rows(name: str, width: int) -> str:
    return op_reference(name, width=width)


@cache
def _environment(network: str, workers: int) -> dict[str, object]:
    return {"network": network, "tp": workers}


SOURCE = Source(
    name="vidur",
    repository="https://github.com/microsoft/vidur",
    commit="7d47513363ec447a741ac5e47241580b47724fbf",
    licence="MIT",
    use="fit",
    files=("mlp.csv", "all_reduce.csv", "send_recv.csv"),
    read=read,
)
