"""Measured steps as one block of numbers: distinct operators once, steps as counts of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.context import Context, context_of
from foretell.predictors.scaledl.setting import Setting
from foretell.predictors.scaledl.table import OpTable

_OPERATOR = ("shape", "group", "unit", "flops", "nbytes", "tiles", "launches", "waits_s")
_STEP = ("setting", "measured_s", "weight", "share")
_BESIDE_SHAPE = 8
"""Columns of an operator that are kept beside its shape while a corpus is built."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """Operators as columns, steps as runs of (operator, count)."""

    shape: np.ndarray
    """[operators, COLUMNS] float32."""
    group: Ints
    name: Ints
    """Index into `names`."""
    unit: Ints
    flops: Floats
    nbytes: Floats
    tiles: Floats
    launches: Floats
    waits_s: Floats
    names: tuple[str, ...]
    start: Ints
    """[steps + 1] offsets into `op` and `count`."""
    op: Ints
    count: Floats
    setting: Ints
    """Per step, index into `settings`."""
    settings: tuple[Setting, ...]
    measured_s: Floats
    weight: Floats
    """How much a step counts when it is drawn."""
    share: Floats
    """Probability that it is drawn in an epoch."""
    keys: tuple[str, ...]
    """Of each step: what may not be split between fitting and judging."""
    labels: tuple[str, ...]
    """Of each step: for ledgers."""
    contexts: tuple[Context, ...]
    context: Ints
    """Per step, index into `contexts`."""

    def __len__(self) -> int:
        return len(self.measured_s)


@dataclass
class CorpusBuilder:
    """Collects steps; identical operators are kept once."""

    _rows: dict[bytes, int] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _settings: dict[tuple[object, ...], int] = field(default_factory=dict)
    _columns: list[np.ndarray] = field(default_factory=list)
    _contexts: dict[bytes, int] = field(default_factory=dict)
    _steps: list[tuple[np.ndarray, np.ndarray, int, float, str, str, int]] = field(
        default_factory=list
    )
    contexts: list[Context] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)

    def add(
        self,
        table: OpTable,
        passes: Floats,
        setting: Setting,
        measured_s: float,
        *,
        key: str,
        label: str,
    ) -> None:
        """One measured step; `passes` says how often each of its operators runs."""
        passes = passes[table.wiring.op]
        count = np.bincount(table.row, passes, len(table))
        used = np.flatnonzero(count > 0)
        names = np.array([self._names.setdefault(n, len(self._names)) for n in table.name])
        block = np.concatenate(
            [
                table.shape[used].astype(np.float32),
                np.stack(
                    [
                        table.group[used],
                        names[used],
                        table.unit[used],
                        table.flops[used],
                        table.nbytes[used],
                        table.tiles[used],
                        table.launches[used],
                        table.waits_s[used],
                    ],
                    1,
                ),
            ],
            1,
        )
        ids = np.array([self._row_of(row) for row in block], dtype=np.int64)
        where = self._setting_of(setting)
        context = self._context_of(table, passes, used)
        self._steps.append((ids, count[used], where, measured_s, key, label, context))

    def __len__(self) -> int:
        return len(self._steps)

    def _context_of(self, table: OpTable, passes: Floats, used: Ints) -> int:
        place = np.zeros(len(table), dtype=np.int64)
        place[used] = np.arange(len(used))
        row = place[table.row]
        parts = (row, table.wiring.edge_src, table.wiring.edge_dst, passes)
        digest = hashlib.blake2b(b"".join(p.tobytes() for p in parts), digest_size=16).digest()
        if digest not in self._contexts:
            self._contexts[digest] = len(self.contexts)
            self.contexts.append(context_of(*parts))
        return self._contexts[digest]

    def _row_of(self, row: np.ndarray) -> int:
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        known = self._rows.get(digest)
        if known is None:
            known = self._rows[digest] = len(self._rows)
            self._columns.append(row)
        return known

    def _setting_of(self, setting: Setting) -> int:
        key = (setting.device, setting.features.tobytes())
        if key not in self._settings:
            self._settings[key] = len(self.settings)
            self.settings.append(setting)
        return self._settings[key]

    def build(self) -> Corpus:
        """Everything collected."""
        columns = np.array(self._columns)
        rest = columns[:, -_BESIDE_SHAPE:]
        ids, counts, where, seconds, keys, labels, context = zip(*self._steps, strict=True)
        return Corpus(
            shape=columns[:, :-_BESIDE_SHAPE].astype(np.float32),
            group=rest[:, 0].astype(np.int64),
            name=rest[:, 1].astype(np.int64),
            unit=rest[:, 2].astype(np.int64),
            flops=rest[:, 3],
            nbytes=rest[:, 4],
            tiles=rest[:, 5],
            launches=rest[:, 6],
            waits_s=rest[:, 7],
            names=tuple(self._names),
            start=np.concatenate([[0], np.cumsum([len(i) for i in ids])]).astype(np.int64),
            op=np.concatenate(ids),
            count=np.concatenate(counts),
            setting=np.array(where, dtype=np.int64),
            settings=tuple(self.settings),
            measured_s=np.array(seconds),
            weight=np.ones(len(seconds)),
            share=np.ones(len(seconds)),
            keys=tuple(keys),
            labels=tuple(labels),
            contexts=tuple(self.contexts),
            context=np.array(context, dtype=np.int64),
        )


def joined(corpora: Sequence[Corpus]) -> Corpus:
    """Several corpora as one; operators that two of them share stay twice."""
    names = {n: i for i, n in enumerate(dict.fromkeys(n for c in corpora for n in c.names))}
    settings: dict[tuple[str, bytes], int] = {}
    kept: list[Setting] = []
    renamed, settled = [], []
    for corpus in corpora:
        renamed.append(np.array([names[n] for n in corpus.names], dtype=np.int64)[corpus.name])
        places = []
        for setting in corpus.settings:
            key = (setting.device, setting.features.tobytes())
            if key not in settings:
                settings[key] = len(kept)
                kept.append(setting)
            places.append(settings[key])
        settled.append(np.array(places, dtype=np.int64)[corpus.setting])

    def shifted(parts: Sequence[Ints], sizes: Sequence[int]) -> Ints:
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        return np.concatenate([p + b for p, b in zip(parts, before, strict=True)])

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(c, name) for c in corpora])

    ops = [len(c.group) for c in corpora]
    lengths = np.concatenate([np.diff(c.start) for c in corpora])
    return Corpus(
        **{name: together(name) for name in (*_OPERATOR, "count", "measured_s", "weight", "share")},
        name=np.concatenate(renamed),
        names=tuple(names),
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        op=shifted([c.op for c in corpora], ops),
        setting=np.concatenate(settled),
        settings=tuple(kept),
        keys=tuple(k for c in corpora for k in c.keys),
        labels=tuple(x for c in corpora for x in c.labels),
        contexts=tuple(x for c in corpora for x in c.contexts),
        context=shifted([c.context for c in corpora], [len(c.contexts) for c in corpora]),
    )


def taken(corpus: Corpus, rows: Ints) -> Corpus:
    """Some of the steps, in that order, with the operators and surroundings they have."""
    op, count, owner = slices(corpus, rows)
    used, op = np.unique(op, return_inverse=True)
    found, context = np.unique(corpus.context[rows], return_inverse=True)
    lengths = np.bincount(owner, minlength=len(rows))
    return dataclasses.replace(
        corpus,
        **{name: getattr(corpus, name)[used] for name in (*_OPERATOR, "name")},
        **{name: getattr(corpus, name)[rows] for name in _STEP},
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        op=op.astype(np.int64),
        count=count,
        keys=tuple(corpus.keys[i] for i in rows),
        labels=tuple(corpus.labels[i] for i in rows),
        contexts=tuple(corpus.contexts[i] for i in found),
        context=context.astype(np.int64),
    )


def owners(corpus: Corpus) -> Ints:
    """The step of every entry of `op` and `count`."""
    return np.repeat(np.arange(len(corpus)), np.diff(corpus.start))


def entries(corpus: Corpus, rows: Sequence[int] | Ints) -> tuple[Ints, Ints]:
    """(entry of `op` and `count`, which of `rows`) of several steps, flat."""
    rows = np.asarray(rows)
    lengths = corpus.start[rows + 1] - corpus.start[rows]
    owner = np.repeat(np.arange(len(rows)), lengths)
    first = np.repeat(corpus.start[rows] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return first + np.arange(len(owner)), owner


def slices(corpus: Corpus, rows: Sequence[int] | Ints) -> tuple[Ints, Floats, Ints]:
    """(operator, count, which of `rows`) of several steps, flat."""
    at, owner = entries(corpus, rows)
    return corpus.op[at], corpus.count[at], owner
