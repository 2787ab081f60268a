"""Constants of a machine from what was measured on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from foretell.calibrate.spread import LEAST_CASES, spread_of
from foretell.calibrate.together import fit_together
from foretell.cluster import Device
from foretell.data import Record
from foretell.design.known import Run, runs_on
from foretell.errors import CannotError
from foretell.graph.graph import Bools, Floats
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import FamilyConstants
from foretell.predictors.analytic.fit import Evidence, evidence_of, fit_with_noise, sample_of
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.protocol import Predictor

P = TypeVar("P", bound=Predictor)
MODES = ("train", "infer")
_FOLDS = 8
_STEP_WEIGHT = 4.0
"""Operators that one whole step counts for: forecasts are of steps."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration(Generic[P]):
    """A predictor fitted to one machine, and how well."""

    predictor: P
    device: Device
    copy_bytes_per_s: float
    """Rate of copies into the buffers that processes exchange."""
    operators: int
    steps: int
    """Whole steps of one process."""
    shared_steps: int
    """Whole steps of several processes."""
    collectives: int
    before: Floats
    """Predicted over measured of every whole step, with the constants shipped."""
    after: Floats
    """The same with constants fitted without the model in question."""
    after_shared: Floats
    """The same of steps of several processes; exchanges were fitted on these too."""


def fit_machine(records: Sequence[Record], device: Device) -> Calibration[AnalyticPredictor]:
    """Constants for every device of the same family as `device`, from records of it."""
    shipped = AnalyticPredictor.shipped()
    runs, _ = runs_on(device, records)
    alone = [r for r in runs if r.job[1].is_single_device]
    shared = [r for r in runs if not r.job[1].is_single_device]
    is_step = np.array([not r.case.model.startswith("op:") for r in alone], dtype=np.bool_)
    if len(alone) < LEAST_CASES:
        raise CannotError(
            f"{len(alone)} measurements on {device.id} are too few to fit constants: "
            f"measure {LEAST_CASES} or more"
        )
    evidence = evidence_of([sample_of(r.job[0], device, r.time_s) for r in alone])
    prior = shipped.constants_for(alone[0].job[0].recipe, device)
    fitted = _fit(evidence, is_step, prior)
    predictor = _with_family(shipped, device, fitted)
    after = _held_out(evidence, is_step, [r.case.model for r in alone], prior)
    spreads = {f"{device.family}/{mode}": spread_of(np.log(after)) for mode in MODES}
    copy_bytes_per_s = _copy_bytes_per_s(fitted, device) if shared else float("inf")
    together = fit_together(predictor, device, shared, records, copy_bytes_per_s)
    if together:
        spreads[f"{device.family}/together"] = spread_of(np.log(together.ratios))
    constants = dataclasses.replace(
        predictor.constants,
        spreads={**predictor.constants.spreads, **spreads},
        together={device.family: together.constants} if together else {},
        provenance=_provenance(alone, device),
    )
    return Calibration(
        predictor=AnalyticPredictor(constants),
        device=device,
        copy_bytes_per_s=copy_bytes_per_s,
        operators=int((~is_step).sum()),
        steps=int(is_step.sum()),
        shared_steps=len(shared),
        collectives=together.collectives if together else 0,
        before=1 / evidence.subset(is_step).ratios(prior),
        after=after,
        after_shared=together.ratios if together else np.ones(0),
    )


def _fit(evidence: Evidence, is_step: Bools, prior: FamilyConstants) -> FamilyConstants:
    weight = np.where(is_step, _STEP_WEIGHT, 1.0)
    return fit_with_noise(evidence, prior, weight=weight).constants


def _copy_bytes_per_s(constants: FamilyConstants, device: Device) -> float:
    """Copies read and write every byte once."""
    share = float(constants.memory[GROUPS.index("copy")])
    return device.memory_bandwidth_bytes_per_s * share / 2


def _held_out(
    evidence: Evidence, is_step: Bools, models: Sequence[str], prior: FamilyConstants
) -> Floats:
    """Predicted over measured of whole steps, each fitted without any row of its model."""
    names = sorted({m for m, step in zip(models, is_step, strict=True) if step})
    fold = {name: i % _FOLDS for i, name in enumerate(names)}
    mine = np.array([fold.get(m, -1) for m in models])
    found = np.ones(len(models))
    for number in range(min(_FOLDS, len(names))):
        out = mine == number
        constants = _fit(evidence.subset(~out), is_step[~out], prior)
        found[out] = 1 / evidence.subset(out).ratios(constants)
    return found[is_step]


def _with_family(
    shipped: AnalyticPredictor, device: Device, fitted: FamilyConstants
) -> AnalyticPredictor:
    others = {
        key: value
        for key, value in shipped.constants.families.items()
        if key.split("/")[0] != device.family
    }
    own = {device.family: fitted} | {f"{device.family}/{mode}": fitted for mode in MODES}
    return AnalyticPredictor(dataclasses.replace(shipped.constants, families={**others, **own}))


def _provenance(runs: Sequence[Run], device: Device) -> dict[str, object]:
    shipped = AnalyticPredictor.shipped().constants.provenance
    precisions = sorted({r.job[0].recipe.precision for r in runs})
    evidence = {
        key: value
        for key, value in shipped.get("evidence", {}).items()
        if key.split("/")[0] != device.family
    }
    own = {f"{device.family}/{mode}": {"precisions": precisions} for mode in MODES}
    calibrated = {"device": device.id, "name": device.name, "runs": len(runs)}
    return {**shipped, "evidence": {**evidence, **own}, "calibrated": calibrated}
