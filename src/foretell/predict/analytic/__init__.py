"""Analytic prediction: an additive roofline with constants per device family."""

from foretell.predict.analytic.predictor import AnalyticPredictor, StepTimes

__all__ = ["AnalyticPredictor", "StepTimes"]
