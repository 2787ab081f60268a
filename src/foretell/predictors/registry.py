"""Predictors by name, or by a file of fitted constants.

A third party registers its own with `register_predictor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from foretell.errors import UnknownNameError
from foretell.predictors.protocol import Predictor

DEFAULT_PREDICTOR = "scaledl"
_FILES = (".json", ".safetensors")

_MAKERS: dict[str, Callable[[], Predictor]] = {}


def register_predictor(name: str, make: Callable[[], Predictor]) -> None:
    """Make a predictor available as `predictor=name`."""
    _MAKERS[name] = make
    _shipped.cache_clear()


def predictor(name: str = DEFAULT_PREDICTOR) -> Predictor:
    """The shipped, fitted predictor of that name, or that of a .json or .safetensors file."""
    if name.endswith(_FILES):
        return _of_file(name, _changed_at(name))
    return _shipped(name)


@functools.cache
def _shipped(name: str) -> Predictor:
    if name not in _MAKERS:
        hint = f"use one of {', '.join(_MAKERS)}, or a .json or .safetensors file"
        raise UnknownNameError("predictor", name, _MAKERS, hint)
    return _MAKERS[name]()


@functools.lru_cache(maxsize=16)
def _of_file(path: str, changed_at: int) -> Predictor:
    if path.endswith(".safetensors"):
        from foretell.predictors.scaledl import ScaleDLPredictor

        return ScaleDLPredictor.load(Path(path))
    from foretell.predictors.analytic import AnalyticPredictor

    return AnalyticPredictor.load(Path(path))


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0  # reading it says what is wrong


def predictor_names() -> list[str]:
    """Names that `predictor` accepts."""
    return list(_MAKERS)


def _analytic() -> Predictor:
    from foretell.predictors.analytic import AnalyticPredictor

    return AnalyticPredictor.shipped()


def _scaledl(name: str) -> Predictor:
    from foretell.predictors.scaledl import ScaleDLPredictor

    return ScaleDLPredictor.shipped(name)


register_predictor("analytic", _analytic)
for _name in ("scaledl", "scaledl-graph"):
    register_predictor(_name, functools.partial(_scaledl, _name))
