"""Reads how FSDP shards, as accelerate, the Hugging Face Trainer and plain settings write it."""

from __future__ import annotations

from typing import Any

from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.source import Keys, Source, take_switch, take_text

# Sharding strategy -> (ZeRO stage, whether only within a node); numbers are torch's own.
_STRATEGIES = {
    "full_shard": (3, False),
    "shard_grad_op": (2, False),
    "no_shard": (0, False),
    "hybrid_shard": (3, True),
    "hybrid_shard_zero2": (2, True),
    "_hybrid_shard_zero2": (2, True),
}
_NUMBERED = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
NAMES = ("sharding-strategy", "fsdp-sharding-strategy", "fsdp-reshard-after-forward")


def read_fsdp(source: Source, facts: Facts, *, by_default: str = "") -> None:
    """Take in FSDP settings; `by_default` is where FSDP was switched on, if it was."""
    strategy = take_text(source, facts, "fsdp-sharding-strategy", "sharding-strategy")
    if strategy is not None:
        say_strategy(*strategy, facts)
    reshard = source.take("fsdp-reshard-after-forward", "reshard-after-forward")
    if reshard is not None and strategy is None:
        if _plain(reshard[0]) in _STRATEGIES:
            say_strategy(str(reshard[0]), reshard[1], facts)
        elif (value := facts.parse_switch(*reshard)) is not None:
            facts.kind("fsdp")
            facts.say("zero", 3 if value else 2, reshard[1])
    if by_default:
        facts.kind("fsdp")
        facts.say("zero", 3, by_default, Strength.DEFAULT)
    if where := take_switch(source, facts, "fsdp-offload-params", "offload-params", "cpu-offload"):
        _offload(where, facts)
    if where := take_switch(
        source, facts, "fsdp-activation-checkpointing", "activation-checkpointing"
    ):
        facts.say("recompute", "full", where)


def read_trainer_fsdp(value: Any, where: str, facts: Facts) -> None:
    """The Trainer's `fsdp`: "full_shard auto_wrap offload", a list of these, or true."""
    words = [str(w) for w in value] if isinstance(value, list) else str(value).split()
    if words in ([], ["False"], ["false"], ["None"]) or facts.silent(" ".join(words), where):
        return
    for word in words:
        if _plain(word) in _STRATEGIES:
            say_strategy(word, where, facts)
        elif _plain(word) == "offload":
            _offload(where, facts)
        elif _plain(word) not in ("auto_wrap", "true"):
            facts.note(f"{where} {word} is not known to Foretell")
    facts.kind("fsdp")
    facts.say("zero", 3, where, Strength.DEFAULT)


def say_strategy(text: str, where: str, facts: Facts) -> None:
    """FULL_SHARD, ShardingStrategy.FULL_SHARD or 1 -> ZeRO stage."""
    plain = _plain(text).rpartition(".")[2]
    if plain.isdigit() and 1 <= int(plain) <= len(_NUMBERED):
        plain = _NUMBERED[int(plain) - 1]
    if plain not in _STRATEGIES:
        facts.note(f"{where} {text} is not a sharding strategy Foretell knows")
        return
    stage, within_node = _STRATEGIES[plain]
    facts.kind("fsdp")
    facts.say("zero", stage, where)
    if within_node:
        facts.say("shards_within_node", True, where)


def read_document(document: Document, facts: Facts) -> bool:
    """A file, or a section of one, with FSDP settings; says whether it held any."""
    found = False
    for part in (document, document.part("fsdp_config"), document.part("fsdp")):
        keys = Keys(part)
        if keys.any(NAMES):
            read_fsdp(keys, facts)
            found = True
    return found


def _offload(where: str, facts: Facts) -> None:
    facts.say("offload_optimizer", True, where)
    facts.note(f"{where} keeps parameters on the host as well, which is not modelled")


def _plain(value: Any) -> str:
    return str(value).strip().lower()
