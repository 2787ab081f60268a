"""What an operator's shape says about how well it runs: numbers that do not grow with the batch.

How much work there is stays apart (OpTable): a learned efficiency that only sees the shape of one
sample can never make more work take less time.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from foretell.graph.graph import ATTRS, Floats, Kinds
from foretell.graph.ops import DType, OpClass
from foretell.predictors.scaledl.kernels import Kernel, Tensor, kernels_of

SHAPE_NAMES = (
    "has_gemm",
    "log_n",
    "log_k",
    "log_m",
    "n_grows",
    "k_grows",
    "m_grows",
    "waste_n8",
    "waste_n32",
    "waste_n128",
    "waste_k8",
    "waste_k32",
    "odd_n",
    "odd_k",
    "twos_n",
    "twos_k",
    "log_kernel",
    "log_kernel_width",
    "log_stride",
    "log_groups",
    "log_in_per_group",
    "log_out_per_group",
    "odd_in_per_group",
    "odd_out_per_group",
    "twos_in_per_group",
    "twos_out_per_group",
    "dilated",
    "transposed",
    "log_height",
    "log_width",
    "log_height_out",
    "log_queries",
    "log_keys",
    "log_head",
    "causal",
    "log_channels",
    "odd_channels",
    "twos_channels",
    "log_last",
    "log_middle",
    "dimensions",
    "inputs",
    "outputs",
    "log_written_per_read",
    "log_broadcast",
    "bytes_in",
    "bytes_out",
    "changes_format",
    "channels_last_input",
    "permuted",
    "sliced",
)
"""Columns of `shape_rows`; logarithms to the base of two, divided by eight."""
_INDEX = {name: i for i, name in enumerate(SHAPE_NAMES)}
LOG_UNIT = 8.0
_FIRST_ORDER = ATTRS.index("channels_last")
_FLOATS = tuple(d for d in DType if d.is_float)


@functools.lru_cache(maxsize=512)
def shape_rows(kinds: Kinds) -> Floats:
    """[kernels of the kinds, SHAPE_NAMES]; not to be written to."""
    kernels = kernels_of(kinds).each
    rows = np.zeros((len(kernels), len(SHAPE_NAMES)))
    for i, kernel in enumerate(kernels):
        for name, value in _shape(kinds, kernel).items():
            rows[i, _INDEX[name]] = value
    rows.flags.writeable = False
    return rows


def _shape(kinds: Kinds, kernel: Kernel) -> dict[str, float]:
    inputs, i = kernel.inputs, kernel.kind
    found = _product(kernel) | _tensor_sizes(inputs, kernel.outputs)
    op_class = OpClass(int(kinds.op_class[i]))
    channels_last, permuted, sliced = kinds.attrs[i, _FIRST_ORDER:].tolist()
    found |= {
        "channels_last_input": float(channels_last),
        "permuted": float(permuted),
        "sliced": float(sliced),
    }
    if op_class is OpClass.CONV:
        found |= _convolution(kinds, kernel)
    elif op_class is OpClass.ATTENTION and inputs and len(inputs[0].dims) >= 4:
        *_, queries, head = inputs[0].still
        keys = inputs[1].still[-2] if len(inputs) > 1 and len(inputs[1].dims) >= 2 else queries
        found |= {"log_queries": _log(queries), "log_keys": _log(keys), "log_head": _log(head)}
        found |= {"causal": float(kinds.attrs[i, 4])}
    return found


def _product(kernel: Kernel) -> dict[str, float]:
    """The matrix product behind a contraction: sizes of one sample, and which of them grow."""
    sizes = dict(zip(("m", "n", "k"), kernel.gemm[1:].tolist(), strict=True))
    if not sizes["k"]:
        return {}
    grows = dict(zip(("m", "n", "k"), (kernel.gemm_power[1:] > 0).tolist(), strict=True))
    found = {"has_gemm": 1.0}
    found |= {f"{name}_grows": float(g) for name, g in grows.items()}
    found |= {f"log_{name}": _log(s) for name, s in sizes.items() if not grows[name]}
    for name, tiles in (("n", (8, 32, 128)), ("k", (8, 32))):
        if not grows[name]:
            size = sizes[name]
            found |= {f"waste_{name}{t}": _waste(size, t) for t in tiles}
            found |= _divides(name, size)
    return found


def _convolution(kinds: Kinds, kernel: Kernel) -> dict[str, float]:
    source, weight = kernel.source, kernel.weight
    if source is None or weight is None:
        return {}
    stride, groups, dilation, transposed = kinds.attrs[kernel.kind, :4].tolist()
    groups = max(1, groups)
    window = weight.dims[2:]
    out_channels, in_per_group = weight.dims[0], weight.dims[1]
    spatial = source.still[2:]
    found = {
        "log_kernel": _log(math.prod(window)),
        "log_kernel_width": _log(window[-1] if window else 1),
        "log_stride": _log(stride),
        "log_groups": _log(groups),
        "log_in_per_group": _log(in_per_group),
        "log_out_per_group": _log(out_channels / groups),
        "dilated": float(dilation > 1),
        "transposed": float(transposed),
    }
    found |= _divides("in_per_group", in_per_group)
    found |= _divides("out_per_group", out_channels // groups)
    if spatial:
        found["log_height"] = _log(spatial[0])
        found["log_width"] = _log(spatial[-1])
        found["log_height_out"] = _log(max(1, spatial[0] // max(1, stride)))
    return found


def _tensor_sizes(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> dict[str, float]:
    main = max((*inputs, *outputs), key=lambda t: len(t.dims), default=None)
    if main is None:
        return {}
    still = main.still or (1,)
    read = sum(t.numel * t.dtype.itemsize for t in inputs)
    written = sum(t.numel * t.dtype.itemsize for t in outputs)
    largest = max((t.numel for t in inputs), default=1)
    produced = max((t.numel for t in outputs), default=1)
    channels = still[1] if len(still) > 1 else 1
    formats = {t.dtype for t in (*inputs, *outputs) if t.dtype in _FLOATS}
    return _divides("channels", channels) | {
        "log_channels": _log(channels),
        "log_last": _log(still[-1]),
        "log_middle": _log(math.prod(still[2:-1])),
        "dimensions": len(still) / LOG_UNIT,
        "inputs": min(len(inputs), 8) / LOG_UNIT,
        "outputs": min(len(outputs), 8) / LOG_UNIT,
        "log_written_per_read": _ratio(written, read),
        "log_broadcast": _ratio(produced, largest),
        "bytes_in": _itemsize(inputs),
        "bytes_out": _itemsize(outputs),
        "changes_format": float(len(formats) > 1),
    }


def _itemsize(tensors: tuple[Tensor, ...]) -> float:
    sizes = [t.dtype.itemsize for t in tensors]
    return float(np.mean(sizes)) / LOG_UNIT if sizes else 0.0


def _divides(name: str, size: int) -> dict[str, float]:
    """Vector loads and matrix units want sizes that powers of two divide."""
    twos = (size & -size).bit_length() - 1 if size > 0 else 0
    return {f"odd_{name}": float(twos < 3), f"twos_{name}": min(twos, 6) / 6}


def _ratio(over: float, under: float) -> float:
    return float(np.clip(_log(over) - _log(under), -1.0, 1.0))


def _log(size: float) -> float:
    return math.log2(max(size, 1)) / LOG_UNIT


def _waste(size: float, tile: int) -> float:
    """Share of the last tile that holds nothing, of the whole."""
    return math.log2(math.ceil(size / tile) * tile / size)
