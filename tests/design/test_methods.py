"""Every method keeps its promises; the optimal ones are nearly as good as trying everything."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.design import Pool, choose, method_names, pool_of, register_method
from foretell.design.criteria import (
    Criterion,
    DCriterion,
    PredictionCriterion,
    TraceCriterion,
)
from foretell.design.state import State
from foretell.design.walk import exchange
from foretell.errors import InputError, UnknownNameError

OPTIMAL: dict[str, Criterion] = {
    "d-optimal": DCriterion(),
    "a-optimal": TraceCriterion(),
    "v-optimal": PredictionCriterion(),
}
SEEDS = st.integers(0, 2**32 - 1)


def a_pool(seed: int, count: int, width: int, *, repeats: int = 1, uneven: bool = True) -> Pool:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, width)) * np.exp(rng.normal(0, 1, (count, 1)))
    cost_s = np.exp(rng.normal(0, 1.0 if uneven else 0.0, count))
    return pool_of(rows, cost_s, np.eye(width) * rng.uniform(0.1, 2), repeats=repeats)


def known(pool: Pool, chosen: list[int], criterion: Criterion) -> float:
    state = criterion.start(pool)
    state.take(chosen)
    return criterion.value(state)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, count=st.integers(2, 30), width=st.integers(1, 8), steps=st.integers(1, 40))
def test_what_rank_one_steps_keep_is_what_working_it_out_gives(
    seed: int, count: int, width: int, steps: int
) -> None:
    pool = a_pool(seed, count, width, repeats=3)
    state = State(pool, pool.targets)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        if state.chosen and rng.random() < 0.4:
            state.remove(int(rng.choice(state.chosen)))
        elif (state.left > 0).any():
            state.add(int(rng.choice(np.flatnonzero(state.left > 0))))
    anew = State(pool, pool.targets)
    anew.take(state.chosen)
    assert state.inverse == pytest.approx(anew.inverse, rel=1e-6, abs=1e-8)
    assert state.variance == pytest.approx(anew.variance, rel=1e-6, abs=1e-8)
    assert state.squares == pytest.approx(anew.squares, rel=1e-6, abs=1e-8)
    assert state.spent_s == pytest.approx(anew.spent_s)
    assert (state.left == anew.left).all()


@pytest.mark.parametrize("name", OPTIMAL)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, width=st.integers(1, 6))
def test_gains_are_what_adding_and_exchanging_really_gain(name: str, seed: int, width: int) -> None:
    pool, criterion = a_pool(seed, 12, width), OPTIMAL[name]
    state = criterion.start(pool)
    state.take([0, 1, 2])
    before = criterion.value(state)
    gains, swaps = criterion.gains(state), criterion.swap_gains(state, 1)
    for other in range(3, 12):
        assert known(pool, [0, 1, 2, other], criterion) - before == pytest.approx(
            gains[other], rel=1e-6, abs=1e-8
        )
        assert known(pool, [0, other, 2], criterion) - before == pytest.approx(
            swaps[other], rel=1e-6, abs=1e-8
        )


@pytest.mark.parametrize("name", OPTIMAL)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, count=st.integers(3, 40), width=st.integers(1, 8), size=st.integers(1, 10))
def test_exchanges_never_lose_information_nor_cost_more(
    name: str, seed: int, count: int, width: int, size: int
) -> None:
    pool, criterion = a_pool(seed, count, width), OPTIMAL[name]
    state = criterion.start(pool)
    rng = np.random.default_rng(seed)
    state.take(rng.choice(count, min(size, count), replace=False).tolist())
    before, spent_s, chosen = criterion.value(state), state.spent_s, len(state.chosen)
    exchange(state, criterion)
    assert criterion.value(state) >= before - 1e-9
    assert state.spent_s <= spent_s + 1e-9
    assert len(state.chosen) == chosen


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, count=st.integers(5, 12), width=st.integers(1, 4))
def test_d_optimal_is_nearly_as_good_as_trying_every_choice(
    seed: int, count: int, width: int
) -> None:
    pool = a_pool(seed, count, width, uneven=False)
    best = max(
        known(pool, list(four), DCriterion()) for four in itertools.combinations(range(count), 4)
    )
    found = known(pool, choose(pool, 4.0, method="d-optimal", seed=seed), DCriterion())
    assert np.exp((found - best) / width) >= 0.95


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, count=st.integers(4, 10), width=st.integers(1, 4), share=st.floats(0.2, 0.8))
def test_d_optimal_is_good_where_costs_differ(
    seed: int, count: int, width: int, share: float
) -> None:
    pool = a_pool(seed, count, width)
    budget_s = share * float(pool.cost_s.sum())
    affordable = [
        list(some)
        for size in range(count + 1)
        for some in itertools.combinations(range(count), size)
        if pool.cost_s[list(some)].sum() <= budget_s
    ]
    best = max(known(pool, some, DCriterion()) for some in affordable)
    found = known(pool, choose(pool, budget_s, method="d-optimal", seed=seed), DCriterion())
    assert np.exp((found - best) / width) >= 0.7


@pytest.mark.parametrize("name", method_names())
@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    count=st.integers(1, 40),
    width=st.integers(1, 6),
    repeats=st.integers(0, 3),
    budget_s=st.floats(0.01, 100),
)
def test_no_choice_exceeds_the_budget_or_the_repetitions(
    name: str, seed: int, count: int, width: int, repeats: int, budget_s: float
) -> None:
    pool = a_pool(seed, count, width, repeats=repeats)
    chosen = choose(pool, budget_s, method=name, seed=seed)
    assert pool.cost_s[chosen].sum() <= budget_s * (1 + 1e-12)
    assert np.bincount(chosen, minlength=count).max(initial=0) <= repeats
    assert choose(pool, budget_s, method=name, seed=seed) == chosen


@pytest.mark.parametrize("name", OPTIMAL)
@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    count=st.integers(1, 25),
    width=st.integers(1, 5),
    small_s=st.floats(0.05, 20),
    more_s=st.floats(0.0, 20),
)
def test_more_budget_never_gives_less_information(
    name: str, seed: int, count: int, width: int, small_s: float, more_s: float
) -> None:
    pool, criterion = a_pool(seed, count, width), OPTIMAL[name]
    less, more = (
        known(pool, choose(pool, budget_s, method=name, seed=seed), criterion)
        for budget_s in (small_s, small_s + more_s)
    )
    assert more >= less - 1e-9


@pytest.mark.parametrize("name", method_names())
def test_the_seed_matters_where_chance_has_a_part(name: str) -> None:
    pool = a_pool(5, 200, 4)
    answers = {tuple(choose(pool, 20.0, method=name, seed=s)) for s in range(4)}
    assert len(answers) > 1 or name in OPTIMAL


@pytest.mark.parametrize("name", method_names())
def test_a_budget_for_everything_takes_everything(name: str) -> None:
    pool = a_pool(3, 30, 4, repeats=2)
    chosen = choose(pool, 1e6, method=name)
    assert (np.bincount(chosen, minlength=30) == 2).all()


def test_the_first_of_an_optimal_order_tells_most_per_second() -> None:
    pool = a_pool(11, 50, 4)
    chosen = choose(pool, 10.0, method="d-optimal")
    state = State(pool)
    worth = DCriterion().gains(state)[chosen] / pool.cost_s[chosen]
    assert chosen[int(np.argmax(worth))] == chosen[0]


def test_what_is_known_already_is_not_measured_again() -> None:
    rows = np.array([[10.0, 0.0], [0.0, 10.0]])
    prior = np.eye(2)
    again = choose(pool_of(rows, np.ones(2), prior + 5 * np.outer(rows[0], rows[0])), 1.0)
    assert again == [1]


def test_cheap_candidates_that_tell_nearly_as_much_are_preferred() -> None:
    rows = np.array([[3.0]] + [[2.9]] * 10)
    cost_s = np.array([10.0] + [1.0] * 10)
    assert 0 not in choose(pool_of(rows, cost_s, np.eye(1)), 10.5)


def test_a_latin_hypercube_spreads_over_every_size() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.random((2000, 2)) ** 4  # most candidates are small
    pool = pool_of(sizes, np.ones(2000), np.eye(2), sizes=sizes)
    chosen = choose(pool, 50.0, method="latin-hypercube")
    ranks = np.argsort(np.argsort(sizes, axis=0), axis=0)[chosen] / 2000
    for column in ranks.T:
        assert len(set((column * 10).astype(int))) == 10


def test_unknown_methods_and_empty_budgets_are_refused() -> None:
    pool = a_pool(0, 3, 2)
    with pytest.raises(UnknownNameError, match="did you mean d-optimal"):
        choose(pool, 1.0, method="d-optimum")
    with pytest.raises(InputError, match="buys nothing"):
        choose(pool, 0.0)
    with pytest.raises(InputError, match="nothing to choose from"):
        pool_of(np.zeros((0, 2)), np.zeros(0), np.eye(2))
    with pytest.raises(InputError, match="cost above zero"):
        pool_of(np.zeros((1, 2)), np.zeros(1), np.eye(2))


def test_a_method_of_ones_own_is_found_by_name() -> None:
    register_method("cheapest", lambda pool, budget_s, seed: [int(pool.cost_s.argmin())])
    pool = a_pool(0, 30, 2)
    assert choose(pool, 100.0, method="cheapest") == [int(pool.cost_s.argmin())]


def test_of_candidates_that_tell_the_same_chance_picks_some() -> None:
    rows = np.repeat(np.eye(2), 50, axis=0)
    pool = pool_of(rows, np.ones(100), np.eye(2))
    picks = [choose(pool, 10.0, seed=seed) for seed in range(3)]
    assert len({tuple(sorted(p)) for p in picks}) == 3
    assert all((np.array(p) < 50).sum() == 5 for p in picks)


def test_ten_thousand_candidates_with_sixty_features_take_seconds() -> None:
    pool = a_pool(0, 10_000, 60)
    start = time.perf_counter()
    chosen = choose(pool, 50.0)
    assert len(chosen) > 100
    assert time.perf_counter() - start < 20  # 1 s on an idle core
