"""What well-known jobs compute and tell each other: python -m benchmarks.typical_jobs.

Prints the figures of foretell/schedule/typical.py: forecasts of the analytic predictor on V100s
with 32 GB, mixed precision, eight to a server.
"""

from __future__ import annotations

from foretell.api import Case, workload_of
from foretell.predictors import predictor
from foretell.predictors.protocol import PlaysSteps
from foretell.schedule.forecast import shape_of

JOBS = {
    "resnet50": {"model": "timm:resnet50", "batch": 128, "cluster": "8xv100-32gb"},
    "vgg16": {"model": "timm:vgg16", "batch": 64, "cluster": "8xv100-32gb"},
    "bert-large": {
        "model": "transformer:layers=24,hidden=1024,heads=16,seq=512,vocab=30522",
        "batch": 16,
        "cluster": "8xv100-32gb",
    },
    "gpt-1.3b": {
        "model": "transformer:layers=24,hidden=2048,heads=16,seq=1024,vocab=50304",
        "batch": 1,
        "global_batch": 64,
        "pp": 4,
        "cluster": "8xv100-32gb",
    },
}


def main() -> None:
    """Print one line a job."""
    analytic = predictor("analytic")
    assert isinstance(analytic, PlaysSteps)
    for name, options in JOBS.items():
        workload, cluster = workload_of(
            Case.from_mapping({**options, "precision": "amp-fp16", "optimizer": "adamw"})
        )
        shape = shape_of(workload, cluster, analytic)
        for stage in shape.stages:
            print(
                f"{name}: {stage.replicas} replicas, {stage.compute_s:.3f} s, "
                f"{stage.parameter_bytes / 1e6:.0f} MB of gradients"
            )
        for flow in shape.flows:
            print(f"{name}: {flow.source} -> {flow.target} {flow.nbytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
