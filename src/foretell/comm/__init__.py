"""Collectives: how long ranks talk to each other, and how much they send."""

from foretell.comm.constants import Constants
from foretell.comm.group import Group, group_on
from foretell.comm.times import collective_s
from foretell.comm.traffic import Collective, bus_bytes, carried_as

__all__ = [
    "Collective",
    "Constants",
    "Group",
    "bus_bytes",
    "carried_as",
    "collective_s",
    "group_on",
]
