"""Workload: a Graph and the Recipe it is trained by."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from functools import cached_property

from foretell.graph.graph import Graph
from foretell.graph.optimizer import with_optimizer
from foretell.workload.recipe import Recipe


@dataclass(frozen=True)
class Workload:
    """What a predictor is asked about. `graph` is as captured; `step` is what runs."""

    graph: Graph
    recipe: Recipe

    @cached_property
    def step(self) -> Graph:
        """The graph at the recipe's batch, followed by the optimizer."""
        if not self.recipe.training:
            return self.graph.at(self.recipe.batch)
        recipe = self.recipe
        step = _optimized(
            self.graph, recipe.optimizer, recipe.master_weights, recipe.fused_optimizer
        )
        return step.at(recipe.batch)

    @property
    def seq(self) -> int | None:
        """Tokens per sample for models that read sequences."""
        value = self.graph.meta.get("seq")
        return int(value) if value else None

    def at_batch(self, batch: int) -> Workload:
        """The same workload with another batch per model copy."""
        return Workload(self.graph, dataclasses.replace(self.recipe, batch=batch))


@functools.lru_cache(maxsize=256)
def _optimized(graph: Graph, optimizer: str, master_weights: bool, one_kernel: bool) -> Graph:
    """The optimizer's part does not depend on the batch: appended once per graph."""
    return with_optimizer(graph, optimizer, master_weights=master_weights, one_kernel=one_kernel)
