"""Elasticities are derivatives, and fitting finds the constants that made the data."""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.cluster import device, parse_cluster
from foretell.graph import graph_of
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import NAMES, FamilyConstants, shipped_constants
from foretell.predictors.analytic.elasticity import Stack, stack
from foretell.predictors.analytic.fit import (
    DOUBT,
    Evidence,
    fit,
    fit_constants,
    fit_with_noise,
    prior_constants,
    sample_of,
)
from foretell.predictors.analytic.rates import GROUPS
from foretell.workload import Recipe, Workload

DEVICE = device("a100-80gb")
PRIOR = shipped_constants().families["default"]
REFERENCES = (
    "op:linear,in=256,out=1024",
    "op:linear,in=4096,out=4096",
    "op:linear,in=64,out=32768",
    "op:bmm,m=64,n=512,k=128",
    "op:conv2d,in=64,out=128,size=28",
    "op:conv2d,in=64,out=64,size=28,kernel=1",
    "op:layer_norm,width=1024",
    "op:softmax,width=4096",
    "op:gelu,width=512",
    "op:cross_entropy,classes=1000",
    "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=512",
)


@functools.cache
def workloads() -> list[Workload]:
    graphs = [graph_of(reference) for reference in REFERENCES]
    return [Workload(g, Recipe(batch=b)) for g in graphs for b in (1, 16, 256, 4096)]


@functools.cache
def steps() -> Stack:
    return stack([sample_of(w, DEVICE, 1.0).step for w in workloads()])


def changed(by: dict[str, float]) -> FamilyConstants:
    moves = np.array([by.get(name, 0.0) for name in NAMES])
    return FamilyConstants.from_logs(PRIOR.logs() + moves)


def test_times_are_those_of_the_predictor() -> None:
    predictor = AnalyticPredictor(shipped_constants())
    constants = shipped_constants().family("ampere-dc")[0]
    cluster = parse_cluster("a100-80gb")
    expected = [predictor.play(w, cluster)[1].step_s for w in workloads()]
    assert steps().seconds(constants) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(moves=st.lists(st.floats(-1.5, 1.5), min_size=len(NAMES), max_size=len(NAMES)))
def test_elasticities_are_the_derivatives_of_log_time(moves: list[float]) -> None:
    logs = PRIOR.logs() + moves
    seconds, rows = steps().elasticities(FamilyConstants.from_logs(logs))
    assert seconds == pytest.approx(steps().seconds(FamilyConstants.from_logs(logs)))
    for i in range(len(NAMES)):
        ahead, behind = logs.copy(), logs.copy()
        ahead[i] += 1e-5
        behind[i] -= 1e-5
        later, sooner = (steps().seconds(FamilyConstants.from_logs(x)) for x in (ahead, behind))
        slope = (np.log(later) - np.log(sooner)) / 2e-5
        assert rows[:, i] == pytest.approx(slope, abs=1e-6), NAMES[i]


def test_a_machine_slower_in_everything_is_slower_by_that_factor() -> None:
    _, rows = steps().elasticities(PRIOR)
    slower = np.array([-1.0 if "[" in n else 1.0 if n.endswith("_s") else 0.0 for n in NAMES])
    slower[NAMES.index("tile_latency_s")] = 0.0  # a share of compute, not a time beside it
    assert rows @ slower == pytest.approx(1.0, abs=1e-5)


def test_constants_survive_the_way_to_logarithms_and_back() -> None:
    again = FamilyConstants.from_logs(PRIOR.logs())
    assert again.to_dict() == PRIOR.to_dict()


def test_the_constants_that_made_the_times_are_found() -> None:
    truth = changed({"compute[matmul]": -0.4, "memory[norm]": -0.7, "overhead_s": 0.8})
    found = fit(Evidence(steps(), steps().seconds(truth)), PRIOR, noise=0.01)
    assert steps().seconds(found) == pytest.approx(steps().seconds(truth), rel=0.02)
    assert found.overhead_s == pytest.approx(truth.overhead_s, rel=0.05)


def test_what_no_step_uses_stays_at_the_prior() -> None:
    found = fit(Evidence(steps(), 2 * steps().seconds(PRIOR)), PRIOR)
    untouched = steps().elasticities(PRIOR)[1].any(0)
    assert found.logs()[~untouched] == pytest.approx(PRIOR.logs()[~untouched])


def test_a_few_absurd_measurements_change_little() -> None:
    measured = steps().seconds(PRIOR)
    spoiled = measured.copy()
    spoiled[::15] *= 20
    found = fit(Evidence(steps(), spoiled), PRIOR)
    ratio = np.delete(steps().seconds(found) / measured, np.arange(0, len(measured), 15))
    assert np.median(np.abs(ratio - 1)) < 0.05


def test_no_efficiency_exceeds_what_hardware_can_do() -> None:
    found = fit(Evidence(steps(), steps().seconds(PRIOR) / 10), PRIOR)
    assert found.compute.max() <= 1.1 + 1e-9
    assert found.memory.max() <= 1.6 + 1e-9


def test_constants_that_are_fixed_stay() -> None:
    evidence = Evidence(steps(), 3 * steps().seconds(PRIOR))
    found = fit(evidence, PRIOR, fixed=("overhead_s", "memory[elementwise]"))
    kept = [NAMES.index(name) for name in ("overhead_s", "memory[elementwise]")]
    assert found.logs()[kept] == pytest.approx(PRIOR.logs()[kept])
    assert found.dispatch_s > 1.5 * PRIOR.dispatch_s


def test_little_doubt_keeps_the_prior() -> None:
    evidence = Evidence(steps(), 3 * steps().seconds(PRIOR))
    near = fit(evidence, PRIOR, doubt=DOUBT * 1e-4)
    far = fit(evidence, PRIOR)
    assert np.abs(near.logs() - PRIOR.logs()).max() < 0.01
    assert np.abs(far.logs() - PRIOR.logs()).max() > 0.3


def test_a_measurement_of_weight_two_counts_like_two() -> None:
    rng = np.random.default_rng(0)
    measured = steps().seconds(PRIOR) * np.exp(rng.normal(0, 0.3, len(steps())))
    twice = stack([sample_of(w, DEVICE, 1.0).step for w in workloads() * 2])
    doubled = fit(Evidence(twice, np.tile(measured, 2)), PRIOR)
    weighted = fit(Evidence(steps(), measured), PRIOR, weight=np.full(len(measured), 2.0))
    assert weighted.logs() == pytest.approx(doubled.logs(), abs=1e-3)


def test_a_badly_described_group_does_not_disturb_what_it_shares_with_others() -> None:
    rng = np.random.default_rng(1)
    truth = changed({"overhead_s": 1.0})
    seconds, shares = steps().seconds(truth), steps().group_shares(truth)
    is_conv = shares[
        :, [i for i, name in enumerate(GROUPS) if "conv" in name or "point" in name]
    ].sum(1)
    measured = seconds * np.exp(np.where(is_conv > 0.5, rng.normal(0.8, 0.8, len(seconds)), 0))
    evidence = Evidence(steps(), measured)
    plain, aware = fit(evidence, PRIOR), fit_with_noise(evidence, PRIOR)
    error = [abs(np.log(c.overhead_s / truth.overhead_s)) for c in (plain, aware.constants)]
    assert error[1] < error[0]
    noise = aware.noise(steps())
    assert noise[is_conv > 0.5].min() > 2 * np.median(noise[is_conv < 0.1])


def test_measured_workloads_are_enough_and_none_leave_the_prior() -> None:
    truth = changed({"memory[elementwise]": -0.6})
    runs = [(w, DEVICE, float(s)) for w, s in zip(workloads(), steps().seconds(truth), strict=True)]
    found = fit_constants(runs, PRIOR)
    assert steps().seconds(found) == pytest.approx(steps().seconds(truth), rel=0.05)
    assert fit_constants([], PRIOR) is PRIOR


def test_a_hundred_samples_take_well_under_a_second() -> None:
    measured = steps().seconds(changed({"overhead_s": 1.5, "compute[matmul]": -0.5}))
    many = Evidence(
        stack([sample_of(w, DEVICE, 1.0).step for w in workloads() * 3]), np.tile(measured, 3)
    )
    start = time.perf_counter()
    fit(many, prior_constants())
    assert len(many) > 100
    assert time.perf_counter() - start < 1.0
