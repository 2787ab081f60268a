"""Reads a DeepSpeed configuration."""

from __future__ import annotations

from typing import Any

from foretell.errors import InputError
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.nearby import Nearby
from foretell.launch.source import Keys, take_switch, take_text, take_wholes

_TELLING = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
_SECTIONS = ("fp16", "bf16", "zero_optimization", "optimizer", "activation_checkpointing")
_OPTIMIZERS = {"sgd": "sgd", "adafactor": "adafactor", "torchadam": "adam"}


def is_deepspeed(document: Document) -> bool:
    """Whether a mapping is a DeepSpeed configuration."""
    sections = sum(isinstance(document.get(name), dict) for name in _SECTIONS)
    return any(name in document.values for name in _TELLING) or sections >= 2


def read_deepspeed(document: Document, facts: Facts) -> None:
    """Take in a DeepSpeed configuration."""
    facts.kind("deepspeed")
    for name in _SECTIONS:
        value = document.get(name)
        if value is not None and not isinstance(value, dict):
            raise InputError(f"{document.where(name)} is {value!r}: write it as {{...}}")
    facts.say("engine", "deepspeed", document.name, Strength.DEFAULT)
    keys = Keys(document)
    take_wholes(
        keys,
        facts,
        {
            "global_batch": ("train-batch-size",),
            "batch": ("train-micro-batch-size-per-gpu",),
            "accumulation": ("gradient-accumulation-steps",),
        },
    )
    for section, number_format in (("fp16", "fp16"), ("bf16", "bf16"), ("bfloat16", "bf16")):
        say_format(keys.part(section).take("enabled"), number_format, facts)
    if take_switch(keys.part("amp"), facts, "enabled"):
        facts.note(f"{document.where('amp')} is mixed precision by apex, which is not modelled")
    _zero(keys.part("zero-optimization"), facts)
    _optimizer(keys.part("optimizer"), facts)
    checkpointing = keys.part("activation-checkpointing").document
    if any(value not in (False, None, 0) for value in checkpointing.values.values()):
        facts.say("recompute", "full", checkpointing.where(), Strength.DEFAULT)
    take_wholes(keys.part("tensor-parallel"), facts, {"tp": ("autotp-size",)})
    if where := take_switch(keys.part("compile"), facts, "enabled"):
        facts.say("compile", True, where)
    _gradients(keys.part("data-types"), facts)
    keys.note_rest(facts)


def read_deepspeed_file(reference: str, where: str, facts: Facts, nearby: Nearby) -> None:
    """Take in a configuration that another file or a command names."""
    for document in nearby.documents(reference, where):
        if is_deepspeed(document):
            read_deepspeed(document, facts)
        else:
            facts.note(f"{where} {reference} holds no DeepSpeed settings")


def say_format(found: tuple[Any, str] | None, number_format: str, facts: Facts) -> None:
    """A switch for a number format; "auto" leaves it to somebody else."""
    if found is None:
        return
    value, where = found
    if str(value).lower() == "auto":
        facts.say("open_format", value, where, Strength.DEFAULT)
    elif facts.parse_switch(value, where):
        facts.say("number_format", number_format, where)


def _zero(keys: Keys, facts: Facts) -> None:
    if (found := keys.take("stage")) is not None:
        stage = facts.parse_whole(*found, least=0)
        if stage is not None and stage > 3:
            raise InputError(f"{found[1]} is {stage}: write 0, 1, 2 or 3")
        if stage is not None:
            facts.say("zero", stage, found[1])
    device = take_text(keys.part("offload-optimizer"), facts, "device")
    if device is not None:
        say_offload(*device, facts)
    if where := take_switch(keys, facts, "cpu-offload"):
        facts.say("offload_optimizer", True, where)
    device = take_text(keys.part("offload-param"), facts, "device")
    if device is not None and device[0].lower() != "none":
        facts.note(f"{device[1]} keeps parameters on the {device[0]}, which is not modelled")
    if (found := keys.take("overlap-comm")) is not None:
        facts.say("overlap", bool(facts.parse_switch(*found)), found[1])
    if (found := keys.take("mics-shard-size")) is not None:
        shard = facts.parse_whole(*found, least=-1)
        if shard is not None and shard > 0:
            facts.say("shard", shard, found[1])
    take_wholes(keys, facts, {"bucket_elements": ("reduce-bucket-size",)})
    keys.note_rest(facts)


def _gradients(keys: Keys, facts: Facts) -> None:
    found = take_text(keys, facts, "grad-accum-dtype")
    if found is not None and found[0].lower() in ("fp32", "float32", "float"):
        facts.say("fp32_gradients", True, found[1])


def say_offload(device: str, where: str, facts: Facts) -> None:
    """Where the optimizer's state lives: cpu, nvme or none."""
    facts.say("offload_optimizer", device.lower() in ("cpu", "nvme"), where)
    if device.lower() == "nvme":
        facts.note(f"{where} is nvme, taken as the host's memory")


def _optimizer(keys: Keys, facts: Facts) -> None:
    found = take_text(keys, facts, "type")
    if found is None:
        return
    name, where = found
    plain = name.lower().replace("_", "")
    params = keys.part("params")
    if plain in ("adam", "adamw"):
        # DeepSpeed's Adam decouples weight decay unless told otherwise, and is one kernel.
        decoupled = take_text(params, facts, "adam-w-mode")
        is_plain = decoupled is not None and decoupled[0].lower() == "false"
        facts.say("optimizer", "adam" if is_plain and plain == "adam" else "adamw", where)
        if not take_switch(params, facts, "torch-adam"):
            facts.say("fused_optimizer", True, where, Strength.DEFAULT)
    elif plain == "sgd" and params.document.get("momentum"):
        facts.say("optimizer", "momentum", where)
    elif plain in _OPTIMIZERS:
        facts.say("optimizer", _OPTIMIZERS[plain], where)
    else:
        facts.note_unknown(name, where, "optimizer")
