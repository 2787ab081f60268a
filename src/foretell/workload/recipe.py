"""How a model is trained: batch, precision, optimizer, length. Validated on construction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.errors import InputError, UnknownNameError
from foretell.graph.ops import DType
from foretell.graph.optimizer import optimizer
from foretell.workload.fields import check_fields
from foretell.workload.parallelism import Parallelism

MODES = ("train", "infer")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16", "fp8")
LOW_PRECISIONS = ("fp16", "bf16", "fp8")
"""Those that keep the weights themselves in fewer than 32 bits."""

_COMPUTE = {
    "fp32": DType.FP32,
    "tf32": DType.FP32,
    "fp16": DType.FP16,
    "bf16": DType.BF16,
    "amp-fp16": DType.FP16,
    "amp-bf16": DType.BF16,
    "fp8": DType.FP8,
}


@dataclass(frozen=True, kw_only=True)
class Settings(Parallelism):
    """What can be said about a job before its batch per model copy is known."""

    mode: str = "train"
    precision: str = "fp32"
    channels_last: bool = False
    optimizer: str = "adamw"
    fused_optimizer: bool = False
    """The optimizer's update in one kernel instead of one per operation."""
    compile: bool = False
    torch_version: str | None = None
    recompute: str = "none"
    master_weights: bool = False
    """Keep an fp32 copy of low-precision parameters and fp32 optimizer state."""
    fp32_gradients: bool = False
    """Add up gradients in one fp32 buffer, as Megatron does."""
    global_batch: int | None = None
    epochs: float | None = None
    samples: int | None = None
    steps: int | None = None
    tokens: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()
        _known("mode", self.mode, MODES)
        _known("precision", self.precision, PRECISIONS)
        optimizer(self.optimizer)
        lengths = [n for n in ("epochs", "steps", "tokens") if getattr(self, n) is not None]
        if len(lengths) > 1:
            raise InputError(
                f"{' and '.join(lengths)} both say how long to train: give one of them"
            )
        if self.epochs is not None and self.samples is None:
            raise InputError(
                f"epochs={self.epochs:g} needs the size of the data set: give samples as well"
            )
        if self.samples is not None and self.epochs is None:
            raise InputError(
                f"samples={self.samples} is the size of the data set: give epochs as well"
            )
        self._check_copies()
        torch_release(self.torch_version)

    def _check_copies(self) -> None:
        """What is kept or computed twice makes sense for some modes and formats only."""
        if self.mode == "infer":
            self._check_inference()
        if self.master_weights and self.precision not in LOW_PRECISIONS:
            raise InputError(
                f"master_weights adds nothing to precision={self.precision}, whose weights are "
                f"fp32: leave it out, or use {', '.join(LOW_PRECISIONS)}"
            )

    def _check_inference(self) -> None:
        """What only training has would be ignored."""
        given = [f"recompute={self.recompute}"] if self.recompute != "none" else []
        flags = ("master_weights", "fp32_gradients", "fused_optimizer", "offload_optimizer")
        given += [name for name in flags if getattr(self, name)]
        given += [f"zero={self.zero}"] if self.zero in (1, 2) else []
        if given:
            raise InputError(f"{given[0]} goes with training: leave it out for mode=infer")


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """The training (or inference) settings that go with a Graph."""

    batch: int = 1
    """Samples per model copy (data-parallel replica) and forward pass."""

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.mode == "train"

    @property
    def fused_attention(self) -> bool:
        """PyTorch has run attention as one kernel since 2.0."""
        release = torch_release(self.torch_version)
        return release is None or release >= (2, 0)

    @property
    def compute_dtype(self) -> DType:
        """The number format of matrix products."""
        return _COMPUTE[self.precision]

    @property
    def parameter_itemsize(self) -> int:
        """Bytes of one element of the parameters and their gradients."""
        return 2 if self.precision in LOW_PRECISIONS else 4

    def accumulation(self, replicas: int) -> int:
        """Forward passes per optimizer step on data-parallel `replicas`."""
        per_pass = self.batch * replicas
        passes, rest = divmod(self.global_batch or per_pass, per_pass)
        if rest or not passes:
            raise InputError(
                f"global_batch={self.global_batch} is not a multiple of batch={self.batch} x "
                f"{replicas} replicas = {per_pass}: change one of them"
            )
        if passes % self._round:
            raise InputError(
                f"schedule=interleaved deals microbatches out in rounds of pp={self.pp}, and "
                f"{passes} do not divide: change global_batch or batch"
            )
        return passes

    def batches(self, replicas: int) -> list[int]:
        """Batches that make up the global batch in whole passes, largest first."""
        rounds, rest = divmod(self.global_batch or 0, replicas * self._round)
        small = [n for n in range(1, math.isqrt(rounds) + 1) if rounds % n == 0]
        found = sorted({*small, *(rounds // n for n in small)}, reverse=True)
        return [] if rest else found

    @property
    def _round(self) -> int:
        """Microbatches that can only run together."""
        return self.pp if self.schedule == "interleaved" else 1

    def total_steps(self, replicas: int, seq: int | None) -> float | None:
        """Optimizer steps of the whole run; None when its length is not given."""
        global_batch = self.batch * replicas * self.accumulation(replicas)
        if self.steps is not None:
            return float(self.steps)
        if self.epochs is not None and self.samples is not None:
            return self.epochs * self.samples / global_batch
        if self.tokens is not None:
            if not seq:
                raise InputError(
                    f"tokens={self.tokens:g} needs a model that reads sequences: "
                    "use epochs and samples, or steps"
                )
            return self.tokens / (global_batch * seq)
        return None


def torch_release(text: str | None) -> tuple[int, int] | None:
    """'1.12' or '2.4.0+cu124' -> (major, minor)."""
    if text is None:
        return None
    parts = str(text).split("+")[0].split(".")
    if len(parts) < 2 or not all(p.isdigit() for p in parts[:2]):
        raise InputError(f"torch_version={text!r} is not a version: write it like 2.4")
    return int(parts[0]), int(parts[1])


def _known(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UnknownNameError(field, value, allowed, f"use one of {', '.join(allowed)}")
