"""Graph: a model's training or inference step as columns of numbers.

A graph of thousands of operators has few distinct ones, so it keeps three tables:

- *kinds*: distinct operator calls, with class, shapes and costs as polynomials in the batch;
- *ops*: the step in execution order, each row pointing at its kind, phase and module;
- *storages*: pieces of memory with the operators that allocate and release them.

Arrays only; nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import InputError
from foretell.graph.ops import DType, OpClass, Phase, Role

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


ATTRS = (
    "stride",
    "groups",
    "dilation",
    "transposed",
    "causal",
    "channels_last",
    "permuted",
    "sliced",
)
"""What else of a call counts; the last three say in which order its tensors lie in memory."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """Distinct operator calls. Cost columns are [kinds, 3]: c0 + c1*B + c2*B^2."""

    name: tuple[str, ...]
    op_class: Ints
    dtype: Ints
    flops: Ints
    bytes_read: Ints
    bytes_written: Ints
    gemm: Ints
    """[kinds, 4] batch, m, n, k coefficients of the matrix product behind a contraction."""
    gemm_power: Ints
    """[kinds, 4] powers of the batch that go with `gemm`."""
    attrs: Ints
    """[kinds, ATTRS]."""
    tensor_start: Ints
    """[kinds + 1] offsets into the tensor columns; inputs come before outputs."""
    tensor_is_output: Bools
    tensor_dtype: Ints
    dim_start: Ints
    """[tensors + 1] offsets into `dim` and `dim_power`."""
    dim: Ints
    dim_power: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, eq=False)
class Storages:
    """Pieces of memory. A storage lives from `alloc_op` through `free_op`, both included."""

    nbytes: Ints
    """[storages, 3] polynomial in the batch."""
    alloc_op: Ints
    """-1: exists before the step."""
    free_op: Ints
    """number of ops: still there after the step."""
    role: Ints
    module: Ints

    def __len__(self) -> int:
        return len(self.alloc_op)


@dataclass(frozen=True, eq=False)
class Parameters:
    """Trainable and frozen weights, each counted once however often it is used."""

    name: tuple[str, ...]
    numel: Ints
    dtype: Ints
    trainable: Bools
    module: Ints
    shape: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.name)

    @property
    def total(self) -> int:
        """Number of scalar parameters."""
        return int(self.numel.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters in their own number format."""
        return int((self.numel * itemsize_of(self.dtype)).sum())


@dataclass(frozen=True, eq=False)
class Graph:
    """A step of a model at batch size `batch`; `at(batch)` gives it at any other.

    Where the model's own code depends on the batch size, `only_batch` is the one batch the graph
    holds for.
    """

    kinds: Kinds
    op_kind: Ints
    op_phase: Ints
    op_module: Ints
    op_forward: Ints
    """For backward operators the forward operator they differentiate, else -1."""
    op_parameter: Ints
    """The parameter an operator reads (through casts), else -1."""
    edge_src: Ints
    edge_dst: Ints
    storages: Storages
    parameters: Parameters
    modules: tuple[str, ...]
    batch: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from: source, options, versions, sample sizes; `notes` on its limits."""
    only_batch: int | None = None

    def __len__(self) -> int:
        return len(self.op_kind)

    def at(self, batch: int) -> Graph:
        """The same step at another batch size."""
        if batch < 1:
            raise InputError(f"batch {batch} is not a batch size: give a whole number from 1 up")
        if self.only_batch is not None and batch != self.only_batch:
            raise InputError(
                f"the model's operators depend on the batch size and this graph holds for batch "
                f"{self.only_batch} only: capture the model at batch {batch}"
            )
        return self if batch == self.batch else dataclasses.replace(self, batch=int(batch))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a forecast made from this graph should tell its reader."""
        return tuple(self.meta.get("notes", ()))

    @cached_property
    def kind_flops(self) -> Floats:
        """FLOPs per kind at this batch."""
        return self._poly(self.kinds.flops)

    @cached_property
    def kind_bytes_read(self) -> Floats:
        """Bytes read per kind at this batch."""
        return self._poly(self.kinds.bytes_read)

    @cached_property
    def kind_bytes_written(self) -> Floats:
        """Bytes written per kind at this batch."""
        return self._poly(self.kinds.bytes_written)

    @cached_property
    def kind_gemm(self) -> Floats:
        """[kinds, 4] batch, m, n, k at this batch size."""
        result: Floats = self.kinds.gemm * float(self.batch) ** self.kinds.gemm_power
        return result

    @cached_property
    def storage_bytes(self) -> Floats:
        """Bytes per storage at this batch."""
        return self._poly(self.storages.nbytes)

    @cached_property
    def kind_counts(self) -> Ints:
        """How often each kind occurs in the step."""
        return np.bincount(self.op_kind, minlength=len(self.kinds)).astype(np.int64)

    @property
    def flops(self) -> float:
        """FLOPs of the whole step."""
        return float(self.kind_flops @ self.kind_counts)

    def op_flops(self) -> Floats:
        """FLOPs per operator in execution order."""
        return self.kind_flops[self.op_kind]

    def op_parameter_bytes(self) -> Ints:
        """Bytes of the parameter each operator reads, 0 for those that read none."""
        sizes = self.parameters.numel * itemsize_of(self.parameters.dtype)
        sizes = np.append(sizes, 0)
        return sizes[self.op_parameter]

    def op_saved_bytes(self) -> Floats:
        """Bytes of each operator's outputs that are kept for backward."""
        saved = self.storages.role == Role.SAVED
        result = np.zeros(len(self))
        np.add.at(result, self.storages.alloc_op[saved], self.storage_bytes[saved])
        return result

    @property
    def op_class(self) -> Ints:
        """OpClass per operator."""
        return self.kinds.op_class[self.op_kind]

    @property
    def op_name(self) -> tuple[str, ...]:
        """Operator name per operator."""
        return tuple(self.kinds.name[k] for k in self.op_kind)

    def shapes(self, kind: int, *, outputs: bool) -> list[tuple[int, ...]]:
        """Input or output shapes of a kind at this batch."""
        k = self.kinds
        found = []
        for t in range(int(k.tensor_start[kind]), int(k.tensor_start[kind + 1])):
            if bool(k.tensor_is_output[t]) == outputs:
                axes = slice(int(k.dim_start[t]), int(k.dim_start[t + 1]))
                dims = k.dim[axes] * self.batch ** k.dim_power[axes]
                found.append(tuple(int(d) for d in dims))
        return found

    def phase_mask(self, *phases: Phase) -> Bools:
        """True where an operator belongs to one of the phases."""
        return np.isin(self.op_phase, phases)

    @property
    def is_training(self) -> bool:
        """Whether the step has a backward pass."""
        return bool((self.op_phase == Phase.BACKWARD).any())

    @cached_property
    def content_hash(self) -> str:
        """Hex digest of the columns, independent of batch and of where the graph came from."""
        digest = hashlib.sha256()
        for name, array in sorted(self.columns().items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(json.dumps(self.labels(), sort_keys=True).encode())
        return digest.hexdigest()[:32]

    def columns(self) -> dict[str, NDArray[Any]]:
        """All arrays by dotted name: what is saved and hashed."""
        tables: dict[str, object] = {
            "": self,
            "kinds.": self.kinds,
            "storages.": self.storages,
            "parameters.": self.parameters,
        }
        return {
            prefix + f.name: getattr(table, f.name)
            for prefix, table in tables.items()
            for f in dataclasses.fields(table)  # type: ignore[arg-type]
            if isinstance(getattr(table, f.name), np.ndarray)
        }

    def labels(self) -> dict[str, Any]:
        """All names: what is saved as JSON beside the columns."""
        return {
            "kinds.name": list(self.kinds.name),
            "parameters.name": list(self.parameters.name),
            "parameters.shape": [list(s) for s in self.parameters.shape],
            "modules": list(self.modules),
        }

    def _poly(self, coefficients: Ints) -> Floats:
        b = float(self.batch)
        c = coefficients.astype(np.float64)
        result: Floats = c[:, 0] + b * c[:, 1] + b * b * c[:, 2]
        return result

    def __repr__(self) -> str:
        source = self.meta.get("source", "module")
        return (
            f"Graph({source!r}, batch={self.batch}, ops={len(self)}, kinds={len(self.kinds)}, "
            f"parameters={self.parameters.total:,}, flops={self.flops:.3g})"
        )


def itemsize_of(dtype_codes: Ints) -> Ints:
    """Bytes per element for an array of DType codes."""
    return _ITEMSIZES[dtype_codes]


_ITEMSIZES = np.array([d.itemsize for d in DType], dtype=np.int64)

__all__ = ["DType", "Graph", "Kinds", "OpClass", "Parameters", "Phase", "Role", "Storages"]
