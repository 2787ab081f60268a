"""Members of the shipped ensemble: each fitted without a fold, which then judges it.

Several members, from different seeds, may leave out the same fold and are judged together. A fold
holds whole families and single models of other families; errors there say how far a forecast of an
unseen network is off, and become the intervals. Every member and every device left out is written
as soon as it is fitted, so an interrupted fit goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.fit.splits import folds, half_by_family, is_model
from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.domain import cells_of_corpus, unseen
from foretell.predictors.scaledl.numbers import Ensemble, Known, Member
from foretell.predictors.scaledl.setting import ALONE
from foretell.predictors.scaledl.train import Effort, Trained, references, train_layers
from foretell.predictors.scaledl.weights import Weights, load_weights, save_weights

Tell = Callable[[str, float], None]
"""What is being fitted, and how much of it is done."""
_LEAST_ROWS, _LEAST_ROWS_ON_CPU = 300, 60
"""Steps of whole models that make leaving a device out worth it."""
_FEW_STEPS = 50
"""Below which a release of PyTorch counts as unseen."""
_LEAST_APART = 0.01
"""Logarithm by which a kernel must differ from its like to be kept."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Steps a member never saw, and what it said of them."""

    row: Ints
    predicted_s: Floats
    novelty: Floats


def mean_of(judged: Sequence[Judged]) -> Judged:
    """What several members that never saw the same steps say of them together."""
    return Judged(
        judged[0].row,
        np.exp(np.mean([np.log(each.predicted_s) for each in judged], axis=0)),
        np.mean([each.novelty for each in judged], axis=0),
    )


def fold_of_steps(corpus: Corpus, members: int, seed: int) -> tuple[Ints, np.ndarray]:
    """The fold of every step, -1 for single operators; and whether its family is held out whole."""
    names, whole = half_by_family(corpus, seed)
    return np.where(is_model(corpus), folds(names, members, seed), -1), whole


def devices_to_leave_out(corpus: Corpus) -> list[str]:
    """Those with enough steps of whole models to say how a new one would fare."""
    steps: Counter[tuple[str, bool]] = Counter()
    for setting, count in zip(*np.unique(corpus.setting, return_counts=True), strict=True):
        at = corpus.settings[setting]
        if not at.is_alone:
            steps[at.device, at.is_cpu] += int(count)
    return sorted(
        device
        for (device, on_cpu), count in steps.items()
        if count >= (_LEAST_ROWS_ON_CPU if on_cpu else _LEAST_ROWS)
    )


def is_kept(kept: Path) -> bool:
    """Whether both files of a fit are there."""
    return all(kept.with_suffix(end).exists() for end in (".safetensors", ".npz"))


def read_kept(kept: Path) -> tuple[Member, Judged, dict[str, float]]:
    """A member, its judgement of the steps it never saw, and how it was fitted."""
    loaded = load_weights(kept.with_suffix(".safetensors"))
    with np.load(kept.with_suffix(".npz"), allow_pickle=False) as file:
        found = Judged(file["row"], file["predicted_s"], file["novelty"])
    return loaded.ensemble.members[0], found, dict(loaded.card["fit"])


def fit_without(corpus: Corpus, held: np.ndarray, effort: Effort, kept: Path, tell: Tell) -> None:
    """Fit a member to all steps but those held, and let it judge them; kept in two files."""
    rows, out = np.flatnonzero(~held), np.flatnonzero(held)
    started = time.monotonic()
    errors: list[float] = []

    def each(epoch: int, error: float) -> None:
        errors.append(error)
        tell(kept.name, (epoch + 1) / effort.epochs)

    trained = train_layers(corpus, rows, effort, each)
    asked = with_seen_releases(corpus, rows)
    judged = Judged(out, trained.predict(asked, out), _novelties(trained, asked, rows, out))
    fit = {
        "minutes": (time.monotonic() - started) / 60,
        "epochs": effort.epochs,
        "seed": effort.seed,
        "training_error": errors[-1] if errors else 0.0,
    }
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(".npz.part")
    with part.open("wb") as stream:
        np.savez(stream, **vars(judged))
    save_weights(
        Weights(Ensemble([member_of(trained)], references()), {"fit": fit}),
        kept.with_suffix(".safetensors"),
    )
    part.replace(kept.with_suffix(".npz"))


def with_seen_releases(corpus: Corpus, rows: Ints) -> Corpus:
    """The corpus for asking a fit to `rows`: releases of PyTorch as near as it has seen.

    Of a release that hardly any step ran under nothing was learned.
    """
    release = np.array([s.release for s in corpus.settings])
    found, steps = np.unique(release[corpus.setting[rows]], return_counts=True)
    seen = found[(steps >= _FEW_STEPS) & (found != ALONE)].tolist()
    settings = [
        s if not seen or s.release in (ALONE, *seen) else s.at_release(_nearest(s.release, seen))
        for s in corpus.settings
    ]
    return dataclasses.replace(corpus, settings=tuple(settings))


def _nearest(release: int, seen: Sequence[int]) -> int:
    return min(seen, key=lambda other: abs(other - release))


def _novelties(trained: Trained, corpus: Corpus, rows: Ints, out: Ints) -> Floats:
    """Share of each held step's time in cells that the others do not have."""
    seen = seen_cells(corpus, rows)
    cells, _, owner = cells_of_corpus(corpus, out)
    seconds = trained.kernel_seconds(corpus, out)
    new = np.bincount(owner, np.where(unseen(cells, seen), seconds, 0.0), len(out))
    found: Floats = new / np.maximum(np.bincount(owner, seconds, len(out)), 1e-30)
    return found


def seen_cells(corpus: Corpus, rows: Ints) -> np.ndarray:
    """Sorted cells of the kernels of steps."""
    return np.unique(cells_of_corpus(corpus, rows)[0])


def member_of(trained: Trained) -> Member:
    """What prediction needs of a trained model."""
    layers = {n: v.double().numpy() for n, v in trained.model.state_dict().items()}
    apart = layers.pop("known.weight")[1:, 0]
    worth = np.abs(apart) >= _LEAST_APART
    cross = None
    if trained.cross is not None:
        cross = {
            n.removesuffix(".lin_l.weight"): v.double().numpy()
            for n, v in trained.cross.state_dict().items()
        }
    known = Known(trained.known[worth], apart[worth])
    return Member(layers, cross, trained.devices, trained.names, known)


def summary(ratio: Floats) -> dict[str, float]:
    """Mean, median, p90 and max of |ratio - 1|, and how many."""
    error = np.abs(ratio - 1)
    return {
        "n": len(error),
        "mean": float(error.mean()),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
        "max": float(error.max()),
    }
