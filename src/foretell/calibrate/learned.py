"""The learned predictor fitted to a machine: its operators' paces, and its processes together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from foretell.calibrate.fitting import Calibration
from foretell.calibrate.spread import spread_of
from foretell.calibrate.together import fit_together
from foretell.cluster import Device
from foretell.data import Record
from foretell.design.known import runs_on
from foretell.fit.adapt import adapt
from foretell.fit.corpora import corpus_of
from foretell.fit.splits import is_model
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.scaledl import ScaleDLPredictor


def fit_learned(
    records: Sequence[Record],
    device: Device,
    start: ScaleDLPredictor,
    plain: Calibration[AnalyticPredictor],
) -> Calibration[ScaleDLPredictor]:
    """The same records as in the calibration `plain`, for the learned predictor."""
    mine = [r for r in records if r.device == device.id and r.devices == 1]
    corpus, _ = corpus_of(sorted(mine, key=lambda r: r.model), workers=1)
    adapted = adapt(start.weights, corpus, device.id)
    predictor = dataclasses.replace(start, weights=adapted.weights)
    runs, _ = runs_on(device, records)
    shared = [r for r in runs if not r.job[1].is_single_device]
    together = fit_together(predictor, device, shared, records, plain.copy_bytes_per_s)
    if together:
        spread = spread_of(np.log(together.ratios))
        weights = adapted.weights.with_machine(device.id, together.constants, spread)
        predictor = dataclasses.replace(predictor, weights=weights)
    steps = is_model(corpus)
    return Calibration(
        predictor=predictor,
        device=device,
        copy_bytes_per_s=plain.copy_bytes_per_s,
        operators=int((~steps).sum()),
        steps=int(steps.sum()),
        shared_steps=len(shared),
        collectives=together.collectives if together else 0,
        before=adapted.before[steps],
        after=adapted.after[steps],
        after_shared=together.ratios if together else np.ones(0),
    )
