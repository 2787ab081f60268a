"""Measurements in the layout that timm publishes, with times that a known rule made."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.api import Case, workload_of
from foretell.predictors import predictor

MODELS = ("resnet10t", "resnet18", "resnet26", "mobilenetv3_small_050", "lcnet_035", "tinynet_e")
HEADER = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sources: training steps whose times the analytic predictor made."""
    folder = tmp_path_factory.mktemp("data") / "timm"
    folder.mkdir()
    for version, batches in (("111", (32, 64)), ("112", (48, 96))):
        lines = []
        for model in MODELS:
            for batch in batches:
                case = Case(
                    model=f"timm:{model}",
                    batch=batch,
                    image_size=96,
                    cluster="rtx3090",
                    precision="amp-fp16",
                    optimizer="momentum",
                    torch_version="1.12",
                )
                workload, cluster = workload_of(case)
                step_s = predictor("analytic").predict(workload, cluster).step_time_s.value
                millions = workload.graph.parameters.total / 1e6
                lines.append(
                    f"{model},{batch / step_s:.4f},{1000 * step_s:.4f},{batch},96,{millions:.2f}\n"
                )
        name = f"benchmark-train-amp-nchw-pt{version}-cu113-rtx3090.csv"
        (folder / name).write_text(HEADER + "".join(lines))
    return folder.parent
