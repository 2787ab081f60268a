"""Reads the Hugging Face Trainer's arguments, as flags, YAML or JSON."""

from __future__ import annotations

import re
from typing import Any

from foretell.launch.deepspeed import is_deepspeed, read_deepspeed
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.fsdp import read_fsdp, read_trainer_fsdp
from foretell.launch.nearby import Nearby
from foretell.launch.source import (
    Keys,
    Source,
    take_choice,
    take_switch,
    take_text,
    take_wholes,
)

TELLING = (
    "per-device-train-batch-size",
    "per-gpu-train-batch-size",
    "gradient-checkpointing",
    "num-train-epochs",
    "max-steps",
    "torch-compile",
    "model-name-or-path",
    "base-model",
    "bf16",
    "fp16",
    "tf32",
    "optim",
    "fsdp",
    "gradient-accumulation-steps",
)
_WHOLES = {
    "batch": ("per-device-train-batch-size", "per-gpu-train-batch-size", "micro-batch-size"),
    "accumulation": ("gradient-accumulation-steps",),
    "seq": (
        "max-seq-length",
        "max-seq-len",
        "max-length",
        "block-size",
        "cutoff-len",
        "sequence-len",
        "model-max-length",
    ),
    "samples": ("max-train-samples",),
    "bucket_mb": ("ddp-bucket-cap-mb",),
}
_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_torch_xla": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw": "adamw",
    "adam": "adam",
    "sgd": "sgd",
    "adafactor": "adafactor",
}
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp32": "fp32",
    "float": "fp32",
}
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_MATTERS = (
    "use_peft",
    "lora_r",
    "lora_rank",
    "lora_target",
    "load_in_4bit",
    "load_in_8bit",
    "quantization_bit",
    "adapter",
    "finetuning_type",
    "auto_find_batch_size",
    "tensor_parallel_size",
    "context_parallel_size",
    "sample_packing",
    "packing",
)


def is_trainer(document: Document) -> bool:
    """Whether a mapping holds Trainer arguments."""
    # A mapping under `fsdp` is somebody else's; the Trainer's is a text or a list.
    foreign = isinstance(document.get("fsdp"), dict)
    return Keys(document).any(name for name in TELLING if not (foreign and name == "fsdp"))


def read_trainer(source: Source, facts: Facts, nearby: Nearby) -> None:
    """Take in the Trainer's arguments."""
    facts.kind("trainer")
    take_wholes(source, facts, _WHOLES)
    for name in ("fp16", "bf16"):
        if where := take_switch(source, facts, name):
            facts.say("number_format", name, where)
    if where := take_switch(source, facts, "tf32"):
        facts.say("tf32", True, where)
    if (found := take_choice(source, facts, _DTYPES, "torch-dtype", "dtype")) is not None:
        facts.say("weights", *found)
    if where := take_switch(source, facts, "gradient-checkpointing"):
        facts.say("recompute", "full", where)
    if where := take_switch(source, facts, "torch-compile"):
        facts.say("compile", True, where)
    if (found := take_choice(source, facts, _OPTIMIZERS, "optim", "optimizer")) is not None:
        facts.say("optimizer", *found)
    _length(source, facts)
    _deepspeed(source.take("deepspeed"), facts, nearby)
    _fsdp(source, facts, nearby)
    if model := take_text(source, facts, "model-name-or-path", "base-model", "model-name"):
        say_hub_model(*model, facts, nearby)


def read_trainer_document(document: Document, facts: Facts, nearby: Nearby) -> None:
    """Take in a file of Trainer arguments, and note what may matter beyond them."""
    read_trainer(Keys(document), facts, nearby)
    for name in _MATTERS:
        value = document.get(name)
        if value not in (None, False, "full", ""):
            facts.note(f"{document.where(name)} {value} was not read")


def say_hub_model(name: str, where: str, facts: Facts, nearby: Nearby) -> None:
    """A model of the hub, or a directory here with a config.json."""
    config = nearby.find(f"{name.rstrip('/')}/config.json")
    if config is not None and config.parent.name == name.rstrip("/").rpartition("/")[2]:
        facts.say("model", f"hf:{config}", where)
    elif _HUB_NAME.fullmatch(name) and not name.startswith("."):
        facts.say("model", f"hf:{name}", where)
    else:
        facts.note(f"{where} {name} is a path without a config.json here: give the model yourself")


def _length(source: Source, facts: Facts) -> None:
    """max_steps wins over the epochs when it is positive."""
    steps = source.take("max-steps")
    count = None if steps is None else facts.parse_whole(*steps, least=-1)
    epochs = source.take("num-train-epochs", "num-epochs")
    if steps is not None and count is not None and count > 0:
        facts.say("steps", count, steps[1])
    elif epochs is not None and (number := facts.parse_number(*epochs)) is not None:
        facts.say("epochs", number, epochs[1])


def _deepspeed(found: tuple[Any, str] | None, facts: Facts, nearby: Nearby) -> None:
    if found is None or found[0] in ("", False, None):
        return
    value, where = found
    facts.kind("deepspeed")
    facts.say("engine", "deepspeed", where, Strength.DEFAULT)
    if isinstance(value, dict):
        read_deepspeed(Document(where, value), facts)
        return
    for document in nearby.documents(str(value), where):
        if is_deepspeed(document):
            read_deepspeed(document, facts)
        else:
            facts.note(f"{where} {value} holds no DeepSpeed settings")


def _fsdp(source: Source, facts: Facts, nearby: Nearby) -> None:
    found = source.take("fsdp")
    if found is not None and isinstance(found[0], dict):
        read_fsdp(Keys(Document(found[1], found[0])), facts)
    elif found is not None and found[0] not in (None, "", False):
        read_trainer_fsdp(*found, facts)
    config = source.take("fsdp-config")
    if config is None or not config[0]:
        return
    value, where = config
    if isinstance(value, dict):
        read_fsdp(Keys(Document(where, value)), facts)
    elif isinstance(value, str) and not value.lstrip().startswith("{"):
        for document in nearby.documents(value, where):
            read_fsdp(Keys(document), facts)
    else:
        facts.note(f"{where} was not read: put it into a file")
