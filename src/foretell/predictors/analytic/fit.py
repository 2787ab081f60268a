"""Fit the analytic predictor's constants to measured operators and measured steps.

Both kinds of evidence are the same problem: a measured time is the sum over operators of count x
roofline time. The logarithms of the constants are found by damped Gauss-Newton steps on the log
error; errors far out count linearly, and a pull towards a prior decides what the data does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Bools, Floats
from foretell.predictors.analytic.constants import NAMES, SCALARS, FamilyConstants
from foretell.predictors.analytic.elasticity import PricedOn, Stack, priced_on, stack
from foretell.predictors.analytic.rates import GROUPS
from foretell.workload import Workload

NOISE = 0.1
"""Log error of a measured time that is nothing unusual; larger ones count linearly."""
_SIZES = (len(GROUPS), len(GROUPS), len(SCALARS))
DOUBT = np.repeat([0.5, 0.5, 1.5], _SIZES)
"""How far, in logarithms, each of NAMES may well be from its prior: efficiencies are known to a
factor of two, latencies differ by more between devices and ways of measuring."""
_MOST = np.log(np.repeat([1.1, 1.6, np.inf], _SIZES))
"""No group computes or streams faster than this, whatever single measurements say."""
_LONGEST = 100
_CLOSE = 1e-6
_FIRST_DAMPING, _MOST_DAMPING = 1e-3, 1e8
GROUP_NOISE = 0.2
"""Log error of a rate group of which nothing was measured yet."""
_NOISE_ROUNDS = 2
_NOISE_ROWS = 4.0
"""Measurements that GROUP_NOISE counts for against a group's own errors."""
_LEAST_NOISE = 0.02
_SD_OVER_MEAN = 1.25
"""Standard deviation over mean size of normal errors."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Steps and what they were measured to take."""

    steps: Stack
    measured_s: Floats

    def __len__(self) -> int:
        return len(self.measured_s)

    def ratios(self, constants: FamilyConstants) -> Floats:
        """measured / predicted per step."""
        return self.measured_s / self.steps.seconds(constants)

    def subset(self, keep: Bools) -> Evidence:
        """The rows where `keep` is true."""
        return Evidence(self.steps.subset(keep), self.measured_s[keep])


@dataclass(frozen=True, eq=False)
class Sample:
    """One measured time."""

    step: PricedOn
    measured_s: float


def evidence_of(samples: Sequence[Sample]) -> Evidence:
    """Samples as flat columns."""
    return Evidence(stack([s.step for s in samples]), np.array([s.measured_s for s in samples]))


def sample_of(workload: Workload, device: Device, measured_s: float) -> Sample:
    """A measured step of a workload on one device."""
    return Sample(priced_on(workload, device, workload.recipe.accumulation(1)), measured_s)


def fit_constants(
    runs: Iterable[tuple[Workload, Device, float]], prior: FamilyConstants
) -> FamilyConstants:
    """Constants of the family whose devices ran workloads in so many seconds each."""
    samples = [sample_of(workload, device, seconds) for workload, device, seconds in runs]
    return fit_with_noise(evidence_of(samples), prior).constants if samples else prior


@dataclass(frozen=True, eq=False)
class Fitted:
    """Constants, and how far times still are from them."""

    constants: FamilyConstants
    group_noise: Floats
    """Log error per rate group."""

    def noise(self, steps: Stack) -> Floats:
        """Log error to expect of each step: that of its groups, by their share of the time."""
        return steps.group_shares(self.constants) @ self.group_noise


def unfitted(prior: FamilyConstants) -> Fitted:
    """A prior before anything was measured."""
    return Fitted(prior, np.full(len(GROUPS), GROUP_NOISE))


def fit_with_noise(
    evidence: Evidence, prior: FamilyConstants, *, weight: Floats | None = None
) -> Fitted:
    """Constants fitted with an error of its own for each rate group, found from what is left.

    Groups that the roofline describes badly then leave alone what they share with others.
    """
    noise = unfitted(prior).group_noise
    found = Fitted(fit(evidence, prior, noise=GROUP_NOISE, weight=weight), noise)
    for _ in range(_NOISE_ROUNDS):
        off = np.abs(np.log(evidence.ratios(found.constants)))
        shares = evidence.steps.group_shares(found.constants)
        known = _SD_OVER_MEAN * (off @ shares) + _NOISE_ROWS * GROUP_NOISE
        noise = np.maximum(known / (shares.sum(0) + _NOISE_ROWS), _LEAST_NOISE)
        found = Fitted(fit(evidence, prior, noise=shares @ noise, weight=weight), noise)
    return found


def fit(
    evidence: Evidence,
    prior: FamilyConstants,
    *,
    noise: float | Floats = NOISE,
    weight: Floats | None = None,
    doubt: Floats = DOUBT,
    fixed: Collection[str] = (),
) -> FamilyConstants:
    """Constants that explain the evidence, near `prior` where it is silent.

    `noise` is one number or one per step, `weight` how many measurements each stands for, `doubt`
    how far each of NAMES may go, and `fixed` those of NAMES that stay as they are.
    """
    problem = _Problem(
        evidence=evidence,
        prior=prior.logs(),
        noise=np.broadcast_to(noise, len(evidence)),
        weight=np.ones(len(evidence)) if weight is None else weight,
        doubt=doubt,
    )
    free = ~np.isin(NAMES, list(fixed))
    logs = np.where(free, np.minimum(problem.prior, _MOST), problem.prior)
    value, gradient, curvature = problem.at(logs)
    damping = _FIRST_DAMPING
    for _ in range(_LONGEST):
        # A constant at its limit stays there while the data would push it further.
        moving = free & ~((logs >= _MOST) & (gradient < 0))
        step = _damped_step(gradient, curvature, moving, damping)
        tried = np.minimum(logs + step, np.where(free, _MOST, np.inf))
        reached = problem.value(tried)
        if reached < value:
            close = value - reached < _CLOSE * value
            logs, damping = tried, damping / 3
            value, gradient, curvature = problem.at(logs)
            if close:
                break
        elif damping > _MOST_DAMPING:
            break
        else:
            damping *= 4
    return FamilyConstants.from_logs(logs)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Problem:
    """What is minimised: half the squares of errors over noise and of moves over doubt."""

    evidence: Evidence
    prior: Floats
    noise: Floats
    weight: Floats
    doubt: Floats

    def value(self, logs: Floats) -> float:
        """The objective."""
        off = np.log(self.evidence.ratios(FamilyConstants.from_logs(logs))) / self.noise
        size = np.abs(off)
        huber = np.where(size <= 1, off**2 / 2, size - 0.5)
        return float(self.weight @ huber + (((logs - self.prior) / self.doubt) ** 2).sum() / 2)

    def at(self, logs: Floats) -> tuple[float, Floats, Floats]:
        """The objective, its gradient, and the curvature of Gauss and Newton."""
        seconds, rows = self.evidence.steps.elasticities(FamilyConstants.from_logs(logs))
        off = np.log(seconds / self.evidence.measured_s) / self.noise
        weight = self.weight / np.maximum(np.abs(off), 1)
        scaled = rows / self.noise[:, None]
        away = (logs - self.prior) / self.doubt**2
        gradient = scaled.T @ (weight * off) + away
        curvature = (scaled * weight[:, None]).T @ scaled + np.diag(self.doubt**-2.0)
        return self.value(logs), gradient, curvature


def _damped_step(gradient: Floats, curvature: Floats, moving: Bools, damping: float) -> Floats:
    chosen = np.flatnonzero(moving)
    block = curvature[np.ix_(chosen, chosen)]
    step = np.zeros(len(gradient))
    step[chosen] = -np.linalg.solve(block + damping * np.diag(np.diag(block)), gradient[chosen])
    return step


def prior_constants() -> FamilyConstants:
    """Where fitting starts when nothing is known: round numbers."""
    compute = dict.fromkeys(GROUPS, 0.6)
    compute |= {"depthwise": 0.3, "depthwise_backward": 0.2, "grouped": 0.3}
    compute |= {"grouped_backward": 0.25, "conv_backward": 0.5, "attention_backward": 0.45}
    memory = dict.fromkeys(GROUPS, 0.75)
    return FamilyConstants.from_dict({"compute": compute, "memory": memory})
