"""Predictors: from a workload and a cluster to a forecast."""

from foretell.predictors.forecast import Forecast, Quantity
from foretell.predictors.memory import MemoryUse, largest_batch, memory_use
from foretell.predictors.protocol import Measurement, Predictor
from foretell.predictors.registry import (
    DEFAULT_PREDICTOR,
    predictor,
    predictor_names,
    register_predictor,
)

__all__ = [
    "DEFAULT_PREDICTOR",
    "Forecast",
    "Measurement",
    "MemoryUse",
    "Predictor",
    "Quantity",
    "largest_batch",
    "memory_use",
    "predictor",
    "predictor_names",
    "register_predictor",
]
