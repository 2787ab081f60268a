"""What the timeline misses in measured distributed jobs, and how well other jobs tell it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.api import Case, workload_of
from foretell.data import Record
from foretell.data.importers import records_of
from foretell.errors import ForetellError
from foretell.fit.sources import folder_of
from foretell.fit.splits import folds
from foretell.graph.graph import Floats, Ints
from foretell.predictors.assemble import slowest
from foretell.predictors.scaledl.predictor import ScaleDLPredictor
from foretell.predictors.scaledl.together import Jobs, job_of, learn

JOB_SOURCES = ("vtrain", "llm_foundry", "rubick", "pollux", "megatron_golden")
_FOLDS = 5
_FEWEST = 8
"""Jobs of a family that are worth learning from."""


@dataclass(frozen=True, eq=False)
class MeasuredJobs:
    """Distributed jobs: what they look like, what was said without them, what was measured."""

    source: tuple[str, ...]
    family: tuple[str, ...]
    configuration: tuple[str, ...]
    at: Floats
    predicted_s: Floats
    measured_s: Floats
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.measured_s)

    @property
    def off(self) -> Floats:
        """Logarithms of measured over predicted."""
        return np.log(self.measured_s / self.predicted_s)


def measured_jobs(
    data: Path,
    predictor: ScaleDLPredictor,
    sources: Sequence[str] = JOB_SOURCES,
    tell: Callable[[str, float], None] = lambda name, share: None,
) -> MeasuredJobs:
    """Every distinct distributed configuration, with the median of its times."""
    rows = []
    for source in sources:
        cases = list(_cases(source, data))
        for number, (case, record, seconds) in enumerate(cases):
            tell(source, number / len(cases))
            try:
                workload, cluster = workload_of(case)
                placed, run = predictor.play(workload, cluster)
            except ForetellError:
                continue
            rows.append(
                (
                    source,
                    slowest(cluster).family,
                    f"{source}/{record.group}",
                    job_of(placed, run),
                    run.step_s,
                    seconds,
                    record.origin,
                )
            )
        tell(source, 1.0)
    source_of, family, group, at, said, took, labels = zip(*rows, strict=True)
    return MeasuredJobs(
        source_of, family, group, np.array(at), np.array(said), np.array(took), labels
    )


def _cases(source: str, data: Path) -> Iterator[tuple[Case, Record, float]]:
    times: dict[Case, list[tuple[float, Record]]] = defaultdict(list)
    for record in records_of(source, folder_of(source, data)):
        if record.kind == "step" and record.ok and record.time_s is not None:
            times[Case.from_mapping(record.case_options())].append((record.time_s, record))
    for case, measured in times.items():
        yield case, measured[0][1], float(np.median([t for t, _ in measured]))


def learned(jobs: MeasuredJobs) -> Mapping[str, Jobs]:
    """What all jobs teach, by family of devices."""
    return _learn(jobs, np.ones(len(jobs), dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What the other configurations say of every job."""

    predicted_s: Floats
    doubt: Floats
    fold: Ints


def held_out(jobs: MeasuredJobs, seed: int = 0) -> HeldOut:
    """Every job, corrected by what the other configurations teach."""
    fold = folds(jobs.configuration, _FOLDS, seed)
    predicted, doubt = jobs.predicted_s.copy(), np.ones(len(jobs))
    for number in range(_FOLDS):
        families = _learn(jobs, fold != number)
        for i in np.flatnonzero(fold == number):
            known = families.get(jobs.family[i])
            if known is not None:
                taught = known.about(jobs.at[i])
                predicted[i] *= np.exp(taught.added)
                doubt[i] = taught.doubt
    return HeldOut(predicted, doubt, fold)


def _learn(jobs: MeasuredJobs, chosen: np.ndarray) -> dict[str, Jobs]:
    family = np.array(jobs.family)
    found = {}
    for name in sorted(set(jobs.family)):
        mine = chosen & (family == name)
        if mine.sum() >= _FEWEST:
            found[str(name)] = learn(jobs.at[mine], jobs.off[mine])
    return found
