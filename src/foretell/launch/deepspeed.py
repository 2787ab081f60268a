"""Reads a DeepSpeed configuration."""

from __future__ import annotations

from typing import Any

from foretell.errors import InputError
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.source import Keys, take_switch, take_text, take_wholes

_TELLING = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
_SECTIONS = ("fp16", "bf16", "zero_optimization", "optimizer", "activation_checkpointing")
_OPTIMIZERS = {"adamw": "adamw", "sgd": "sgd", "adafactor": "adafactor", "torchadam": "adam"}


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
    take_wholes(
        Keys(document),
        facts,
        {
            "global_batch": ("train_batch_size",),
            "batch": ("train_micro_batch_size_per_gpu",),
            "accumulation": ("gradient_accumulation_steps",),
        },
    )
    for section, number_format in (("fp16", "fp16"), ("bf16", "bf16"), ("bfloat16", "bf16")):
        part = document.part(section)
        if part.values and (where := take_switch(Keys(part), facts, "enabled")):
            facts.say("number_format", number_format, where)
    if take_switch(Keys(document.part("amp")), facts, "enabled"):
        facts.note(f"{document.where('amp')} is mixed precision by apex, which is not modelled")
    _zero(document.part("zero_optimization"), facts)
    _optimizer(document.part("optimizer"), facts)
    checkpointing = document.part("activation_checkpointing")
    if any(value not in (False, None, 0) for value in checkpointing.values.values()):
        facts.say("recompute", "full", checkpointing.where(), Strength.DEFAULT)
    take_wholes(Keys(document.part("tensor_parallel")), facts, {"tp": ("autotp-size",)})
    if where := take_switch(Keys(document.part("compile")), facts, "enabled"):
        facts.say("compile", True, where)
    for name in ("pipeline", "sequence_parallel_size", "moe", "quantize_training"):
        if document.get(name):
            facts.note(f"{document.where(name)} was not read")


def _zero(part: Document, facts: Facts) -> None:
    keys = Keys(part)
    if (found := keys.take("stage")) is not None:
        stage = facts.parse_whole(*found, least=0)
        if stage is not None and stage > 3:
            raise InputError(f"{found[1]} is {stage}: write 0, 1, 2 or 3")
        if stage is not None:
            facts.say("zero", stage, found[1])
    device = take_text(Keys(part.part("offload_optimizer")), facts, "device")
    if device is not None:
        say_offload(*device, facts)
    if where := take_switch(keys, facts, "cpu-offload"):
        facts.say("offload_optimizer", True, where)
    device = take_text(Keys(part.part("offload_param")), facts, "device")
    if device is not None and device[0].lower() != "none":
        facts.note(f"{device[1]} keeps parameters on the {device[0]}, which is not modelled")
    take_wholes(keys, facts, {"bucket_elements": ("reduce-bucket-size",)})


def say_offload(device: str, where: str, facts: Facts) -> None:
    """Where the optimizer's state lives: cpu, nvme or none."""
    facts.say("offload_optimizer", device.lower() in ("cpu", "nvme"), where)
    if device.lower() == "nvme":
        facts.note(f"{where} is nvme, taken as the host's memory")


def _optimizer(part: Document, facts: Facts) -> None:
    found = take_text(Keys(part), facts, "type")
    if found is None:
        return
    name, where = found
    plain = name.lower().replace("_", "")
    params: Any = part.part("params")
    if plain == "adam":
        # DeepSpeed's Adam decouples weight decay unless told otherwise.
        decoupled = take_text(Keys(params), facts, "adam-w-mode")
        is_plain = decoupled is not None and decoupled[0].lower() == "false"
        facts.say("optimizer", "adam" if is_plain else "adamw", where)
    elif plain == "sgd" and params.get("momentum"):
        facts.say("optimizer", "momentum", where)
    elif plain in _OPTIMIZERS:
        facts.say("optimizer", _OPTIMIZERS[plain], where)
    else:
        facts.note(f"{where} {name} is not an optimizer Foretell knows")
