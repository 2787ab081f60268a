"""Arguments of Megatron-LM's test cases as options of a forecast, and what cannot be described.

What a row does not say is taken from the newest arguments of the test case of the same name, else
from its name. Assumptions:

- Eight devices; four where a GB200 test is called one-node. World sizes of release tests are those
  that explain what is allocated between steps.
- Without a stated backend Transformer Engine fuses attention, except in the deterministic mode of
  the long-term-support image before November 2025; the local implementation never does.
- Release runs of the 15B model log the first stage of their batch schedule, 384 sequences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foretell.data.importers.hardware import cluster_text, full_nodes
from foretell.data.importers.rows import BadRowError, Row

Arguments = Mapping[str, Any]

_WORLD = {
    "bert_release": 64,
    "gpt3_15b_8t_release": 256,
    "mixtral_8x7b_alltoall_tp2pp4ep4_release": 128,
    "mixtral_8x7b_tp1pp4ep8vpp8_release": 64,
    "mixtral_8x22b_tp2pp8ep8vpp1_release": 128,
}
_FIRST_BATCH = {"gpt3_15b_8t_release": 384}
_TOKENIZERS = {
    None: 50257,
    "NullTokenizer": 131074,
    "GPTSentencePieceTokenizer": 256000,
    "Llama2Tokenizer": 32000,
}
_NOT_DESCRIBED = {
    "fp8-format": "fp8",
    "use-megatron-fsdp": "Megatron's own FSDP",
    "data-parallel-sharding-strategy": "Megatron's own FSDP",
    "multi-latent-attention": "multi-latent attention",
    "mtp-num-layers": "multi-token prediction",
    "moe-shared-expert-intermediate-size": "shared experts",
    "moe-layer-freq": "experts in some layers only",
    "microbatch-group-size-per-virtual-pipeline-stage": "custom interleaving",
    "pipeline-model-parallel-layout": "uneven pipeline stages",
    "account-for-embedding-in-pipeline-split": "uneven pipeline stages",
    "decoder-first-pipeline-num-layers": "uneven pipeline stages",
    "cuda-graph-impl": "CUDA graphs",
    "enable-cuda-graph": "CUDA graphs",
    "fine-grained-activation-offloading": "activation offloading",
    "overlap-moe-expert-parallel-comm": "two microbatches interleaved to hide all-to-all",
    "delay-wgrad-compute": "two microbatches interleaved to hide all-to-all",
    "export-kd-cfg": "distillation",
    "perform-rl-step": "reinforcement learning",
    "use-transformer-engine-op-fuser": "Transformer Engine's operator fuser",
    "recompute-modules": "recomputation of chosen modules",
    "cross-entropy-loss-fusion": "cross entropy by TorchScript, which keeps copies by version",
    "defer-embedding-wgrad-compute": "deferred gradients of the output matrix",
    "tp-comm-overlap": "tensor-parallel user buffers",
    "hierarchical-context-parallel-sizes": "hierarchical context parallelism",
}
_NAMES_NOT_DESCRIBED = {
    "grpo": "reinforcement learning",
    "muon": "Muon optimizer",
    "tunable_overlap": "custom interleaving",
    "zp_z3": "Megatron's own FSDP",
    "torch_fsdp2": "torch FSDP2",
    "fp8": "fp8",
    "cudagraph": "CUDA graphs",
    "uneven": "uneven pipeline stages",
    "a2a_ovlp": "two microbatches interleaved to hide all-to-all",
    "deepseek": "multi-latent attention",
    "reruns": "checks that run every step twice",
    "defer_embedding": "deferred gradients of the output matrix",
    "cp_memory_speed": "multi-latent attention",
    "cp4_a2a": "hierarchical context parallelism",
    "distill": "distillation",
}


def plain_name(name: str) -> str:
    """A test case without the parts that only say where and when it ran."""
    name = name.rpartition("/")[2]
    name = re.sub(r"_(345m|7b)_(nightly|weekly|mr)_dgx_[ah]100_1N8G", r"_\1", name)
    name = re.sub(r"_dgx_[ah]100_1N8G", "", name).replace("_mr_", "_").replace("_345m", "")
    return name.replace("_nightly", "").removesuffix("_1node")


def arguments(name: str, own: Mapping[str, str], newest: Mapping[str, Arguments]) -> dict[str, Any]:
    """A row's own arguments over the newest ones of its test case."""
    args = dict(newest.get(plain_name(name), {}))
    if not args:
        args = {
            "disable-bias-linear": "disable_bias_linear" in name or bool(own.get("num-experts")),
            "position-embedding-type": "rope" if "rope" in name else "learned",
            "moe-grouped-gemm": "groupedGEMM" in name,
            "num-distributed-optimizer-instances": 2 if "multi_dist_optimizer" in name else 1,
            "cross-entropy-loss-fusion": "cross_entropy_loss_fusion" in name,
        }
        if "memory_speed" in name:
            args["tokenizer-type"] = "NullTokenizer"
    return {**{k: v for k, v in args.items() if k not in own}, **own}


def undescribed(row: Row, args: Arguments, device: str) -> str | None:
    """Why a configuration cannot be stated in options, if so."""
    for name, reason in _NAMES_NOT_DESCRIBED.items():
        if name in row.text("test_case"):
            return reason
    for name, reason in _NOT_DESCRIBED.items():
        if args.get(name):
            return reason
    if args.get("optimizer", "adam") != "adam":
        return "Muon optimizer"
    if row.text("recompute-granularity") == "selective":
        return "recomputation of chosen modules"
    if args.get("tokenizer-type") not in _TOKENIZERS and not args.get("vocab-size"):
        return "vocabulary not stated"
    tp = row.count("tensor-model-parallel-size", 1)
    pp = row.count("pipeline-model-parallel-size", 1)
    replicas = _world(row, device) // (tp * pp)
    if replicas % row.count("expert-model-parallel-size", 1):
        return "expert parallelism across tensor-parallel ranks"
    if args.get("kv-channels"):
        return "head width other than hidden / heads"
    return None


def _is_unfused(row: Row, args: Arguments) -> bool:
    backend = row.text("attention-backend")
    if args.get("use-flash-attn"):
        return False
    old_lts = row.text("env") == "lts" and row.text("date") < "2025-11"
    return (
        backend in ("unfused", "local")
        or (row.text("transformer-impl") == "local" and backend != "flash")
        or (not backend and old_lts and bool(row.text("deterministic-mode")))
    )


def _world(row: Row, device: str) -> int:
    base = re.sub(r"_sm(_gb200)?$", "", row.text("test_case"))
    if base in _WORLD:
        return _WORLD[base]
    if device == "gb200":
        return 4 if row.text("test_case").endswith("_1node") else 8
    nodes = row.count("nodes_from_HEAD_recipe", 1)
    return nodes * row.count("gpus_per_node_from_HEAD_recipe", 8)


def options_of(row: Row, args: Arguments, device: str) -> dict[str, Any]:
    """Options of a forecast, model and cluster included."""
    tp = row.count("tensor-model-parallel-size", 1)
    pp = row.count("pipeline-model-parallel-size", 1)
    cp = row.count("context-parallel-size", 1)
    world = _world(row, device)
    replicas = world // (tp * pp)
    layers = row.count("num-layers")
    base = re.sub(r"_sm(_gb200)?$", "", row.text("test_case"))
    options: dict[str, Any] = {
        "model": _model(row, args, tp),
        "cluster": _cluster(world, device),
        "batch": row.count("micro-batch-size", 1),
        "global_batch": _FIRST_BATCH.get(base) or row.count("global-batch-size", 1),
        "precision": "fp16" if row.text("fp16") else "bf16",
        "master_weights": True,
        "fp32_gradients": not row.text("fp16"),
        "optimizer": "adam",
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": row.count("expert-model-parallel-size", 1),
        "overlap": bool(row.text("overlap-grad-reduce")),
    }
    if tp > 1 and row.text("sequence-parallel"):
        options["sp"] = True
    if row.whole("expert-tensor-parallel-size", tp) == 1 and tp > 1 and row.text("num-experts"):
        options["tp_plan"] = "mlp=whole"
    if row.text("use-distributed-optimizer"):
        options["zero"] = 1
        instances = _argument(args, "num-distributed-optimizer-instances", 1)
        if instances > 1:
            options["shard"] = replicas // instances
    per_chunk = row.whole("num-layers-per-virtual-pipeline-stage", 0)
    chunks = layers // pp // per_chunk if per_chunk else 1
    if pp > 1 and chunks > 1:
        options |= {"schedule": "interleaved", "virtual_stages": chunks}
    if row.text("recompute-granularity") == "full":
        options["recompute"] = "full"
    if _is_unfused(row, args):
        options["torch_version"] = "1.12"
    return options


def _model(row: Row, args: Arguments, tp: int) -> str:
    heads = row.count("num-attention-heads", 1)
    sizes = {
        "layers": row.count("num-layers"),
        "hidden": row.count("hidden-size"),
        "heads": heads,
        "seq": row.count("seq-length", 1024),
        "vocab": _vocabulary(row, args, tp),
    }
    experts = row.whole("num-experts", 0)
    width = _argument(args, "moe-ffn-hidden-size", 0) if experts else 0
    width = width or row.whole("ffn-hidden-size", 0)
    if width:
        sizes["ffn"] = width
    if row.count("num-query-groups", heads) != heads:
        sizes["kv_heads"] = row.count("num-query-groups", heads)
    if experts:
        sizes |= {"experts": experts, "topk": row.count("moe-router-topk", 2)}
    no_dropout = str(args.get("hidden-dropout", "")) in ("0.0", "0")
    flags = {
        "gated": row.text("swiglu"),
        "fused_gate": row.text("swiglu"),
        "rmsnorm": args.get("normalization") == "RMSNorm",
        "nobias": args.get("disable-bias-linear"),
        "rope": args.get("position-embedding-type") == "rope"
        or args.get("use-rotary-position-embeddings"),
        "tied": not row.text("untie-embeddings-and-output-weights"),
        "encoder": row.text("model") == "bert",
        "dropout": not no_dropout,
        "fused_loss": True,
    }
    parts = [f"{k}={v}" for k, v in sizes.items()] + [k for k, v in flags.items() if v]
    return "transformer:" + ",".join(parts)


def _vocabulary(row: Row, args: Arguments, tp: int) -> int:
    if row.text("model") == "bert":
        size = 30522
    elif args.get("tokenizer-type") in _TOKENIZERS:
        size = _TOKENIZERS[args.get("tokenizer-type")]
    else:
        size = _argument(args, "vocab-size", 0)
    multiple = _argument(args, "make-vocab-size-divisible-by", 128) * tp
    return -(-size // multiple) * multiple


def _cluster(world: int, device: str) -> str:
    one_node = 72 if device == "gb200" else 8
    return cluster_text(device, world) if world <= one_node else full_nodes(device, world, 8)


def _argument(args: Arguments, name: str, default: int) -> int:
    try:
        return int(args.get(name) or default)
    except (TypeError, ValueError):
        raise BadRowError(f"{name} is not a number") from None
