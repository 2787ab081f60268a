"""FLOPs, bytes and matrix dimensions of one operator, from its shapes.

A cost is a function of tensor shapes, and shapes are monomials in the batch size, so every
cost is a polynomial in the batch of degree two at most. `batch_polynomial` recovers its three
coefficients exactly by evaluating at batch 1, 2 and 3; that is what makes rescaling exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from foretell.graph.ops import DType, OpClass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor argument or result.

    `shape` is at some batch; `dense` is the shape with broadcast (stride 0) axes set to 1,
    so that its product counts the elements that exist in memory.
    """

    shape: Shape
    dense: Shape
    dtype: DType

    @property
    def dense_bytes(self) -> int:
        """Bytes that really exist behind the tensor."""
        return prod(self.dense) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call: everything its cost depends on."""

    name: str
    op_class: OpClass
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    transposed: bool = False
    causal: bool = False
    channels_last: bool = False
    permuted: bool = False
    sliced: bool = False
    """The last three: see layout.py."""
    flags: tuple[bool, ...] = ()
    """convolution_backward's output_mask."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """The (batched) matrix product an operator amounts to: batch x [m,k] @ [k,n]."""

    batch: int = 0
    m: int = 0
    n: int = 0
    k: int = 0

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        return 2 * self.batch * self.m * self.n * self.k


NO_GEMM = Gemm()


def gemm(call: Call) -> Gemm:
    """The matrix product behind a contraction; NO_GEMM for everything else."""
    rule = _GEMM.get(call.name)
    return rule(call) if rule else NO_GEMM


def flops(call: Call) -> int:
    """Floating-point operations of contractions (2 per multiply-add); 0 for other classes."""
    one = gemm(call).flops
    if call.name == "convolution_backward":
        return one * sum(call.flags[:2])
    if call.name in ("attention", "attention_backward"):
        # Forward: scores and their product with V. Backward: scores again, then four more.
        # A causal mask lets fused kernels skip half of each.
        products = 5 if call.name.endswith("backward") else 2
        v_dim = call.inputs[2].shape[-1]
        ratio_num, ratio_den = call.inputs[0].shape[-1] + v_dim, 2 * call.inputs[0].shape[-1]
        total = one * products * ratio_num // ratio_den
        return total // 2 if call.causal else total
    if call.name in ("rnn", "rnn_backward"):
        products = 4 if call.name.endswith("backward") else 2
        return products * prod(call.inputs[0].shape[:2]) * sum(map(prod, _rnn_weights(call)))
    return one


def bytes_read(call: Call) -> int:
    """Bytes of all inputs as the kernel must read them."""
    if call.name == "embedding":
        return _moved_rows(call) + call.inputs[1].dense_bytes
    if call.name in ("gather", "index_select", "index", "_unsafe_index"):
        return _moved_rows(call) + sum(t.dense_bytes for t in call.inputs[1:])
    if call.op_class is OpClass.FILL:
        return 0
    if call.name in ("index_put_", "index_put", "scatter_", "scatter_add_", "index_add_"):
        return sum(t.dense_bytes for t in call.inputs[1:])
    if call.name in ("copy_", "bernoulli_", "uniform_", "normal_", "random_"):
        return sum(t.dense_bytes for t in call.inputs[1:])
    return sum(t.dense_bytes for t in call.inputs)


def bytes_written(call: Call) -> int:
    """Bytes of all outputs."""
    if call.name in ("index_put_", "scatter_", "scatter_add_", "index_add_"):
        return max((t.dense_bytes for t in call.inputs[1:]), default=0)
    return sum(t.dense_bytes for t in call.outputs)


def batch_polynomial(cost: Callable[[int], int]) -> tuple[int, int, int]:
    """Exact (c0, c1, c2) with cost(B) = c0 + c1*B + c2*B*B."""
    at1, at2, at3 = cost(1), cost(2), cost(3)
    c2 = (at3 - 2 * at2 + at1) // 2
    c1 = at2 - at1 - 3 * c2
    return at1 - c1 - c2, c1, c2


def _moved_rows(call: Call) -> int:
    return sum(t.dense_bytes for t in call.outputs)


def _mm(call: Call) -> Gemm:
    a, b = call.inputs[-2].shape, call.inputs[-1].shape
    return Gemm(1, a[0], b[-1], a[-1])


def _mv(call: Call) -> Gemm:
    a = call.inputs[-2].shape
    return Gemm(1, a[0], 1, a[-1])


def _dot(call: Call) -> Gemm:
    return Gemm(1, 1, 1, call.inputs[0].shape[0])


def _linear(call: Call) -> Gemm:
    a, w = call.inputs[0].shape, call.inputs[1].shape
    return Gemm(1, prod(a[:-1]), w[0], a[-1])


def _scaled_mm(call: Call) -> Gemm:
    a, b = call.inputs[0].shape, call.inputs[1].shape
    return Gemm(1, a[0], b[1], a[1])


def _bmm(call: Call) -> Gemm:
    a, b = call.inputs[-2].shape, call.inputs[-1].shape
    return Gemm(a[0], a[1], b[2], a[2])


def _grouped_mm(call: Call) -> Gemm:
    # Ragged groups: [tokens, k] @ [experts, k, n], or [k, tokens] @ [tokens, n] per expert.
    a, b = call.inputs[0].shape, call.inputs[1].shape
    if len(a) == 2 and len(b) == 3:
        return Gemm(1, a[0], b[2], a[1])
    if len(a) == 3 and len(b) == 2:
        return Gemm(1, a[1], b[1], a[2])
    if len(a) == 2:
        return Gemm(1, a[0], b[1], a[1])
    return Gemm(a[0], a[1], b[2], a[2])


def _conv(call: Call) -> Gemm:
    x, w, y = call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape
    return _conv_gemm(call, x, w, y)


def _conv_backward(call: Call) -> Gemm:
    grad, x, w = (t.shape for t in call.inputs[:3])
    return _conv_gemm(call, x, w, grad)


def _conv_gemm(call: Call, x: Shape, w: Shape, y: Shape) -> Gemm:
    # A transposed convolution is the data gradient of a plain one: x and y trade places.
    pixels = x if call.transposed else y
    out_per_group = w[1] if call.transposed else w[0] // call.groups
    in_per_group = w[0] // call.groups if call.transposed else w[1]
    return Gemm(
        call.groups, pixels[0] * prod(pixels[2:]), out_per_group, in_per_group * prod(w[2:])
    )


def _attention(call: Call) -> Gemm:
    q, k = call.inputs[0].shape, call.inputs[1].shape
    return Gemm(prod(q[:-2]), q[-2], k[-2], q[-1])


def _rnn_weights(call: Call) -> list[Shape]:
    """Per layer and direction [g*h, in] and [g*h, h]; biases and states are left out."""
    return [t.shape for t in call.inputs[1:] if len(t.shape) == 2]


def _rnn(call: Call) -> Gemm:
    # The first input is [steps, batch, features]; each step of each layer and direction is one
    # product with both of its matrices. Layers of different width share a mean.
    steps, batch = call.inputs[0].shape[:2]
    weights = _rnn_weights(call)
    layers, gates = len(weights) // 2, weights[0][0]
    return Gemm(steps * layers, batch, gates, sum(map(prod, weights)) // (layers * gates))


_GEMM: dict[str, Callable[[Call], Gemm]] = {
    "mm": _mm,
    "addmm": _mm,
    "_addmm_activation": _mm,
    "linear": _linear,
    "_scaled_mm": _scaled_mm,
    "mv": _mv,
    "addmv": _mv,
    "dot": _dot,
    "vdot": _dot,
    "bmm": _bmm,
    "baddbmm": _bmm,
    "_grouped_mm": _grouped_mm,
    "convolution": _conv,
    "convolution_backward": _conv_backward,
    "attention": _attention,
    "attention_backward": _attention,
    "rnn": _rnn,
    "rnn_backward": _rnn,
}


def scale_shape(base: Sequence[int], power: Sequence[int], batch: int) -> Shape:
    """The shape at a batch size, from per-axis coefficients and powers of the batch."""
    return tuple(c * batch**p for c, p in zip(base, power, strict=True))
