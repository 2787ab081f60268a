"""What to measure next: the cases that tell most about the constants per machine-second."""

from foretell.design.methods import DEFAULT_METHOD, choose, method_names, register_method
from foretell.design.pool import Pool, pool_of

__all__ = [
    "DEFAULT_METHOD",
    "Pool",
    "choose",
    "method_names",
    "pool_of",
    "register_method",
]
