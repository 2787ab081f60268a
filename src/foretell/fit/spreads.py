"""Intervals from what members said of steps they never saw, for each kind of step apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    @classmethod
    def of(cls, corpus: Corpus, known: Judged, whole: np.ndarray, strangers: Judged) -> Ledger:
        """Steps judged as unseen models or families, and on unseen devices."""
        row = np.concatenate([known.row, strangers.row])
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
        )

    def table(self, summary: Callable[[Floats], dict[str, float]]) -> dict[str, dict[str, Any]]:
        """Level -> place -> errors."""
        ratio = self.predicted_s / self.measured_s
        found: dict[str, dict[str, Any]] = {}
        for level in dict.fromkeys(self.level):
            chosen = np.array(self.level) == level
            for place in sorted(set(np.array(self.place)[chosen])):
                rows = chosen & (np.array(self.place) == place)
                found.setdefault(level, {})[str(place)] = summary(ratio[rows])
        return found


def spreads_of(ledger: Ledger) -> dict[str, Any]:
    """Intervals by level and place, "*" for places with too few steps of their own."""
    level, place = np.array(ledger.level), np.array(ledger.place)
    log_off = np.log(ledger.measured_s / ledger.predicted_s)
    strange = level == "new-device"
    like = np.array([level_of(n) for n in ledger.novelty])
    kinds = {name: ~strange & (like == name) for name in LEVELS[:-1]} | {LEVELS[-1]: strange}
    found: dict[str, Mapping[str, tuple[float, float]]] = {}
    for name in LEVELS:
        rows = kinds[name]
        if rows.sum() < _LEAST:  # rather all that was judged
            rows = ~strange if name != "new-device" else np.ones(len(strange), dtype=np.bool_)
        found[name] = {"*": interval(log_off[rows])} | {
            str(p): interval(log_off[rows & (place == p)])
            for p in np.unique(place[rows])
            if (rows & (place == p)).sum() >= _LEAST
        }
    return {"spreads": found}


def interval(log_off: Floats) -> tuple[float, float]:
    """Factors that _COVER of measured over predicted lie between, with the finite-sample step."""
    count = len(log_off)
    tail = (1 - _COVER) / 2
    low = max(0, int(np.floor(tail * (count + 1))) - 1)
    ordered = np.sort(log_off)
    return float(np.exp(ordered[low])), float(np.exp(ordered[count - 1 - low]))
