"""Who says how long jobs will be, and what they may know."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from foretell.schedule.forest import Forest
from foretell.schedule.job import Job
from foretell.schedule.learned import Learned
from foretell.schedule.play import LENGTHS
from foretell.schedule.recurrence import FEATURES, Recurrence
from foretell.schedule.sizes import Distorted, LikeThose, Oracle, Stated
from foretell.schedule.trace import Trace
from tests.schedule.makers import trace_of


def job_of(trace: Trace, number: int, done_s: float = 0.0) -> Job:
    job = Job(
        number=number,
        devices=int(trace.devices[number]),
        arrival_s=float(trace.arrival_s[number]),
        predicted_s=0.0,
        limit_s=float(trace.limit_s[number]),
        user=int(trace.user[number]),
        deadline_s=math.inf,
        preemptible=True,
    )
    job.done_s = done_s
    return job


def recurring(count: int = 600, spread: float = 0.1) -> Trace:
    """Ten users who each run one thing again and again, each of a length of its own."""
    draw = np.random.default_rng(0)
    who = draw.integers(0, 10, count)
    lengths = 60.0 * 2.0**who * np.exp(draw.normal(0, spread, count))
    trace = trace_of([(60.0 * i, 1, float(n)) for i, n in enumerate(lengths)])
    texts = (*tuple(f"user-{i}" for i in range(10)), "train")
    return dataclasses.replace(trace, texts=texts, user=who, name=np.full(count, 10))


def errors(trace: Trace, name: str) -> np.ndarray:
    """Of the second half, each job ending before the next arrives."""
    sizes = LENGTHS[name](trace, np.ones(len(trace)), 0)
    found = []
    for number in range(len(trace)):
        job = job_of(trace, number)
        job.predicted_s = sizes.predicted_s(job)
        found.append(abs(job.predicted_s / trace.iterations[number] - 1))
        sizes.learn(job, float(trace.iterations[number]))
    return np.array(found[len(found) // 2 :])


def test_what_recurs_is_predicted_to_its_spread() -> None:
    trace = recurring()
    assert errors(trace, "forest").mean() < 0.12
    assert errors(trace, "boosted").mean() < 0.12
    assert errors(trace, "last-two").mean() < 0.15
    assert errors(trace, "oracle").max() < 1e-9
    assert errors(trace, "stated").mean() > 1.0


def test_nothing_is_known_of_jobs_that_have_not_ended() -> None:
    """Other lengths from a job on change no prediction made before they ended."""
    trace = recurring(300)
    other = dataclasses.replace(
        trace, iterations=np.where(np.arange(300) < 200, trace.iterations, 1e6)
    )
    said = []
    for each in (trace, other):
        sizes = Learned(each, np.ones(len(each)))
        for number in range(200):
            job = job_of(each, number)
            sizes.predicted_s(job)
            sizes.learn(job, float(each.iterations[number]))
        said.append([sizes.predicted_s(job_of(each, n)) for n in range(200, 300)])
    assert said[0] == said[1]


def test_a_new_user_is_judged_by_everybody_and_then_by_their_own() -> None:
    trace = trace_of([(float(i), 1, 100.0) for i in range(5)])
    trace = dataclasses.replace(trace, texts=("a", "b"), user=np.array([0, 0, 1, 1, 1]))
    sizes = Learned(trace, np.ones(5))
    assert sizes.predicted_s(job_of(trace, 0)) == pytest.approx(3600.0)
    sizes.learn(job_of(trace, 0), 50.0)
    assert sizes.predicted_s(job_of(trace, 2)) == pytest.approx(50.0)
    sizes.learn(job_of(trace, 2), 500.0)
    assert sizes.predicted_s(job_of(trace, 3)) == pytest.approx(500.0)
    assert sizes.predicted_s(job_of(trace, 1)) == pytest.approx(50.0)


def test_quantiles_widen_with_what_is_not_known() -> None:
    narrow, wide = recurring(spread=0.05), recurring(spread=0.8)
    reach = []
    for trace in (narrow, wide):
        sizes = Learned(trace, np.ones(len(trace)))
        for number in range(500):
            job = job_of(trace, number)
            sizes.predicted_s(job)
            sizes.learn(job, float(trace.iterations[number]))
        job = job_of(trace, 550)
        reach.append(sizes.quantile_s(job, 0.95) / sizes.quantile_s(job, 0.05))
    assert reach[1] > 2 * reach[0] > 2


def test_intervals_of_lengths_hold_about_as_often_as_they_say() -> None:
    trace = recurring(1200, spread=0.5)
    sizes, inside = Learned(trace, np.ones(len(trace))), []
    for number in range(len(trace)):
        job = job_of(trace, number)
        low, high = sizes.quantile_s(job, 0.05), sizes.quantile_s(job, 0.95)
        inside.append(low <= trace.iterations[number] <= high)
        sizes.learn(job, float(trace.iterations[number]))
    assert 0.8 < np.mean(inside[300:]) < 0.97


def test_who_outgrows_a_number_is_given_as_long_again() -> None:
    trace = trace_of([(0.0, 1, 1000.0)])
    for sizes in (Stated(), LikeThose(trace, 2), Distorted(np.array([1000.0]), 0.0, 0)):
        job = job_of(trace, 0, done_s=5000.0)
        job.predicted_s = sizes.predicted_s(job)
        assert sizes.left_s(job) == pytest.approx(5000.0)


def test_upside_down_means_long_jobs_are_said_to_be_short() -> None:
    sizes = Distorted(np.array([10.0, 1000.0]), 0.0, 0, inverted=True)
    trace = trace_of([(0.0, 1, 10.0), (0.0, 1, 1000.0)])
    assert sizes.predicted_s(job_of(trace, 0)) == pytest.approx(1000.0)
    assert sizes.predicted_s(job_of(trace, 1)) == pytest.approx(10.0)


def test_the_truth_is_what_is_left() -> None:
    sizes = Oracle(np.array([100.0]))
    trace = trace_of([(0.0, 1, 100.0)])
    assert sizes.left_s(job_of(trace, 0, done_s=60.0)) == pytest.approx(40.0)
    assert 0 < sizes.left_s(job_of(trace, 0, done_s=100.0)) < 1e-6


def test_forests_say_what_the_jobs_in_their_leaves_did() -> None:
    """Two kinds of jobs, each half short and half long: both are known, and nothing between."""
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 2, 4000)
    targets = 10.0 * kind + 2.0 * draw.integers(0, 2, 4000) + draw.normal(0, 0.01, 4000)
    rows = np.stack([kind, draw.normal(size=4000)], 1).astype(np.float64)
    forest = Forest.fitted(rows, targets, seed=0)
    for which in (0, 1):
        said = np.array(forest.guess([which, 0.0])) - 10.0 * which
        assert (np.diff(said) >= 0).all()
        assert said[:6] == pytest.approx(0.0, abs=0.2)
        assert said[-6:] == pytest.approx(2.0, abs=0.2)


def test_walking_boosted_trees_is_what_scikit_learn_does() -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    from foretell.schedule.forest import _RATE, Boosted, _listed

    draw = np.random.default_rng(0)
    rows, targets = draw.normal(size=(400, 5)), draw.normal(size=400)
    fitted = GradientBoostingRegressor(
        n_estimators=9, learning_rate=_RATE, init="zero", random_state=0
    ).fit(rows, targets)
    boosted = Boosted(0.0, [_listed(each.tree_) for each in fitted.estimators_[:, 0]], 1.0)
    asked = rows[:50].astype(np.float32).astype(np.float64)
    said = [boosted.middle(row.tolist()) for row in asked]
    assert said == pytest.approx(fitted.predict(asked).tolist())


def test_a_new_name_is_judged_by_other_new_names() -> None:
    """Of ninety-nine short jobs of one name and a long one of another, a third name learns both."""
    lengths = [100.0] * 50 + [1e6] + [100.0] * 49 + [1.0]
    trace = trace_of([(float(i), 1, length) for i, length in enumerate(lengths)])
    name = np.array([0] * 50 + [1] + [0] * 49 + [2])
    trace = dataclasses.replace(trace, texts=("a", "b", "c"), name=name)
    sizes = Learned(trace, np.ones(101))
    for number in range(100):
        sizes.predicted_s(job_of(trace, number))
        sizes.learn(job_of(trace, number), lengths[number])
    assert sizes.predicted_s(job_of(trace, 100)) == pytest.approx(1e4)


def test_features_have_names() -> None:
    trace = recurring(10)
    past = Recurrence(trace)
    past.add(0, 3.0)
    assert len(past.features(1)) == len(FEATURES)
