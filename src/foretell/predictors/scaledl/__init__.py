"""ScaleDL: a learned layer model, a network over the graph, and what distributed jobs add."""

from foretell.predictors.scaledl.predictor import ScaleDLPredictor

__all__ = ["ScaleDLPredictor"]
