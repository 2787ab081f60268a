"""What importers of measured jobs are expected to find, and small files laid out as upstream's."""

from __future__ import annotations

import json

from foretell.data.importers.rows import MERGED

# Rows read and kept, and why the others are rejected, in the data at hand.
COUNTS: dict[str, tuple[int, int, dict[str, int]]] = {
    "elasticflow": (182, 169, {"no throughput: empty, 0 or nan": 13}),
    "llm_foundry": (151, 151, {}),
    "lucie": (4260, 81, {MERGED: 3631, "the micro batch does not divide the global batch": 548}),
    "megatron_bridge": (
        278,
        63,
        {
            "a model whose layers transformer: cannot state": 159,
            "NVFP4": 33,
            "two values in one cell, or a variant in parentheses": 23,
        },
    ),
    "megatron_golden": (
        4207,
        730,
        {
            MERGED: 1385,
            "arguments that may be later than the figures": 726,
            "neither GPT, nor a mixture of experts, nor BERT": 482,
            "no time or no memory": 324,
            "expert parallelism across tensor-parallel ranks": 98,
            "multi-latent attention": 81,
            "custom interleaving": 50,
            "Muon optimizer": 49,
            "deferred gradients of the output matrix": 46,
            "cross entropy by TorchScript, which keeps copies by version": 44,
            "Megatron's own FSDP": 40,
            "CUDA graphs": 37,
            "reinforcement learning": 26,
            "fp8": 24,
            "two microbatches interleaved to hide all-to-all": 17,
            "shared experts": 16,
            "platform not stated": 15,
            "hierarchical context parallelism": 6,
            "uneven pipeline stages": 3,
            "Transformer Engine's operator fuser": 2,
            "copied from another platform": 2,
            "configuration not stated": 2,
            "distillation": 1,
            "checks that run every step twice": 1,
        },
    ),
    "mlperf": (
        18261,
        102,
        {
            "a benchmark whose unit of throughput or parallel settings vary": 13345,
            "no throughput in the log": 2515,
            MERGED: 1894,
            "an accelerator that is not listed": 200,
            "a status other than success": 195,
            "a throughput that cannot be": 10,
        },
    ),
    "nemo": (
        60,
        12,
        {
            "a newer figure of the same configuration": 21,
            "fine-tuning": 18,
            "a table that names no model": 9,
        },
    ),
    "pollux": (7103, 7103, {}),
    "rubick": (406, 406, {}),
    "sia": (
        22784,
        12573,
        {
            "measured by Pollux: source pollux has it": 7103,
            "the same figures in another table": 3108,
        },
    ),
    "vtrain": (15563, 15563, {}),
}

_GRID = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
)
_TABLE = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"
_FOUNDRY = (
    "|  Model | SeqLen (T) | # GPUs | GPU | MFU | MicroBatchSize | GlobalBatchSize | "
    "Throughput (T/s) | Precision | Sharding Strategy | Activation Checkpointing |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)
_VENDOR = (
    "| Model | #-GPUs | Precision | GBS | MBS | Sequence Length | FSDP | TP | PP | CP | VP | "
    "Tokens / sec / GPU |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
)
_GOLDEN = {
    **{"commit": "abc", "date": "2025-06-01", "model": "gpt", "test_case": "case", "env": "dev"},
    **{"platform": "dgx_h100", "iter_time_median_s": "0.5", "iter_time_p10": "0.4"},
    **{"iter_time_p90": "0.6", "mem_max_allocated_bytes": "5e9", "mem_allocated_bytes_last": "1e9"},
    **{"num-layers": "12.0", "hidden-size": "512.0", "num-attention-heads": "8.0"},
    **{"tensor-model-parallel-size": "2.0", "micro-batch-size": "4.0", "global-batch-size": "32.0"},
    **dict.fromkeys(
        "ffn-hidden-size num-query-groups seq-length pipeline-model-parallel-size "
        "expert-model-parallel-size expert-tensor-parallel-size num-experts moe-router-topk "
        "sequence-parallel use-distributed-optimizer attention-backend overlap-grad-reduce "
        "transformer-impl untie-embeddings-and-output-weights deterministic-mode "
        "num-layers-per-virtual-pipeline-stage recompute-granularity swiglu "
        "context-parallel-size fp16 nodes_from_HEAD_recipe "
        "gpus_per_node_from_HEAD_recipe".split(),
        "",
    ),
    "config_sha": "def",
}


def golden(*rows: dict[str, str]) -> str:
    """A table of Megatron's regression runs with these cells changed."""
    lines = [list(_GOLDEN), *({**_GOLDEN, **row}.values() for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


RUNS = (
    "status,submission_benchmark,benchmark_dir,global_batch_size,sys_number_of_nodes,"
    "sys_accelerators_per_node,sys_accelerator_model_name,throughput_median\n"
)
ITERATIONS = "consumed_samples,consumed_tokens,iter_time,samples_per_seconds,ngpus,PP,TP,stage\n"
_SUMMARY = "expe,vocab_size,nGPUs,tp,pp,z,gbz,mbz,num_iterations,samples_per_seconds\n"

# Small files with made-up figures, named and laid out as upstream does; how many rows are kept.
SAMPLES: dict[str, tuple[dict[str, str], int]] = {
    "vtrain": (
        {
            "data/ground_truth_single.csv": _GRID + "8,32,4,1024,16,24,1024,2,2,2,200.5\n",
            "data/ground_truth_multi.csv": _GRID + "64,32,1,4096,32,24,2048,8,4,2,900\n",
            "trace/a100/AR_GPU4_1M_1024M_LUT": _TABLE + "1048576,262144,float,50000,30,60000,31\n",
            "trace/v100/AR_GPU2_1M_1024M_LUT": _TABLE + "1048576,262144,float,70000,15,70000,15\n",
        },
        4,
    ),
    "llm_foundry": (
        {
            "scripts/train/benchmarking/README.md": "# Benchmarks\n\n## H100 80GB BF16\n"
            + _FOUNDRY
            + "| 7b | 2048 | 16 | h100_80gb | 40.1 | 4 | 512 | 100000 | amp_bf16 | FULL_SHARD "
            "| True |\n\n## Another table\n| Model | Loss |\n| --- | --- |\n| 7b | 2.5 |\n",
            "README.md": "| Model | Context |\n|---|---|\n| MPT-7B | 2048 |\n",
        },
        1,
    ),
    "megatron_bridge": (
        {
            "docs/performance-summary.md": "# Performance\n## 25.11\n### Pre-Training Performance\n"
            "#### System: DGX-GB200\n"
            + _VENDOR
            + "| LLAMA3_70B | 64 | FP8-CS | 256 | 2 | 8192 | 64 | 1 | 1 | 1 | n/a | 4,312 |\n",
            "docs/performance-summary-archive.md": "# Archive\n### Pre-Training Performance\n"
            "#### System: DGX-H100\n"
            + _VENDOR
            + "| LLAMA3_8B | 8 | BF16 | 128 | 1 | 8192 | 0 | 1 | 1 | 2 | 1 | 9000 |\n",
        },
        2,
    ),
    "nemo": (
        {
            "docs/source/performance/performance_summary.md": "# Performance Benchmarks\n"
            "## Large Language Models**\n### Pretraining\n- FP8\n\n"
            "| Model | #-GPUs | GBS | MBS | Sequence Length| TP | PP | CP | VP | "
            "Tokens / sec / GPU |\n| ----- | -- | -- | -- | --- | -- | -- | -- | -- | --- |\n"
            "| LLAMA2-13B    | 16     | 128  | 1   | 4096 | 1  | 4  | 1  | 10 | 8646   |\n"
        },
        1,
    ),
    "pollux": (
        {
            "sched/traces/yolov3/placements.csv": "placement,local_bsz,step_time,sync_time\n"
            "431,8,0.5,0.1\n",
            "sched/traces/yolov3/scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,"
            "sync_time\n6,7,8,0.9,0.3\n",
            "sched/traces/yolov3/validation-8.csv": "progress,iteration\n1,2\n",
        },
        2,
    ),
    "sia": (
        {
            "sia-simulator/traces/bert/placements-dgx-ext.csv": "local_bsz,step_time,sync_time,"
            "placement\n4.0,0.15,0.003,8\n",
            "sia-simulator/traces/bert/placements-quad.csv": "local_bsz,step_time,sync_time,"
            "placement\n4,0.3,0.003,4\n",
            "sia-simulator/traces/bert/placements.csv": "placement,local_bsz,step_time\n1,4,0.5\n",
            "adaptdl/sched/traces/bert/placements-rtx.csv": "local_bsz,step_time,sync_time,"
            "placement\n4,0.25,0.006,1\n",
        },
        2,
    ),
    "elasticflow": (
        {
            "ElasticFlow/scheduler/throughputs_A100/vgg16.csv": "global_batch_size,1,2,16\n"
            "256,1.5,2.5,9.0\n",
            "ElasticFlow/scheduler/throughputs_T4/bert.csv": "global_batch_size,1,8\n"
            "384,0.03,0.2\n",
        },
        5,
    ),
    "rubick": (
        {
            "simulator/traces/t5/placements.csv": "exec_plan,placement,iter_time\n"
            "zero-dp,44,0.8\n221,22,1.4\n",
        },
        2,
    ),
    "mlperf": (
        {"runs.csv": RUNS + "success,,resnet,8192,4,8,NVIDIA A100-SXM-80GB,60000\n"},
        1,
    ),
    "megatron_golden": (
        {
            "golden_values_history.csv": golden({}),
            "model_args_by_test_case.json": json.dumps({"gpt/case": {"--swiglu": True}}),
        },
        1,
    ),
    "lucie": (
        {
            "chronicles/parallelism/all_iters_w_dp.csv": ITERATIONS
            + "512,1048576,32000,16.0,8,1,1,z1\n",
            "chronicles/parallelism/scripts/expe_summary.csv": _SUMMARY
            + "1_seq4k,32k,128,4,0,0,512,2,69,55.6\n",
        },
        2,
    ),
}
