"""Intervals from what members said of steps they never saw, for each kind of step apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.domain import CPUS, Factors, factors_at, level_of
from foretell.predictors.scaledl.setting import place_of

if TYPE_CHECKING:
    from foretell.fit.members import Judged

_COVER = 0.9
_LEAST = 40
"""Judged steps that an interval of its own needs."""
_FAMILY = 2.0
"""How much steps of families held out whole count: what people ask about is rarely the sibling of a
measured network."""
_LONGEST = 4.0
LEVELS = ("near", "far", "strange", "new-device")


@dataclass(frozen=True, eq=False)
class Ledger:
    """Every step that was judged: where, by how much it was off, and how new it was."""

    row: Ints
    place: Sequence[str]
    """Device, mode, layout and execution."""
    predicted_s: Floats
    measured_s: Floats
    novelty: Floats
    level: Sequence[str]
    """"model", "family" or "new-device": what was held out."""
    labels: Sequence[str]
    fold: Sequence[str]
    """What was held out together with it."""
    on_cpu: np.ndarray

    @classmethod
    def of(
        cls, corpus: Corpus, known: Judged, fold: Ints, whole: np.ndarray, strangers: Judged
    ) -> Ledger:
        """Steps judged as unseen models or families, and on unseen devices."""
        row = np.concatenate([known.row, strangers.row])
        away = [corpus.settings[corpus.setting[i]].device for i in strangers.row]
        levels = ["family" if whole[i] else "model" for i in known.row]
        places = [place_of(s) for s in corpus.settings]
        return cls(
            row=row,
            place=[places[corpus.setting[i]] for i in row],
            predicted_s=np.concatenate([known.predicted_s, strangers.predicted_s]),
            measured_s=corpus.measured_s[row],
            novelty=np.concatenate([known.novelty, strangers.novelty]),
            level=[*levels, *["new-device"] * len(strangers.row)],
            labels=[corpus.labels[i] for i in row],
            fold=[*(str(fold[i]) for i in known.row), *away],
            on_cpu=np.array([s.is_cpu for s in corpus.settings], dtype=np.bool_)[
                corpus.setting[row]
            ],
        )

    @property
    def domain(self) -> np.ndarray:
        """Which of LEVELS each step's interval is taken from."""
        strange = np.array(self.level) == LEVELS[-1]
        return np.where(strange, LEVELS[-1], [level_of(n) for n in self.novelty])

    @property
    def log_off(self) -> Floats:
        """Logarithms of measured over predicted."""
        found: Floats = np.log(self.measured_s / self.predicted_s)
        return found

    def table(self, summary: Callable[[Floats], dict[str, float]]) -> dict[str, dict[str, Any]]:
        """Level -> place -> errors, and how often the interval of other folds holds."""
        ratio, inside = self.predicted_s / self.measured_s, covered(self)
        found: dict[str, dict[str, Any]] = {}
        for level in dict.fromkeys(self.level):
            chosen = np.array(self.level) == level
            for place in sorted(set(np.array(self.place)[chosen])):
                rows = chosen & (np.array(self.place) == place)
                errors = {**summary(ratio[rows]), "covered": float(inside[rows].mean())}
                found.setdefault(level, {})[str(place)] = errors
        return found


Spreads = dict[str, dict[str, Factors]]
"""Factors by level and place, CPUS and "*" for places with too few steps of their own."""


def spreads_of(ledger: Ledger) -> Spreads:
    """The intervals of all levels."""
    return _spreads(ledger, np.ones(len(ledger.row), dtype=np.bool_))


def _spreads(ledger: Ledger, chosen: np.ndarray) -> Spreads:
    """The same from some of the steps."""
    domain, place, log_off = ledger.domain, np.array(ledger.place), ledger.log_off
    weight = np.where(np.array(ledger.level) == "family", _FAMILY, 1.0)
    found: Spreads = {}
    for name in LEVELS:
        rows = chosen & (domain == name)
        if rows.sum() < _LEAST:  # rather all that was judged
            rows = chosen & (domain != LEVELS[-1]) if name != LEVELS[-1] else chosen
        found[name] = {"*": interval(log_off[rows], weight[rows])}
        where = {CPUS: ledger.on_cpu} | {str(p): place == p for p in np.unique(place[rows])}
        for p, here in where.items():
            mine = rows & here
            if mine.sum() >= _LEAST:
                found[name][p] = interval(log_off[mine], weight[mine])
    strangers = chosen & (domain == LEVELS[-1])
    new: dict[str, Factors] = {}
    for name, here in (("*", ~ledger.on_cpu), (CPUS, ledger.on_cpu)):
        mine = strangers & here
        if mine.any():
            reach = _reach_of_strangers(np.abs(log_off[mine]), np.array(ledger.fold)[mine])
            new[name] = (float(np.exp(-reach)), float(np.exp(reach)))
    if new:
        found[LEVELS[-1]] = {"*": next(iter(new.values())), **new}
    return found


def _reach_of_strangers(off: Floats, fold: np.ndarray) -> float:
    """How far a device never seen may be off, either way.

    Few devices were left out, and steps on one of them are off alike: some too slow, some too fast.
    The reach is as much longer than what covers all of them as it must be for those of the others
    to cover each, on average.
    """
    names = np.unique(fold)
    reach = float(np.quantile(off, _COVER))
    if len(names) < 2:
        return reach
    mine = [off[fold == name] for name in names]
    others = [float(np.quantile(off[fold != name], _COVER)) for name in names]

    def cover(longer: float) -> float:
        return float(np.mean([(m <= longer * o).mean() for m, o in zip(mine, others, strict=True)]))

    tried = np.linspace(1.0, _LONGEST, 61)
    return reach * next((float(t) for t in tried if cover(t) >= _COVER), _LONGEST)


def covered(ledger: Ledger) -> np.ndarray:
    """Whether each step lies in the interval that the other folds give it."""
    domain, fold, log_off = ledger.domain, np.array(ledger.fold), ledger.log_off
    inside = np.zeros(len(log_off), dtype=np.bool_)
    for name in np.unique(fold):
        spreads = _spreads(ledger, fold != name)
        for i in np.flatnonzero(fold == name):
            low, high = factors_at(
                spreads[domain[i]], ledger.place[int(i)], on_cpu=bool(ledger.on_cpu[i])
            )
            inside[i] = np.log(low) <= log_off[i] <= np.log(high)
    return inside


def interval(log_off: Floats, weight: Floats | None = None) -> tuple[float, float]:
    """Factors that _COVER of measured over predicted lie between, with the finite-sample step."""
    weight = np.ones(len(log_off)) if weight is None else weight
    order = np.argsort(log_off)
    least = (1 - _COVER) / 2 * (weight.sum() + weight.mean())

    def edge(at: Ints) -> float:
        """The outermost value that as much as `least` lies beyond or at."""
        inside = int((np.cumsum(weight[at]) <= least).sum())
        return float(np.exp(log_off[at[max(0, inside - 1)]]))

    return edge(order), edge(order[::-1])
