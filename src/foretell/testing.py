"""Conformance suites: subclass one to test an implementation of yours as we test ours.

class TestMine(PredictorSuite):
    def make(self):
        return MyPredictor()
"""

from __future__ import annotations

from pathlib import Path

from foretell.cluster import parse_cluster
from foretell.graph import graph_of
from foretell.predictors import Predictor
from foretell.workload import Recipe, Workload

MODEL = "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=512"


class PredictorSuite:
    """What every Predictor promises; each method is a test that pytest finds in a subclass."""

    def make(self) -> Predictor:
        """A fresh predictor, fitted or shipped."""
        raise AssertionError("override make() to return the predictor under test")

    def workload(self, **recipe: object) -> Workload:
        """A small training job."""
        return Workload(graph_of(MODEL), Recipe(**{"batch": 16, **recipe}))  # type: ignore[arg-type]

    def test_it_is_a_predictor_with_a_name(self) -> None:
        assert isinstance(self.make(), Predictor)
        assert self.make().name

    def test_every_quantity_is_positive_and_within_its_interval(self) -> None:
        forecast = self.make().predict(self.workload(steps=10), parse_cluster("a100-80gb"))
        for quantity in (forecast.step_time_s, forecast.memory_bytes, forecast.throughput_per_s):
            assert 0 < quantity.low <= quantity.value <= quantity.high
        assert forecast.total_time_s is not None
        assert forecast.predictor == self.make().name

    def test_the_same_question_gets_the_same_answer(self) -> None:
        predictor, cluster = self.make(), parse_cluster("a100-80gb")
        first, second = (predictor.predict(self.workload(), cluster) for _ in range(2))
        assert first.to_dict() == second.to_dict()

    def test_much_more_work_takes_more_time_and_memory(self) -> None:
        predictor, cluster = self.make(), parse_cluster("a100-80gb")
        small, large = (predictor.predict(self.workload(batch=b), cluster) for b in (16, 1024))
        assert large.step_time_s.value > small.step_time_s.value
        assert large.memory_bytes.value > small.memory_bytes.value

    def test_what_is_saved_is_what_is_loaded(self, tmp_path: Path) -> None:
        predictor, cluster = self.make(), parse_cluster("a100-80gb")
        predictor.save(tmp_path / "saved")
        again = type(predictor).load(tmp_path / "saved")
        before, after = (p.predict(self.workload(), cluster) for p in (predictor, again))
        ratio = after.step_time_s.value / before.step_time_s.value
        assert abs(ratio - 1) < 1e-3

    def test_hardware_nobody_measured_widens_the_interval_or_says_so(self) -> None:
        forecast = self.make().predict(self.workload(), parse_cluster("k80"))
        assert forecast.in_domain or forecast.notes
