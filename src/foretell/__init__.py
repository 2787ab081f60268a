"""Forecast time, memory, utilisation, traffic and cost of deep learning before it runs.

    import foretell
    forecast = foretell.predict("timm:resnet50", batch=256, precision="amp-bf16", cluster="h100")

Names are imported on first use, so that `import foretell` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretell._version import __version__

if TYPE_CHECKING:
    from foretell.api import Case, capture, max_batch, predict
    from foretell.cluster import Cluster, Device, parse_cluster
    from foretell.errors import CannotError, CaptureError, ForetellError, InputError
    from foretell.graph import Graph, load_graph, save_graph
    from foretell.predictors import Forecast, Measurement, Predictor, Quantity
    from foretell.workload import Recipe, Workload

_HOME = {
    "Case": "foretell.api",
    "capture": "foretell.api",
    "max_batch": "foretell.api",
    "predict": "foretell.api",
    "Cluster": "foretell.cluster",
    "Device": "foretell.cluster",
    "parse_cluster": "foretell.cluster",
    "CannotError": "foretell.errors",
    "CaptureError": "foretell.errors",
    "ForetellError": "foretell.errors",
    "InputError": "foretell.errors",
    "Graph": "foretell.graph",
    "load_graph": "foretell.graph",
    "save_graph": "foretell.graph",
    "Forecast": "foretell.predictors",
    "Measurement": "foretell.predictors",
    "Predictor": "foretell.predictors",
    "Quantity": "foretell.predictors",
    "Recipe": "foretell.workload",
    "Workload": "foretell.workload",
}

__all__ = [
    "CannotError",
    "CaptureError",
    "Case",
    "Cluster",
    "Device",
    "Forecast",
    "ForetellError",
    "Graph",
    "InputError",
    "Measurement",
    "Predictor",
    "Quantity",
    "Recipe",
    "Workload",
    "__version__",
    "capture",
    "load_graph",
    "max_batch",
    "parse_cluster",
    "predict",
    "save_graph",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'foretell' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
