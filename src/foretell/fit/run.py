"""The whole fit: measurements in, weights with intervals and a card out."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foretell._version import __version__
from foretell.data.importers import source
from foretell.errors import InputError
from foretell.fit.corpora import cached_corpus
from foretell.fit.jobs import JOB_SOURCES, held_out, learned, measured_jobs
from foretell.fit.members import (
    Judged,
    devices_to_leave_out,
    fold_of_steps,
    mean_of,
    read_kept,
    seen_cells,
    summary,
)
from foretell.fit.own import own_records
from foretell.fit.side_by_side import Task, fit_all
from foretell.fit.sources import PARTS
from foretell.fit.splits import is_model
from foretell.fit.spreads import Ledger, interval, spreads_of
from foretell.graph.graph import Floats
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.corpus import Corpus, joined, slices
from foretell.predictors.scaledl.numbers import Ensemble
from foretell.predictors.scaledl.predictor import EASY_HOST, FEW, ScaleDLPredictor
from foretell.predictors.scaledl.together import launches_matter
from foretell.predictors.scaledl.train import Effort, references
from foretell.predictors.scaledl.weights import Weights

_OWN = "own"
_FEW_MODELS = 20
"""Below which steps on a device do not make it a known one."""
_SHARES = {"timm-infer": 0.3}
"""Of the rows drawn in an epoch, where not all are."""
_STEP, _FLEET_STEP, _OPERATOR = 1.0, 4.0, 0.15
"""Weights of a step, of one of the few on other devices, and of a single operator."""
_DRAWN = 2000
_ANYTHING = (0.3, 3.0)
"""Interval of distributed forecasts when no job was looked at."""
Tell = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to fit to, and how carefully."""

    data: Path
    work: Path
    """Where members are kept until all are there."""
    parts: Sequence[str] = tuple(PARTS)
    measurements: Sequence[Path] = ()
    """Stores or .parquet files of 'foretell measure'."""
    folds: int = 5
    seeds: int = 1
    """Members without each fold, whose mean is judged by it; those of the first seed ship."""
    effort: Effort = field(default_factory=Effort)
    devices_out: bool = True
    """Whether to leave every device out once, for the interval of new ones."""
    jobs: Sequence[str] = JOB_SOURCES
    """Sources of distributed jobs."""
    workers: int = 2
    limit: int | None = None
    """Records per part, for a quick look."""


def read_parts(plan: Plan, tell: Tell) -> tuple[Corpus, dict[str, Any]]:
    """The corpus of all parts, and what is in it."""
    corpora: list[Corpus] = []
    about: dict[str, dict[str, Any]] = {}
    found = [(name, PARTS[name].records(plan.data)) for name in plan.parts]
    if plan.measurements:
        found.append((_OWN, own_records(plan.measurements)))
    for name, records in found:
        if plan.limit is not None:
            records = records[:: max(1, len(records) // plan.limit)]
        corpus, rejects = cached_corpus(name, records, plan.workers, _share_of(name, tell))
        corpora.append(
            dataclasses.replace(
                corpus,
                weight=np.where(
                    is_model(corpus), _FLEET_STEP if name == "fleet" else _STEP, _OPERATOR
                ),
                share=np.full(len(corpus), _SHARES.get(name, 1.0)),
            )
        )
        about[name] = {"rows": len(corpus), "rejected": len(rejects)}
        if name != _OWN:
            about[name]["commits"] = {s: source(s).commit for s in PARTS[name].sources}
        tell(name, 1.0)
    return joined(corpora), about


def _share_of(name: str, tell: Tell) -> Callable[[int, int], None]:
    return lambda done, total: tell(name, done / total)


def fit(plan: Plan, tell: Tell) -> tuple[Weights, Ledger]:
    """Weights, and every judged step."""
    corpus, about = read_parts(plan, tell)
    if not is_model(corpus).any():
        raise InputError(
            f"parts {', '.join(plan.parts)} have single operators only, nothing to judge by: "
            "add timm-train or timm-infer"
        )
    fold, whole = fold_of_steps(corpus, plan.folds, plan.effort.seed)
    empty = [number for number in range(plan.folds) if not (fold == number).any()]
    if empty:
        raise InputError(
            f"{is_model(corpus).sum()} steps of whole models are too few for {plan.folds} folds, "
            f"of which {len(empty)} would be empty: use more measurements or fewer folds"
        )
    work = plan.work / _digest(plan, corpus)
    tasks = [
        Task(
            fold == number,
            dataclasses.replace(plan.effort, seed=plan.effort.seed + seed * plan.folds + number),
            work / f"member-{number}-{seed}",
        )
        for seed in range(plan.seeds)
        for number in range(plan.folds)
    ]
    shorter = dataclasses.replace(plan.effort, epochs=max(1, plan.effort.epochs // 2))
    away = [
        Task(_of_device(corpus, device), shorter, work / f"without-{device}")
        for device in (devices_to_leave_out(corpus) if plan.devices_out else ())
    ]
    fit_all(corpus, [*tasks, *away], plan.workers, tell)
    members, judged, _ = zip(*(read_kept(task.kept) for task in tasks), strict=True)
    known = [mean_of(judged[number :: plan.folds]) for number in range(plan.folds)]
    strangers = [read_kept(task.kept)[1] for task in away]
    fits = {task.kept.name: read_kept(task.kept)[2] for task in (*tasks, *away)}
    ledger = Ledger.of(corpus, _together(known), fold, whole, _together(strangers))
    card = {
        "version": __version__,
        "python": platform.python_version(),
        "data": about,
        "fits": fits,
        "effort": dataclasses.asdict(plan.effort),
        "peak_memory_bytes": _peak_bytes(plan.workers),
        "errors": ledger.table(summary),
        "groups": _groups(corpus),
        "spreads": spreads_of(ledger),
    }
    shipped = Ensemble(list(members[: plan.folds]), references())
    weights = Weights(shipped, card, seen_cells(corpus, np.arange(len(corpus))))
    return _with_jobs(weights, plan, tell), ledger


def _with_jobs(weights: Weights, plan: Plan, tell: Tell) -> Weights:
    """The same with what distributed jobs teach, and their intervals.

    The interval of jobs like measured ones is in units of their doubt.
    """
    if not plan.jobs:
        nothing = {"*": _ANYTHING}
        spreads = {**weights.card["spreads"], "together": nothing, "distributed": nothing}
        return dataclasses.replace(weights, card={**weights.card, "spreads": spreads})
    jobs = measured_jobs(plan.data, ScaleDLPredictor(weights), plan.jobs, tell)
    judged, source_of = held_out(jobs), np.array(jobs.source)
    off = np.log(jobs.measured_s / judged.predicted_s) / judged.doubt
    inside = np.zeros(len(off), dtype=np.bool_)
    for number in np.unique(judged.fold):
        others = judged.fold != number
        low, high = interval(_alike(off[others], source_of[others]))
        inside[~others] = (np.log(low) <= off[~others]) & (off[~others] <= np.log(high))
    ratio, errors, plain = judged.predicted_s / jobs.measured_s, {}, {}
    for name in plan.jobs:
        mine = source_of == name
        errors[name] = {**summary(ratio[mine]), "covered": float(inside[mine].mean())}
        plain[name] = summary(np.exp(-jobs.off)[mine])
    busy_host = launches_matter(jobs.at)
    spreads = {
        "together": {"*": interval(_alike(off, source_of))},
        "distributed": {
            name: interval(_alike(jobs.off[mine], source_of[mine]))
            for name, mine in (("*", busy_host | ~busy_host.any()), (EASY_HOST, ~busy_host))
            if mine.any()
        },
    }
    card = {
        **weights.card,
        "errors": {**weights.card["errors"], "job": errors, "job, timeline alone": plain},
        "spreads": {**weights.card["spreads"], **spreads},
    }
    return dataclasses.replace(weights, card=card, together=learned(jobs))


def _alike(values: Floats, source_of: np.ndarray) -> Floats:
    """As many of each source."""
    draw = np.random.default_rng(0)
    parts = [draw.choice(values[source_of == name], _DRAWN) for name in np.unique(source_of)]
    return np.concatenate(parts)


def _peak_bytes(workers: int) -> int:
    """At most what this process and its largest children held together."""
    own, child = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own + workers * child


def _digest(plan: Plan, corpus: Corpus) -> str:
    """What members kept on disk must have in common to be used again."""
    found = hashlib.blake2b(repr((plan.effort, plan.folds)).encode(), digest_size=8)
    for part in (corpus.measured_s, corpus.op, corpus.shape):
        found.update(part.tobytes())
    return found.hexdigest()


def _of_device(corpus: Corpus, device: str) -> np.ndarray:
    mine = np.array([s.device == device for s in corpus.settings], dtype=np.bool_)
    return mine[corpus.setting]


def _together(parts: Sequence[Judged]) -> Judged:
    def of(name: str) -> Any:
        return np.concatenate([getattr(p, name) for p in parts] or [np.zeros(0)])

    return Judged(of("row").astype(np.int64), of("predicted_s"), of("novelty"))


def _groups(corpus: Corpus) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Device -> mode -> groups of operators that its steps have, where these are of many models."""
    found: dict[str, dict[str, set[str]]] = {}
    models: dict[tuple[str, str], set[str]] = {}
    for number, setting in enumerate(corpus.settings):
        rows = np.flatnonzero(corpus.setting == number)
        op, _, _ = slices(corpus, rows)
        mode = "alone" if setting.is_alone else "train" if setting.trains else "infer"
        groups = found.setdefault(setting.device, {}).setdefault(mode, set())
        groups |= {GROUPS[g] for g in np.unique(corpus.group[op])}
        models.setdefault((setting.device, mode), set()).update(corpus.keys[i] for i in rows)
    few = {at for at, names in models.items() if at[1] != "alone" and len(names) < _FEW_MODELS}
    return {
        d: {FEW if (d, m) in few else m: sorted(g) for m, g in modes.items()}
        for d, modes in found.items()
    }
