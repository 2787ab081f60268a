"""Reads accelerate's configuration, as YAML and as flags of `accelerate launch`."""

from __future__ import annotations

import math

from foretell.launch.deepspeed import read_deepspeed_file, say_offload
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.flags import Flags
from foretell.launch.fsdp import NAMES, read_fsdp, read_fsdp_section
from foretell.launch.nearby import Nearby
from foretell.launch.source import Keys, Source, take_switch, take_text, take_wholes

_TELLING = ("distributed_type", "compute_environment", "num_machines", "num_processes")


def is_accelerate(document: Document) -> bool:
    """Whether a mapping is an accelerate configuration."""
    return any(name in document.values for name in _TELLING)


def read_accelerate_file(document: Document, facts: Facts, nearby: Nearby) -> None:
    """Take in a configuration file; of its sections only the one it chooses counts."""
    facts.kind("accelerate")
    keys = Keys(document)
    kind = take_text(keys, facts, "distributed-type")
    chosen, where = ("", "") if kind is None else (kind[0].upper(), kind[1])
    _common(keys, facts)
    sections = {
        name: keys.part(section)
        for name, section in (
            ("DEEPSPEED", "deepspeed-config"),
            ("MEGATRON_LM", "megatron-lm-config"),
            ("FSDP", "fsdp-config"),
        )
    }
    for name, section in sections.items():
        if name != chosen and (chosen or not section.document.values):
            continue
        place = where or document.name
        if name == "FSDP":
            read_fsdp_section(section, facts, by_default=place)
            continue
        if name == "DEEPSPEED":
            _deepspeed(section, facts, nearby, place)
        else:
            _megatron(section, facts, place)
        section.note_rest(facts)
    read_parallelism(keys.part("parallelism-config"), facts)
    _dynamo(keys.part("dynamo-config"), facts)
    if chosen in ("MULTI_CPU", "XLA", "TPU", "MULTI_NPU", "MULTI_XPU"):
        facts.note(f"{where} {chosen} is not a kind of job Foretell knows")
    keys.note_rest(facts)


def read_accelerate_flags(flags: Flags, facts: Facts, nearby: Nearby) -> None:
    """Take in the flags of `accelerate launch`, and the file they name."""
    facts.kind("accelerate")
    _common(flags, facts)
    _deepspeed(flags, facts, nearby, take_switch(flags, facts, "use-deepspeed") or "")
    _megatron(flags, facts, take_switch(flags, facts, "use-megatron-lm") or "")
    if (where := take_switch(flags, facts, "use-fsdp")) or flags.any(NAMES):
        read_fsdp(flags, facts, by_default=where or "")
    read_parallelism(flags, facts)
    _dynamo(flags, facts)
    if (config := take_text(flags, facts, "config-file")) is not None:
        # Flags of the command override what the file says.
        with facts.at_most(Strength.FILE):
            for document in nearby.documents(*config):
                read_accelerate_file(document, facts, nearby)


def _common(source: Source, facts: Facts) -> None:
    if (processes := source.take("num-processes")) is not None:
        facts.say("nodes", 1, processes[1], Strength.DEFAULT)
    take_wholes(source, facts, {"nodes": ("num-machines",), "world_size": ("num-processes",)})
    take_wholes(source, facts, {"accumulation": ("gradient-accumulation-steps",)}, Strength.DEFAULT)
    mixed = take_text(source, facts, "mixed-precision")
    if mixed is None:
        return
    word, where = mixed[0].lower(), mixed[1]
    if word in ("fp16", "bf16"):
        facts.say("number_format", word, where)
    elif word == "fp8":
        facts.say("fp8", True, where)
    elif word in ("no", "false"):
        facts.say("number_format", "fp32", where, Strength.DEFAULT)
    else:
        facts.note_unknown(word, where, "precision")


def _deepspeed(source: Source, facts: Facts, nearby: Nearby, chosen: str) -> None:
    config = take_text(source, facts, "deepspeed-config-file")
    take_wholes(source, facts, {"accumulation": ("gradient-accumulation-steps",)}, Strength.DEFAULT)
    stage = source.take("zero-stage")
    if stage is not None and (value := facts.parse_whole(*stage, least=0)) is not None:
        facts.say("zero", value, stage[1])
    device = take_text(source, facts, "offload-optimizer-device")
    if device is not None:
        say_offload(*device, facts)
    device = take_text(source, facts, "offload-param-device")
    if device is not None and device[0].lower() != "none":
        facts.note(f"{device[1]} keeps parameters on the {device[0]}, which is not modelled")
    if chosen or config is not None or stage is not None:
        facts.kind("deepspeed")
        where = chosen or (config or stage or ("", ""))[1]
        facts.say("engine", "deepspeed", where, Strength.DEFAULT)
        if config is None:
            # accelerate's own default when only DeepSpeed is switched on
            facts.say("zero", 2, where, Strength.DEFAULT)
    if config is not None and config[0].lower() != "none":
        # DeepSpeed refuses what differs from its file, whoever says it.
        with facts.at_most(Strength.STATED):
            read_deepspeed_file(*config, facts, nearby)


def _megatron(source: Source, facts: Facts, chosen: str) -> None:
    prefix = "megatron-lm-"
    if chosen:
        facts.kind("megatron")
        facts.say("engine", "megatron", chosen, Strength.DEFAULT)
    take_wholes(
        source,
        facts,
        {
            "tp": (f"{prefix}tp-degree",),
            "pp": (f"{prefix}pp-degree",),
            "accumulation": (f"{prefix}num-micro-batches",),
        },
    )
    if where := take_switch(source, facts, f"{prefix}sequence-parallelism"):
        facts.say("sp", True, where)
    if where := take_switch(source, facts, f"{prefix}recompute-activations"):
        facts.say("recompute", "selective", where)
    if where := take_switch(source, facts, f"{prefix}use-distributed-optimizer"):
        facts.say("zero", 1, where)


def _dynamo(source: Source, facts: Facts) -> None:
    backend = take_text(source, facts, "dynamo-backend")
    if backend is not None and backend[0].lower() not in ("no", "eager"):
        facts.say("compile", True, backend[1])


def read_parallelism(source: Source, facts: Facts) -> None:
    """Take in the sizes that accelerate, and who builds on it, split a job into."""
    names = {
        fact: tuple(spelling for n in spellings for spelling in (n, f"parallelism-config-{n}"))
        for fact, spellings in {
            "tp": ("tp-size", "tensor-parallel-size"),
            "cp": ("cp-size", "context-parallel-size"),
            "dp_replicate": ("dp-replicate-size",),
            "dp_shard": ("dp-shard-size",),
        }.items()
    }
    take_wholes(source, facts, names)
    if (tp := source.take(*names["tp"])) is not None and (facts.get("tp") or 1) > 1:
        # The plans of Hugging Face treat every layer by itself.
        facts.say("tp_joint", False, tp[1])
    shares = [fact for name in ("dp_replicate", "dp_shard") if (fact := facts.fact(name))]
    if shares:
        facts.say("dp", math.prod(fact.value for fact in shares), shares[-1].where)
    shard = facts.fact("dp_shard")
    if shard is not None and shard.value > 1:
        # FSDP shards over the ranks that split sequences as well.
        facts.say("shard", shard.value * (facts.get("cp") or 1), shard.where)
        facts.say("zero", 3, shard.where, Strength.DEFAULT)
