"""Steps as a corpus for the learned model, kept in the cache between runs."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from foretell._version import __version__
from foretell.data import Record, Reject
from foretell.errors import InputError
from foretell.fit.corpus_file import load_corpus, save_corpus
from foretell.fit.steps import Step, one_thread, steps_of
from foretell.graph.store import cache_directory
from foretell.predictors.scaledl.corpus import Corpus, CorpusBuilder, joined
from foretell.predictors.scaledl.setting import make_setting
from foretell.predictors.scaledl.table import COLUMNS, UNITS, OpTable, table_of

FORMAT = 5
_MODELS_PER_TASK = 40
_FEW = 200
"""Records that are not worth starting processes for."""
_TF32_OFF = ("neusight",)
"""Sources that told PyTorch to compute convolutions in fp32 proper."""
Tell = Callable[[int, int], None]


def cached_corpus(
    name: str, records: Sequence[Record], workers: int, tell: Tell
) -> tuple[Corpus, list[str]]:
    """The corpus of some records and why others are not in it, made once."""
    cache = cache_directory()
    if cache is None:
        raise InputError("there is no place for a cache: set FORETELL_CACHE to a directory")
    digest = hashlib.blake2b(digest_size=12)
    digest.update(repr((FORMAT, __version__, COLUMNS)).encode())
    for record in records:
        digest.update(repr((record.origin, record.model, record.time_s)).encode())
    path = cache / "corpora" / f"{name}-{digest.hexdigest()}.npz"
    told = path.with_suffix(".txt")
    if path.exists() and told.exists():
        return load_corpus(path), told.read_text().splitlines()
    corpus, rejects = corpus_of(records, workers, tell)
    save_corpus(corpus, path)
    reasons = [f"{r.origin}: {r.reason}" for r in rejects]
    told.write_text("\n".join(reasons))
    return corpus, reasons


def corpus_of(
    records: Sequence[Record], workers: int, tell: Tell = lambda done, total: None
) -> tuple[Corpus, list[Reject]]:
    """All steps as numbers, captured where they are not in the cache, and what cannot be used."""
    models = [list(rows) for _, rows in groupby(records, key=lambda r: r.model)]
    tasks = [models[i : i + _MODELS_PER_TASK] for i in range(0, len(models), _MODELS_PER_TASK)]
    if len(records) <= _FEW:
        part, rejects, _ = _part(models)
        return _whole([part] if part is not None else [], rejects), rejects
    parts, rejects, done = [], [], 0
    with multiprocessing.get_context("spawn").Pool(workers, one_thread) as pool:
        for part, rejected, count in pool.imap(_part, tasks):
            done += count
            tell(done, len(records))
            rejects += rejected
            if part is not None:
                parts.append(part)
    return _whole(parts, rejects), rejects


def _whole(parts: Sequence[Corpus], rejects: Sequence[Reject]) -> Corpus:
    if not parts:
        why = f"; the first: {rejects[0].reason}" if rejects else ""
        raise InputError(f"none of the measurements can be used{why}")
    return joined(parts)


def _part(models: Sequence[Sequence[Record]]) -> tuple[Corpus | None, list[Reject], int]:
    builder, rejects = CorpusBuilder(), []
    records = [record for rows in models for record in rows]
    for step in steps_of(records):
        if isinstance(step, Reject):
            rejects.append(step)
        else:
            add_step(builder, step)
    return builder.build() if len(builder) else None, rejects, len(records)


def add_step(builder: CorpusBuilder, step: Step) -> None:
    """One measured step into a corpus."""
    workload, record = step.workload, step.record
    recipe = workload.recipe
    setting = make_setting(
        step.device,
        mode=recipe.mode,
        channels_last=recipe.channels_last,
        compiled=recipe.compile,
        torch_version=recipe.torch_version,
        alone=record.kind == "operator",
    )
    table = table_of(
        workload.step,
        recipe.precision,
        compiled=recipe.compile,
        on_cpu=step.device.vendor == "cpu",
    )
    builder.add(
        _without_tf32(table) if record.source in _TF32_OFF else table,
        np.ones(len(workload.step)),
        setting,
        step.time_s,
        key=record.group or record.model,
        label=f"{record.origin} {record.model} batch={record.batch}",
    )


def _without_tf32(table: OpTable) -> OpTable:
    off = np.where(table.unit == UNITS.index("tf32"), UNITS.index("fp32"), table.unit)
    return dataclasses.replace(table, unit=off)
