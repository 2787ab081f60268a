"""Reads the Hugging Face Trainer's arguments, as flags, YAML or JSON."""

from __future__ import annotations

import re

from foretell.launch.accelerate import read_parallelism
from foretell.launch.deepspeed import read_deepspeed, read_deepspeed_file, say_format
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.fsdp import read_fsdp_section, read_trainer_fsdp
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
_FUSED = ("adamw_torch_fused", "adamw_apex_fused")
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
        say_format(source.take(name), name, facts)
    if where := take_switch(source, facts, "tf32"):
        facts.say("tf32", True, where)
    dtype = take_choice(source, facts, _DTYPES, "torch-dtype", "dtype", option="precision")
    if dtype is not None:
        facts.say("weights", *dtype)
    if where := take_switch(source, facts, "gradient-checkpointing"):
        facts.say("recompute", "full", where)
    if where := take_switch(source, facts, "torch-compile"):
        facts.say("compile", True, where)
    if (backend := take_text(source, facts, "torch-compile-backend")) is not None:
        facts.say("compile", True, backend[1], Strength.DEFAULT)
    _optimizer(source, facts)
    attention = take_text(source, facts, "attn-implementation")
    if attention is not None and attention[0] == "eager":
        facts.note(f"{attention[1]} eager is not modelled; attention is taken as one kernel")
    _length(source, facts)
    _deepspeed(source, facts, nearby)
    _fsdp(source, facts, nearby)
    read_parallelism(source, facts)
    if model := take_text(source, facts, "model-name-or-path", "base-model", "model-name"):
        say_hub_model(*model, facts, nearby)


def read_trainer_document(document: Document, facts: Facts, nearby: Nearby) -> None:
    """Take in a file of Trainer arguments, and note what may matter beyond them."""
    keys = Keys(document)
    read_trainer(keys, facts, nearby)
    keys.note_rest(facts)


def say_hub_model(name: str, where: str, facts: Facts, nearby: Nearby) -> None:
    """A model of the hub, or a directory here with a config.json."""
    config = nearby.find(f"{name.rstrip('/')}/config.json")
    if config is not None and config.parent.name == name.rstrip("/").rpartition("/")[2]:
        facts.say("model", f"hf:{config}", where)
    elif _HUB_NAME.fullmatch(name) and not name.startswith("."):
        facts.say("model", f"hf:{name}", where)
    else:
        facts.note(
            f"{where} {name} is a path without a config.json here: give the model yourself",
            settled_by=("model",),
        )


def _optimizer(source: Source, facts: Facts) -> None:
    names = ("optim", "optimizer")
    if (found := take_choice(source, facts, _OPTIMIZERS, *names, option="optimizer")) is None:
        return
    facts.say("optimizer", *found)
    written = take_text(source, facts, *names)
    if written is not None and written[0].lower() in _FUSED:
        facts.say("fused_optimizer", True, written[1])


def _length(source: Source, facts: Facts) -> None:
    """max_steps wins over the epochs when it is positive."""
    steps = source.take("max-steps")
    count = None if steps is None else facts.parse_whole(*steps, least=-1)
    epochs = source.take("num-train-epochs", "num-epochs")
    if steps is not None and count is not None and count > 0:
        facts.say("steps", count, steps[1])
    elif epochs is not None and (number := facts.parse_number(*epochs)) is not None:
        facts.say("epochs", number, epochs[1])


def _deepspeed(source: Source, facts: Facts, nearby: Nearby) -> None:
    if (stage := source.take("zero-stage")) is not None:
        facts.whole("zero", *stage, least=0)
        facts.say("engine", "deepspeed", stage[1], Strength.DEFAULT)
    found = source.take("deepspeed")
    if found is None or found[0] in ("", False, None):
        return
    value, where = found
    facts.kind("deepspeed")
    facts.say("engine", "deepspeed", where, Strength.DEFAULT)
    if isinstance(value, dict):
        read_deepspeed(Document(where, value), facts)
        return
    read_deepspeed_file(str(value), where, facts, nearby)


def _fsdp(source: Source, facts: Facts, nearby: Nearby) -> None:
    found = source.take("fsdp")
    if found is not None and isinstance(found[0], dict):
        read_fsdp_section(Keys(Document(found[1], found[0])), facts)
    elif found is not None and found[0] not in (None, "", False):
        read_trainer_fsdp(*found, facts)
    config = source.take("fsdp-config")
    if config is None or not config[0]:
        return
    value, where = config
    if isinstance(value, dict):
        read_fsdp_section(Keys(Document(where, value)), facts)
    elif isinstance(value, str) and not value.lstrip().startswith("{"):
        for document in nearby.documents(value, where):
            read_fsdp_section(Keys(document), facts)
    else:
        facts.note(f"{where} was not read: put it into a file")
