"""Optimal choices by a walk: add what gains most per second, exchange what another would better.

The way does not depend on the budget, which only says where to stop; so more budget never gives
less. What is left when the next step is too dear is filled with cheaper ones.
"""

from __future__ import annotations

import numpy as np

from foretell.design.criteria import Criterion
from foretell.design.pool import Pool
from foretell.design.state import State
from foretell.graph.graph import Floats, Ints

RESTARTS = 2
_STEPS_FOR_STARTS = 600
_BEST_FEW = 3
"""A walk that starts anew takes one of so many at random instead of the best."""
_GROWTH = 1.2
"""Exchanges are looked for again once so much more is spent."""
_ENOUGH = 1e-9
_MOST_PASSES = 20
_SHORT_LIST = 500


def optimal(pool: Pool, budget_s: float, seed: int, criterion: Criterion) -> list[int]:
    """The best choice of several walks within the budget, most telling per second first.

    Beside the walk from nothing there are walks from single candidates that tell much, which may
    be too dear to be met on the way, and walks that leave it now and then by chance.
    """
    kind, kinds = _kinds(pool)
    walks = [
        _filled(_walk(kinds, budget_s, criterion, start), budget_s, criterion)
        for start in ([], *_single_starts(kinds, budget_s, criterion))
    ]
    for restart in range(RESTARTS):
        rng = np.random.default_rng([seed, restart])
        walks.append(_walk(kinds, budget_s, criterion, [], rng))
    best = max(walks, key=criterion.value)
    return _members(pool, kind, _ordered(kinds, best.chosen, criterion))


def _kinds(pool: Pool) -> tuple[Ints, Pool]:
    """Candidates that tell and cost the same as one: the kind of each, and a pool of kinds."""
    told = np.ascontiguousarray(np.column_stack([pool.rows, pool.cost_s]))
    as_bytes = told.view(np.dtype((np.void, told.dtype.itemsize * told.shape[1]))).ravel()
    _, first, kind = np.unique(as_bytes, return_index=True, return_inverse=True)
    available = np.bincount(kind, pool.available).astype(np.int64)
    return kind.astype(np.int64), pool.subset(first.astype(np.int64), available)


def _members(pool: Pool, kind: Ints, order: list[int]) -> list[int]:
    """The first candidates of each kind, in the order of kinds."""
    members: dict[int, list[int]] = {}
    for candidate in np.repeat(np.arange(len(pool)), pool.available).tolist():
        members.setdefault(int(kind[candidate]), []).append(candidate)
    queues = {k: iter(candidates) for k, candidates in members.items()}
    return [next(queues[k]) for k in order]


def _single_starts(pool: Pool, budget_s: float, criterion: Criterion) -> list[list[int]]:
    """Candidates that gain most on their own; fewer of them where walks take longer."""
    state = criterion.start(pool)
    gains = np.where(state.left > 0, criterion.gains(state), -np.inf)
    best = np.argsort(-gains, kind="stable")[: max(1, _STEPS_FOR_STARTS // len(pool))]
    return [[i] for i in best.tolist() if state.left[i] > 0 and pool.cost_s[i] <= budget_s]


def exchange(state: State, criterion: Criterion) -> None:
    """Swap chosen candidates for others while that tells more and costs no more in all.

    Of large pools only those are tried that would gain most, in all or per second.
    """
    kept = _short_list(state, criterion)
    pool = state.pool.subset(kept, state.pool.available[kept])
    short = criterion.start(pool)
    short.take(np.searchsorted(kept, state.chosen).tolist())
    cap_s = state.spent_s
    for _ in range(_MOST_PASSES):
        if not _exchange_once(short, criterion, cap_s):
            break
        short.refresh()
    state.take(kept[short.chosen].tolist())


def _exchange_once(state: State, criterion: Criterion, cap_s: float) -> bool:
    """Try to better every chosen candidate; whether any was."""
    cost_s, changed = state.pool.cost_s, False
    for mine in dict.fromkeys(state.chosen):
        gains = criterion.swap_gains(state, mine)
        dear = cost_s > cap_s - state.spent_s + cost_s[mine]
        gains[dear | (state.left < 1)] = -np.inf
        other = int(np.argmax(gains))
        if gains[other] > _ENOUGH:
            state.remove(mine)
            state.add(other)
            changed = True
    return changed


def _short_list(state: State, criterion: Criterion) -> Ints:
    """What is chosen and the most promising others, in ascending order."""
    gains = criterion.gains(state)
    if len(gains) <= 2 * _SHORT_LIST:
        return np.arange(len(gains))
    best = [
        np.argpartition(worth, -_SHORT_LIST)[-_SHORT_LIST:]
        for worth in (gains, gains / state.pool.cost_s)
    ]
    return np.unique(np.concatenate([*best, state.chosen]).astype(np.int64))


def _walk(
    pool: Pool,
    budget_s: float,
    criterion: Criterion,
    start: list[int],
    rng: np.random.Generator | None = None,
) -> State:
    state = criterion.start(pool)
    state.take(start)
    exchanged_s = 0.0
    while (pick := _next(state, criterion, rng)) is not None:
        if state.spent_s + pool.cost_s[pick] > budget_s:
            break
        state.add(pick)
        if state.spent_s >= _GROWTH * exchanged_s:
            exchanged_s = state.spent_s
            exchange(state, criterion)
    return state


def _next(state: State, criterion: Criterion, rng: np.random.Generator | None) -> int | None:
    worth = _worth(state, criterion)
    if rng is None or len(worth) <= _BEST_FEW:
        pick = int(np.argmax(worth))
    else:
        pick = int(rng.choice(np.argpartition(worth, -_BEST_FEW)[-_BEST_FEW:]))
    return pick if worth[pick] > 0 else None


def _worth(state: State, criterion: Criterion) -> Floats:
    """Gain per second of every candidate that is left."""
    worth: Floats = criterion.gains(state) / state.pool.cost_s
    worth[state.left < 1] = -np.inf
    return worth


def _filled(state: State, budget_s: float, criterion: Criterion) -> State:
    """The state with what is left spent on cheaper candidates.

    Among walks that shun all above 1, 1/2, 1/4 ... of a limit the best is taken: each goes
    further with more money, and so does the best.
    """
    left_s = budget_s - state.spent_s
    affordable = state.pool.cost_s[(state.left > 0) & (state.pool.cost_s <= left_s)]
    if not len(affordable):
        return state
    # Limits are powers of two, whatever the budget.
    low, high = (int(np.floor(np.log2(x))) for x in (affordable.min(), left_s))
    fillings = [
        _cheap_walk(state, budget_s, criterion, 2.0**power) for power in range(low + 1, high + 1)
    ]
    return max([state, *fillings], key=criterion.value)


def _cheap_walk(state: State, budget_s: float, criterion: Criterion, limit_s: float) -> State:
    state = state.copied()
    cheap = state.pool.cost_s <= limit_s
    while True:
        worth = np.where(cheap, _worth(state, criterion), -np.inf)
        pick = int(np.argmax(worth))
        if worth[pick] <= 0 or state.spent_s + state.pool.cost_s[pick] > budget_s:
            return state
        state.add(pick)


def _ordered(pool: Pool, chosen: list[int], criterion: Criterion) -> list[int]:
    """The same candidates, those first that gain most per second."""
    picked, counts = np.unique(np.array(chosen, dtype=np.int64), return_counts=True)
    if not len(picked):
        return []
    subset = pool.subset(picked, counts.astype(np.int64))
    state = criterion.start(subset)
    for _ in chosen:
        state.add(int(np.argmax(_worth(state, criterion))))
    return [int(picked[i]) for i in state.chosen]
