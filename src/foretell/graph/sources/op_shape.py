"""op:NAME,size=..,...: a single operator by its sizes, without torch.

The batch counts rows: of a matrix for linear, of images for convolutions, of products for bmm.

linear       in, out                         [batch, in] x [in, out]
bmm          m, n, k                         batch products [m, k] x [k, n]
conv2d       in, out, size, kernel=3, stride=1, groups=1
attention    heads, seq, dim, kv_heads=heads, causal=0
layer_norm   width                           also rms_norm, softmax
batch_norm   channels, size                  also group_norm with groups=32
relu         width                           also gelu, silu, tanh, exp, add, mul, dropout, copy
max_pool2d   channels, size, kernel=3, stride=2   also avg_pool2d
embedding    rows, width, seq=1
lstm         in, hidden, seq, layers=1       also gru
cross_entropy classes
parameters   count                           weights that only the optimizer touches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretell.errors import InputError, UnknownNameError

_MOST = 10**10
_ROWS = ("width",)
_IMAGE = ("channels", "size")
_POOL = {"kernel": 3, "stride": 2}
_RNN = ("in", "hidden", "seq")
_FORMS: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "linear": (("in", "out"), {}),
    "bmm": (("m", "n", "k"), {}),
    "conv2d": (("in", "out", "size"), {"kernel": 3, "stride": 1, "groups": 1}),
    "attention": (("heads", "seq", "dim"), {"kv_heads": 0, "causal": 0}),
    "layer_norm": (_ROWS, {}),
    "rms_norm": (_ROWS, {}),
    "softmax": (_ROWS, {}),
    "batch_norm": (_IMAGE, {}),
    "group_norm": (_IMAGE, {"groups": 32}),
    "relu": (_ROWS, {}),
    "gelu": (_ROWS, {}),
    "silu": (_ROWS, {}),
    "tanh": (_ROWS, {}),
    "exp": (_ROWS, {}),
    "add": (_ROWS, {}),
    "mul": (_ROWS, {}),
    "dropout": (_ROWS, {}),
    "copy": (_ROWS, {}),
    "max_pool2d": (_IMAGE, _POOL),
    "avg_pool2d": (_IMAGE, _POOL),
    "embedding": (("rows", "width"), {"seq": 1}),
    "lstm": (_RNN, {"layers": 1}),
    "gru": (_RNN, {"layers": 1}),
    "cross_entropy": (("classes",), {}),
    "parameters": (("count",), {}),
}
OP_NAMES = tuple(_FORMS)
_MAY_BE_ZERO = ("causal", "kv_heads")


@dataclass(frozen=True)
class OpShape:
    """An operator and its sizes."""

    name: str
    sizes: Mapping[str, int]

    @property
    def text(self) -> str:
        """What comes after op: in a reference; sizes left at their default are left out."""
        usual = _FORMS[self.name][1]
        said = (f"{k}={v}" for k, v in self.sizes.items() if usual.get(k) != v)
        return ",".join((self.name, *said))


def op_reference(name: str, **sizes: int) -> str:
    """The reference of an operator: op_reference("linear", **{"in": 8, "out": 4})."""
    return f"op:{_complete(name, sizes).text}"


def parse_op(text: str) -> OpShape:
    """The operator that comes after op: in a reference."""
    name, *parts = (part.strip() for part in text.split(","))
    sizes = {}
    for part in parts:
        key, _, value = part.partition("=")
        if not value.isdecimal():
            raise InputError(f"op:{name}: {part!r} is not size=number")
        sizes[key.strip()] = int(value)
    return _complete(name, sizes)


def _complete(name: str, given: Mapping[str, int]) -> OpShape:
    if name not in _FORMS:
        raise UnknownNameError("operator", name, OP_NAMES, f"use one of {', '.join(OP_NAMES)}")
    needed, usual = _FORMS[name]
    for key, value in given.items():
        if key not in needed and key not in usual:
            raise UnknownNameError(f"size of op:{name}", key, (*needed, *usual))
        if not (value >= 1 or (key in _MAY_BE_ZERO and value == 0)) or value > _MOST:
            raise InputError(f"op:{name}: {key}={value} must be between 1 and {_MOST}")
    missing = [key for key in needed if key not in given]
    if missing:
        added = ",".join(f"{key}=NUMBER" for key in missing)
        raise InputError(f"op:{name} lacks {' and '.join(missing)}: add {added}")
    sizes = {key: given[key] for key in needed} | {k: given.get(k, v) for k, v in usual.items()}
    _check(name, sizes)
    return OpShape(name, sizes)


def _check(name: str, sizes: Mapping[str, int]) -> None:
    groups = sizes.get("groups", 1)
    for key in ("in", "out", "channels"):
        if sizes.get(key, groups) % groups:
            raise InputError(f"op:{name}: groups={groups} does not divide {key}={sizes[key]}")
    if name == "attention" and sizes["heads"] % (sizes["kv_heads"] or sizes["heads"]):
        raise InputError(
            f"op:attention: kv_heads={sizes['kv_heads']} does not divide heads={sizes['heads']}"
        )
