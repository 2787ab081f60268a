"""Rows of candidates are derivatives of what the predictor says, on one device and on many."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.comm import Constants as CommConstants
from foretell.comm.constants import shipped_constants as shipped_collectives
from foretell.design.cells import cells_of
from foretell.design.cost import OPERATOR_SETUP_S, SETUP_S, Effort
from foretell.design.features import FEATURES, Features, Job, features_of
from foretell.design.problem import problem_of
from foretell.graph.sources.op_shape import OP_NAMES
from foretell.graph.sources.op_sweep import sweep_ops
from foretell.parallel import run_step
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import NAMES, Constants, FamilyConstants
from foretell.predictors.analytic.fit import GROUP_NOISE
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.assemble import slowest

PREDICTOR = AnalyticPredictor.shipped()
SMALL = "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=512"
CASES = (
    Case(model="op:linear,in=256,out=512", batch=64),
    Case(model="op:conv2d,in=32,out=32,size=14", batch=8, mode="infer"),
    Case(model=SMALL, batch=4),
    Case(model=SMALL, batch=4, global_batch=16),
    Case(model=SMALL, batch=4, compile=True),
    Case(model=SMALL, batch=4, cluster="4xa100-80gb"),
    Case(model=SMALL, batch=4, cluster="2x2xa100-80gb", zero=3),
    Case(model=SMALL, batch=4, cluster="2xa100-80gb", pp=2, global_batch=16),
    Case(model=SMALL, batch=4, cluster="2xa100-80gb", tp=2),
    Case(model=SMALL, batch=4, offload_optimizer=True),
)


def moved(job: Job, name: str, by: float) -> float:
    """Step time with one constant e^by times what it is."""
    workload, cluster = job
    own = PREDICTOR.constants_for(workload.recipe, slowest(cluster))
    change = np.array([by if n == name else 0.0 for n in NAMES])
    constants = FamilyConstants.from_logs(own.logs() + change)
    changed = AnalyticPredictor(Constants(families={"default": constants}, spreads={}))
    if name in NAMES:
        return changed.play(workload, cluster)[1].step_s
    placed, _ = changed.play(workload, cluster)
    times = changed.op_times(placed.local, slowest(cluster))
    return run_step(placed, times, slower_exchange(name, by)).step_s


def slower_exchange(name: str, by: float) -> CommConstants:
    factor = np.exp(by)
    links = {}
    for link, patterns in shipped_collectives().links.items():
        links[link] = {
            key: dataclasses.replace(
                pattern,
                protocols={
                    p: dataclasses.replace(q, start_s=q.start_s * factor, hop=q.hop * factor)
                    if name == "exchange_start"
                    else dataclasses.replace(q, efficiency=q.efficiency / factor)
                    for p, q in pattern.protocols.items()
                },
            )
            for key, pattern in patterns.items()
        }
    return CommConstants(links=links)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.model.split(',')[0]} on {c.cluster}")
def test_rows_are_the_slopes_of_the_predicted_step(case: Case) -> None:
    job = workload_of(case)
    features = features_of([job], PREDICTOR)
    assert features.step_s[0] == pytest.approx(PREDICTOR.play(*job)[1].step_s, rel=1e-9)
    for name, value in zip(FEATURES, features.elasticities[0], strict=True):
        slope = np.log(moved(job, name, 1e-4) / moved(job, name, -1e-4)) / 2e-4
        assert value == pytest.approx(slope, abs=1e-4), name


def test_only_jobs_of_several_processes_tell_of_exchanges() -> None:
    alone, together = (
        features_of([workload_of(Case(model=SMALL, batch=1, cluster=c))], PREDICTOR)
        for c in ("a100-80gb", "2xa100-80gb:pcie4")
    )
    assert not alone.elasticities[0, -2:].any()
    assert together.elasticities[0, -2:].sum() > 0.05


def test_a_row_moves_with_the_constants() -> None:
    job = workload_of(CASES[0])
    shift = np.array([2.0 if name == "overhead_s" else 0.0 for name in NAMES])
    before, after = features_of([job], PREDICTOR), features_of([job], PREDICTOR, shift)
    index = FEATURES.index("overhead_s")
    assert after.elasticities[0, index] > before.elasticities[0, index]
    assert after.step_s[0] > before.step_s[0]


def test_thousands_of_rows_a_second() -> None:
    jobs = [
        workload_of(Case(model=f"op:gelu,width={w}", batch=b))
        for w in (64, 512)
        for b in range(1, 501)
    ]
    features_of(jobs, PREDICTOR)
    start = time.perf_counter()
    features_of(jobs, PREDICTOR)
    assert time.perf_counter() - start < 2.0  # 0.1 s on an idle core


def test_costs_follow_what_sampling_takes() -> None:
    step_s, processes = np.array([0.1, 0.1, 1.0, 20.0, 1e-6]), np.array([1, 2, 1, 1, 1])
    effort = Effort(seconds=4.0, rounds=2)
    found = effort.cost_s(step_s, processes, np.array([False] * 4 + [True]))
    model, pair, slow, endless, tiny = found
    assert model == pytest.approx(2 * (SETUP_S + 0.2 + 2.0))  # twenty steps agree after two seconds
    assert pair == pytest.approx(2 * model)
    assert slow == pytest.approx(2 * (SETUP_S + 2.0 + 5.0))  # five samples at least
    assert endless == pytest.approx(2 * (SETUP_S + 40.0 + 16.0))  # but no more than four times 4 s
    assert tiny == pytest.approx(2 * (OPERATOR_SETUP_S + 2.0), rel=1e-3)
    assert Effort(seconds=0.4, rounds=1).cost_s(step_s, processes, np.ones(5, bool))[4] < 0.3


def test_the_sweep_has_every_operator_in_several_sizes() -> None:
    sweep = list(sweep_ops())
    assert len(set(sweep)) == len(sweep) > 500
    for name in OP_NAMES:
        assert len(list(sweep_ops([name]))) >= 3
        assert any(reference.startswith(f"op:{name},") for reference, _ in sweep)


def sweep_features() -> tuple[list[Case], Features]:
    cases = [Case(model=m, batch=b) for m, b in sweep_ops(["linear", "softmax", "conv2d"])]
    return cases, features_of([workload_of(c) for c in cases], PREDICTOR)


def test_cells_hold_like_candidates_and_every_candidate_is_in_one() -> None:
    cases, features = sweep_features()
    cells = cells_of(features)
    cell, distance = cells.places(features)
    assert cells.share.sum() == pytest.approx(1.0)
    kind = np.array([c.model.partition(",")[0] for c in cases])
    # Small operators of a kind are mostly overhead, whatever the kind; large ones stay apart.
    mixed = [len(set(kind[cell == c])) for c in range(len(cells))]
    assert np.mean(np.array(mixed) <= 1) > 0.9
    assert np.median(distance) < 1.5


def test_a_few_candidates_are_cells_of_their_own() -> None:
    features = features_of([workload_of(c) for c in CASES[:4]], PREDICTOR)
    cell, distance = cells_of(features).places(features)
    assert sorted(cell) == [0, 1, 2, 3]
    assert distance == pytest.approx(0.0, abs=1e-6)


def test_a_cell_measured_often_counts_for_no_more_than_its_candidates() -> None:
    _, features = sweep_features()
    cells = cells_of(features)
    once, often = np.argsort(cells.share)[-2:].tolist()
    measured = np.array([often] * 50 + [once])
    weights = cells.weights(measured)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[-1] > 20 * weights[0]


def test_candidates_of_a_cell_tell_and_cost_the_same() -> None:
    _, features = sweep_features()
    cells = cells_of(features)
    count = len(features)
    cost_s = np.exp(np.random.default_rng(0).normal(size=count))
    noise = np.full(len(GROUPS), GROUP_NOISE)
    problem = problem_of(features, cost_s, noise, cells)
    cell, _ = cells.places(features)
    for c in range(len(cells)):
        rows, costs = problem.pool.rows[cell == c], problem.pool.cost_s[cell == c]
        assert np.ptp(rows, axis=0) == pytest.approx(0.0, abs=1e-9)
        assert np.ptp(costs) == pytest.approx(0.0, abs=1e-9)
        assert costs[0] == pytest.approx(cost_s[cell == c].mean())


def test_measuring_lowers_the_uncertainty_and_bits_add_up() -> None:
    _, features = sweep_features()
    cells = cells_of(features)
    noise = np.full(len(GROUPS), GROUP_NOISE)
    problem = problem_of(features, np.ones(len(features)), noise, cells)
    before, some, more = (problem.uncertainty(list(range(0, n, 10))) for n in (0, 100, 280))
    assert before > some > more > 0
    pool, chosen = problem.pool, [0, 50, 0, 100]
    picked = pool.rows[chosen]
    whole = np.linalg.slogdet(pool.information + picked.T @ picked)[1]
    gained = (whole - np.linalg.slogdet(pool.information)[1]) / np.log(2) / 2
    assert problem.information_bits(chosen).sum() == pytest.approx(gained)


def test_what_was_measured_before_is_worth_less_again() -> None:
    _, features = sweep_features()
    cells = cells_of(features)
    noise, cost_s = np.full(len(GROUPS), GROUP_NOISE), np.ones(len(features))
    first = np.arange(len(cost_s)) < 40
    plain = problem_of(features, cost_s, noise, cells)
    later = problem_of(
        features,
        cost_s,
        noise,
        cells,
        measured=features.subset(first),
    )
    assert later.uncertainty([]) < plain.uncertainty([])
    assert later.information_bits([0])[0] < plain.information_bits([0])[0]
