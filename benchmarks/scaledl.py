"""Judge the learned predictor: python -m benchmarks.scaledl [--split model] [--seeds 3].

Five folds by model (twins together), by family, or each accelerator left out; every step is judged
by fits that never saw its model, family or device. "--split fit --what fit,additive,flops,trees"
judges the members that 'foretell fit' left beside its weights (--fit), seed by seed and together,
and baselines on the same folds: of half of the families all models are held out together. Each fit
and each baseline of a fold is kept in --work, so an interrupted run goes on where it stopped; what
the ledger of an earlier run has of the same steps stays in it. Prints the tables of
docs/accuracy.md and writes the ledger.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.baselines import BASELINES, by_place
from benchmarks.sources import OWN, RESULTS, ROOT, required_data
from foretell.fit.members import devices_to_leave_out, fold_of_steps, read_kept
from foretell.fit.run import Plan, read_parts
from foretell.fit.side_by_side import Task, fit_all
from foretell.fit.sources import PARTS
from foretell.fit.splits import by_family, by_model, folds, is_model
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.train import Effort

_FOLDS = 5
_EPOCHS = 24
_WORKERS = 2
LEARNED = {"layers": False, "cross": True}
"""Name -> whether the network over the graph is part of it."""
SHIPPED, GRAPH = "fit", "graph"
"""The members that 'foretell fit' made, without and with the network over the graph."""
_STEP = ("model", "place", "measured_s")
"""Columns of the ledger that say which step it is."""


def main() -> None:
    """Fit, judge, print, and write the ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("model", "family", "device", "fit"), default="model")
    parser.add_argument("--fit", type=Path, default=Path("scaledl.safetensors"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=_EPOCHS)
    parser.add_argument("--what", default=",".join((*LEARNED, *BASELINES)))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--work", type=Path, default=Path("scaledl-work"))
    options = parser.parse_args()
    data = required_data()
    plan = Plan(data=data, work=options.work, parts=options.parts.split(","), measurements=OWN)
    corpus, _ = read_parts(plan, lambda name, share: None)
    found = _read(corpus, options.split)
    rounds = list(_rounds(corpus, options.split))
    for what in options.what.split(","):
        place = options.work / options.split
        if what == SHIPPED:
            _add_members(corpus, options.fit, found)
        elif what in LEARNED:
            for seed in range(options.seeds):
                effort = Effort(epochs=options.epochs, seed=seed, cross=LEARNED[what])
                name = f"{what}-{seed}"
                found[name] = _learned(corpus, rounds, effort, place / name)
        else:
            found[what] = _baseline(corpus, rounds, what, place / what)
    for what in (*LEARNED, SHIPPED, GRAPH):
        seeds = [v for n, v in found.items() if n.startswith(f"{what}-")]
        if seeds:
            found[what] = np.exp(np.nanmean(np.log(seeds), axis=0))
    for name, said in found.items():
        _print(corpus, name, said, options.split)
    _write(corpus, options.split, found)


Rounds = list[tuple[str, np.ndarray]]
"""Name and held-out steps of each."""


def _rounds(corpus: Corpus, split: str) -> Iterator[tuple[str, np.ndarray]]:
    """(name, held-out steps)."""
    if split == "device":
        where = np.array([s.device for s in corpus.settings])[corpus.setting]
        for device in devices_to_leave_out(corpus):
            yield device, (where == device)
        return
    if split == "fit":
        fold, _ = fold_of_steps(corpus, _FOLDS, seed=0)
    else:
        names = by_model(corpus) if split == "model" else by_family(corpus)
        fold = np.where(is_model(corpus), folds(names, _FOLDS), -1)
    for number in range(_FOLDS):
        yield str(number), fold == number


def _learned(corpus: Corpus, rounds: Rounds, effort: Effort, place: Path) -> np.ndarray:
    """Predicted seconds of all steps, each by a fit without its round."""
    tasks = [Task(held, effort, place / number) for number, held in rounds]
    fit_all(corpus, tasks, _WORKERS, lambda name, share: None)
    found = np.full(len(corpus), np.nan)
    for task in tasks:
        _, judged, _ = read_kept(task.kept)
        found[judged.row] = judged.predicted_s
    return found


def _add_members(corpus: Corpus, fit: Path, found: dict[str, np.ndarray]) -> None:
    """Predicted seconds of all steps by the member of each seed that did not see them."""
    for kept in sorted(fit.with_suffix(".parts").glob("*/member-*.safetensors")):
        member, judged, _ = read_kept(kept.with_suffix(""))
        name, seed = SHIPPED if member.cross is None else GRAPH, kept.stem.rpartition("-")[2]
        said = found.setdefault(f"{name}-{seed}", np.full(len(corpus), np.nan))
        said[judged.row] = judged.predicted_s


def _baseline(corpus: Corpus, rounds: Rounds, what: str, place: Path) -> np.ndarray:
    """The same by a baseline."""
    found, whole = np.full(len(corpus), np.nan), is_model(corpus)
    for number, held in rounds:
        kept = place / f"{number}.npy"
        if not kept.exists():
            rows, asked = np.flatnonzero(~held & whole), np.flatnonzero(held)
            said = BASELINES[what](corpus, rows, asked)
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(".part.npy")
            np.save(part, said)
            part.replace(kept)
        found[held] = np.load(kept, allow_pickle=False)
    return found


def _print(corpus: Corpus, name: str, predicted: np.ndarray, split: str) -> None:
    places, judged = by_place(corpus), np.isfinite(predicted) & is_model(corpus)
    kinds = {"": judged}
    if split == "fit":
        _, whole = fold_of_steps(corpus, _FOLDS, seed=0)
        kinds = {", unseen models": judged & ~whole, ", unseen families": judged & whole}
    for kind, rows in kinds.items():
        title = f"{name}{kind}"
        print(f"{title:38} {'n':>6} {'mean':>7} {'median':>7} {'p90':>7} {'max':>7} {'RMSE':>8}")
        for place in np.unique(places[rows]):
            _print_line(corpus, str(place), predicted, rows & (places == place))


def _print_line(corpus: Corpus, place: str, predicted: np.ndarray, rows: np.ndarray) -> None:
    measured_s = corpus.measured_s[rows]
    off = np.abs(predicted[rows] / measured_s - 1)
    rmse = np.sqrt(np.mean((predicted[rows] - measured_s) ** 2))
    print(
        f"  {place:36} {rows.sum():6d} {100 * off.mean():6.2f}% {100 * np.median(off):6.2f}% "
        f"{100 * np.quantile(off, 0.9):6.1f}% {100 * off.max():6.0f}% {1000 * rmse:6.1f}ms",
        flush=True,
    )


def _read(corpus: Corpus, split: str) -> dict[str, np.ndarray]:
    """What the ledger has, if it is of the same steps."""
    path = RESULTS / f"scaledl-{split}.parquet"
    if not path.exists():
        return {}
    table = pq.read_table(path)
    rows = _judged(corpus)
    if table.select(list(_STEP)) != pa.table(_steps(corpus, rows)):
        return {}
    found = {}
    for name in table.column_names:
        if name not in _STEP:
            found[name] = np.full(len(corpus), np.nan)
            found[name][rows] = table[name].to_numpy()
    return found


def _judged(corpus: Corpus) -> np.ndarray:
    return np.flatnonzero(is_model(corpus))


def _steps(corpus: Corpus, rows: np.ndarray) -> dict[str, pa.Array]:
    models = [re.sub(r"^.* (timm:\S+) batch=.*$", r"\1", corpus.labels[i]) for i in rows]
    columns = (
        pa.array(models).dictionary_encode(),
        pa.array(by_place(corpus)[rows].tolist()).dictionary_encode(),
        pa.array(corpus.measured_s[rows], pa.float32()),
    )
    return dict(zip(_STEP, columns, strict=True))


def _write(corpus: Corpus, split: str, found: dict[str, np.ndarray]) -> None:
    rows = _judged(corpus)
    said = {name: pa.array(v[rows], pa.float32()) for name, v in found.items()}
    path = RESULTS / f"scaledl-{split}.parquet"
    pq.write_table(pa.table(_steps(corpus, rows) | said), path, compression="zstd")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
