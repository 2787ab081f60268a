"""How batch, accumulation and data-parallel copies make up the global batch."""

from __future__ import annotations

import math

from foretell.errors import InputError
from foretell.launch.facts import Fact, Facts


def copies_of(facts: Facts, world: Fact) -> Fact:
    """Data-parallel copies of the model on `world` devices; refuses sizes that do not divide it."""
    parts = [fact for name in ("tp", "pp", "cp") if (fact := facts.fact(name)) is not None]
    size = math.prod(part.value for part in parts)
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
    copies = Fact(world.value // size, world.where)
    shard, replicas = facts.fact("shard"), _replicas(facts, copies)
    if shard is not None and replicas % shard.value:
        raise InputError(
            f"{facts.path}: {shard.value} ranks that share a copy ({shard.where}) do not divide "
            f"{replicas} data-parallel ranks ({world.where}): change one of them"
        )
    return copies


def check_experts(facts: Facts, copies: Fact) -> None:
    """Frameworks may deal experts out over the ranks of a split layer too, Foretell does not."""
    experts, replicas = facts.fact("ep"), _replicas(facts, copies)
    if experts is not None and replicas % experts.value:
        raise InputError(
            f"{facts.path}: {experts.value} groups of experts ({experts.where}) do not divide "
            f"{replicas} data-parallel ranks ({copies.where}): give --ep"
        )


def shard_in_node(facts: Facts, copies: Fact | None, gpus_per_node: int) -> int:
    """Ranks of one node that share a copy of what is sharded, as hybrid sharding does."""
    # Any number divides the zero that stands for unknown copies.
    replicas = 0 if copies is None else _replicas(facts, copies)
    return math.gcd(replicas, max(1, gpus_per_node // (facts.get("tp") or 1)))


def _replicas(facts: Facts, copies: Fact) -> int:
    """Ranks that hold the same parameters."""
    return int(copies.value * (facts.get("cp") or 1))


def settle_batches(
    path: str, whole: Fact | None, micro: Fact | None, times: Fact | None, copies: Fact
) -> tuple[Fact | None, Fact | None]:
    """Global batch and batch, where one follows from the other; refuses what does not factor."""
    known = [fact for fact in (micro, times) if fact is not None]
    product = copies.value * math.prod(fact.value for fact in known)
    exact = len(known) == 2
    if whole is None:
        return (Fact(product, times.where) if exact and times is not None else None), micro
    if whole.value % product or (exact and whole.value != product):
        shown = "".join(f"{fact.value} ({fact.where}) x " for fact in known)
        relation = "is not" if exact else "is not a multiple of"
        raise InputError(
            f"{path}: a global batch of {whole.value} ({whole.where}) {relation} "
            f"{shown}{copies.value} data-parallel copies ({copies.where}) = {product}: "
            "change one of them"
        )
    if micro is None and times is not None:
        micro = Fact(whole.value // product, whole.where)
    return whole, micro
