"""Workloads: a captured model and how it is trained."""

from foretell.workload.parallelism import SCHEDULES, Layout, Parallelism
from foretell.workload.recipe import LOW_PRECISIONS, MODES, PRECISIONS, Recipe, Settings
from foretell.workload.workload import Workload

__all__ = [
    "LOW_PRECISIONS",
    "MODES",
    "PRECISIONS",
    "SCHEDULES",
    "Layout",
    "Parallelism",
    "Recipe",
    "Settings",
    "Workload",
]
