"""Judge the learned predictor: python -m benchmarks.scaledl [--split model] [--seeds 3].

Five folds by model (twins together), by family, or each accelerator left out; every step is judged
by fits that never saw its model, family or device. "--split fit --what fit,additive,flops,trees"
judges the members that 'foretell fit' left beside its weights (--fit), and baselines on the same
folds: of half of the families all models are held out together. Each fit and each baseline of a
fold is kept in --work, so an interrupted run goes on where it stopped. Prints the tables of
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
    found: dict[str, np.ndarray] = {}
    rounds = list(_rounds(corpus, options.split))
    for what in options.what.split(","):
        for seed in range(options.seeds if what in LEARNED else 1):
            name = f"{what}-{seed}" if what in LEARNED else what
            place = options.work / options.split / name
            if what == "fit":
                found[name] = _members(corpus, options.fit)
            elif what in LEARNED:
                effort = Effort(epochs=options.epochs, seed=seed, cross=LEARNED[what])
                found[name] = _learned(corpus, rounds, effort, place)
            else:
                found[name] = _baseline(corpus, rounds, what, place)
            _print(corpus, name, found[name], options.split)
    for what in LEARNED:
        seeds = [v for n, v in found.items() if n.startswith(f"{what}-")]
        if len(seeds) > 1:
            found[what] = np.exp(np.mean(np.log(seeds), axis=0))
            _print(corpus, f"{what}, mean of {len(seeds)} seeds", found[what], options.split)
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


def _members(corpus: Corpus, fit: Path) -> np.ndarray:
    """Predicted seconds of all steps by the mean of the members that did not see them."""
    total, count = np.zeros(len(corpus)), np.zeros(len(corpus))
    for kept in sorted(fit.with_suffix(".parts").glob("*/member-*.safetensors")):
        _, judged, _ = read_kept(kept.with_suffix(""))
        total[judged.row] += np.log(judged.predicted_s)
        count[judged.row] += 1
    return np.exp(np.divide(total, count, out=np.full(len(corpus), np.nan), where=count > 0))


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


def _write(corpus: Corpus, split: str, found: dict[str, np.ndarray]) -> None:
    judged = np.flatnonzero(np.isfinite(next(iter(found.values()))) & is_model(corpus))
    models = [re.sub(r"^.* (timm:\S+) batch=.*$", r"\1", corpus.labels[i]) for i in judged]
    table = {
        "model": pa.array(models).dictionary_encode(),
        "place": pa.array(by_place(corpus)[judged].tolist()).dictionary_encode(),
        "measured_s": pa.array(corpus.measured_s[judged], pa.float32()),
        **{n: pa.array(v[judged], pa.float32()) for n, v in found.items()},
    }
    path = RESULTS / f"scaledl-{split}.parquet"
    pq.write_table(pa.table(table), path, compression="zstd")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
