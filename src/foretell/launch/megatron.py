"""Reads Megatron-LM arguments, and builds the model they describe."""

from __future__ import annotations

from foretell.errors import InputError
from foretell.launch.facts import Facts, Strength
from foretell.launch.source import (
    Source,
    take_choice,
    take_switch,
    take_text,
    take_wholes,
)

TELLING = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "model-parallel-size",
    "num-attention-heads",
    "micro-batch-size",
    "train-iters",
    "train-samples",
    "use-distributed-optimizer",
)
_WHOLES = {
    "tp": ("tensor-model-parallel-size", "model-parallel-size"),
    "pp": ("pipeline-model-parallel-size",),
    "cp": ("context-parallel-size",),
    "ep": ("expert-model-parallel-size",),
    "batch": ("micro-batch-size", "batch-size"),
    "global_batch": ("global-batch-size",),
    "seq": ("seq-length", "encoder-seq-length"),
    "steps": ("train-iters",),
    "train_samples": ("train-samples",),
    "tokens": ("train-tokens",),
    "layers": ("num-layers", "encoder-num-layers"),
    "hidden": ("hidden-size",),
    "heads": ("num-attention-heads",),
    "head_width": ("kv-channels",),
    "ffn": ("ffn-hidden-size",),
    "expert_ffn": ("moe-ffn-hidden-size",),
    "kv_heads": ("num-query-groups", "num-key-value-heads"),
    "experts": ("num-experts",),
    "topk": ("moe-router-topk",),
    "vocab": ("vocab-size",),
    "padded_vocab": ("padded-vocab-size",),
    "vocab_multiple": ("make-vocab-size-divisible-by",),
    "layers_per_virtual_stage": ("num-layers-per-virtual-pipeline-stage",),
    "virtual_stages": ("num-virtual-stages-per-pipeline-rank",),
    "bucket_elements": ("ddp-bucket-size",),
    "optimizer_instances": ("num-distributed-optimizer-instances",),
}
_SHARDINGS = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_GRANULARITIES = {"full": "full", "selective": "selective"}
# Megatron's adam decouples weight decay, its sgd keeps a momentum.
_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "momentum"}
_KNOWN_VOCABULARIES = {
    "gpt2bpetokenizer": 50257,
    "bertwordpiecelowercase": 30522,
    "bertwordpiececase": 28996,
}
# What a tokenizer usually has, whose own file may say otherwise.
_USUAL_VOCABULARIES = {"llama2tokenizer": 32000, "": 50257}
_VOCABULARY_MULTIPLE = 128
_TOPK = 2


def read_megatron(source: Source, facts: Facts, script: str, started: str) -> None:
    """Take in Megatron's arguments; `script` is the program they go to, `started` its place."""
    facts.kind("megatron")
    take_wholes(source, facts, _WHOLES)
    facts.say("engine", "megatron", started, Strength.DEFAULT)
    for name, number_format in (("fp16", "fp16"), ("bf16", "bf16")):
        if where := take_switch(source, facts, name):
            facts.say("number_format", number_format, where)
    if (found := source.take("fp8-format", "fp8-hybrid", "fp8-e4m3")) is not None:
        facts.say("fp8", True, found[1])
    _parallel(source, facts)
    _recompute(source, facts)
    chosen = take_choice(source, facts, _OPTIMIZERS, "optimizer", option="optimizer")
    if chosen is not None:
        facts.say("optimizer", *chosen)
    if where := take_switch(source, facts, "optimizer-cpu-offload", "cpu-optimizer"):
        facts.say("offload_optimizer", True, where)
    if where := take_switch(source, facts, "accumulate-allreduce-grads-in-fp32"):
        facts.say("fp32_gradients", True, where)
    if where := take_switch(source, facts, "grad-reduce-in-bf16"):
        facts.say("fp32_gradients", False, where)
    _length(facts)
    _deepspeed(source, facts)
    _model(source, facts, script)


def _parallel(source: Source, facts: Facts) -> None:
    if where := take_switch(source, facts, "sequence-parallel"):
        facts.say("sp", True, where)
    if where := take_switch(source, facts, "overlap-grad-reduce"):
        facts.say("overlap", True, where)
    source.take("overlap-param-gather")
    _experts(source, facts)
    sharding = take_choice(
        source, facts, _SHARDINGS, "data-parallel-sharding-strategy", option="zero"
    )
    fsdp = take_switch(source, facts, "use-megatron-fsdp", "use-custom-fsdp")
    if sharding is not None and fsdp:
        facts.say("zero", *sharding)
    if where := take_switch(source, facts, "use-torch-fsdp2"):
        facts.say("zero", 3, where)
    if where := take_switch(source, facts, "use-distributed-optimizer"):
        # The sharding strategies above include it.
        strength = Strength.STATED if facts.get("zero") is None else Strength.DEFAULT
        facts.say("zero", 1, where, strength)
    _stages(facts)


def _experts(source: Source, facts: Facts) -> None:
    """Experts may be split over fewer ranks than the other layers."""
    split = source.take("expert-tensor-parallel-size")
    ranks = None if split is None else facts.parse_whole(*split)
    tp = facts.get("tp") or 1
    if split is None or ranks is None or ranks == tp:
        return
    if ranks == 1:
        facts.say("tp_plan", "mlp=whole", split[1])
    else:
        facts.note(f"{split[1]} {ranks} was not read: experts are split into {tp} as layers are")


def _stages(facts: Facts) -> None:
    per_stage, layers, pp = (
        facts.fact(name) for name in ("layers_per_virtual_stage", "layers", "pp")
    )
    if per_stage is not None and layers is not None and pp is not None:
        stages, rest = divmod(layers.value, pp.value * per_stage.value)
        if rest or not stages:
            raise InputError(
                f"{facts.path}: {layers.value} layers ({layers.where}) do not divide into "
                f"{pp.value} pipeline stages ({pp.where}) with {per_stage.value} layers per "
                f"virtual stage ({per_stage.where}): change one of them"
            )
        facts.say("virtual_stages", stages, per_stage.where)
    virtual = facts.fact("virtual_stages")
    if virtual is not None and virtual.value > 1:
        facts.say("schedule", "interleaved", virtual.where)
    elif pp is not None and pp.value > 1:
        facts.say("schedule", "1f1b", pp.where)


def _recompute(source: Source, facts: Facts) -> None:
    found = take_choice(source, facts, _GRANULARITIES, "recompute-granularity", option="recompute")
    if found is not None:
        facts.say("recompute", *found)
        method = take_text(source, facts, "recompute-method")
        count = source.take("recompute-num-layers")
        if found[0] == "full" and method is not None and method[0] == "block" and count:
            facts.note(f"{count[1]} {count[0]} recomputes some layers only; taken as all of them")
    if where := take_switch(source, facts, "recompute-activations"):
        facts.say("recompute", "selective", where)
    if where := take_switch(
        source, facts, "checkpoint-activations", "deepspeed-activation-checkpointing"
    ):
        facts.say("recompute", "full", where)


def _length(facts: Facts) -> None:
    steps, samples = facts.fact("steps"), facts.fact("train_samples")
    if steps is not None and samples is not None:
        raise InputError(
            f"{facts.path}: {steps.where} {steps.value} and {samples.where} {samples.value} both "
            "say how long to train: keep one of them"
        )
    if samples is not None:
        facts.say("samples", samples.value, samples.where)
        facts.say("epochs", 1, samples.where)


def _deepspeed(source: Source, facts: Facts) -> None:
    """What Megatron-DeepSpeed adds."""
    stage = source.take("zero-stage")
    if stage is not None and (value := facts.parse_whole(*stage, least=0)) is not None:
        facts.say("zero", value, stage[1])


def _model(source: Source, facts: Facts, script: str) -> None:
    layers, hidden, heads, seq = (facts.get(n) for n in ("layers", "hidden", "heads", "seq"))
    tokenizer = take_text(source, facts, "tokenizer-type")
    if tokenizer is None and (merges := source.take("merge-file")) is not None:
        # Only GPT-2's tokenizer reads merges.
        tokenizer = ("", merges[1])
    gated = take_switch(source, facts, "swiglu")
    architecture = {
        "gated": gated,
        "fused_gate": gated,
        "rmsnorm": _is(source, facts, "normalization", "rmsnorm"),
        "rope": _is(source, facts, "position-embedding-type", "rope")
        or take_switch(source, facts, "use-rotary-position-embeddings"),
        "tied": not take_switch(source, facts, "untie-embeddings-and-output-weights"),
        "nobias": take_switch(source, facts, "disable-bias-linear"),
        "encoder": "bert" in script,
        "dropout": _dropout(source, facts),
        "fused_loss": True,
    }
    grouped = take_switch(source, facts, "group-query-attention")
    stated = facts.fact("layers")
    if not layers or not hidden or not heads or not seq or stated is None:
        return
    if any(word in script for word in ("t5", "vision", "vit", "mamba", "retro", "multimodal")):
        facts.note(
            f"{script} is no decoder-only transformer: give the model yourself",
            settled_by=("model",),
        )
        return
    vocab = _vocabulary(facts, tokenizer)
    if vocab is None:
        facts.note(
            f"{stated.where} begins a model whose vocabulary is not counted: add --vocab-size or "
            "give the model",
            settled_by=("model",),
        )
        return
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "seq": seq, "vocab": vocab}
    experts = facts.get("experts")
    ffn = facts.get("expert_ffn") if experts else None
    ffn = ffn or facts.get("ffn")
    if ffn is None and architecture["gated"]:
        # Two thirds of the usual width, as Megatron itself chooses it.
        ffn = int(4 * hidden * 2 / 3 / 64) * 64
    if ffn:
        sizes["ffn"] = ffn
    if (kv_heads := facts.get("kv_heads")) and (grouped or kv_heads != 1):
        sizes["kv_heads"] = kv_heads
    if experts:
        sizes["experts"] = experts
        sizes["topk"] = facts.get("topk") or _TOPK
    width = facts.fact("head_width")
    if width is not None and width.value * heads != hidden:
        facts.note(f"{width.where} {width.value} times {heads} heads is not the hidden size")
    words = [f"{name}={value}" for name, value in sizes.items()]
    words += [name for name, chosen in architecture.items() if chosen]
    facts.say("model", "transformer:" + ",".join(words), stated.where)


def _vocabulary(facts: Facts, tokenizer: tuple[str, str] | None) -> int | None:
    """The vocabulary as it is padded for tensor parallelism."""
    if (padded := facts.get("padded_vocab")) is not None:
        return int(padded)
    size = facts.get("vocab")
    if size is None and tokenizer is not None:
        name, where = tokenizer[0].lower(), tokenizer[1]
        size = _KNOWN_VOCABULARIES.get(name)
        if size is None and (size := _USUAL_VOCABULARIES.get(name)) is not None:
            facts.note(f"{where} is taken as a vocabulary of {size}", settled_by=("model",))
    if size is None:
        return None
    multiple = (facts.get("vocab_multiple") or _VOCABULARY_MULTIPLE) * (facts.get("tp") or 1)
    return int(-(-size // multiple) * multiple)


def _dropout(source: Source, facts: Facts) -> bool:
    """Megatron drops a tenth unless told otherwise."""
    found = source.take("hidden-dropout")
    return found is None or facts.parse_number(*found) != 0


def _is(source: Source, facts: Facts, name: str, value: str) -> bool:
    found = take_text(source, facts, name)
    return found is not None and found[0].lower() == value
