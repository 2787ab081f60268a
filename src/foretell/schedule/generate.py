"""Jobs that nobody ran: Poisson arrivals, and users who run the same things again."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from foretell.errors import InputError, UnknownNameError
from foretell.schedule.readers import Row

PREFIX = "generated:"
_SIZES = (1, 2, 4, 8, 16, 32, 64)
_SIZE_WEIGHTS = (0.70, 0.08, 0.10, 0.08, 0.03, 0.007, 0.003)
_NAME_SPREAD, _RUN_SPREAD = 1.6, 0.6
"""Deviations of the logarithm of a length: of what recurs, and from run to run."""
_NAMES_PER_USER = 6
_LIMIT = 3.0
"""Users ask for up to so many times as long as their job takes."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to generate."""

    jobs: int = 10_000
    load: float = 0.9
    """Work that arrives per second, as a share of what the cluster can do."""
    users: int = 50
    mean_s: float = 3600.0
    """Mean length."""
    largest: int = 64
    """Devices of the largest job."""

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Of text like "jobs=1000,load=0.8"."""
        whole = ("jobs", "users", "largest")
        known = {f.name: int if f.name in whole else float for f in fields(cls)}
        found: dict[str, int | float] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in known:
                raise UnknownNameError("setting of a load", name, known, f"use {', '.join(known)}")
            try:
                found[name] = known[name](value)
            except ValueError:
                raise InputError(f"{PREFIX}{name}={value!r} is not a number") from None
            if not 0 < found[name] < float("inf"):
                raise InputError(f"{PREFIX}{name}={value} must be above zero")
        return cls(**found)  # type: ignore[arg-type]


def rows_generated(recipe: Recipe, devices: int, seed: int) -> list[Row]:
    """For a cluster of so many devices; another seed, other jobs."""
    draw = np.random.default_rng(seed)
    sizes = np.array([n for n in _SIZES if n <= min(recipe.largest, devices)])
    weights = np.array(_SIZE_WEIGHTS[: len(sizes)])
    kinds = recipe.users * _NAMES_PER_USER
    usual = np.exp(draw.normal(0.0, _NAME_SPREAD, kinds))
    usual_size = draw.choice(sizes, kinds, p=weights / weights.sum())
    popular = draw.dirichlet(np.full(kinds, 0.5))
    kind = draw.choice(kinds, recipe.jobs, p=popular)
    length = usual[kind] * np.exp(draw.normal(0.0, _RUN_SPREAD, recipe.jobs))
    length_s = np.maximum(1.0, length * recipe.mean_s / length.mean())
    asked = usual_size[kind]
    work = float((length_s * asked).sum())
    gaps_s = draw.exponential(1.0, recipe.jobs)
    submit_s = np.cumsum(gaps_s) * work / (recipe.load * devices * gaps_s.sum())
    limit_s = length_s * draw.uniform(1.0, _LIMIT, recipe.jobs)
    return [
        Row(
            line=i + 1,
            id=str(i),
            submit_s=float(submit_s[i]),
            duration_s=float(length_s[i]),
            devices=int(asked[i]),
            user=f"user-{kind[i] // _NAMES_PER_USER}",
            name=f"kind-{kind[i]}",
            limit_s=float(limit_s[i]),
        )
        for i in range(recipe.jobs)
    ]
