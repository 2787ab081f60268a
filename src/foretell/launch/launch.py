"""What a launch file says about a job, under Foretell's own option names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launch file says about a job."""

    path: str
    kinds: tuple[str, ...]
    """Which readers found something, such as ("sbatch", "torchrun", "megatron")."""
    options: Mapping[str, Any]
    """Values under Foretell's option names, only those the file states."""
    world_size: int | None
    nodes: int | None
    gpus_per_node: int | None
    device_hint: str | None
    """A device id of the catalogue, or the file's own word for the device if nobody knows it."""
    time_limit_s: float | None
    accumulation: int | None
    """Forward passes per optimizer step, as far as the file tells."""
    states_accumulation: bool
    """Whether the file says that number, and the global batch follows from it."""
    shards_within_node: bool | None
    """Whether every node holds a whole copy of what is sharded (hybrid sharding)."""
    origins: Mapping[str, str]
    """Where an option or one of the above was read: "train.sbatch:12 --micro-batch-size"."""
    notes: tuple[str, ...]
    """What was seen but not understood and may matter."""
    settled_by: Mapping[str, tuple[str, ...]]
    """Note -> options that leave nothing of it open once they are given."""

    def missing(self) -> tuple[str, ...]:
        """Options that a forecast needs and the file does not say."""
        needed = [name for name in ("model", "cluster") if name not in self.options]
        if "batch" not in self.options and "global_batch" not in self.options:
            needed.append("batch")
        if "epochs" in self.options and "samples" not in self.options:
            needed.append("samples")
        return tuple(needed)
