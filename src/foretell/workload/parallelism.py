"""How a job is spread over devices: the degrees of each parallelism and their settings."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.errors import InputError, UnknownNameError

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
_SLOWEST = 10
_LARGEST_BUCKET_MB = 10**6
SPLITS = ("column", "row", "whole")


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Degrees and settings as the user gives them; `layout` resolves them for a cluster."""

    dp: int | None = None
    """Data-parallel replicas; follows from the cluster when not given."""
    tp: int = 1
    sp: bool = False
    """Split along the sequence what tensor parallelism leaves whole."""
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    """0: plain data parallel; shard 1: optimizer state, 2: also gradients, 3: all (FSDP)."""
    shard: int | None = None
    """Ranks that share one copy under zero (hybrid sharding); all of them when not given."""
    schedule: str = "1f1b"
    virtual_stages: int = 1
    """Model chunks per pipeline rank (interleaved)."""
    bucket_mb: float = 25.0
    """Gradients exchanged at once by plain data parallelism."""
    overlap: bool = True
    """Whether gradient exchange and parameter gathers run beside compute."""
    prefetch: int = 1
    """Units whose parameters are gathered ahead (zero=3)."""
    reshard: bool = True
    """Whether gathered parameters are given up between forward and backward (zero=3)."""
    offload_optimizer: bool = False
    """Optimizer state and step on the host."""
    straggler: float = 0.0
    """By which share the slowest device is slower than the others."""
    tp_plan: str | None = None
    """module=column|row|whole, comma-separated; the rest is planned from the graph."""
    tp_joint: bool = True
    """Whether layers that read one activation exchange its gradient once, as in Megatron; plans
    of single layers (DTensor's styles, Hugging Face) exchange it for each of them."""

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "shard", "virtual_stages"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name}={value} must be at least 1")
        if self.zero not in (0, 1, 2, 3):
            raise InputError(f"zero={self.zero} is no stage: use 0, 1, 2 or 3")
        if not 0 <= self.straggler <= _SLOWEST:
            raise InputError(
                f"straggler={self.straggler:g} is the share by which one device is slower: "
                f"write 0.1 for a tenth, at most {_SLOWEST}"
            )
        if self.prefetch < 0:
            raise InputError(f"prefetch={self.prefetch} must be 0 or more")
        if not 0 < self.bucket_mb <= _LARGEST_BUCKET_MB:
            raise InputError(
                f"bucket_mb={self.bucket_mb:g} must be more than 0 and at most {_LARGEST_BUCKET_MB}"
            )
        if self.schedule not in SCHEDULES:
            raise UnknownNameError("schedule", self.schedule, SCHEDULES, _one_of(SCHEDULES))
        self._check_combination()

    def _check_combination(self) -> None:
        if self.sp and self.tp == 1:
            raise InputError("sp splits what tp leaves whole: give tp greater than 1 as well")
        if self.tp_plan and self.tp == 1:
            raise InputError("tp_plan says how tp splits modules: give tp greater than 1 as well")
        if not self.tp_joint and self.tp == 1:
            raise InputError("tp_joint says what tp exchanges: give tp greater than 1 as well")
        if self.virtual_stages > 1 and self.schedule != "interleaved":
            raise InputError(
                f"virtual_stages={self.virtual_stages} goes with schedule=interleaved, not with "
                f"{self.schedule}"
            )
        if self.schedule == "interleaved" and (self.pp == 1 or self.virtual_stages == 1):
            raise InputError("schedule=interleaved needs pp and virtual_stages greater than 1")
        if self.schedule in ("gpipe", "zero-bubble") and self.pp == 1:
            raise InputError(
                f"schedule={self.schedule} orders pipeline stages: give pp greater than 1 as well"
            )
        if not self.reshard and self.zero != 3:
            raise InputError("reshard says when zero=3 gives parameters up: give zero=3 as well")
        if self.prefetch != 1 and self.zero != 3:
            raise InputError(
                f"prefetch={self.prefetch} says what zero=3 gathers ahead: give zero=3 as well"
            )
        if self.shard is not None and self.zero == 0:
            raise InputError("shard says how many ranks share a copy under zero: give zero as well")

    @property
    def tp_modules(self) -> tuple[tuple[str, str], ...]:
        """tp_plan as (module pattern, split)."""
        pairs = []
        for part in filter(None, (p.strip() for p in (self.tp_plan or "").split(","))):
            pattern, _, split = part.partition("=")
            if split not in SPLITS:
                raise InputError(f"tp_plan: {part!r} is not module=column, =row or =whole")
            pairs.append((pattern.strip(), split))
        return tuple(pairs)

    def layout(self, devices: int) -> Layout:
        """The degrees on a number of devices; refuses what does not factor."""
        model = self.tp * self.cp * self.pp
        dp, rest = divmod(devices, model)
        if rest or not dp:
            raise InputError(
                f"{devices} devices do not factor into tp={self.tp} x cp={self.cp} x pp={self.pp} "
                f"= {model}: choose degrees whose product divides {devices}"
            )
        if self.dp is not None and self.dp != dp:
            raise InputError(
                f"dp={self.dp} x tp={self.tp} x cp={self.cp} x pp={self.pp} = {self.dp * model}, "
                f"but the cluster has {devices} devices: change one of them"
            )
        replicas = dp * self.cp
        if replicas % self.ep:
            raise InputError(
                f"ep={self.ep} does not divide dp x cp = {replicas}: choose a divisor of it"
            )
        shard = self.shard or replicas
        if replicas % shard:
            raise InputError(
                f"shard={self.shard} does not divide dp x cp = {replicas}: choose a divisor of it"
            )
        return Layout(
            dp=dp, tp=self.tp, cp=self.cp, pp=self.pp, ep=self.ep, shard=shard if self.zero else 1
        )


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Resolved degrees. Ranks are numbered tp first, then cp, dp and pp."""

    dp: int
    tp: int
    cp: int
    pp: int
    ep: int
    shard: int
    """Ranks that share one copy of what zero shards."""

    @property
    def world(self) -> int:
        """Devices in all."""
        return self.dp * self.tp * self.cp * self.pp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters and average their gradients."""
        return self.dp * self.cp

    @property
    def stage_stride(self) -> int:
        """Distance between the ranks of neighbouring pipeline stages."""
        return self.tp * self.cp * self.dp


def _one_of(names: tuple[str, ...]) -> str:
    return f"use one of {', '.join(names)}"
