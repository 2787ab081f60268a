"""What the learned predictor makes of a step."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.graph.ops import Phase
from foretell.predictors.scaledl import ScaleDLPredictor


def test_time_in_unseen_operators_counts_every_pass_but_one_optimizer() -> None:
    case = Case(model="timm:resnet10t", batch=2, global_batch=16, cluster="rtx3090")
    workload, cluster = workload_of(case)
    timed = ScaleDLPredictor.shipped()._timed(workload, cluster.devices[0])
    passes = np.where(workload.step.op_phase == Phase.OPTIMIZER, 1, 8)
    expected = timed.op_times().device_s @ passes
    assert timed.row_s(passes).sum() == pytest.approx(expected)
    assert len(timed.row_s(passes)) == len(timed.table)
