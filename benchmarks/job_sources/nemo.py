"""NeMo: vendor-published FP8 pre-training throughput on H100, from the history of its docs.

Fine-tuning rows and the table of long sequences, which names no model, are left out.
"""

from __future__ import annotations

import csv

from benchmarks.job_sources.megatron_bridge import DEVICES, llm_job
from benchmarks.jobs import Job
from benchmarks.sources import require


def jobs() -> list[Job]:
    """Pre-training rows, each configuration once (the newest figure)."""
    newest: dict[str, Job] = {}
    with (require("nemo") / "performance_summary_history.csv").open(newline="") as stream:
        for record in sorted(csv.DictReader(stream), key=lambda r: r["date"]):
            if record["section"].endswith("Pretraining"):
                job = llm_job("nemo", record["Model"], DEVICES["H100"], "fp8", record)
                if job is not None:
                    newest[f"{job.configuration} {job.options['global_batch']}"] = job
    return list(newest.values())
