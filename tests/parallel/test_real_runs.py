"""Forecasts of distributed steps against two real processes on a network of 100 Mbit/s."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from benchmarks.gloo import Row, measure, measure_network
from benchmarks.gloo_hosts import Workers
from benchmarks.gloo_models import MODELS
from benchmarks.gloo_predict import Plan
from foretell.measure.namespaces import HostPair, why_not

SLOW, FAST = {"100 Mbit/s": 1e8}, {"1 Gbit/s": 1e9}
CASES = {"llama": ("ddp", "fsdp", "tp", "1f1b"), "mlp": ("ddp", "tp")}
CLEARLY = 1.5
MUST_RUN = "FORETELL_REAL_RUNS"


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """What was measured and what was predicted, strategy by strategy."""
    reason = why_not()
    if reason and os.environ.get(MUST_RUN):
        pytest.fail(f"{MUST_RUN} is set, and {reason}")
    if reason:
        pytest.skip(reason)
    with HostPair() as hosts, Workers(hosts) as workers:
        found: list[Row] = []
        networks = {
            rate: measure_network(workers, bits, most_bytes=2**20, repeats=4)
            for rate, bits in (SLOW | FAST).items()
        }
        for model in (m for m in MODELS if m.name in CASES):
            for strategy in CASES[model.name]:
                rates = SLOW | FAST if strategy == "ddp" else SLOW
                plan = Plan.of(model, strategy)
                found += measure(workers, plan, networks, rates, most_repeats=3)
        yield found


def test_bytes_sent_are_those_the_interfaces_count(rows: list[Row]) -> None:
    off = {f"{r.model} {r.strategy} {r.rate}": r.traffic_error for r in rows}
    assert max(map(abs, off.values())) < 0.03, off


def test_what_is_clearly_faster_is_predicted_to_be(rows: list[Row]) -> None:
    compared = 0
    for a, b in itertools.permutations(rows, 2):
        if a.model == b.model and b.measured_s > CLEARLY * a.measured_s:
            compared += 1
            assert b.predicted_s > a.predicted_s, (a, b)
    assert compared >= 3


def test_ten_times_the_bandwidth_is_faster_and_predicted_to_be(rows: list[Row]) -> None:
    for model in CASES:
        by_rate = {r.rate: r for r in rows if (r.model, r.strategy) == (model, "ddp")}
        slow, fast = by_rate["100 Mbit/s"], by_rate["1 Gbit/s"]
        assert slow.measured_s > fast.measured_s, (slow, fast)
        assert slow.predicted_s > fast.predicted_s, (slow, fast)
