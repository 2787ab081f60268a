"""What was measured already on a device: rows that count, and the constants they suggest."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.api import Case, workload_of
from foretell.cluster import Device
from foretell.data.record import Record
from foretell.design.features import Features, Job, features_of
from foretell.errors import ForetellError
from foretell.graph.graph import Floats
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import NAMES
from foretell.predictors.analytic.fit import (
    GROUP_NOISE,
    evidence_of,
    fit_with_noise,
    sample_of,
)
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.assemble import slowest


@dataclass(frozen=True, eq=False)
class Run:
    """A case with the time it took."""

    case: Case
    job: Job
    time_s: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Known:
    """What earlier runs say before anything new is measured."""

    features: Features | None
    shift: Floats
    """How far the logarithms of the constants are from those shipped, in the order of NAMES."""
    group_noise: Floats
    times: Counter[Case]
    """How often each case was measured."""


def same_case(case: Case, job: Job) -> Case:
    """The case in the one form that all its spellings share."""
    workload, cluster = job
    return dataclasses.replace(case, cluster=cluster.spec, batch=workload.recipe.batch)


def runs_on(device: Device, records: Iterable[Record]) -> tuple[list[Run], int]:
    """Measured cases on a device, and how many of its records no forecast can describe."""
    found, strange = [], 0
    for record in records:
        if not record.ok or record.time_s is None or record.kind == "collective":
            continue
        options = record.case_options()
        if record.device and record.devices == 1:
            options.setdefault("cluster", record.device)
        if not record.model or "cluster" not in options:
            continue
        try:
            case = Case.from_mapping(options)
            job = workload_of(case)
        except ForetellError:
            strange += record.device == device.id
            continue
        if slowest(job[1]).id == device.id:
            found.append(Run(case, job, record.time_s))
    return found, strange


def known_from(runs: Sequence[Run], predictor: AnalyticPredictor) -> Known:
    """Rows and refitted constants of what was measured.

    Constants are fitted to the runs on one device in the setting that most of them share.
    """
    shift, noise = _fitted(runs, predictor)
    return Known(
        features=features_of([r.job for r in runs], predictor, shift) if runs else None,
        shift=shift,
        group_noise=noise,
        times=Counter(same_case(r.case, r.job) for r in runs),
    )


def _fitted(runs: Sequence[Run], predictor: AnalyticPredictor) -> tuple[Floats, Floats]:
    settings: dict[int, list[Run]] = {}
    for run in runs:
        workload, cluster = run.job
        if cluster.is_single_device:
            constants = predictor.constants_for(workload.recipe, slowest(cluster))
            settings.setdefault(id(constants), []).append(run)
    if not settings:
        return np.zeros(len(NAMES)), np.full(len(GROUPS), GROUP_NOISE)
    chosen = max(settings.values(), key=len)
    workload, cluster = chosen[0].job
    prior = predictor.constants_for(workload.recipe, slowest(cluster))
    samples = [sample_of(r.job[0], slowest(r.job[1]), r.time_s) for r in chosen]
    fitted = fit_with_noise(evidence_of(samples), prior)
    return fitted.constants.logs() - prior.logs(), fitted.group_noise
