"""Steps as a corpus for the learned model, kept in the cache between runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foretell.data import Reject
from foretell.fit.steps import Step
from foretell.predictors.scaledl.corpus import Corpus, CorpusBuilder
from foretell.predictors.scaledl.setting import make_setting
from foretell.predictors.scaledl.table import table_of


def corpus_of(steps: Iterable[Step | Reject], rejects: list[Reject]) -> Corpus:
    """All steps as numbers; what cannot be used is added to `rejects`."""
    builder = CorpusBuilder()
    for step in steps:
        if isinstance(step, Reject):
            rejects.append(step)
        else:
            _add(builder, step)
    return builder.build()


def _add(builder: CorpusBuilder, step: Step) -> None:
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
    builder.add(
        table_of(workload.step, recipe.precision, compiled=recipe.compile),
        np.ones(len(workload.step)),
        setting,
        step.time_s,
        key=record.group,
        label=f"{record.origin} {record.model} batch={record.batch}",
    )
