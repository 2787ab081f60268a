"""Fit the constants of collectives: damped least squares on the log error, pulled to a prior.

What is fitted is foretell.comm itself: every trial asks collective_s for the measured cases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.collective_rows import Row
from foretell.comm import Collective, collective_s
from foretell.comm.constants import Constants, LinkConstants, Pattern, Protocol

_STEPS = 40
_SHARPEST_ERROR = 0.02
_PULL = 0.3
_FIRM_PULL = 1e4
_PRIOR = {
    "ring": Pattern(
        protocols={
            "ll": Protocol(start_s=6e-6, hop=0.4, efficiency=0.15),
            "ll128": Protocol(start_s=8e-6, hop=0.5, efficiency=0.5),
            "simple": Protocol(start_s=3e-5, hop=0.5, efficiency=0.85),
        },
        edge=0.6,
        blend=1.5,
    ),
    "exchange": Pattern(
        protocols={
            "ll": Protocol(start_s=7e-6, hop=0.1, efficiency=0.15),
            "ll128": Protocol(start_s=1e-5, hop=0.1, efficiency=0.4),
            "simple": Protocol(start_s=2e-5, hop=0.1, efficiency=0.75),
        },
        edge=0.3,
        blend=1.5,
    ),
    "pair": Pattern(
        protocols={
            "ll": Protocol(start_s=5e-6, hop=0.5, efficiency=0.1),
            "ll128": Protocol(start_s=7e-6, hop=0.5, efficiency=0.3),
            "simple": Protocol(start_s=9e-6, hop=0.5, efficiency=0.8),
        },
        blend=1.5,
    ),
}
_SWITCH = Pattern(
    protocols={"simple": Protocol(start_s=3e-5, hop=0.5, efficiency=0.6)}, edge=0.0, blend=1.5
)
_KINDS = {
    "ring": (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    "exchange": (Collective.ALL_TO_ALL,),
    "pair": (Collective.SEND_RECV,),
}


def prior() -> dict[str, Pattern]:
    """Where fitting starts: round numbers."""
    return dict(_PRIOR)


def fit(
    rows: Sequence[Row],
    key: str,
    start: Mapping[str, Pattern],
    *,
    with_switch: bool = False,
    level: bool = False,
) -> LinkConstants:
    """Patterns of one key of constants, for whatever its rows show; others stay out.

    `level` gives every system the same say, however many rows it has.
    """
    found: dict[str, Pattern] = {}
    for name, kinds in _KINDS.items():
        chosen = [row for row in rows if row.kind in kinds]
        if not chosen:
            continue
        begin = {name: _with_reach(start[name], chosen)}
        if name == "ring" and with_switch:
            begin["switch"] = _SWITCH
        say = np.ones(len(chosen))
        if level:
            systems = Counter(row.system for row in chosen)
            say = np.array([len(chosen) / len(systems) / systems[r.system] for r in chosen])
        found |= _fit_patterns(chosen, key, begin, say)
    return found


def ratios(rows: Sequence[Row], constants: Constants) -> np.ndarray:
    """measured / predicted, row by row."""
    measured = np.array([row.measured_s for row in rows])
    return np.asarray(measured / _predictor(rows)(constants))


def _fit_patterns(
    rows: Sequence[Row], key: str, begin: dict[str, Pattern], say: np.ndarray
) -> dict[str, Pattern]:
    predict = _predictor(rows)
    target = np.log([row.measured_s for row in rows])
    origin = np.concatenate([_vector(p) for p in begin.values()])
    pull = np.concatenate([_pulls(p, rows) for p in begin.values()])

    def unpacked(theta: np.ndarray) -> dict[str, Pattern]:
        patterns, at = {}, 0
        for name, pattern in begin.items():
            length = len(_vector(pattern))
            patterns[name] = _pattern(pattern, theta[at : at + length])
            at += length
        return patterns

    def errors(theta: np.ndarray) -> np.ndarray:
        trial = predict(Constants(links={key: unpacked(theta)}))
        return np.asarray(np.log(trial) - target)

    def loss(off: np.ndarray, theta: np.ndarray) -> float:
        size, small = np.abs(off), _SHARPEST_ERROR
        rounded = np.where(size < small, size**2 / (2 * small), size - small / 2)
        return float((say * rounded).sum() + (pull / 2 * (theta - origin) ** 2).sum())

    theta, damping = origin.copy(), 1.0
    off = errors(theta)
    for _ in range(_STEPS):
        weight = say / np.maximum(np.abs(off), _SHARPEST_ERROR)
        slopes = np.stack(
            [(errors(theta + 1e-4 * unit) - off) / 1e-4 for unit in np.eye(len(theta))], axis=1
        )
        curve = slopes.T @ (weight[:, None] * slopes)
        downhill = slopes.T @ (weight * off) + pull * (theta - origin)
        for _ in range(8):
            damped = curve + np.diag(damping * np.diag(curve) + pull)
            trial = theta - np.clip(np.linalg.solve(damped, downhill), -0.7, 0.7)
            after = errors(trial)
            if loss(after, trial) < loss(off, theta):
                theta, off, damping = trial, after, max(damping / 3, 1e-4)
                break
            damping *= 4
        else:
            break
    return {name: _possible(pattern) for name, pattern in unpacked(theta).items()}


def _possible(pattern: Pattern) -> Pattern:
    """The same with no share above one: what ranks reach is told from what a link reaches."""
    best = max(pattern.reach.values(), default=1.0)
    return Pattern(
        protocols={
            name: Protocol(start_s=p.start_s, hop=p.hop, efficiency=min(p.efficiency * best, 1.0))
            for name, p in pattern.protocols.items()
        },
        edge=pattern.edge,
        blend=pattern.blend,
        reach={n: share / best for n, share in pattern.reach.items()},
    )


def _predictor(rows: Sequence[Row]) -> Callable[[Constants], np.ndarray]:
    """Rows of one collective and group are priced by one call."""
    cases: dict[object, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        cases[row.kind, row.group, row.in_switch].append(i)
    batches = [(rows[at[0]], np.array(at)) for at in cases.values()]
    sizes = np.array([row.nbytes for row in rows])

    def predict(constants: Constants) -> np.ndarray:
        seconds = np.zeros(len(rows))
        for row, at in batches:
            seconds[at] = collective_s(
                row.kind, sizes[at], row.group, in_switch=row.in_switch, constants=constants
            )
        return seconds

    return predict


def _with_reach(pattern: Pattern, rows: Sequence[Row]) -> Pattern:
    """A share of its own for every number of ranks in a node, if several were measured."""
    counts = sorted({row.group.per_node for row in rows if row.group.per_node > 1})
    reach = {n: pattern.reach_of(n) for n in counts} if len(counts) > 1 else {}
    return Pattern(protocols=pattern.protocols, edge=pattern.edge, blend=pattern.blend, reach=reach)


def _vector(pattern: Pattern) -> np.ndarray:
    """The free numbers of a pattern, as logarithms."""
    values = [v for p in pattern.protocols.values() for v in (p.start_s, p.hop, p.efficiency)]
    values.append(pattern.blend)
    if pattern.edge:
        values.append(pattern.edge)
    return np.log([*values, *pattern.reach.values()])


def _pulls(pattern: Pattern, rows: Sequence[Row]) -> np.ndarray:
    """How firmly each number is held; the edge shows only where collectives differ in passes."""
    pull = np.full(len(_vector(pattern)), _PULL)
    if pattern.edge and len({row.kind for row in rows}) == 1 and rows[0].kind in _KINDS["ring"]:
        pull[3 * len(pattern.protocols) + 1] = _FIRM_PULL
    return pull


def _pattern(like: Pattern, theta: np.ndarray) -> Pattern:
    """The reverse of _vector, within what can be."""
    values = [float(v) for v in np.exp(theta)]
    protocols = {
        name: Protocol(start_s=values[3 * i], hop=values[3 * i + 1], efficiency=values[3 * i + 2])
        for i, name in enumerate(like.protocols)
    }
    rest = values[3 * len(protocols) :]
    blend = min(max(rest.pop(0), 1.0), 4.0)
    edge = rest.pop(0) if like.edge else 0.0
    reach = dict(zip(like.reach, rest, strict=True))
    return Pattern(protocols=protocols, edge=edge, blend=blend, reach=reach)
