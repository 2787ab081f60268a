"""Turns collected facts into a Launch: derived options, and checks that cross several facts."""

from __future__ import annotations

from types import MappingProxyType

from foretell.errors import InputError
from foretell.launch.batches import copies_of, settle_batches, shard_in_node
from foretell.launch.facts import Fact, Facts
from foretell.launch.launch import Launch
from foretell.launch.layout import Layout, resolve_layout

# Facts that are options as they stand.
_AS_STATED = (
    "model",
    "image_size",
    "seq",
    "optimizer",
    "fused_optimizer",
    "fp32_gradients",
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
    "shard",
    "schedule",
    "virtual_stages",
    "overlap",
    "prefetch",
    "tp_plan",
    "tp_joint",
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
    _habits(facts, options)
    _bucket(facts, options)
    copies = _copies(facts, layout)
    accumulation = _batches(facts, copies, options)
    _instances(facts, copies, options)
    hybrid = facts.fact("shards_within_node") if "shard" not in options else None
    if hybrid is not None:
        _shard(facts, layout, copies, hybrid, options)
    if layout.cluster is not None and layout.device is not None:
        options["cluster"] = Fact(layout.cluster, layout.device.where)
    told = {
        "world_size": layout.world,
        "nodes": layout.nodes,
        "gpus_per_node": layout.gpus_per_node,
        "device_hint": layout.device,
        "time_limit_s": facts.fact("time_limit_s"),
        "accumulation": accumulation,
        "shards_within_node": hybrid,
    }
    return Launch(
        path=facts.path,
        kinds=tuple(facts.kinds),
        options=MappingProxyType({name: fact.value for name, fact in options.items()}),
        states_accumulation=facts.get("accumulation") is not None
        and facts.get("global_batch") is None,
        **{name: None if fact is None else fact.value for name, fact in told.items()},
        origins=MappingProxyType(
            {name: fact.where for name, fact in (told | options).items() if fact is not None}
        ),
        notes=tuple(facts.notes),
        settled_by=MappingProxyType(facts.settled_by),
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
    elif (left := facts.fact("open_format")) is not None:
        facts.note(
            f"{left.where} {left.value} leaves the precision open: give --precision",
            settled_by=("precision",),
        )
    source = fp8 or (stated if low else None)
    if engine is not None and source is not None:
        options["master_weights"] = Fact(True, source.where)


def _habits(facts: Facts, options: dict[str, Fact]) -> None:
    """What Megatron and DeepSpeed do unless told otherwise, and what comes to nothing."""
    engine, zero = facts.fact("engine"), facts.get("zero") or 0
    if engine is not None and zero < 3:
        options.setdefault("overlap", Fact(False, engine.where))
    if engine is not None and engine.value == "megatron":
        options.setdefault("fused_optimizer", Fact(True, engine.where))
        if facts.get("number_format") == "bf16":
            options.setdefault("fp32_gradients", Fact(True, engine.where))
    if zero >= 2 and (wide := options.pop("fp32_gradients", None)) is not None and wide.value:
        facts.note(f"{wide.where} adds sharded gradients up in fp32, which is not modelled")
    if facts.get("offload_optimizer"):
        options.pop("fused_optimizer", None)
    if (facts.get("tp") or 1) == 1:
        options.pop("sp", None)


def _bucket(facts: Facts, options: dict[str, Fact]) -> None:
    """Buckets counted in elements: gradients of DeepSpeed are as narrow as its weights."""
    elements = facts.fact("bucket_elements")
    if elements is None or "bucket_mb" in options:
        return
    narrow = facts.get("engine") == "deepspeed" and facts.get("number_format") in ("fp16", "bf16")
    megabytes = elements.value * (2 if narrow else 4) / _BYTES_PER_MB
    options["bucket_mb"] = Fact(round(megabytes, 3), elements.where)


def _copies(facts: Facts, layout: Layout) -> Fact | None:
    """Data-parallel copies of the model."""
    stated = facts.fact("dp")
    if layout.world is None:
        return stated
    copies = copies_of(facts, layout.world)
    if stated is not None and stated.value != copies.value:
        raise facts.contradiction("the number of data-parallel copies", stated, copies)
    return copies


def _batches(facts: Facts, copies: Fact | None, options: dict[str, Fact]) -> Fact | None:
    """Adds the batches that follow from others; returns the accumulation, as far as it is known."""
    whole, micro, times = (facts.fact(n) for n in ("global_batch", "batch", "accumulation"))
    if copies is None:
        return times
    whole, micro = settle_batches(facts.path, whole, micro, times, copies)
    for name, fact in (("global_batch", whole), ("batch", micro)):
        if fact is not None:
            options[name] = fact
    if times is None and whole is not None and micro is not None:
        return Fact(whole.value // (micro.value * copies.value), whole.where)
    return times


def _instances(facts: Facts, copies: Fact | None, options: dict[str, Fact]) -> None:
    """Megatron may keep several copies of what its optimizer shards."""
    instances = facts.fact("optimizer_instances")
    if instances is None or not facts.get("zero"):
        return
    if copies is None:
        facts.note(
            f"{instances.where} {instances.value} shards over ranks that the file does not count: "
            "give --shard",
            settled_by=("shard",),
        )
        return
    replicas = copies.value * (facts.get("cp") or 1)
    if replicas % instances.value:
        raise InputError(
            f"{facts.path}: {instances.value} copies of the optimizer ({instances.where}) do not "
            f"divide {replicas} data-parallel ranks ({copies.where}): change one of them"
        )
    options.setdefault("shard", Fact(replicas // instances.value, instances.where))


def _shard(
    facts: Facts, layout: Layout, copies: Fact | None, hybrid: Fact, options: dict[str, Fact]
) -> None:
    """Hybrid sharding keeps a copy in every node."""
    if layout.gpus_per_node is not None:
        shard = shard_in_node(facts, copies, layout.gpus_per_node.value)
        options["shard"] = Fact(shard, hybrid.where)
    else:
        facts.note(
            f"{hybrid.where} shards within a node, whose devices the file does not count: "
            "give the cluster",
            settled_by=("cluster", "shard"),
        )
