"""Tells which settings that nobody read may matter for time or memory."""

from __future__ import annotations

import re
from typing import Any

from foretell.launch.facts import Facts, short

_MATTERS = re.compile(
    r"parallel|offload|fp8|fp4|recompute|checkpoint-(activ|num)|activation-checkpoint|expert|moe|"
    r"zero|fsdp|shard|batch|accum|lora|peft|adapter|finetuning-type|quant|4bit|8bit|packing|freeze|"
    r"precision|num-layers|hybrid|mamba|mtp|compile|optimizer|overlap|pipeline|cuda-graph|latent|"
    r"window|liger|data-type|elasticity|layer-drop|compression|sparse|curriculum|"
    r"(grads|params)-dtype|exp-avg|\bamp\b|\bema\b"
)
_HARMLESS = re.compile(
    r"eval|seed|save|(?<!off)load(?!-in)|log|tensorboard|wandb|lr-|aux-loss|warmup|ckpt|resume|"
    r"checkpoint-path|preprocess|wrap|state-dict|sync-module|orig-params|ram-efficient|num-params|"
    r"version|limit-all-gathers|forward-prefetch|untested|init-flag|grouped-gemm|dispatcher|alpha|"
    r"dropout|multinode-launcher"
)
# What is better said than that it was not read: (names, what is taken instead).
_TAKEN = (
    (r"lora|peft|adapter|finetuning-type|freeze", "trains a part of the model; all of it is taken"),
    (
        r"^(?!zero).*(quant|4bit|8bit)",
        "narrows what is kept in memory; the precision is taken as it is",
    ),
    (r"packing", "decides how full sequences are; full ones are taken"),
)
_OFF = ("false", "0", "no", "off", "none", "null", "auto", "", "full")


def note_unread(name: str, value: Any, where: str, facts: Facts) -> None:
    """Note a setting nobody read if its name, written with dashes, tells that it may matter."""
    if not _MATTERS.search(name) or _HARMLESS.search(name):
        return
    if not value or str(value).lower() in _OFF:
        return
    shown = "" if value is True or isinstance(value, (dict, list)) else f" {short(value)}"
    taken = next((what for names, what in _TAKEN if re.search(names, name)), None)
    if taken is None:
        facts.note(f"{where}{shown} was not read")
    elif not any(taken in note for note in facts.notes):
        facts.note(f"{where}{shown} {taken}")
