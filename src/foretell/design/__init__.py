"""What to measure next: the cases that tell most about the constants per machine-second."""

from foretell.design.methods import DEFAULT_METHOD, choose, method_names, register_method
from foretell.design.plan import Choice, Plan, plan
from foretell.design.pool import Pool, pool_of

__all__ = [
    "DEFAULT_METHOD",
    "Choice",
    "Plan",
    "Pool",
    "choose",
    "method_names",
    "plan",
    "pool_of",
    "register_method",
]
