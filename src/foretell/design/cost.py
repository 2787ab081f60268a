"""What measuring a candidate costs, in machine-seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Bools, Floats, Ints

SETUP_S = 2.0
"""Building a model on the processes of a job."""
OPERATOR_SETUP_S = 0.05
"""Making the tensors of one operator."""
_WARM_STEPS = 2
_USUAL_SAMPLES, _FEWEST_SAMPLES = 20, 5
_PATIENCE = 4


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long each case is sampled, as `foretell measure` is told."""

    seconds: float = 4.0
    rounds: int = 2

    def cost_s(self, step_s: Floats, processes: Ints, is_operator: Bools) -> Floats:
        """Seconds of all processes together, from what one step is predicted to take.

        Sampling ends early once twenty steps agree, and late while there are fewer than five.
        """
        usual_s = np.clip(_USUAL_SAMPLES * step_s, self.seconds / 2, self.seconds)
        least_s = np.minimum(_FEWEST_SAMPLES * step_s, _PATIENCE * self.seconds)
        setup_s = np.where(is_operator, OPERATOR_SETUP_S, SETUP_S)
        round_s = setup_s + _WARM_STEPS * step_s + np.maximum(usual_s, least_s)
        cost: Floats = self.rounds * round_s * processes
        return cost


USUAL_EFFORT = Effort()
