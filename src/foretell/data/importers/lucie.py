"""Lucie: steps of a 7B Llama under Megatron-DeepSpeed on 8 to 256 A100, for validation: GPL-3.0.

Two tables, made by the authors from the logs of their search for a parallel plan:
- all_iters_w_dp.csv has one row per iteration at 2048 tokens. A configuration (GPUs, TP, PP, global
  batch, ZeRO stage) is one record: the median of its iterations, which passes over the slow first
  one and rare ones that take minutes. It has the origin of its first iteration, the others count
  as merged. The micro batch is not in the table; the authors' notes list it. Three configurations
  are left out, for which what is listed does not divide the global batch.
- expe_summary.csv has one row per run at 4096 tokens; the step is the global batch over samples per
  second. pp=0 is no pipeline, as pp=1. Runs of `recompute_activation` recompute everything.

Read from the published scripts: the shape of the model, bf16 with fp32 master weights, Adam, flash
attention, nodes of eight A100. Kernels are launched one by one (CUDA_LAUNCH_BLOCKING), so nothing
overlaps. Stage 0 is read as the notes say: nothing is sharded.
Assumed: A100 with 80 GB; vocabularies of 32,000 (also at 2048 tokens) and 65,024, padded to 128
times TP; four ports of 100 Gbit/s a node, whose Omni-Path is written as EDR InfiniBand.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from foretell.data.importers.hardware import full_nodes
from foretell.data.importers.rows import BadRowError, Row, csv_table, each, grouped, merged
from foretell.data.importers.source import Rows, Source
from foretell.data.importers.steps import step_record
from foretell.data.record import Record

_ITERATIONS, _RUNS = "all_iters_w_dp.csv", "expe_summary.csv"
_PER_NODE = 8
_VOCABULARY = {"32k": 32000, "65k": 65024}
_STAGES = ("z0", "z1")
_RECOMPUTED = "recompute_activation"
_MICRO_BATCH = {  # (TP, PP) -> by global batch, where it is the same for all numbers of GPUs
    (1, 1): {192: 3, 256: 2, 512: 2},
    (2, 1): {192: 4, 512: 4},
    (1, 2): {192: 4, 512: 4},
    (2, 2): {192: 6, 512: 4},
}
_OTHER_MICRO_BATCH = {  # (TP, PP, global batch, GPUs)
    (2, 1, 192, 128): 3,
    (1, 2, 192, 8): 2,
    (1, 2, 512, 8): 2,
}


class _Plan(NamedTuple):
    gpus: int
    tp: int
    pp: int
    zero: int
    global_batch: int
    micro_batch: int
    seq: int
    vocabulary: str
    recompute: bool = False


def read(folder: Path) -> Rows:
    """Iterations by configuration, then runs."""
    found, rejects = grouped(csv_table(folder, _ITERATIONS), _plan_of_iteration)
    yield from rejects
    for plan, rows in found.items():
        yield from merged(rows, _iterations, plan)
    yield from each(csv_table(folder, _RUNS), _run)


def _plan_of_iteration(row: Row) -> _Plan:
    gpus, tp, pp = (row.count(name) for name in ("ngpus", "TP", "PP"))
    # The column names the folder of the log, in which one configuration ran another batch.
    global_batch = round(row.positive("samples_per_seconds") * row.positive("iter_time") / 1e3)
    listed = _MICRO_BATCH.get((tp, pp), {}).get(global_batch)
    micro_batch = _OTHER_MICRO_BATCH.get((tp, pp, global_batch, gpus), listed)
    if micro_batch is None:
        raise BadRowError("a configuration whose micro batch is not listed")
    if row.text("stage") not in _STAGES:
        raise BadRowError("a stage that is not known")
    zero = _STAGES.index(row.text("stage"))
    seq = row.count("consumed_tokens") // row.count("consumed_samples")
    return _checked(_Plan(gpus, tp, pp, zero, global_batch, micro_batch, seq, "32k"))


def _iterations(rows: list[Row], plan: _Plan) -> Record:
    time_s = statistics.median(row.positive("iter_time") for row in rows) / 1e3
    return _step(plan, time_s, len(rows), rows[0])


def _run(row: Row) -> Record:
    vocabulary = row.text("vocab_size")
    if vocabulary not in _VOCABULARY:
        raise BadRowError("a vocabulary that is not known")
    gpus, tp, global_batch, micro_batch = (
        row.count(name) for name in ("nGPUs", "tp", "gbz", "mbz")
    )
    pp, zero = max(1, row.whole("pp")), row.whole("z")
    recompute = _RECOMPUTED in row.text("expe")
    plan = _Plan(gpus, tp, pp, zero, global_batch, micro_batch, 4096, vocabulary, recompute)
    time_s = global_batch / row.positive("samples_per_seconds")
    return _step(_checked(plan), time_s, row.count("num_iterations"), row)


def _checked(plan: _Plan) -> _Plan:
    if plan.gpus % _PER_NODE or plan.gpus % (plan.tp * plan.pp):
        raise BadRowError("GPUs that fill neither nodes nor replicas")
    if plan.global_batch % (plan.micro_batch * plan.gpus // (plan.tp * plan.pp)):
        raise BadRowError("the micro batch does not divide the global batch")
    return plan


def _step(plan: _Plan, time_s: float, samples: int, row: Row) -> Record:
    multiple = 128 * plan.tp
    vocabulary = -(-_VOCABULARY[plan.vocabulary] // multiple) * multiple
    options = {
        "model": f"transformer:layers=32,hidden=4096,heads=32,ffn=11008,vocab={vocabulary},"
        f"gated,rmsnorm,rope,seq={plan.seq}",
        "cluster": full_nodes("a100-80gb", plan.gpus, _PER_NODE, "4xib-edr"),
        "batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "precision": "bf16",
        "master_weights": True,
        "fp32_gradients": True,
        "optimizer": "adam",
        "fused_optimizer": True,
        "tp": plan.tp,
        "pp": plan.pp,
        "zero": plan.zero,
        "overlap": False,
    }
    if plan.recompute:
        options["recompute"] = "full"
    return step_record(
        options,
        group=f"{plan.gpus} tp={plan.tp} pp={plan.pp}",
        time_s=time_s,
        samples=samples,
        source=SOURCE.name,
        origin=row.origin,
    )


SOURCE = Source(
    name="lucie",
    repository="https://github.com/OpenLLM-France/Lucie-Training",
    commit="c3b8b3a013a32d0a468cd5d6c7bf969a131590c6",
    licence="GPL-3.0",
    use="check",
    files=(_ITERATIONS, _RUNS),
    read=read,
)
