"""What options given beside a launch file change about the job it describes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from foretell.cluster import Cluster, parse_cluster
from foretell.graph.optimizer import FUSED
from foretell.launch.batches import check_experts, copies_of, settle_batches, shard_in_node
from foretell.launch.facts import Fact, Facts, Strength
from foretell.launch.launch import Launch
from foretell.workload import LOW_PRECISIONS

_COUNTS = ("batch", "global_batch", "dp", "tp", "pp", "cp", "ep", "shard")
_LENGTHS = ("epochs", "steps", "tokens")
_OF_TRAINING = (
    "recompute",
    "master_weights",
    "fp32_gradients",
    "fused_optimizer",
    "offload_optimizer",
)


def beside(launch: Launch, given: Mapping[str, Any]) -> Launch:
    """The job with `given` before what the file says; its notes tell what gave way.

    What the file states stays unless another is given: its accumulation, and the global batch
    follows; or its global batch, and accumulation follows.
    """
    facts = Facts(launch.path)
    _say_options(launch, given, facts)
    if "cluster" in given:
        launch = _on(parse_cluster(given["cluster"]), launch, facts)
    if launch.world_size is not None:
        copies = copies_of(facts, Fact(launch.world_size, launch.origins["world_size"]))
        check_experts(facts, copies)
        _copies(copies, facts)
        _shard(launch, copies, facts)
        launch = _batches(launch, copies, facts)
    dropped = set(launch.options) - set(facts.all())
    origins = {name: where for name, where in launch.origins.items() if name not in dropped}
    origins |= {name: fact.where for name, fact in facts.all().items()}
    open_notes = (n for n in launch.notes if not set(launch.settled_by[n]) & set(given))
    notes = dict.fromkeys((*open_notes, *facts.notes))
    return dataclasses.replace(
        launch,
        options=MappingProxyType({name: fact.value for name, fact in facts.all().items()}),
        origins=MappingProxyType(origins),
        notes=tuple(notes),
        settled_by=MappingProxyType({n: launch.settled_by.get(n, ()) for n in notes}),
    )


def _say_options(launch: Launch, given: Mapping[str, Any], facts: Facts) -> None:
    replaced = dict(_replaced(given))
    for name, value in launch.options.items():
        fact = Fact(value, launch.origins[name], Strength.FILE)
        if name in replaced and name not in given:
            by = replaced[name]
            facts.note_yielding(name, fact, Fact(given[by], _option(by, given[by])))
        elif not _follows(name, launch):
            facts.say(name, value, fact.where, fact.strength)
    for name, value in given.items():
        if name in _COUNTS:
            facts.whole(name, value, _option(name, value), Strength.GIVEN)
        else:
            facts.say(name, value, _option(name, value), Strength.GIVEN)


def _follows(name: str, launch: Launch) -> bool:
    """Whether an option of the file is not its own word, but was worked out from others."""
    if name == "shard":
        return bool(launch.shards_within_node)
    return name == "global_batch" and launch.states_accumulation


def _replaced(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options of a file that have no meaning beside a given one: (theirs, given)."""
    for length in _LENGTHS:
        if length in given:
            yield from ((other, length) for other in _LENGTHS if other != length)
            if length != "epochs":
                yield "samples", length
    if given.get("tp") == 1:
        yield from ((name, "tp") for name in ("sp", "tp_plan", "tp_joint"))
    if given.get("pp") == 1:
        yield from (("schedule", "pp"), ("virtual_stages", "pp"))
    if given.get("virtual_stages") == 1:
        yield "schedule", "virtual_stages"
    if given.get("schedule", "interleaved") != "interleaved":
        yield "virtual_stages", "schedule"
    if given.get("zero") == 0:
        yield "shard", "zero"
    if given.get("precision", LOW_PRECISIONS[0]) not in LOW_PRECISIONS:
        yield "master_weights", "precision"
    if given.get("optimizer", FUSED[0]) not in FUSED:
        yield "fused_optimizer", "optimizer"
    if given.get("mode") == "infer":
        yield from ((name, "mode") for name in _OF_TRAINING)


def _on(cluster: Cluster, launch: Launch, facts: Facts) -> Launch:
    """The job on another cluster; notes its size where the file says only that."""
    found: dict[str, Any] = {
        "world_size": cluster.total_devices,
        "nodes": cluster.total_nodes,
        "gpus_per_node": math.gcd(*(group.gpus_per_node for group in cluster.groups)),
    }
    where = _option("cluster", cluster.spec)
    for name in ("world_size", "nodes"):
        said = getattr(launch, name)
        if said not in (None, found[name]) and "cluster" not in launch.options:
            facts.note_yielding(name, Fact(said, launch.origins[name]), Fact(found[name], where))
            break
    return dataclasses.replace(
        launch, origins={**launch.origins, **dict.fromkeys(found, where)}, **found
    )


def _copies(copies: Fact, facts: Facts) -> None:
    """The copies a file counts follow from the devices, the degrees do not."""
    said = facts.fact("dp")
    if said is None:
        return
    if said.strength == Strength.GIVEN and said.value != copies.value:
        raise facts.contradiction("the number of data-parallel copies", said, copies)
    facts.say("dp", copies.value, copies.where, Strength.GIVEN)


def _shard(launch: Launch, copies: Fact, facts: Facts) -> None:
    if launch.shards_within_node and launch.gpus_per_node and facts.get("zero"):
        share = shard_in_node(facts, copies, launch.gpus_per_node)
        facts.say("shard", share, launch.origins["shards_within_node"], Strength.DEFAULT)


def _batches(launch: Launch, copies: Fact, facts: Facts) -> Launch:
    micro, whole, times = facts.fact("batch"), facts.fact("global_batch"), None
    if launch.accumulation is not None:
        times = Fact(launch.accumulation, launch.origins["accumulation"])
    # Of three that make up the global batch, a given one goes before the file's accumulation.
    exact = whole is None or micro is None
    whole, micro = settle_batches(facts.path, whole, micro, times if exact else None, copies)
    for name, fact in (("global_batch", whole), ("batch", micro)):
        if fact is not None:
            facts.say(name, fact.value, fact.where, fact.strength)
    if whole is None or micro is None:
        return launch
    passes = whole.value // (micro.value * copies.value)
    made_of = f"{micro.value} ({micro.where}) x {passes} x {copies.value} copies ({copies.where})"
    if times is not None and times.value != passes:
        facts.note(
            f"accumulation {times.value} ({times.where}) becomes {passes}: a global batch of "
            f"{whole.value} ({whole.where}) is {made_of}"
        )
    before = launch.options.get("global_batch")
    if launch.states_accumulation and exact and before not in (None, whole.value):
        facts.note(f"the global batch of {before} becomes {whole.value}: {made_of}")
    return dataclasses.replace(launch, accumulation=passes)


def _option(name: str, value: Any) -> str:
    """How an option is written on the command line."""
    if name == "model":
        return "the model given"
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
