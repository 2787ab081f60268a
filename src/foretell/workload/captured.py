"""What a graph was captured for, and whether later options agree with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.errors import InputError
from foretell.graph.graph import Graph
from foretell.graph.sources import captured_precision
from foretell.workload.recipe import Recipe


def settled_options(graph: Graph, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, completed by those the graph was captured with; refuses contradictions."""
    given = {name: value for name, value in options.items() if value is not None}
    captured = _captured(graph)
    for name, value in given.items():
        if name in captured and _as_captured(name, value) != captured[name]:
            raise InputError(
                f"{name}={value!r} contradicts the graph, which was captured with "
                f"{name}={captured[name]!r}: capture it anew, or leave {name} out"
            )
    fused = graph.meta.get("captured", {}).get("fused_attention")
    version = given.get("torch_version")
    if None not in (fused, version) and Recipe(torch_version=version).fused_attention != fused:
        raise InputError(
            f"torch_version={version!r} runs attention in another way than the graph was captured "
            "for: capture it anew with this torch_version"
        )
    settings = {n: v for n, v in captured.items() if n not in ("seq", "image_size")}
    return {**settings, **given}


def _captured(graph: Graph) -> dict[str, Any]:
    """Names and values as options have them; sizes that are not known are None."""
    options = graph.meta.get("captured") or {"mode": "train" if graph.is_training else "infer"}
    size = graph.meta.get("input")
    return {
        **{name: value for name, value in options.items() if name != "fused_attention"},
        "seq": graph.meta.get("seq"),
        "image_size": size[-1] if size else None,
    }


def _as_captured(name: str, value: Any) -> Any:
    return captured_precision(str(value)) if name == "precision" else value
