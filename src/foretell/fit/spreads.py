"""Intervals from what members said of steps they never saw, for each kind of step apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.domain import level_of
from foretell.predictors.scaledl.setting import place_of

if TYPE_CHECKING:
    from foretell.fit.members import Judged

_COVER = 0.9
_LEAST = 60
"""Judged steps that an interval of its own needs."""
_WIDEST = 4.0
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


Spreads = dict[str, dict[str, tuple[float, float]]]
"""Factors by level and place, "*" for places with too few steps of their own."""


def spreads_of(ledger: Ledger) -> Spreads:
    """The intervals of all levels."""
    return _spreads(ledger, np.ones(len(ledger.row), dtype=np.bool_))


def _spreads(ledger: Ledger, chosen: np.ndarray) -> Spreads:
    """The same from some of the steps."""
    domain, place, log_off = ledger.domain, np.array(ledger.place), ledger.log_off
    found: Spreads = {}
    for name in LEVELS:
        rows = chosen & (domain == name)
        if rows.sum() < _LEAST:  # rather all that was judged
            rows = chosen & (domain != LEVELS[-1]) if name != LEVELS[-1] else chosen
        found[name] = {"*": interval(log_off[rows])} | {
            str(p): interval(log_off[rows & (place == p)])
            for p in np.unique(place[rows])
            if (rows & (place == p)).sum() >= _LEAST
        }
    strangers = chosen & (domain == LEVELS[-1])
    if strangers.any():
        fold = np.array(ledger.fold)[strangers]
        low, high = interval(log_off[strangers])
        wider = _widening(log_off[strangers], fold)
        found[LEVELS[-1]] = {"*": (low**wider, high**wider)}
    return found


def _widening(log_off: Floats, fold: np.ndarray) -> float:
    """Exponent with which intervals of the other folds hold _COVER of a fold, on average.

    Few devices were left out, and steps on one of them are off alike: the next one may be further
    off than all of them.
    """
    names = np.unique(fold)
    if len(names) < 2:
        return 1.0
    others = [np.log(interval(log_off[fold != name])) for name in names]
    mine = [log_off[fold == name] for name in names]

    def cover(wider: float) -> float:
        inside = [
            ((wider * low <= off) & (off <= wider * high)).mean()
            for (low, high), off in zip(others, mine, strict=True)
        ]
        return float(np.mean(inside))

    exponents = np.linspace(1.0, _WIDEST, 61)
    enough = [wider for wider in exponents if cover(wider) >= _COVER]
    return float(enough[0]) if enough else _WIDEST


def covered(ledger: Ledger) -> np.ndarray:
    """Whether each step lies in the interval that the other folds give it."""
    domain, fold, log_off = ledger.domain, np.array(ledger.fold), ledger.log_off
    inside = np.zeros(len(log_off), dtype=np.bool_)
    for name in np.unique(fold):
        spreads = _spreads(ledger, fold != name)
        for i in np.flatnonzero(fold == name):
            known = spreads[domain[i]]
            low, high = known.get(ledger.place[int(i)]) or known["*"]
            inside[i] = np.log(low) <= log_off[i] <= np.log(high)
    return inside


def interval(log_off: Floats) -> tuple[float, float]:
    """Factors that _COVER of measured over predicted lie between, with the finite-sample step."""
    count = len(log_off)
    tail = (1 - _COVER) / 2
    low = max(0, int(np.floor(tail * (count + 1))) - 1)
    ordered = np.sort(log_off)
    return float(np.exp(ordered[low])), float(np.exp(ordered[count - 1 - low]))
