"""Where measurements are carried out: on this machine, over a Ray cluster, by Slurm."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.data.store import Store
from foretell.errors import UnknownNameError
from foretell.measure.details import Details
from foretell.measure.runner import Job, Plan, Progress, Report, run_jobs

ENGINES = ("local", "ray", "slurm")


def run_on(
    engine: str,
    jobs: Sequence[Job],
    store: Store,
    plan: Plan,
    progress: Progress,
    details: Details | None = None,
) -> Report:
    """Measure jobs by the engine of that name; ray may be followed by ://ADDRESS."""
    name, _, address = engine.partition("://")
    if name == "local":
        return run_jobs(jobs, store, plan, progress, details)
    if name == "ray":
        from foretell.measure.ray_engine import run_on_ray

        return run_on_ray(jobs, store, plan, progress, address)
    if name == "slurm":
        from foretell.measure.slurm_engine import run_on_slurm

        return run_on_slurm(jobs, store, plan, progress)
    raise UnknownNameError("engine", engine, ENGINES, "use local, ray, ray://ADDRESS or slurm")
