"""What operators are made of: one kernel each, two for the backward pass of a convolution.

The gradient of a convolution's input and that of its weight are different kernels, often many times
apart in speed, and a step may need only one of them: the first layer has no input gradient, a fixed
blur no weight gradient.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Floats, Ints, Kinds
from foretell.graph.ops import DType

_CONVOLUTION = "convolution_backward"


@dataclass(frozen=True)
class Tensor:
    """One tensor of a kernel."""

    dims: tuple[int, ...]
    powers: tuple[int, ...]
    """Of the batch, that go with `dims`."""
    dtype: DType

    @property
    def still(self) -> tuple[int, ...]:
        """Sizes of one sample: those that grow with the batch count as one."""
        return tuple(1 if p else d for d, p in zip(self.dims, self.powers, strict=True))

    @property
    def numel(self) -> int:
        """Elements of one sample."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> Floats:
        """[3] polynomial in the batch."""
        found = np.zeros(3)
        found[min(sum(self.powers), 2)] = self.numel * self.dtype.itemsize
        return found


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a kind of operator; costs are polynomials in the batch."""

    kind: int
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    flops: Floats
    nbytes: Floats
    gemm: Ints
    gemm_power: Ints
    """Of the matrix product behind it, as in Kinds."""
    weight: Tensor | None = None
    source: Tensor | None = None
    """Of convolutions, whatever the kernel computes."""


@dataclass(frozen=True, eq=False)
class Kernels:
    """All kernels of some kinds, as a list and as columns."""

    each: tuple[Kernel, ...]
    kind: Ints
    flops: Floats
    nbytes: Floats
    gemm: Ints
    gemm_power: Ints
    first: Ints
    """The kernel of each kind, or the first of two."""
    second: Ints
    """-1: there is none."""

    def __len__(self) -> int:
        return len(self.each)


@functools.lru_cache(maxsize=512)
def kernels_of(kinds: Kinds) -> Kernels:
    """The kernels of all kinds."""
    found = [kernel for i in range(len(kinds)) for kernel in _kernels(kinds, i)]
    kind = np.array([k.kind for k in found], dtype=np.int64)
    first = np.searchsorted(kind, np.arange(len(kinds)), side="left")
    last = np.searchsorted(kind, np.arange(len(kinds)), side="right") - 1
    return Kernels(
        each=tuple(found),
        kind=kind,
        flops=np.array([k.flops for k in found]).reshape(-1, 3),
        nbytes=np.array([k.nbytes for k in found]).reshape(-1, 3),
        gemm=np.array([k.gemm for k in found]).reshape(-1, 4),
        gemm_power=np.array([k.gemm_power for k in found]).reshape(-1, 4),
        first=first,
        second=np.where(last > first, last, -1),
    )


def _kernels(kinds: Kinds, i: int) -> Iterator[Kernel]:
    inputs, outputs = _tensors(kinds, i)
    name = kinds.name[i]
    if name == _CONVOLUTION:
        yield from _gradients(kinds, i, inputs, outputs)
        return
    is_convolution = name == "convolution"
    yield Kernel(
        kind=i,
        name=name,
        inputs=inputs,
        outputs=outputs,
        flops=kinds.flops[i].astype(np.float64),
        nbytes=(kinds.bytes_read[i] + kinds.bytes_written[i]).astype(np.float64),
        gemm=kinds.gemm[i],
        gemm_power=kinds.gemm_power[i],
        source=inputs[0] if is_convolution else None,
        weight=inputs[1] if is_convolution else None,
    )


def _gradients(
    kinds: Kinds, i: int, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> Iterator[Kernel]:
    """The kernels behind a convolution's backward pass: those whose results are asked for."""
    gradient, source, weight = inputs[:3]
    wanted = [t.dims for t in outputs]
    of_source = bool(outputs) and outputs[0].dims == source.dims
    of_weight = weight.dims in wanted[1 if of_source else 0 :]
    both = of_source and of_weight
    flops = kinds.flops[i] / (2 if both else 1)
    groups, pixels, out_each, in_each = kinds.gemm[i].tolist()
    grown = kinds.gemm_power[i].tolist()
    area = max(1, math.prod(weight.dims[2:]))

    def kernel(
        what: str, reads: tuple[Tensor, ...], writes: Tensor, gemm: list[int], power: list[int]
    ) -> Kernel:
        return Kernel(
            kind=i,
            name=f"{_CONVOLUTION}_{what}",
            inputs=reads,
            outputs=(writes,),
            flops=flops,
            nbytes=np.sum([t.nbytes for t in (*reads, writes)], axis=0),
            gemm=np.array(gemm, dtype=np.int64),
            gemm_power=np.array(power, dtype=np.int64),
            source=source,
            weight=weight,
        )

    if of_source:
        spots = source.dims[0] * math.prod(source.dims[2:])
        gemm = [groups, spots, in_each // area, out_each * area]
        yield kernel("source", (gradient, weight), source, gemm, grown)
    if of_weight or not of_source:
        gemm = [groups, out_each, in_each, pixels]
        power = [grown[0], grown[2], grown[3], grown[1]]
        yield kernel("weight", (gradient, source), weight, gemm, power)


def _tensors(kinds: Kinds, i: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for t in range(int(kinds.tensor_start[i]), int(kinds.tensor_start[i + 1])):
        first, last = int(kinds.dim_start[t]), int(kinds.dim_start[t + 1])
        tensor = Tensor(
            dims=tuple(kinds.dim[first:last].tolist()),
            powers=tuple(kinds.dim_power[first:last].tolist()),
            dtype=DType(int(kinds.tensor_dtype[t])),
        )
        (outputs if kinds.tensor_is_output[t] else inputs).append(tensor)
    return tuple(inputs), tuple(outputs)
