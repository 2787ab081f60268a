"""Vidur's operators of language models in fp16 inference, and its collectives.

A row of mlp.csv times ten operators at once: each is a record or a reject of its own. Times are
medians over 20 passes of the kernels alone. A bias, where a layer has one, rides in its product.

What to keep in mind about the collectives: the network between nodes is not named, so those rows
have no cluster; below 4 MiB neighbouring sizes of an all-reduce jump between 7 and 66 us, which is
the host's launch and not the link.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from foretell.data.importers.hardware import known_cluster
from foretell.data.importers.operators import linear, operator_record, rowwise
from foretell.data.importers.rows import BadRowError, Row, csv_file, each, taken
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject
from foretell.graph.sources.op_shape import op_reference

_LAYERS, _COLLECTIVES = "mlp.csv", ("all_reduce.csv", "send_recv.csv")
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
    for path in find(folder, _LAYERS):
        for row in csv_file(folder, path):
            yield from _operators(row, path.parents[2].name, path.parent.name)
    seen: dict[int, str] = {}
    for path in find(folder, *_COLLECTIVES):
        yield from each(csv_file(folder, path), _first, path.parent.name, seen)


def _operators(row: Row, where: str, network: str) -> Rows:
    """One record or reject for every operator the row has times of."""
    if not row.cells:  # the file as a whole is flawed
        yield Reject(row.origin, row.flaw)
        return
    # Models whose attention and feed-forward run side by side have one norm and no second column.
    parallel = f"time_stats.{_SECOND_NORM}.median" not in row.cells
    for operator in _OPERATORS:
        if operator == _SECOND_NORM and parallel:
            continue
        own = Row(f"{row.origin}:{operator}", row.cells, row.flaw)
        yield taken(own, _operator, operator, parallel, where, network)


def _operator(row: Row, operator: str, parallel: bool, where: str, network: str) -> Record:
    return operator_record(
        _reference(operator, row, parallel),
        _COMPUTE_DEVICE.get(where, where),
        batch=row.count("num_tokens"),
        options=_OPTIONS,
        time_s=_median_s(row, operator),
        samples=_TIMED_PASSES,
        metrics=_spread_s(row, operator),
        source=SOURCE.name,
        origin=row.origin,
        environment=_environment(network, row.count("num_tensor_parallel_workers")),
    )


def _reference(operator: str, row: Row, parallel: bool) -> str:
    """The operator of one of the workers that share a layer."""
    width, inner = row.count("n_embd"), row.count("n_expanded_embd")
    workers = row.count("num_tensor_parallel_workers")
    gated = row.filled("use_gated_mlp") == "True"
    if operator == "attn_pre_proj":
        heads = row.count("n_head")
        outputs = (heads + 2 * row.count("n_kv_head")) * (width // heads)
        return linear(width, _share(outputs, workers))
    if operator == "attn_post_proj":
        return linear(_share(width, workers), width)
    if operator == "mlp_up_proj":
        return linear(width, _share((2 if gated else 1) * inner, workers))
    if operator == "mlp_down_proj":
        return linear(_share(inner, workers), width)
    if operator.endswith("layernorm"):
        return rowwise("layer_norm" if parallel else "rms_norm", width)
    if operator == "emb":
        if workers > 1:
            raise BadRowError("a split embedding also masks, which no operator describes")
        return op_reference("embedding", rows=row.count("vocab_size"), width=width)
    if operator == "mlp_act":
        if gated:
            raise BadRowError("a gated activation in one kernel, which no operator describes")
        return rowwise("gelu", _share(inner, workers))
    if operator == "add":
        if parallel:
            raise BadRowError("a sum of three, which no operator describes")
        return rowwise("add", width)
    raise BadRowError("rotary positions, which no operator describes")


def _share(size: int, workers: int) -> int:
    if size % workers:
        raise BadRowError("the workers do not divide the layer")
    return size // workers


def _first(row: Row, where: str, seen: dict[int, str]) -> Record:
    """A collective, unless a table of other hardware holds the very same row."""
    key = hash(tuple(row.cells.values()))
    if seen.setdefault(key, where) != where:
        raise BadRowError(f"repeats {seen[key]}, digit for digit")
    return _collective(row, where)


def _collective(row: Row, where: str) -> Record:
    device, link = _NETWORK_DEVICE.get(where, (where, ""))
    kind = row.filled("collective")
    if kind not in ("all_reduce", "send_recv"):
        raise BadRowError("the collective is not known")
    ranks, per_node = row.count("num_workers"), row.count("devices_per_node")
    if ranks % per_node:
        raise BadRowError("the nodes do not share the workers evenly")
    inside = known_cluster(device, ranks) if ranks == per_node else ""
    return Record(
        kind="collective",
        model=f"collective:{kind}",
        # Bridges join pairs; four devices meet over PCIe.
        cluster=inside + link if inside and ranks == 2 else inside,
        device=device,
        devices=ranks,
        nodes=ranks // per_node,
        options={"nbytes": row.count("size"), "dtype": "fp16"},
        group=device,
        time_s=_median_s(row, kind),
        samples=_TIMED_CALLS,
        metrics=_spread_s(row, kind),
        source=SOURCE.name,
        origin=row.origin,
        environment={"system": where, "devices_per_node": row.count("max_devices_per_node")},
    )


def _median_s(row: Row, what: str) -> float:
    return row.positive(f"time_stats.{what}.median") / 1e3


def _spread_s(row: Row, what: str) -> dict[str, float]:
    stats = {f"{name}_s": f"time_stats.{what}.{name}" for name in ("mean", "min", "max", "std")}
    return {name: value_ms / 1e3 for name, value_ms in row.optional(**stats).items()}


@cache
def _environment(network: str, workers: int) -> dict[str, object]:
    return {"network": network, "tp": workers}


SOURCE = Source(
    name="vidur",
    repository="https://github.com/microsoft/vidur",
    commit="7d47513363ec447a741ac5e47241580b47724fbf",
    licence="MIT",
    use="fit",
    files=(_LAYERS, *_COLLECTIVES),
    read=read,
)
