"""One job over many devices: who runs what, who waits for whom, who holds what."""

from foretell.parallel.describe import describe, plan_notes
from foretell.parallel.holding import ALONE, Holding, rank_workloads
from foretell.parallel.place import Placed, place
from foretell.parallel.step import StepRun, run_step
from foretell.parallel.timeline import Event, Track, timeline
from foretell.parallel.times import OpTimes

__all__ = [
    "ALONE",
    "Event",
    "Holding",
    "OpTimes",
    "Placed",
    "StepRun",
    "Track",
    "describe",
    "place",
    "plan_notes",
    "rank_workloads",
    "run_step",
    "timeline",
]
