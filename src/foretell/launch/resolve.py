"""Turns collected facts into a Launch: derived options, and checks that cross several facts."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from foretell.errors import InputError
from foretell.launch.facts import Fact, Facts
from foretell.launch.launch import Launch
from foretell.launch.layout import Layout, resolve_layout

# Facts that are options as they stand.
_AS_STATED = (
    "model",
    "image_size",
    "seq",
    "optimizer",
    "compile",
    "channels_last",
    "recompute",
    "epochs",
    "samples",
    "steps",
    "tokens",
    "dp",
    "tp",
    "sp",
    "pp",
    "cp",
    "ep",
    "zero",
    "schedule",
    "virtual_stages",
    "offload_optimizer",
    "bucket_mb",
    "batch",
    "global_batch",
)
_BYTES_PER_MB = 2**20


def resolve(facts: Facts) -> Launch:
    """Everything the facts say, or the sentence that says why they cannot all hold."""
    layout = resolve_layout(facts)
    options = {name: fact for name in _AS_STATED if (fact := facts.fact(name)) is not None}
    _precision(facts, options)
    _bucket(facts, options)
    replicas = _replicas(facts, layout)
    _batches(facts, replicas, options)
    if layout.cluster is not None and layout.device is not None:
        options["cluster"] = Fact(layout.cluster, layout.device.where)
    return Launch(
        path=facts.path,
        kinds=tuple(facts.kinds),
        options=MappingProxyType({name: fact.value for name, fact in options.items()}),
        world_size=_value(layout.world),
        nodes=_value(layout.nodes),
        gpus_per_node=_value(layout.gpus_per_node),
        device_hint=_value(layout.device),
        time_limit_s=facts.get("time_limit_s"),
        origins=MappingProxyType({name: fact.where for name, fact in options.items()}),
        notes=tuple(facts.notes),
    )


def _precision(facts: Facts, options: dict[str, Fact]) -> None:
    """DeepSpeed and Megatron cast the weights and keep fp32 copies; the others use autocast."""
    stated, fp8, tf32 = (facts.fact(name) for name in ("number_format", "fp8", "tf32"))
    engine = facts.get("engine")
    weights = facts.fact("weights")
    low = stated is not None and stated.value in ("fp16", "bf16")
    if fp8 is not None:
        options["precision"] = Fact("fp8", fp8.where)
    elif low and stated is not None and engine is not None:
        options["precision"] = stated
    elif low and stated is not None:
        same = weights is not None and weights.value == stated.value
        options["precision"] = Fact(stated.value if same else f"amp-{stated.value}", stated.where)
    elif tf32 is not None:
        options["precision"] = Fact("tf32", tf32.where)
    elif stated is not None:
        options["precision"] = stated
    elif weights is not None:
        options["precision"] = weights
    source = fp8 or (stated if low else None)
    if engine is not None and source is not None:
        options["master_weights"] = Fact(True, source.where)


def _bucket(facts: Facts, options: dict[str, Fact]) -> None:
    """Buckets counted in elements: gradients of DeepSpeed are as narrow as its weights."""
    elements = facts.fact("bucket_elements")
    if elements is None or "bucket_mb" in options:
        return
    narrow = facts.get("engine") == "deepspeed" and facts.get("number_format") in ("fp16", "bf16")
    megabytes = elements.value * (2 if narrow else 4) / _BYTES_PER_MB
    options["bucket_mb"] = Fact(round(megabytes, 3), elements.where)


def _replicas(facts: Facts, layout: Layout) -> Fact | None:
    """Data-parallel copies of the model."""
    parts = [fact for name in ("tp", "pp", "cp") if (fact := facts.fact(name)) is not None]
    size = 1
    for part in parts:
        size *= part.value
    world = layout.world
    if world is None:
        return facts.fact("dp")
    if world.value % size:
        product = " x ".join(f"{part.value} ({part.where})" for part in parts)
        raise InputError(
            f"{facts.path}: {product} = {size} devices per copy of the model do not divide "
            f"{world.value} devices ({world.where}): change one of them"
        )
    experts, pp = facts.fact("ep"), facts.get("pp") or 1
    if experts is not None and world.value % (experts.value * pp):
        raise InputError(
            f"{facts.path}: {experts.value} groups of experts ({experts.where}) do not divide "
            f"{world.value // pp} devices per pipeline stage ({world.where}): change one of them"
        )
    copies, stated = Fact(world.value // size, world.where), facts.fact("dp")
    if stated is not None and stated.value != copies.value:
        raise facts.contradiction("the number of data-parallel copies", stated, copies)
    return copies


def _batches(facts: Facts, replicas: Fact | None, options: dict[str, Fact]) -> None:
    """The global batch is batch x accumulation x copies, whichever of them are stated."""
    whole, micro, times = (facts.fact(n) for n in ("global_batch", "batch", "accumulation"))
    if replicas is None:
        if whole is None and times is not None and times.value > 1:
            facts.note(
                f"{times.where} {times.value} counts only once the number of devices is known"
            )
        return
    if whole is None:
        if micro is not None and times is not None:
            total = micro.value * times.value * replicas.value
            options["global_batch"] = Fact(total, times.where)
        elif times is not None and times.value > 1:
            facts.note(f"{times.where} {times.value} counts only once the batch is known")
        return
    known = [fact for fact in (micro, times) if fact is not None]
    product = replicas.value
    for fact in known:
        product *= fact.value
    exact = len(known) == 2
    if whole.value % product or (exact and whole.value != product):
        shown = " x ".join(f"{fact.value} ({fact.where})" for fact in known)
        shown = f"{shown} x " if shown else ""
        relation = "is not" if exact else "is not a multiple of"
        raise InputError(
            f"{facts.path}: a global batch of {whole.value} ({whole.where}) {relation} "
            f"{shown}{replicas.value} data-parallel copies ({replicas.where}) = {product}: "
            "change one of them"
        )
    if micro is None and times is not None:
        options["batch"] = Fact(whole.value // product, whole.where)


def _value(fact: Fact | None) -> Any:
    return None if fact is None else fact.value
