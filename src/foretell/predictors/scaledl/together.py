"""What the timeline of a distributed step misses, learned from measured jobs.

A Gaussian process per device family over what a job looks like. Its mean is zero far from all jobs
that were measured: without evidence nothing is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Floats
from foretell.graph.ops import OpClass
from foretell.parallel import Placed, StepRun

JOB_NAMES = (
    "log_devices",
    "log_nodes",
    "log_tp",
    "log_pp",
    "log_dp",
    "log_microbatches",
    "log_batch",
    "log_step_s",
    "log_operator_s",
    "communication",
    "waiting",
    "host",
    "optimizer",
    "zero",
    "recomputes",
    "offloads",
    "half",
    "convolution",
)
"""What a job looks like; logarithms to the base of two."""
SCALE = np.array(
    [2, 1, 1, 1, 2, 2, 3, 3, 3, 0.3, 0.3, 0.5, 0.2, 1, 0.5, 0.5, 0.5, 0.05], dtype=float
)
"""How far apart jobs may be, number by number, and still be alike.

Networks with and without convolutions never are.
"""

LAUNCHES_MATTER_FROM = 0.2
"""Share of a step that the host needs to launch it, by a benchmark's loop: frameworks need several
times as much, so from here on jobs may take many times as long as their timeline says."""
_LENGTHS: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
_NOISE: Sequence[float] = (1e-4, 1e-3, 1e-2, 0.1)
_MOST_TUNED = 600
_PRIOR = 0.3
"""Jobs' worth of the usual doubt that is mixed into that of the jobs nearby."""


def launches_matter(at: Floats) -> np.ndarray:
    """Which of some jobs, by their scaled numbers, the host may hold up."""
    host = JOB_NAMES.index("host")
    found: np.ndarray = at[:, host] * SCALE[host] >= LAUNCHES_MATTER_FROM
    return found


def job_of(placed: Placed, run: StepRun) -> Floats:
    """The numbers of a job, in the order of JOB_NAMES, divided by their scales."""
    layout, recipe = placed.layout, placed.whole.recipe
    waiting = sum(run.phase_s.get(name, 0.0) for name in ("communication", "bubble"))
    values = [
        np.log2(layout.world),
        np.log2(placed.cluster.total_nodes),
        np.log2(layout.tp),
        np.log2(layout.pp),
        np.log2(layout.dp),
        np.log2(placed.microbatches),
        np.log2(recipe.batch),
        np.log2(run.step_s),
        np.log2(max(run.compute_busy_s, 1e-9) / max(1, len(run.op_s))),
        run.communication_busy_s / run.step_s,
        waiting / run.step_s,
        min(run.host_share, 2.0),
        run.phase_s.get("optimizer", 0.0) / run.step_s,
        float(recipe.zero if layout.shard > 1 else 0),
        float(recipe.recompute != "none"),
        float(recipe.offload_optimizer),
        float(recipe.precision not in ("fp32", "tf32")),
        float(run.op_s[placed.local.step.op_class == OpClass.CONV].sum() / run.op_s.sum()),
    ]
    scaled: Floats = np.array(values, dtype=np.float64) / SCALE
    return scaled


@dataclass(frozen=True)
class Taught:
    """What measured jobs say about another."""

    added: float
    """Logarithm by which it takes longer than its timeline says."""
    evidence: float
    """Likeness to the job most like it, from 0 to 1."""
    doubt: float
    """By how much, as a logarithm, the others were wrong about jobs like it."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """Measured jobs of one family of devices, and what was learned from them."""

    at: Floats
    """[jobs, JOB_NAMES]."""
    pull: Floats
    """[jobs] what each contributes per likeness."""
    left: Floats
    """[jobs] how far off the others were about each, as a logarithm without sign."""
    length: float
    """Of the kernel, in scaled units."""

    def about(self, job: Floats) -> Taught:
        """What they say about a job."""
        likeness = kernel(job[None, :], self.at, self.length)[0]
        near = likeness**2
        usual = float(self.left.mean())
        return Taught(
            added=float(likeness @ self.pull),
            evidence=float(likeness.max(initial=0.0)),
            doubt=float((near @ self.left + _PRIOR * usual) / (near.sum() + _PRIOR)),
        )


def kernel(left: Floats, right: Floats, length: float) -> Floats:
    """Matern 3/2: one for equal jobs, nothing for those far apart."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    distance = np.sqrt(3 * np.maximum(squares, 0.0)) / length
    found: Floats = (1 + distance) * np.exp(-distance)
    return found


def learn(at: Floats, off: Floats) -> Jobs:
    """Jobs from where they are and the logarithms they are off by."""
    length, size, noise = _best(at, off)
    matrix = size * kernel(at, at, length)
    matrix[np.diag_indices_from(matrix)] += noise
    inverse = np.linalg.inv(matrix)
    pull: Floats = size * (inverse @ off)
    left: Floats = np.abs((inverse @ off) / np.diag(inverse))
    return Jobs(at, pull, left, length)


def _best(at: Floats, off: Floats) -> tuple[float, float, float]:
    """Kernel length, variance and noise by the error of leaving each job out."""
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(at))[:_MOST_TUNED]
    some, their = at[chosen], off[chosen]
    size = float(np.mean(their**2)) + 1e-6
    best, least = (1.0, size, size), np.inf
    for length in _LENGTHS:
        likeness = kernel(some, some, length)
        for share in _NOISE:
            matrix = size * likeness
            matrix[np.diag_indices_from(matrix)] += share * size
            inverse = np.linalg.inv(matrix)
            left_out = (inverse @ their) / np.diag(inverse)
            error = float(np.mean(np.abs(left_out)))
            if error < least:
                best, least = (length, size, share * size), error
    return best
