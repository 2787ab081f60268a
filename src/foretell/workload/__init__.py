"""Workloads: a captured model and how it is trained."""

from foretell.workload.parallelism import SCHEDULES, Layout, Parallelism
from foretell.workload.recipe import MODES, PRECISIONS, Recipe, Settings
from foretell.workload.workload import Workload

__all__ = [
    "MODES",
    "PRECISIONS",
    "SCHEDULES",
    "Layout",
    "Parallelism",
    "Recipe",
    "Settings",
    "Workload",
]
