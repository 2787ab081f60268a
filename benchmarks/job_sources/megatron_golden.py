"""Megatron-LM's own regression runs: iteration time and peak allocated memory, many commits.

One job per test case, platform, environment and configuration; medians over the commits that
share it. What the history does not say is taken from the newest arguments of the test case of the
same name, else from its name. Assumptions:

- The logged memory is that of the last rank, so of the last pipeline stage.
- Without a stated platform the runs are on A100: tests were named after it until May 2025, and
  the long-term-support image ran nowhere else.
- Eight devices; four where a GB200 test is called one-node. World sizes of release tests are those
  that explain what is allocated between steps.
- Without a stated backend Transformer Engine fuses attention, except in the deterministic mode of
  the long-term-support image before November 2025; the local implementation never does.
- Release runs of the 15B model log the first stage of their batch schedule, 384 sequences.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from benchmarks.jobs import Job
from benchmarks.sources import require

Row = Mapping[str, str]
Arguments = Mapping[str, Any]

_MODELS = ("gpt", "moe", "mixtral", "bert")
_MEASURED = (
    "commit date n_iter iter_time_median_s iter_time_p10 iter_time_p90 mem_max_allocated_bytes "
    "mem_allocated_bytes_last config_sha train-iters"
).split()
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


def jobs() -> list[Job]:
    """All configurations that can be described."""
    return list(_read()[0])


def excluded() -> Counter[str]:
    """How many configurations were left out, by reason."""
    return _read()[1]


@functools.cache
def _read() -> tuple[tuple[Job, ...], Counter[str]]:
    folder = require("megatron_golden")
    with gzip.open(folder / "golden_values_history.csv.gz", "rt", newline="") as stream:
        rows = [r for r in csv.DictReader(stream) if r["model"] in _MODELS]
    with gzip.open(folder / "model_args_by_test_case.json.gz", "rt") as stream:
        newest = {
            _plain_name(name): {k.removeprefix("--"): v for k, v in args.items()}
            for name, args in json.load(stream).items()
        }
    copies = _copies(rows)
    by_configuration: dict[tuple[tuple[str, str], ...], list[Row]] = defaultdict(list)
    for row in rows:
        by_configuration[tuple((k, v) for k, v in row.items() if k not in _MEASURED)].append(row)
    found: list[Job] = []
    left_out: Counter[str] = Counter()
    for group in by_configuration.values():
        result = _job(group, newest, copies)
        if isinstance(result, Job):
            found.append(result)
        else:
            left_out[result] += 1
    return tuple(found), left_out


def _job(group: list[Row], newest: Mapping[str, Arguments], copies: set[int]) -> Job | str:
    kept = [r for r in group if r["mem_max_allocated_bytes"] and r["iter_time_median_s"]]
    if not kept:
        return "no time or no memory"
    kept = [r for r in kept if id(r) not in copies]
    if not kept:
        return "copied from another platform"
    row = kept[-1]
    device = _device(row)
    if device is None:
        return "platform not stated"
    if not row["num-layers"] or not row["hidden-size"]:
        return "configuration not stated"
    args = _arguments(row, newest)
    reason = _undescribed(row, args)
    if reason:
        return reason
    options = _options(row, args, device, _is_unfused(row, args))
    memory = statistics.median(float(r["mem_max_allocated_bytes"]) for r in kept)
    return Job(
        source="megatron_golden",
        device=device,
        configuration=_configuration(options),
        options=options,
        step_time_s=statistics.median(float(r["iter_time_median_s"]) for r in kept),
        memory_bytes=memory,
        labels={
            "model": row["model"],
            "test_case": row["test_case"],
            "platform": row["platform"],
            "environment": row["env"],
            "commits": len(kept),
            "engine": row["transformer-impl"] != "local",
            "deterministic": bool(row["deterministic-mode"]),
            "grouped": bool(args.get("moe-grouped-gemm")),
        },
    )


def _device(row: Row) -> str | None:
    platform = row["platform"].lower()
    if "gb200" in platform:
        return "gb200"
    if "h100" in platform:
        return "h100-sxm"
    if "a100" in platform:
        return "a100-80gb"
    named = "dgx_a100" in row["test_case"] or row["env"] == "lts" or row["date"] < "2025-05"
    return "a100-80gb" if not platform and named else None


def _copies(rows: list[Row]) -> set[int]:
    """Rows whose numbers are an earlier row's from another device."""
    first: dict[tuple[str, ...], str | None] = {}
    found = set()
    for row in sorted(rows, key=lambda r: r["date"]):
        numbers = tuple(row[k] for k in _MEASURED[3:7])
        if not all(numbers):
            continue
        device = _device(row)
        foreign = "gb200" in row["test_case"] and device != "gb200"
        if foreign or first.setdefault(numbers, device) not in (device, None):
            found.add(id(row))
    return found


def _plain_name(name: str) -> str:
    """A test case without the parts that only say where and when it ran."""
    name = name.rpartition("/")[2]
    name = re.sub(r"_(345m|7b)_(nightly|weekly|mr)_dgx_[ah]100_1N8G", r"_\1", name)
    name = re.sub(r"_dgx_[ah]100_1N8G", "", name).replace("_mr_", "_").replace("_345m", "")
    return name.replace("_nightly", "").removesuffix("_1node")


def _arguments(row: Row, newest: Mapping[str, Arguments]) -> dict[str, Any]:
    """The row's own arguments over the newest ones of its test case."""
    name = row["test_case"]
    args = dict(newest.get(_plain_name(name), {}))
    if not args:
        args = {
            "disable-bias-linear": "disable_bias_linear" in name or bool(row["num-experts"]),
            "position-embedding-type": "rope" if "rope" in name else "learned",
            "moe-grouped-gemm": "groupedGEMM" in name,
            "num-distributed-optimizer-instances": 2 if "multi_dist_optimizer" in name else 1,
            "cross-entropy-loss-fusion": "cross_entropy_loss_fusion" in name,
        }
        if "memory_speed" in name:
            args["tokenizer-type"] = "NullTokenizer"
    own = {k: v for k, v in row.items() if k not in _MEASURED}
    return {**{k: v for k, v in args.items() if k not in own}, **own}


def _undescribed(row: Row, args: Arguments) -> str | None:
    for name, reason in _NAMES_NOT_DESCRIBED.items():
        if name in row["test_case"]:
            return reason
    for name, reason in _NOT_DESCRIBED.items():
        if args.get(name):
            return reason
    if args.get("optimizer", "adam") != "adam":
        return "Muon optimizer"
    if args["recompute-granularity"] == "selective":
        return "recomputation of chosen modules"
    if args.get("tokenizer-type") not in _TOKENIZERS and not args.get("vocab-size"):
        return "vocabulary not stated"
    tp = _number(row, "tensor-model-parallel-size", 1)
    pp = _number(row, "pipeline-model-parallel-size", 1)
    replicas = _world(row, _device(row) or "") // (tp * pp)
    if replicas % _number(row, "expert-model-parallel-size", 1):
        return "expert parallelism across tensor-parallel ranks"
    if args.get("kv-channels"):
        return "head width other than hidden / heads"
    return None


def _is_unfused(row: Row, args: Arguments) -> bool:
    backend = row["attention-backend"]
    if args.get("use-flash-attn"):
        return False
    old_lts = row["env"] == "lts" and row["date"] < "2025-11"
    return (
        backend in ("unfused", "local")
        or (row["transformer-impl"] == "local" and backend != "flash")
        or (not backend and old_lts and bool(row["deterministic-mode"]))
    )


def _number(row: Row, name: str, default: int) -> int:
    return int(float(row[name])) if row[name] else default


def _world(row: Row, device: str) -> int:
    base = re.sub(r"_sm(_gb200)?$", "", row["test_case"])
    if base in _WORLD:
        return _WORLD[base]
    if device == "gb200":
        return 4 if row["test_case"].endswith("_1node") else 8
    nodes = _number(row, "nodes_from_HEAD_recipe", 1)
    return nodes * _number(row, "gpus_per_node_from_HEAD_recipe", 8)


def _options(row: Row, args: Arguments, device: str, unfused: bool) -> dict[str, Any]:
    tp = _number(row, "tensor-model-parallel-size", 1)
    pp = _number(row, "pipeline-model-parallel-size", 1)
    cp = _number(row, "context-parallel-size", 1)
    world = _world(row, device)
    replicas = world // (tp * pp)
    layers = _number(row, "num-layers", 0)
    base = re.sub(r"_sm(_gb200)?$", "", row["test_case"])
    options: dict[str, Any] = {
        "model": _model(row, args, tp),
        "cluster": _cluster(world, device),
        "batch": _number(row, "micro-batch-size", 1),
        "global_batch": _FIRST_BATCH.get(base) or _number(row, "global-batch-size", 1),
        "precision": "fp16" if row["fp16"] else "bf16",
        "master_weights": True,
        "fp32_gradients": not row["fp16"],
        "optimizer": "adam",
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": _number(row, "expert-model-parallel-size", 1),
        "overlap": bool(row["overlap-grad-reduce"]),
    }
    if tp > 1 and row["sequence-parallel"]:
        options["sp"] = True
    if _number(row, "expert-tensor-parallel-size", tp) == 1 and tp > 1 and row["num-experts"]:
        options["tp_plan"] = "mlp=whole"
    if row["use-distributed-optimizer"]:
        options["zero"] = 1
        instances = int(args.get("num-distributed-optimizer-instances") or 1)
        if instances > 1:
            options["shard"] = replicas // instances
    per_chunk = _number(row, "num-layers-per-virtual-pipeline-stage", 0)
    chunks = layers // pp // per_chunk if per_chunk else 1
    if pp > 1 and chunks > 1:
        options |= {"schedule": "interleaved", "virtual_stages": chunks}
    if row["recompute-granularity"] == "full":
        options["recompute"] = "full"
    if unfused:
        options["torch_version"] = "1.12"
    return options


def _model(row: Row, args: Arguments, tp: int) -> str:
    heads = _number(row, "num-attention-heads", 1)
    sizes = {
        "layers": _number(row, "num-layers", 0),
        "hidden": _number(row, "hidden-size", 0),
        "heads": heads,
        "seq": _number(row, "seq-length", 1024),
        "vocab": _vocabulary(row, args, tp),
    }
    experts = _number(row, "num-experts", 0)
    width = args.get("moe-ffn-hidden-size") if experts else None
    width = int(width or _number(row, "ffn-hidden-size", 0))
    if width:
        sizes["ffn"] = width
    if _number(row, "num-query-groups", heads) != heads:
        sizes["kv_heads"] = _number(row, "num-query-groups", heads)
    if experts:
        sizes |= {"experts": experts, "topk": _number(row, "moe-router-topk", 2)}
    no_dropout = str(args.get("hidden-dropout", "")) in ("0.0", "0")
    flags = {
        "gated": row["swiglu"],
        "fused_gate": row["swiglu"],
        "rmsnorm": args.get("normalization") == "RMSNorm",
        "nobias": args.get("disable-bias-linear"),
        "rope": args.get("position-embedding-type") == "rope"
        or args.get("use-rotary-position-embeddings"),
        "tied": not row["untie-embeddings-and-output-weights"],
        "encoder": row["model"] == "bert",
        "dropout": not no_dropout,
        "fused_loss": True,
    }
    parts = [f"{k}={v}" for k, v in sizes.items()] + [k for k, v in flags.items() if v]
    return "transformer:" + ",".join(parts)


def _vocabulary(row: Row, args: Arguments, tp: int) -> int:
    if row["model"] == "bert":
        size = 30522
    elif args.get("tokenizer-type") in _TOKENIZERS:
        size = _TOKENIZERS[args.get("tokenizer-type")]
    else:
        size = int(args["vocab-size"])
    multiple = int(args.get("make-vocab-size-divisible-by") or 128) * tp
    return -(-size // multiple) * multiple


def _cluster(world: int, device: str) -> str:
    per_node = 72 if device == "gb200" else 8
    if world <= per_node:
        return f"{world}x{device}"
    return f"{world // 8}x8x{device}"


def _configuration(options: Mapping[str, Any]) -> str:
    """What decides the step, without the device."""
    return " ".join(f"{k}={v}" for k, v in options.items() if k != "cluster")
