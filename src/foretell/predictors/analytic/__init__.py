"""Analytic prediction: an additive roofline with constants per device family."""

from foretell.predictors.analytic.predictor import AnalyticPredictor, StepTimes

__all__ = ["AnalyticPredictor", "StepTimes"]
