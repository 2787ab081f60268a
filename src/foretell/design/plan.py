"""Plan: which cases to measure within a budget, what they cost and what they tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.api import Case
from foretell.design.candidates import Candidate, plain
from foretell.design.cells import cells_of
from foretell.design.cost import USUAL_EFFORT, Effort
from foretell.design.features import features_of
from foretell.design.known import Run, known_from, same_case
from foretell.design.methods import DEFAULT_METHOD, choose
from foretell.design.problem import Problem, problem_of
from foretell.errors import InputError
from foretell.graph.graph import Floats
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.assemble import slowest
from foretell.units import format_duration

_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One measurement to take."""

    case: Case
    step_s: float
    cost_s: float
    """Machine-seconds, predicted."""
    information_bits: float
    """What it adds to those before it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        numbers = {k: v for k, v in dataclasses.asdict(self).items() if k != "case"}
        return {"case": plain(self.case), **numbers}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Measurements in the order to take them."""

    choices: tuple[Choice, ...]
    method: str
    seed: int
    budget_s: float
    candidates: int
    measured: int
    """Earlier runs that count."""
    uncertainty_before: float
    uncertainty_after: float
    """Mean standard error of the candidates' predicted times, as logarithms: 0.1 is 10 %."""

    @property
    def cost_s(self) -> float:
        """Machine-seconds of everything chosen."""
        return sum(choice.cost_s for choice in self.choices)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        chosen = [choice.to_dict() for choice in self.choices]
        return {**fields, "choices": chosen, "cost_s": self.cost_s}


def plan(
    candidates: Sequence[Candidate],
    budget_s: float,
    *,
    method: str = DEFAULT_METHOD,
    seed: int = 0,
    repeats: int = 1,
    runs: Sequence[Run] = (),
    effort: Effort = USUAL_EFFORT,
) -> Plan:
    """What to measure next on one kind of device, at most `repeats` times each.

    `runs` are what was measured before: it is known already, and the constants follow it.
    """
    if not candidates:
        raise InputError("there is nothing to choose from: name candidates that fit")
    _check_one_device(candidates)
    predictor = AnalyticPredictor.shipped()
    known = known_from(runs, predictor)
    features = features_of([c.job for c in candidates], predictor, known.shift)
    is_operator = np.array([c.is_operator for c in candidates])
    cost_s = effort.cost_s(features.step_s, features.processes, is_operator)
    done = np.array([known.times[same_case(c.case, c.job)] for c in candidates], dtype=np.int64)
    available = np.maximum(repeats - done, 0)
    _check_affordable(cost_s[available > 0], budget_s)
    problem = problem_of(
        features,
        cost_s,
        known.group_noise,
        cells_of(features),
        measured=known.features,
        available=available,
    )
    order = _within(problem, cost_s, budget_s, method, seed)
    bits = problem.information_bits(order)
    return Plan(
        choices=tuple(
            Choice(
                case=candidates[i].case,
                step_s=float(features.step_s[i]),
                cost_s=float(cost_s[i]),
                information_bits=float(gained),
            )
            for i, gained in zip(order, bits, strict=True)
        ),
        method=method,
        seed=seed,
        budget_s=budget_s,
        candidates=len(candidates),
        measured=len(runs),
        uncertainty_before=problem.uncertainty([]),
        uncertainty_after=problem.uncertainty(order),
    )


def _within(problem: Problem, cost_s: Floats, budget_s: float, method: str, seed: int) -> list[int]:
    """A choice whose own costs are within the budget.

    Methods reckon with the mean cost of like candidates, so what they leave is dealt out again.
    """
    pool, order, left_s = problem.pool, [], budget_s
    for turn in range(_ROUNDS):
        cheapest_s = cost_s[pool.available > 0].min(initial=np.inf)
        if left_s < cheapest_s:
            break
        taken = []
        for candidate in choose(pool, left_s, method=method, seed=seed + turn):
            if cost_s[candidate] <= left_s:
                left_s -= float(cost_s[candidate])
                taken.append(candidate)
        if not taken:
            break
        order += taken
        rows = pool.rows[taken]
        used = np.bincount(taken, minlength=len(pool))
        pool = dataclasses.replace(
            pool,
            information=pool.information + rows.T @ rows,
            available=pool.available - used,
        )
    return order


def _check_affordable(cost_s: Floats, budget_s: float) -> None:
    if not len(cost_s):
        raise InputError("every candidate was measured already: name others, or allow repeats")
    if not budget_s >= cost_s.min():
        raise InputError(
            f"a budget of {format_duration(budget_s)} buys nothing: the cheapest candidate takes "
            f"{format_duration(float(cost_s.min()))}"
        )


def _check_one_device(candidates: Sequence[Candidate]) -> None:
    names = list(dict.fromkeys(slowest(c.job[1]).id for c in candidates))
    if len(names) > 1:
        raise InputError(
            f"candidates run on {names[0]} and on {names[1]}, whose constants differ: choose for "
            "one device at a time"
        )
