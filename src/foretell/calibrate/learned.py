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
from foretell.predictors.scaledl import ScaleDLPredictor


def fit_learned(
    records: Sequence[Record], device: Device, found: Calibration, start: ScaleDLPredictor
) -> Calibration:
    """The calibration `found` of the same records, with the learned predictor instead."""
    mine = [r for r in records if r.device == device.id and r.devices == 1]
    corpus, _ = corpus_of(sorted(mine, key=lambda r: r.model), workers=1)
    adapted = adapt(start.weights, corpus, device.id)
    steps = is_model(corpus)
    predictor = dataclasses.replace(start, weights=adapted.weights)
    runs, _ = runs_on(device, records)
    shared = [r for r in runs if not r.job[1].is_single_device]
    copy_bytes_per_s = found.copy_bytes_per_s
    together = fit_together(predictor, device, shared, records, copy_bytes_per_s)
    if together:
        spread = spread_of(np.log(together.ratios))
        weights = adapted.weights.with_machine(device.id, together.constants, spread)
        predictor = dataclasses.replace(predictor, weights=weights)
    return dataclasses.replace(
        found,
        predictor=predictor,
        before=adapted.before[steps],
        after=adapted.after[steps],
        after_shared=together.ratios if together else np.ones(0),
    )
