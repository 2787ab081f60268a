"""Reads how FSDP shards, as accelerate, the Hugging Face Trainer and plain settings write it."""

from __future__ import annotations

from typing import Any

from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.flags import Flags
from foretell.launch.source import Keys, Source, take_switch, take_text

# Sharding strategy -> (ZeRO stage, whether only within a node).
_STRATEGIES = {
    "full_shard": (3, False),
    "shard_grad_op": (2, False),
    "no_shard": (0, False),
    "hybrid_shard": (3, True),
    "hybrid_shard_zero2": (2, True),
    "_hybrid_shard_zero2": (2, True),
}
# Torch's own numbers.
_NUMBERED = {
    "1": "full_shard",
    "2": "shard_grad_op",
    "3": "no_shard",
    "4": "hybrid_shard",
    "5": "hybrid_shard_zero2",
}
_FORMATS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
}
# Names that only FSDP has.
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
    prefetch = take_text(source, facts, "fsdp-backward-prefetch", "backward-prefetch")
    if prefetch is not None and _plain(prefetch[0]).rpartition(".")[2] == "no_prefetch":
        facts.say("prefetch", 0, prefetch[1])


def read_fsdp_flags(flags: Flags, facts: Facts) -> None:
    """Take in how programs of all kinds switch FSDP on; the Trainer's `--fsdp` names a strategy."""
    bare = flags.take("fsdp")
    where = bare[1] if bare is not None and not bare[0] else ""
    where = where or take_switch(flags, facts, "enable-fsdp", "use-fsdp") or ""
    if where or flags.any(NAMES):
        read_fsdp(flags, facts, by_default=where)


def read_fsdp_section(keys: Keys, facts: Facts, *, by_default: str = "") -> None:
    """Take in a section of FSDP settings, and note what may matter beyond them."""
    read_fsdp(keys, facts, by_default=by_default)
    policy = keys.document.get("mixed_precision")
    if isinstance(policy, dict):
        mixed = take_text(keys.part("mixed-precision"), facts, "param-dtype")
    else:
        mixed = take_text(keys, facts, "mixed-precision")
    if mixed is not None:
        number_format = _FORMATS.get(_plain(mixed[0]).rpartition(".")[2])
        if number_format is None:
            facts.note_unknown(*mixed, "precision")
        else:
            facts.say("number_format", number_format, mixed[1])
    keys.note_rest(facts)


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
            facts.note_unknown(word, where, "zero")
    facts.kind("fsdp")
    facts.say("zero", 3, where, Strength.DEFAULT)


def say_strategy(text: str, where: str, facts: Facts) -> None:
    """FULL_SHARD, ShardingStrategy.FULL_SHARD or 1 -> ZeRO stage."""
    plain = _plain(text).rpartition(".")[2]
    plain = _NUMBERED.get(plain, plain)
    if plain not in _STRATEGIES:
        facts.note_unknown(text, where, "zero")
        return
    stage, within_node = _STRATEGIES[plain]
    facts.kind("fsdp")
    facts.say("zero", stage, where)
    if within_node:
        facts.say("shards_within_node", True, where)


def read_document(document: Document, facts: Facts) -> None:
    """A file, or a section of one, with FSDP settings."""
    keys = Keys(document)
    for part in (keys, keys.part("fsdp-config"), keys.part("fsdp")):
        if part.any(NAMES):
            read_fsdp_section(part, facts)
    keys.note_rest(facts)


def _offload(where: str, facts: Facts) -> None:
    facts.say("offload_optimizer", True, where)
    facts.note(f"{where} keeps parameters on the host as well, which is not modelled")


def _plain(value: Any) -> str:
    return str(value).strip().lower()
