"""Measurements: what a record is, where records are kept, how those of others come in."""

from foretell.data.record import KINDS, OUTCOMES, RESOURCES, Record, Reject

__all__ = ["KINDS", "OUTCOMES", "RESOURCES", "Record", "Reject"]
