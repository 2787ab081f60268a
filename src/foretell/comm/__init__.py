"""Collectives: how long ranks talk to each other, and how much they send."""

from foretell.comm.group import Group, group_on
from foretell.comm.times import collective_s
from foretell.comm.traffic import Collective, bus_bytes

__all__ = ["Collective", "Group", "bus_bytes", "collective_s", "group_on"]
