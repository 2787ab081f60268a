"""What one accelerator (or CPU) can do: rates, memory, caches, links and price.

Everything is SI inside. `family` names the devices that share fitted constants: those for which
the same kernels are picked, by die rather than by board, so that an A10 is "ampere-consumer"
(sm_86) beside the RTX 3090 while an A30 is "ampere-dc" (sm_80) beside the A100. `memory_bytes` is
what one process sees (torch's `total_memory`), not the number on the box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from foretell.errors import InputError, UnknownNameError

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
VENDORS = ("nvidia", "amd", "intel", "cpu")

# Time from the host's call to the first instruction of a small kernel.
LAUNCH_OVERHEAD_S = {"nvidia": 4.5e-6, "amd": 7e-6, "intel": 8e-6, "cpu": 3e-6}


class Rates(Mapping[str, float]):
    """An immutable dtype -> FLOP/s mapping that can be hashed, compared and pickled."""

    __slots__ = ("_rates",)

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = {dtype: rates[dtype] for dtype in sorted(rates, key=_dtype_order)}

    def __getitem__(self, dtype: str) -> float:
        return self._rates[dtype]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)

    def __hash__(self) -> int:
        return hash(tuple(self._rates.items()))

    def __repr__(self) -> str:
        return repr(self._rates)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One device, checked on construction; `device("a100-80gb")` looks a known one up."""

    id: str
    name: str
    vendor: str
    architecture: str
    family: str
    peak_flops_per_s: Mapping[str, float]
    """Dense matrix rate per dtype, accumulating in fp32; a dtype that is absent is unsupported."""
    vector_flops_per_s: float
    """fp32 rate outside the matrix units: elementwise and normalisation kernels."""
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    l2_bytes: int
    """Level 2 cache; the last level on a CPU."""
    sm_count: int
    """Streaming multiprocessors, compute units or cores."""
    clock_hz: float
    gpu_link: str
    """Link between the devices of one node in the usual server."""
    host_link: str
    network: str
    """Link between nodes when a cluster names none."""
    gpus_per_node: int = 1
    """The usual server; parsing `8xa100-80gb` does not need it, a cluster file may."""
    gpus_per_nic: int = 1
    tdp_w: float | None = None
    year: int | None = None
    launch_overhead_s: float = 0.0
    """0 takes the vendor's default."""
    price_usd_per_hour_low: float | None = None
    price_usd_per_hour_high: float | None = None
    price_as_of: str = ""
    """Month of the price lists read, or "estimate" where none was."""
    sources: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError("a device needs an id: give it a short lower-case name")
        if self.vendor not in VENDORS:
            raise UnknownNameError(
                f"vendor of device {self.id!r}:",
                self.vendor,
                VENDORS,
                f"use one of {', '.join(VENDORS)}",
            )
        if not self.launch_overhead_s:
            object.__setattr__(self, "launch_overhead_s", LAUNCH_OVERHEAD_S[self.vendor])
        self._check_rates()
        for field in _POSITIVE:
            self._check_positive(field, getattr(self, field))
        for field in ("tdp_w", "year"):
            if getattr(self, field) is not None:
                self._check_positive(field, getattr(self, field))
        self._check_price()
        if not isinstance(self.peak_flops_per_s, Rates):
            object.__setattr__(self, "peak_flops_per_s", Rates(self.peak_flops_per_s))

    def supports(self, dtype: str) -> bool:
        """Whether the hardware computes in `dtype`."""
        return dtype in self.peak_flops_per_s

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s in `dtype`."""
        if dtype not in DTYPES:
            raise UnknownNameError("dtype", dtype, DTYPES, f"use one of {', '.join(DTYPES)}")
        if dtype not in self.peak_flops_per_s:
            have = ", ".join(self.peak_flops_per_s)
            raise InputError(f"device {self.id!r} does not support {dtype}: use one of {have}")
        return self.peak_flops_per_s[dtype]

    def usual_nics(self, gpus: int) -> int:
        """Network ports of a node with this many devices."""
        return max(1, math.ceil(gpus / self.gpus_per_nic))

    @property
    def price_usd_per_hour(self) -> tuple[float, float] | None:
        """(low, high) for one device, None where there is no market."""
        if self.price_usd_per_hour_low is None or self.price_usd_per_hour_high is None:
            return None
        return self.price_usd_per_hour_low, self.price_usd_per_hour_high

    def _check_rates(self) -> None:
        if "fp32" not in self.peak_flops_per_s:
            raise InputError(f"device {self.id!r} has no fp32 rate: every device needs one")
        for dtype, rate in self.peak_flops_per_s.items():
            if dtype not in DTYPES:
                raise UnknownNameError(f"dtype of device {self.id!r}:", dtype, DTYPES)
            self._check_positive(f"peak_flops_per_s[{dtype}]", rate)

    def _check_positive(self, field: str, value: object) -> None:
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
        if not 0 < number < math.inf:
            raise InputError(f"device {self.id!r}: {field}={value!r} must be a positive number")

    def _check_price(self) -> None:
        low, high = self.price_usd_per_hour_low, self.price_usd_per_hour_high
        if (low is None) != (high is None):
            raise InputError(f"device {self.id!r}: give both ends of the price or neither")
        if low is not None and high is not None and not 0 <= low <= high < math.inf:
            raise InputError(
                f"device {self.id!r}: price {low} to {high} must be 0 or more and rising"
            )


_POSITIVE = (
    "vector_flops_per_s",
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "l2_bytes",
    "sm_count",
    "clock_hz",
    "gpus_per_node",
    "gpus_per_nic",
    "launch_overhead_s",
)


def _dtype_order(dtype: str) -> int:
    return DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
