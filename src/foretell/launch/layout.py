"""How many nodes and devices a job has, and which device, from all that was said about it."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.cluster import parse_cluster
from foretell.errors import InputError
from foretell.launch.devices import memory_variants, resolve_device
from foretell.launch.facts import Fact, Facts, Strength


@dataclass(frozen=True)
class Layout:
    """The machines of a job, as far as they are known."""

    nodes: Fact | None
    gpus_per_node: Fact | None
    world: Fact | None
    device: Fact | None
    """The catalogue's id, or the file's own word."""
    cluster: str | None


def resolve_layout(facts: Facts) -> Layout:
    """Bring reservation, launcher and scheduler together, or say what contradicts what."""
    nodes = _nodes(facts)
    world = facts.fact("world_size")
    per_node = _per_node(facts, nodes, world)
    if nodes is None and world is not None and per_node is not None:
        nodes = Fact(_divided(facts, world, per_node), world.where)
    if nodes is not None and per_node is not None:
        total = nodes.value * per_node.value
        if world is not None and world.value != total:
            raise InputError(
                f"{facts.path}: {world.value} processes ({world.where}) are not {nodes.value} "
                f"nodes ({nodes.where}) times {per_node.value} devices ({per_node.where}): "
                "make them agree"
            )
        world = Fact(total, per_node.where)
    if world is None and facts.get("reserved_gpus"):
        world = facts.fact("reserved_gpus")
    device, known = _device(facts)
    cluster = None
    if known and device is not None and nodes is not None and per_node is not None:
        cluster = _cluster(facts, nodes.value, per_node.value, device.value)
    return Layout(nodes, per_node, world, device, cluster)


def _nodes(facts: Facts) -> Fact | None:
    reserved, step = facts.fact("reserved_nodes"), facts.fact("step_nodes")
    tasks, per_node = facts.fact("tasks"), facts.fact("tasks_per_node")
    if reserved is None and tasks is not None and per_node is not None:
        reserved = Fact(_divided(facts, tasks, per_node), tasks.where)
    gpus = facts.fact("reserved_gpus_per_node")
    is_open = facts.get("nodes_open") or "sbatch" not in facts.kinds
    if reserved is None and gpus is not None and not is_open:
        # Slurm's own default
        reserved = Fact(1, gpus.where, Strength.DEFAULT)
    certain = reserved is not None and reserved.strength != Strength.DEFAULT
    if step is not None and reserved is not None and certain and step.value > reserved.value:
        raise facts.contradiction("the number of nodes", reserved, step)
    reserved = step or reserved
    used = facts.fact("nodes")
    if used is None or reserved is None:
        return used or reserved
    if used.value == reserved.value:
        return used if used.strength >= reserved.strength else reserved
    if used.strength != Strength.DEFAULT and reserved.strength != Strength.DEFAULT:
        raise facts.contradiction("the number of nodes", reserved, used)
    if used.strength == Strength.DEFAULT and "pytorchjob" not in facts.kinds:
        facts.note(
            f"{used.where} starts on one node unless told; {reserved.value} were taken",
            settled_by=("cluster",),
        )
    return reserved if used.strength == Strength.DEFAULT else used


def _per_node(facts: Facts, nodes: Fact | None, world: Fact | None) -> Fact | None:
    reserved = _reserved_per_node(facts, nodes)
    used = facts.fact("processes_per_node")
    if used is not None and used.strength == Strength.DEFAULT and "pytorchjob" in facts.kinds:
        used = None
    if used is None and world is not None and nodes is not None:
        used = Fact(_divided(facts, world, nodes), world.where)
    if used is None and not {"torchrun", "accelerate", "deepspeed", "mpirun"} & set(facts.kinds):
        used = _tasks_per_node(facts, nodes, reserved)
    if used is None or reserved is None:
        return used or reserved
    if used.value > reserved.value:
        raise facts.contradiction("devices per node", reserved, used)
    if used.value < reserved.value:
        facts.note(
            f"{reserved.where} reserves {reserved.value} devices per node, {used.where} uses "
            f"{used.value}",
            settled_by=("cluster",),
        )
    return used


def _reserved_per_node(facts: Facts, nodes: Fact | None) -> Fact | None:
    per_node, total = facts.fact("reserved_gpus_per_node"), facts.fact("reserved_gpus")
    per_task, tasks = facts.fact("gpus_per_task"), facts.fact("tasks_per_node")
    if total is not None and nodes is not None:
        share = Fact(_divided(facts, total, nodes), total.where)
        if per_node is not None and per_node.value != share.value:
            raise facts.contradiction("devices per node", per_node, share)
        return share
    if per_node is None and per_task is not None and tasks is not None:
        return Fact(per_task.value * tasks.value, per_task.where)
    return per_node


def _tasks_per_node(facts: Facts, nodes: Fact | None, reserved: Fact | None) -> Fact | None:
    """srun starts a process per task; one task alone may still use every device."""
    tasks, per_node = facts.fact("tasks"), facts.fact("tasks_per_node")
    if per_node is None and tasks is not None and nodes is not None:
        per_node = Fact(_divided(facts, tasks, nodes), tasks.where)
    if per_node is None or (reserved is not None and per_node.value > reserved.value):
        return None
    if per_node.value == 1 and reserved is not None and reserved.value > 1:
        facts.note(
            f"{per_node.where} starts one process per node; all {reserved.value} devices were "
            "taken",
            settled_by=("cluster",),
        )
        return None
    return per_node if reserved is not None else None


def _divided(facts: Facts, whole: Fact, by: Fact) -> int:
    result, rest = divmod(whole.value, by.value)
    if rest or not result:
        raise InputError(
            f"{facts.path}: {whole.value} ({whole.where}) is not a multiple of {by.value} "
            f"({by.where}): change one of them"
        )
    return int(result)


def _device(facts: Facts) -> tuple[Fact | None, bool]:
    """The device, and whether the catalogue knows it."""
    word = facts.fact("device_word")
    partition = facts.fact("device_partition")
    if word is None and partition is not None:
        facts.note(
            f"{partition.where} suggests {partition.value}, taken as the device",
            settled_by=("cluster",),
        )
        return partition, True
    features = facts.get("device_features") or ()
    if word is None:
        constraint = facts.fact("device_features")
        if constraint is not None and not any(resolve_device(f, features) for f in features):
            facts.note(
                f"{constraint.where} {' '.join(features)} names no device Foretell knows",
                settled_by=("cluster",),
            )
        return None, False
    known = resolve_device(word.value, features)
    if known is None:
        facts.note(
            f"{word.where} {word.value} is not a device Foretell knows", settled_by=("cluster",)
        )
        return Fact(word.value.lower(), word.where), False
    variants = memory_variants(word.value)
    if (
        len(variants) > 1
        and resolve_device(word.value, ()) == known
        and not any(known.endswith(size.lower().removeprefix("gpu")) for size in features)
    ):
        facts.note(
            f"{word.where} {word.value} may be {' or '.join(variants)}: {known} was taken",
            settled_by=("cluster",),
        )
    return Fact(known, word.where), True


def _cluster(facts: Facts, nodes: int, per_node: int, device: str) -> str:
    text = f"{nodes}x{per_node}x{device}" if nodes > 1 else f"{per_node}x{device}"
    try:
        parse_cluster(text)
    except InputError as error:
        raise InputError(f"{facts.path}: {error}") from None
    return text
