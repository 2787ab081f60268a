"""Pools of candidates whose times are known, to try designs of measurements on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from benchmarks.cpu_data import OPERATORS_FILE
from benchmarks.operator_rows import gemms_of, operators_of
from foretell.api import Case, workload_of
from foretell.cluster import Device
from foretell.data import Record
from foretell.data.columns import to_records
from foretell.design.features import FEATURES, Features
from foretell.graph.graph import Bools, Floats
from foretell.predictors.analytic.constants import NAMES, FamilyConstants, shipped_constants
from foretell.predictors.analytic.fit import Evidence, Sample, evidence_of, sample_of

_MOST = 10_000
_PER_GROUP = 2_500
_HELD_OUT = 0.2


@dataclass(frozen=True, eq=False)
class KnownPool:
    """Candidates with their measured times, and rows that are only for judging."""

    name: str
    candidates: Evidence
    held_out: Evidence
    prior: FamilyConstants

    def features(self, constants: FamilyConstants) -> Features:
        """What a design would know of the candidates."""
        step_s, rows = self.candidates.steps.elasticities(constants)
        count = len(self.candidates)
        padded = np.zeros((count, len(FEATURES)))
        padded[:, : len(NAMES)] = rows
        return Features(
            elasticities=padded,
            step_s=step_s,
            steps=self.candidates.steps,
            processes=np.ones(count, dtype=np.int64),
        )

    def error(self, constants: FamilyConstants) -> float:
        """Mean |predicted / measured - 1| on the rows held out."""
        return float(np.abs(1 / self.held_out.ratios(constants) - 1).mean())


@dataclass(frozen=True, eq=False)
class Table:
    """All rows of one device, to be split anew for every seed."""

    name: str
    rows: Evidence
    prior: FamilyConstants

    def pool(self, seed: int) -> KnownPool:
        """A random fifth of every kind of operator is held out; of large kinds a part is used."""
        rng = np.random.default_rng(seed)
        group = self.rows.steps.columns.group[_first_op(self.rows)]
        kinds = np.unique(group)
        most = _MOST if len(kinds) == 1 else _PER_GROUP
        keep: Bools = np.zeros(len(self.rows), dtype=np.bool_)
        away = keep.copy()
        for kind in kinds:
            order = rng.permutation(np.flatnonzero(group == kind))
            count = min(most, int((1 - _HELD_OUT) * len(order)))
            keep[order[:count]] = True
            away[order[count : count + int(count * _HELD_OUT / (1 - _HELD_OUT)) + 1]] = True
        return KnownPool(self.name, self.rows.subset(keep), self.rows.subset(away), self.prior)


def _first_op(rows: Evidence) -> Floats:
    """Where in the flat columns each row's longest-standing operator is; alone it is the only."""
    return np.searchsorted(rows.steps.step, np.arange(len(rows)))


def published_tables() -> list[tuple[str, Callable[[], Sequence[Sample]]]]:
    """Measurements of others: six kinds of operators on two devices, matrix products on one."""
    return [
        ("V100, operators", lambda: operators_of("v100-32gb-pcie")),
        ("T4, operators", lambda: operators_of("t4")),
        ("H100, matrix products", lambda: gemms_of("h100-sxm", "bf16")),
    ]


def table_of(name: str, samples: Sequence[Sample]) -> Table:
    """Samples of a device whose family starts from another one's constants."""
    # Those of single families were fitted to rows that are held out here.
    return Table(name, evidence_of(samples), shipped_constants().families["default"])


def measured_on(record: Record) -> Device:
    """The device of one of our own records, whatever machine this is."""
    return Device(**record.environment["device"])


def own_table() -> Table:
    """Our own measurements of operators on one core of a CPU."""
    samples = []
    for record in to_records(pq.read_table(OPERATORS_FILE)):
        if record.ok and record.time_s is not None:
            workload, _ = workload_of(Case.from_mapping(record.case_options()))
            samples.append(sample_of(workload, measured_on(record), record.time_s))
    return table_of("CPU, operators", samples)
