"""Analytic prediction: an additive roofline with constants per device family."""

from foretell.predictors.analytic.predictor import AnalyticPredictor

__all__ = ["AnalyticPredictor"]
