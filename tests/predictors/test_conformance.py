"""Our own predictors pass the suite we ship."""

from __future__ import annotations

import pytest

from foretell.predictors import Predictor, predictor, predictor_names
from foretell.testing import PredictorSuite


class TestShippedPredictors(PredictorSuite):
    @pytest.fixture(autouse=True, params=predictor_names())
    def _chosen(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make(self) -> Predictor:
        return predictor(self.name)
