"""Measuring: real runs of workloads, what they use, and micro-benchmarks.

Names are imported on first use: the process that samples usage lives in this package and has to be
there at once, so nothing heavy may be imported here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.measure.bursts import Bursts, curves, find_bursts, resources, series_bursts
    from foretell.measure.plots import plot_series, save_plot
    from foretell.measure.sampler import UsageSampler
    from foretell.measure.series import Series

_HOME = {
    "Bursts": "foretell.measure.bursts",
    "UsageSampler": "foretell.measure.sampler",
    "Series": "foretell.measure.series",
    "curves": "foretell.measure.bursts",
    "find_bursts": "foretell.measure.bursts",
    "plot_series": "foretell.measure.plots",
    "resources": "foretell.measure.bursts",
    "save_plot": "foretell.measure.plots",
    "series_bursts": "foretell.measure.bursts",
}

__all__ = [
    "Bursts",
    "Series",
    "UsageSampler",
    "curves",
    "find_bursts",
    "plot_series",
    "resources",
    "save_plot",
    "series_bursts",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'foretell.measure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
