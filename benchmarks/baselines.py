"""What the learned predictor is compared with, fitted to the same steps: tuned, and no more.

additive    sum of max(FLOPs / peak, bytes / bandwidth), both with a fitted efficiency per setting
flops       a straight line in FLOPs per setting
trees       gradient-boosted trees on sums per group of operators, times the additive roofline
gnn         a network over the graph that says the step's time at once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy.optimize import least_squares
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.corpus import Corpus, slices
from foretell.predictors.scaledl.cross import batch_of
from foretell.predictors.scaledl.setting import FIRST_UNIT, place_of
from foretell.predictors.scaledl.table import UNITS

_GRID = [(rate, leaves) for rate in (0.05, 0.1) for leaves in (15, 31, 63)]
_EPOCHS, _STEPS, _WIDTH, _RATE = 15, 32, 64, 3e-3


def ideal_parts(corpus: Corpus, rows: Ints) -> tuple[Floats, Floats, Ints]:
    """Seconds at peak and at full bandwidth of every kernel's runs, and whose they are."""
    op, count, owner = slices(corpus, rows)
    spec = np.array([s.spec for s in corpus.settings])[corpus.setting[rows]][owner]
    peak = np.take_along_axis(spec[:, FIRST_UNIT:], corpus.unit[op][:, None], 1)[:, 0]
    return (
        corpus.flops[op] * count / np.exp(peak),
        corpus.nbytes[op] * count / np.exp(spec[:, 0]),
        owner,
    )


def by_place(corpus: Corpus) -> np.ndarray:
    """The setting of every step, in words."""
    names = np.array([place_of(s) for s in corpus.settings])
    return names[corpus.setting]


def additive(corpus: Corpus, fitted: Ints, asked: Ints) -> Floats:
    """PALEO: two efficiencies and an overhead per step and setting."""
    place, found = by_place(corpus), np.zeros(len(asked))
    for name in np.unique(place[asked]):
        mine = fitted[place[fitted] == name]
        known = mine if len(mine) else fitted
        factors = _efficiencies(corpus, known)
        wanted = np.flatnonzero(place[asked] == name)
        found[wanted] = _roofline(corpus, asked[wanted], factors)
    return found


def _roofline(corpus: Corpus, rows: Ints, factors: Floats) -> Floats:
    compute_s, memory_s, owner = ideal_parts(corpus, rows)
    longer = np.maximum(compute_s * np.exp(factors[0]), memory_s * np.exp(factors[1]))
    return np.bincount(owner, longer, len(rows)) + np.exp(factors[2])


def _efficiencies(corpus: Corpus, rows: Ints) -> Floats:
    some = rows[np.random.default_rng(0).permutation(len(rows))[:600]]
    compute_s, memory_s, owner = ideal_parts(corpus, some)
    log_measured = np.log(corpus.measured_s[some])

    def off(factors: Floats) -> Floats:
        longer = np.maximum(compute_s * np.exp(factors[0]), memory_s * np.exp(factors[1]))
        total = np.bincount(owner, longer, len(some)) + np.exp(factors[2])
        return np.log(total) - log_measured

    start = np.array([0.5, 0.3, np.log(1e-3)])
    return least_squares(off, start, loss="soft_l1", f_scale=0.1, diff_step=1e-3).x


def flops(corpus: Corpus, fitted: Ints, asked: Ints) -> Floats:
    """A line in FLOPs per setting, fitted to relative errors."""
    place, found = by_place(corpus), np.zeros(len(asked))
    op, count, owner = slices(corpus, np.arange(len(corpus)))
    total = np.bincount(owner, corpus.flops[op] * count, len(corpus))
    for name in np.unique(place[asked]):
        mine = fitted[place[fitted] == name]
        known = mine if len(mine) else fitted
        took = corpus.measured_s[known]
        line = np.stack([total[known], np.ones(len(known))], 1) / took[:, None]
        slope, rest = np.linalg.lstsq(line, np.ones(len(known)), rcond=None)[0]
        wanted = place[asked] == name
        found[wanted] = np.maximum(slope * total[asked[wanted]] + rest, took.min() / 10)
    return found


def aggregates(corpus: Corpus, rows: Ints) -> Floats:
    """Per step: logarithms of ideal seconds and counts per group, the setting, the device."""
    compute_s, memory_s, owner = ideal_parts(corpus, rows)
    op, count, _ = slices(corpus, rows)
    cell = owner * len(GROUPS) + corpus.group[op]
    size = len(rows) * len(GROUPS)
    parts = [
        np.log(np.bincount(cell, value, size).reshape(len(rows), -1) + 1e-7)
        for value in (compute_s, memory_s, count)
    ]
    unit = np.bincount(owner * len(UNITS) + corpus.unit[op], compute_s, len(rows) * len(UNITS))
    settings = np.array([np.concatenate([s.features, s.spec]) for s in corpus.settings])
    return np.concatenate(
        [*parts, np.log(unit.reshape(len(rows), -1) + 1e-7), settings[corpus.setting[rows]]], 1
    )


def trees(corpus: Corpus, fitted: Ints, asked: Ints, seed: int = 0) -> Floats:
    """Boosted trees on aggregates; learning rate and leaves chosen inside the fitted part."""
    base = {True: additive(corpus, fitted, fitted), False: additive(corpus, fitted, asked)}
    known, wanted = aggregates(corpus, fitted), aggregates(corpus, asked)
    target = np.log(corpus.measured_s[fitted] / base[True])
    groups = np.array(corpus.keys)[fitted]
    tried = {}
    inner, judged = next(GroupKFold(4).split(known, groups=groups))
    for rate, leaves in _GRID:
        model = _boosted(rate, leaves, seed).fit(known[inner], target[inner])
        tried[rate, leaves] = np.abs(model.predict(known[judged]) - target[judged]).mean()
    model = _boosted(*min(tried, key=lambda k: tried[k]), seed).fit(known, target)
    return base[False] * np.exp(model.predict(wanted))


def _boosted(rate: float, leaves: int, seed: int) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(
        loss="absolute_error",
        learning_rate=rate,
        max_leaf_nodes=leaves,
        max_iter=600,
        early_stopping=True,
        random_state=seed,
    )


class _Totals(nn.Module):
    """Messages over the graph, a sum over nodes, the logarithm of the step's time."""

    def __init__(self, columns: int, settings: int) -> None:
        super().__init__()
        self.enter = nn.Linear(columns + settings, _WIDTH)
        self.rounds = nn.ModuleList([SAGEConv((_WIDTH, _WIDTH), _WIDTH) for _ in range(4)])
        self.leave = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.SiLU(), nn.Linear(_WIDTH, 1))

    def forward(self, nodes: Tensor, around: object, steps: int) -> Tensor:
        state = nn.functional.silu(self.enter(nodes))
        for i, part in enumerate((around.first, around.second)):
            mine = state[part.own]
            heard = self.rounds[2 * i]((state, mine), part.before)
            heard = heard + self.rounds[2 * i + 1]((state, mine), part.after)
            state = mine + nn.functional.silu(heard)
        total = torch.zeros(steps, _WIDTH)
        total.index_add_(0, around.owner, state * around.count[:, None])
        return self.leave(torch.log1p(total.relu()))[:, 0]


def plain_gnn(corpus: Corpus, fitted: Ints, asked: Ints, seed: int = 0) -> Floats:
    """A network that learns totals without physics."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    settings = np.array([np.concatenate([s.features, s.spec / 30]) for s in corpus.settings])
    sizes = np.log(np.stack([corpus.flops + 1, corpus.nbytes + 1], 1)) / 20
    groups = np.eye(len(GROUPS))[corpus.group]
    columns = torch.tensor(np.concatenate([corpus.shape, sizes, groups], 1), dtype=torch.float32)
    settings_ = torch.tensor(settings, dtype=torch.float32)
    measured = torch.tensor(np.log(corpus.measured_s), dtype=torch.float32)
    model = _Totals(columns.shape[1], settings.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)
    centre = measured[fitted].mean()

    def said(rows: Ints) -> Tensor:
        op, _, owner = slices(corpus, rows)
        nodes = torch.cat([columns[op], settings_[corpus.setting[rows][owner]]], 1)
        tables = (corpus.start[rows + 1] - corpus.start[rows]).tolist()
        around = batch_of([corpus.contexts[c] for c in corpus.context[rows]], tables)
        return model(nodes, around, len(rows)) + centre

    batches = max(1, int(corpus.share[fitted].sum()) // _STEPS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, _RATE, total_steps=_EPOCHS * batches + 1
    )
    for _ in range(_EPOCHS):
        drawn = fitted[rng.random(len(fitted)) < corpus.share[fitted]]
        for chosen in np.array_split(rng.permutation(drawn), batches):
            loss = (said(chosen) - measured[chosen]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        parts = [said(rows).exp() for rows in np.array_split(asked, max(1, len(asked) // 256))]
    return np.asarray(torch.cat(parts).double())


BASELINES: Mapping[str, Callable[[Corpus, Ints, Ints], Floats]] = {
    "additive": additive,
    "flops": flops,
    "trees": trees,
    "gnn": plain_gnn,
}
