"""Reads the flags that training scripts of all kinds share: batch size, epochs, image size."""

from __future__ import annotations

from foretell.launch.facts import Facts, Strength
from foretell.launch.flags import Flags
from foretell.launch.nearby import Nearby
from foretell.launch.source import take_choice, take_switch, take_text, take_wholes
from foretell.launch.trainer import say_hub_model

_PER_DEVICE = ("batch-size-per-gpu", "batch-size-per-device", "micro-batch")
# Some programs mean a device, some all of them.
_EITHER = ("batch-size", "b")
_WHOLES = {
    "global_batch": ("global-batch-size", "total-batch-size"),
    "accumulation": ("grad-accum-steps", "accumulation-steps", "grad-accum"),
    "image_size": ("image-size", "img-size", "train-crop-size", "resolution", "input-size"),
    "seq": ("seq-len", "seq-length", "sequence-length", "context-length", "max-seq-len"),
    "steps": ("steps", "num-steps", "train-steps", "max-train-steps"),
    "samples": ("train-num-samples",),
}
_EPOCHS = ("epochs", "num-epochs")
_PRECISIONS = {
    "no": "fp32",
    "fp32": "fp32",
    "float32": "fp32",
    "32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "float16": "fp16",
    "16": "fp16",
    "16_mixed": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "bf16_mixed": "bf16",
    "amp": "fp16",
    "amp_bf16": "bf16",
    "amp_bfloat16": "bf16",
}
_PRECISION_FLAGS = ("precision", "mixed-precision", "amp-dtype", "dtype")
_OPTIMIZERS = {
    "adamw": "adamw",
    "adam": "adam",
    "adafactor": "adafactor",
    "sgd": "momentum",
    "momentum": "momentum",
    "nesterov": "momentum",
}
# Flags that only timm's own training script has.
_TIMM = ("amp-dtype", "drop-path", "torchcompile", "aa", "sched", "model-ema", "img-size")


def read_script_flags(flags: Flags, facts: Facts, nearby: Nearby) -> None:
    """Take in flags whose meaning their names tell."""
    names = [*_EITHER, *_PER_DEVICE, *_EPOCHS, *(n for ns in _WHOLES.values() for n in ns), "model"]
    names += _PRECISION_FLAGS
    if not flags.any(names):
        return
    facts.kind("script")
    take_wholes(flags, facts, _WHOLES)
    take_wholes(flags, facts, {"batch": _PER_DEVICE})
    batch = flags.take(*_EITHER)
    if batch is not None and (size := facts.parse_whole(*batch)) is not None:
        facts.say("batch", size, batch[1])
        facts.note(f"{batch[1]} {size} was taken as samples per model copy", settled_by=("batch",))
    epochs = flags.take(*_EPOCHS)
    if epochs is not None and (number := facts.parse_number(*epochs)) is not None:
        facts.say("epochs", number, epochs[1])
    precision = take_choice(flags, facts, _PRECISIONS, *_PRECISION_FLAGS, option="precision")
    if precision is not None and precision[0] == "tf32":
        facts.say("tf32", True, precision[1])
    elif precision is not None:
        facts.say("number_format", *precision)
    if where := take_switch(flags, facts, "amp"):
        facts.say("number_format", "fp16", where, Strength.DEFAULT)
    if where := take_switch(flags, facts, "grad-checkpointing", "activation-checkpointing"):
        facts.say("recompute", "full", where)
    if "compile" in flags and (where := take_switch(flags, facts, "compile")):
        facts.say("compile", True, where)
    if (found := flags.take("torchcompile")) is not None:
        facts.say("compile", True, found[1])
    if where := take_switch(flags, facts, "channels-last"):
        facts.say("channels_last", True, where)
    chosen = take_choice(flags, facts, _OPTIMIZERS, "opt", "optimizer", option="optimizer")
    if chosen is not None:
        facts.say("optimizer", *chosen)
    _model(flags, facts, nearby)


def _model(flags: Flags, facts: Facts, nearby: Nearby) -> None:
    found = take_text(flags, facts, "model", "arch")
    if found is None:
        return
    name, where = found
    if name.startswith(("timm:", "hf:", "transformer:")):
        facts.say("model", name, where)
    elif flags.any(_TIMM):
        facts.say("model", f"timm:{name.removeprefix('timm/')}", where)
    elif "/" in name:
        say_hub_model(name, where, facts, nearby)
    else:
        facts.note(
            f"{where} {name} may be timm:{name} or hf:{name}: say which as the model",
            settled_by=("model",),
        )
