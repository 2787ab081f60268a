"""Fit and judge the analytic predictor: python -m benchmarks.analytic [--write].

Steps come from timm's files, split by model into folds; operators from NeuSight's and
AIConfigurator's tables. Prints the errors on held-out models per device and setting, writes the
per-case ledger, and with --write the constants that ship with the package.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.figures import errors
from benchmarks.operator_rows import operator_samples
from benchmarks.sources import RESULTS, ROOT
from benchmarks.timm_rows import Graphs, Row, rows
from foretell.cluster import device
from foretell.predictors.analytic.constants import (
    SCALARS,
    Constants,
    FamilyConstants,
    shipped_constants,
)
from foretell.predictors.analytic.fit import Evidence, Sample, evidence_of, prior_constants
from foretell.predictors.analytic.fit import fit as damped_fit
from foretell.predictors.analytic.fit import sample_of as measured
from foretell.predictors.analytic.rates import FUSIBLE, GROUPS, LAYOUT_SENSITIVE
from foretell.predictors.assemble import Spread
from foretell.workload import MODES, Recipe, Workload

_FOLDS = 5
_REFERENCE = "ampere-consumer"
# Optimizers of small models say little about bandwidth, and those of large ones are not measured.
_NOT_MEASURED = "memory[optimizer]"
_OVERHEADS = ("overhead_s", "dispatch_s")
CONSTANTS_FILE = ROOT / "src" / "foretell" / "predictors" / "analytic" / "constants.json"


@dataclass
class Setting:
    """Measured steps that share constants: one family, mode, layout and execution."""

    key: str
    rows: list[Row]
    samples: list[Sample]

    def evidence(self) -> Evidence:
        return evidence_of(self.samples)

    def folds(self) -> np.ndarray:
        return np.array([fold_of(r.model) for r in self.rows])


def setting_key(row: Row) -> str:
    """The constants key a row is priced with, as the predictor looks it up."""
    parts = [row.mode]
    if row.channels_last:
        parts.append("nhwc")
    if row.compiled:
        parts.append("compile")
    return f"{device(row.device).family}/{'+'.join(parts)}"


def sample_of(row: Row, graphs: Graphs) -> Sample | None:
    """A row as operators with counts, or None when its model is not usable."""
    graph = graphs.of(row)
    if graph is None:
        return None
    recipe = Recipe(
        batch=row.batch,
        mode=row.mode,
        precision=row.precision,
        optimizer="momentum",
        compile=row.compiled,
    )
    return measured(Workload(graph, recipe), device(row.device), row.step_time_s)


def fold_of(model: str) -> int:
    """Which fold a model is held out in; the same for all its rows."""
    return int(hashlib.sha256(model.encode()).hexdigest(), 16) % _FOLDS


def collect(chosen: Iterable[Row]) -> dict[str, Setting]:
    """Usable rows by setting."""
    graphs = Graphs()
    settings: dict[str, Setting] = {}
    for row in chosen:
        sample = sample_of(row, graphs)
        if sample is not None:
            key = setting_key(row)
            setting = settings.setdefault(key, Setting(key, [], []))
            setting.rows.append(row)
            setting.samples.append(sample)
    print(f"{len(graphs.rejected)} models rejected (gone or changed since they were measured)")
    return settings


def fit(
    evidence: Evidence, prior: FamilyConstants, *, pull: float = 0.02, with_overheads: bool = True
) -> FamilyConstants:
    """Constants with a pull towards the prior that grows with the number of rows.

    Rows of one model are not independent, so many of them must not silence the prior. Operators
    timed alone say nothing about overheads in a step: `with_overheads=False` keeps the prior's.
    """
    doubt = np.repeat([1.5, 0.25], [2 * len(GROUPS), len(SCALARS)]) / (pull * len(evidence))
    fixed = (_NOT_MEASURED, *(() if with_overheads else _OVERHEADS))
    return damped_fit(evidence, prior, doubt=np.sqrt(doubt), fixed=fixed)


def fold_fits(setting: Setting, priors: Sequence[FamilyConstants]) -> list[FamilyConstants]:
    """Per fold, constants that know neither its models' rows here nor those in the prior."""
    evidence, folds = setting.evidence(), setting.folds()
    return [fit(evidence.subset(folds != f), prior) for f, prior in enumerate(priors)]


def held_out_ratios(setting: Setting, fits: Sequence[FamilyConstants]) -> np.ndarray:
    """measured / predicted for every row, each predicted without its model's fold."""
    evidence, folds = setting.evidence(), setting.folds()
    ratios = np.zeros(len(folds))
    for fold, constants in enumerate(fits):
        away = folds == fold
        if away.any():
            ratios[away] = evidence.subset(away).ratios(constants)
    return ratios


def main() -> None:
    """Fit, judge, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the shipped constants")
    parser.add_argument("--limit", type=int, help="use every n-th model only")
    options = parser.parse_args()
    keep = (lambda r: True) if not options.limit else (lambda r: _every(r, options.limit))
    settings = collect(rows(keep))
    families: dict[str, FamilyConstants] = {}
    spreads: dict[str, Spread] = {}
    evidence: dict[str, dict[str, object]] = {}
    ledger: list[list[object]] = []
    train = settings[f"{_REFERENCE}/train"]
    prior = fit(train.evidence(), prior_constants())
    fold_priors = fold_fits(train, [prior_constants()] * _FOLDS)
    print(f"{'setting':34} {'rows':>6} {'mean':>7} {'median':>7} {'p90':>7} {'max':>8}  cover")
    for key, setting in sorted(settings.items()):
        is_prior = key == train.key
        fits = fold_priors if is_prior else fold_fits(setting, fold_priors)
        ratios = held_out_ratios(setting, fits)
        spread = Spread(low=float(np.quantile(ratios, 0.05)), high=float(np.quantile(ratios, 0.95)))
        families[key] = prior if is_prior else fit(setting.evidence(), prior)
        spreads[key] = spread
        evidence[key] = {"precisions": sorted({r.precision for r in setting.rows})}
        _print_row(key, ratios, spread)
        for row, ratio in zip(setting.rows, ratios, strict=True):
            ledger.append([key, row.file, row.model, row.batch, row.step_time_s, ratio])
    _add_bases(families, prior)
    _add_operator_families(families, evidence)
    _add_variants(families, evidence)
    spreads |= _unseen_spreads(settings, families)
    spreads |= {k: v for k, v in shipped_constants().spreads.items() if k.startswith("distributed")}
    _write_ledger(ledger)
    if options.write:
        constants = Constants(
            families=families,
            spreads=spreads,
            provenance={
                "fitted": datetime.date.today().isoformat(),
                "steps": "timm results (Apache-2.0)",
                "operators": "NeuSight (MIT), AIConfigurator (Apache-2.0)",
                "evidence": evidence,
            },
        )
        CONSTANTS_FILE.write_text(constants.to_json() + "\n", encoding="utf-8")
        print(f"wrote {CONSTANTS_FILE.relative_to(ROOT)}")


def _every(row: Row, n: int) -> bool:
    return int(hashlib.sha256(row.model.encode()).hexdigest(), 16) // 7 % n == 0


def _print_row(key: str, ratios: np.ndarray, spread: Spread) -> None:
    e = errors(ratios)
    cover = float(np.mean((ratios >= spread.low) & (ratios <= spread.high)))
    print(
        f"{key:34} {len(ratios):6d} {e['mean']:6.1f}% {e['median']:6.1f}% {e['p90']:6.1f}% "
        f"{e['max']:7.1f}%  {100 * cover:.0f} %",
        flush=True,
    )


def _add_bases(families: dict[str, FamilyConstants], prior: FamilyConstants) -> None:
    """A key without variant per family, for settings nobody measured; and the default."""
    by_family: dict[str, list[str]] = defaultdict(list)
    for key in families:
        by_family[key.split("/")[0]].append(key)
    for family, keys in by_family.items():
        chosen = next((k for k in keys if k.endswith("/train")), sorted(keys, key=len)[0])
        families[family] = families[chosen]
    families["default"] = prior


def _add_operator_families(
    families: dict[str, FamilyConstants], evidence: dict[str, dict[str, object]]
) -> None:
    """Families known from operator tables only."""
    for family, (samples, precisions) in operator_samples().items():
        held = evidence_of(samples)
        fitted = fit(held, families["default"], pull=0.002, with_overheads=False)
        off = errors(held.ratios(fitted))
        print(
            f"{family + ' operators':34} {len(samples):6d} {off['mean']:6.1f}% "
            f"{off['median']:6.1f}% {off['p90']:6.1f}% {off['max']:7.1f}%  in sample",
            flush=True,
        )
        if family not in families:
            families[family] = fitted
            evidence[family] = {"operators_only": True, "precisions": sorted(precisions)}


def _add_variants(
    families: dict[str, FamilyConstants], evidence: dict[str, dict[str, object]]
) -> None:
    """Layout and compilation where a family was not measured: changed as the reference was."""
    gpus = [k for k in families if "/" not in k and not k.startswith("cpu")]
    for variant, groups in (("nhwc", LAYOUT_SENSITIVE), ("compile", FUSIBLE)):
        for mode in MODES:
            key = f"{mode}+{variant}"
            reference = next((k for k in families if k.endswith(f"/{key}")), None)
            if reference is None:
                continue
            plain = families[reference.removesuffix(f"+{variant}")]
            for family in gpus:
                if f"{family}/{key}" not in families:
                    base = families.get(f"{family}/{mode}", families[family])
                    families[f"{family}/{key}"] = base.changed_as(
                        plain, families[reference], groups
                    )
                    evidence[f"{family}/{key}"] = {**evidence.get(family, {}), "derived": True}


def _unseen_spreads(
    settings: dict[str, Setting], families: dict[str, FamilyConstants]
) -> dict[str, Spread]:
    """Spread when a family's own steps were never measured: others' constants on each setting."""
    ratios = []
    gpus = {k: s for k, s in settings.items() if not k.startswith("cpu")}
    for key, setting in gpus.items():
        family, variant = key.split("/")
        test = setting.evidence()
        for other in gpus:
            if other.endswith("/" + variant) and not other.startswith(family + "/"):
                ratios.append(test.ratios(families[other]))
    flat = np.concatenate(ratios)
    low, high = np.quantile(flat, [0.05, 0.95])
    spread = Spread(low=float(low), high=float(high))
    print(f"unseen family: {len(flat)} rows, 90 % of measured/predicted in {low:.2f} to {high:.2f}")
    return {
        "default": Spread(low=spread.low * 0.8, high=spread.high * 1.25),
        "extrapolated": spread,
    }


def _write_ledger(ledger: list[list[object]]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path: Path = RESULTS / "analytic-timm.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["setting", "file", "model", "batch", "measured_s", "measured_over_predicted"]
        )
        for row in ledger:
            writer.writerow([f"{v:.5g}" if isinstance(v, float) else v for v in row])
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
