"""In which order compiled convolutions run."""

from __future__ import annotations

import pytest

from foretell.api import Case, workload_of
from foretell.predictors.scaledl.compiled import convolves_channels_last
from foretell.predictors.scaledl.table import COLUMNS, table_of

GROUPED, CHAIN = "timm:regnety_002", "transformer:layers=2,hidden=64,heads=2,seq=16,vocab=100"


@pytest.mark.parametrize(
    ("model", "mode", "on_cpu", "expected"),
    [
        ("timm:resnet10t", "infer", False, True),
        ("timm:resnet10t", "train", False, True),
        ("timm:convmixer_768_32", "infer", False, True),  # depthwise is not grouped
        ("timm:regnety_064", "infer", False, False),
        ("timm:resnext26ts", "infer", False, True),  # grouped, but most FLOPs are not
        ("timm:resnext26ts", "train", False, False),
        ("timm:vit_tiny_patch16_224", "infer", False, False),  # one convolution among hundreds
        ("timm:nest_base", "infer", False, False),  # PyTorch's source names this one
        ("timm:volo_d1_224", "infer", False, False),  # and this
        (GROUPED, "infer", True, True),
        (CHAIN, "infer", True, False),
    ],
)
def test_the_compiler_turns_convolutions_where_it_expects_a_gain(
    model: str, mode: str, on_cpu: bool, expected: bool
) -> None:
    workload, _ = workload_of(Case(model=model, batch=8, mode=mode, cluster="rtx4090"))
    assert convolves_channels_last(workload.step, on_cpu=on_cpu) is expected


def test_only_a_compiled_table_says_so() -> None:
    workload, _ = workload_of(Case(model="timm:resnet10t", batch=8, mode="infer"))
    column = COLUMNS.index("channels_last_input")
    eager = table_of(workload.step, "fp32", compiled=False)
    compiled = table_of(workload.step, "fp32", compiled=True)
    assert not eager.shape[:, column].any()
    turned = {n for n, last in zip(compiled.name, compiled.shape[:, column], strict=True) if last}
    assert turned >= {"convolution", "native_batch_norm"}
    assert "addmm" not in turned
