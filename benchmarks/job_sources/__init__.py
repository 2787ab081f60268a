"""Readers of published measurements, one module per source; each has jobs() -> list[Job]."""
