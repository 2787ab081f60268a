"""Predictors by name. A third party registers its own with `register_predictor`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from foretell.errors import UnknownNameError
from foretell.predictors.protocol import Predictor

DEFAULT_PREDICTOR = "analytic"

_MAKERS: dict[str, Callable[[], Predictor]] = {}


def register_predictor(name: str, make: Callable[[], Predictor]) -> None:
    """Make a predictor available as `predictor=name`."""
    _MAKERS[name] = make
    predictor.cache_clear()


@functools.cache
def predictor(name: str = DEFAULT_PREDICTOR) -> Predictor:
    """The shipped, fitted predictor of that name."""
    if name not in _MAKERS:
        raise UnknownNameError("predictor", name, _MAKERS, f"use one of {', '.join(_MAKERS)}")
    return _MAKERS[name]()


def predictor_names() -> list[str]:
    """Names that `predictor` accepts."""
    return list(_MAKERS)


def _analytic() -> Predictor:
    from foretell.predictors.analytic import AnalyticPredictor

    return AnalyticPredictor.shipped()


register_predictor("analytic", _analytic)
