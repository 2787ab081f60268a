"""What each part of the learned predictor brings: python -m benchmarks.ablation [--seeds 3].

All variants are fitted alike (the same steps, seeds and epochs, fewer than the shipped weights) and
judged on the same fold, where half of the families are held out whole. Each fit is kept in --work:
an interrupted run goes on where it stopped. With --only, what the ledger has of others stays.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.baselines import BASELINES, by_place
from benchmarks.sources import OWN, RESULTS, ROOT, required_data
from foretell.fit.members import fold_of_steps, read_kept
from foretell.fit.run import Plan, read_parts
from foretell.fit.side_by_side import Task, fit_all
from foretell.fit.splits import is_model
from foretell.graph.graph import Floats
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.train import Effort

_FOLDS, _WORKERS, _EPOCHS = 5, 2, 12
_LEDGER = RESULTS / "ablation.parquet"
LAYERS, CROSS, ALIKE = "layers", "layers + graph", "layers, no kernel told apart"
_PLAIN = {"additive roofline": "additive", "trees": "trees", "plain network on totals": "gnn"}
_WITHOUT = {
    "layers, without training steps": ("timm-train",),
    "layers, without inference steps": ("timm-infer",),
    "layers, without operators of GPUs": ("neusight", "aiconfigurator", "vidur", "pipedream"),
    "layers, without own measurements": ("own",),
}
_WHERE = {
    "training, NCHW": "rtx3090/train/nchw/eager",
    "training, NHWC": "rtx3090/train/nhwc/eager",
    "inference": "/infer/",
}


def main() -> None:
    """Fit every variant, judge, print, and write the ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=_EPOCHS)
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("ablation-work"))
    parser.add_argument("--only", action="append", help="Name of a variant, may be given again.")
    options = parser.parse_args()
    data = required_data()
    plan = Plan(data=data, work=options.work, measurements=OWN)
    corpus, about = read_parts(plan, lambda name, share: None)
    part = np.repeat(list(about), [a["rows"] for a in about.values()])
    fold, whole = fold_of_steps(corpus, _FOLDS, seed=0)
    held = fold == options.fold
    rows = np.flatnonzero(held)
    effort = Effort(epochs=options.epochs)
    variants = {
        LAYERS: (effort, held, options.seeds),
        CROSS: (dataclasses.replace(effort, cross=True), held, options.seeds),
        ALIKE: (dataclasses.replace(effort, forget_known=1.0), held, 1),
    }
    for name, parts in _WITHOUT.items():
        variants[name] = (effort, held | np.isin(part, parts), 1)
    found = _read(corpus, rows)
    chosen = options.only or [*_PLAIN, *variants]
    tasks = {
        (name, seed): Task(away, dataclasses.replace(how, seed=seed), _place(options, name, seed))
        for name, (how, away, seeds) in variants.items()
        for seed in range(seeds)
        if name in chosen
    }
    fit_all(corpus, list(tasks.values()), _WORKERS, lambda name, share: None)
    for (name, seed), task in tasks.items():
        said = np.full(len(corpus), np.nan)
        _, judged, _ = read_kept(task.kept)
        said[judged.row] = judged.predicted_s
        found[f"{name}, seed {seed}"] = said[rows]
    for name, what in _PLAIN.items():
        if name in chosen:
            fitted = np.flatnonzero(~held & is_model(corpus))
            found[f"{name}, seed 0"] = BASELINES[what](corpus, fitted, rows)
    for name in (*_PLAIN, *variants):
        seeds = [said for each, said in found.items() if each.startswith(f"{name}, seed ")]
        if seeds:
            _print(corpus, name, seeds, rows, whole)
    _write(corpus, found, rows)


def _place(options: argparse.Namespace, name: str, seed: int) -> Path:
    folder: Path = options.work / f"{options.epochs} epochs, fold {options.fold}"
    return folder / f"{name.replace(', ', ' ').replace(' ', '-')}-{seed}"


def _print(
    corpus: Corpus, name: str, seeds: list[Floats], rows: np.ndarray, whole: np.ndarray
) -> None:
    """Mean error of every seed, and of the mean of all."""
    places = by_place(corpus)[rows]
    tries = {f"seed {i}": s for i, s in enumerate(seeds)} if len(seeds) > 1 else {"": seeds[0]}
    if len(seeds) > 1:
        tries["mean of seeds"] = np.exp(np.mean(np.log(seeds), axis=0))
    for label, said in tries.items():
        off = np.abs(said / corpus.measured_s[rows] - 1)
        shown = []
        for where in _WHERE.values():
            here = np.array([where in p and p.startswith("rtx") for p in places])
            for family in (False, True):
                shown.append(f"{100 * off[here & (whole[rows] == family)].mean():6.2f}")
        print(f"{name:36} {label:14} {' '.join(shown)}", flush=True)


def _steps(corpus: Corpus, rows: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "row": pa.array([corpus.labels[i] for i in rows]).dictionary_encode(),
            "place": pa.array(by_place(corpus)[rows].tolist()).dictionary_encode(),
            "measured_s": pa.array(corpus.measured_s[rows], pa.float32()),
        }
    )


def _read(corpus: Corpus, rows: np.ndarray) -> dict[str, Floats]:
    """What the ledger has, if it is of the same steps."""
    if not _LEDGER.exists():
        return {}
    table, steps = pq.read_table(_LEDGER), _steps(corpus, rows)
    if table.select(steps.column_names) != steps:
        return {}
    names = [n for n in table.column_names if n not in steps.column_names]
    return {n: table[n].to_numpy().astype(np.float64) for n in names}


def _write(corpus: Corpus, found: dict[str, Floats], rows: np.ndarray) -> None:
    table = _steps(corpus, rows)
    for name, said in found.items():
        table = table.append_column(name, pa.array(said, pa.float32()))
    pq.write_table(table, _LEDGER, compression="zstd")
    print(f"wrote {_LEDGER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
