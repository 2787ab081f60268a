"""What measuring a candidate costs, in machine-seconds."""

from __future__ import annotations

import numpy as np

from foretell.graph.graph import Bools, Floats, Ints

WARM_UP_STEPS = 5
SAMPLED_STEPS = 25
SETUP_S = 3.0
"""Starting the processes of a job and building its model."""
OPERATOR_SETUP_S = 0.1
"""Making the tensors of one operator in a process that times many."""


def measuring_cost_s(step_s: Floats, processes: Ints, is_operator: Bools) -> Floats:
    """Seconds of all processes together, from what one step is predicted to take."""
    setup_s = np.where(is_operator, OPERATOR_SETUP_S, SETUP_S)
    cost: Floats = (step_s * (WARM_UP_STEPS + SAMPLED_STEPS)) * processes + setup_s
    return cost
