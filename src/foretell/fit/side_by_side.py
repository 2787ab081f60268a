"""Several fits at once, one thread each: two of them take no longer than one with two threads."""

from __future__ import annotations

import dataclasses
import multiprocessing
import queue
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.fit.corpus_file import load_corpus, save_corpus
from foretell.fit.members import fit_without, is_kept
from foretell.fit.steps import one_thread
from foretell.graph.graph import Floats
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.train import Effort

_FEW = 2000
"""Steps that are not worth starting processes for."""
_WAIT_S = 1.0
Tell = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Task:
    """A fit without some steps, and where it is kept."""

    held: np.ndarray
    effort: Effort
    kept: Path


def fit_all(corpus: Corpus, tasks: Sequence[Task], workers: int, tell: Tell) -> None:
    """Fit what is not kept yet."""
    missing = [task for task in tasks if not is_kept(task.kept)]
    if len(corpus) <= _FEW or workers < 2:
        for task in missing:
            fit_without(corpus, task.held, task.effort, task.kept, tell)
    elif missing:
        _in_processes(corpus, missing, workers, tell)


def _in_processes(corpus: Corpus, tasks: Sequence[Task], workers: int, tell: Tell) -> None:
    start = multiprocessing.get_context("spawn")
    heard: Any = start.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.npz"
        save_corpus(corpus, path)
        given = (path, corpus.weight, corpus.share, heard)
        # A process of its own for each fit: what one leaves behind does not add to the next.
        with start.Pool(min(workers, len(tasks)), _begin, given, maxtasksperchild=1) as pool:
            running = [pool.apply_async(_fit, (task,)) for task in tasks]
            while not all(each.ready() for each in running):
                try:
                    tell(*heard.get(timeout=_WAIT_S))
                except queue.Empty:
                    continue
                _raise_if_failed(running)
            _raise_if_failed(running)


def _raise_if_failed(running: Sequence[Any]) -> None:
    for each in running:
        if each.ready():
            each.get()


_corpus: Corpus
_heard: Any


def _begin(path: Path, weight: Floats, share: Floats, heard: Any) -> None:
    """What every process does first."""
    global _corpus, _heard
    one_thread()
    _corpus = dataclasses.replace(load_corpus(path), weight=weight, share=share)
    _heard = heard


def _fit(task: Task) -> None:
    def tell(name: str, share: float) -> None:
        _heard.put((name, share))

    fit_without(_corpus, task.held, task.effort, task.kept, tell)
