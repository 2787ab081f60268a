"""Single operators over a grid of sizes: what to choose from when a machine is to be measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from foretell.errors import UnknownNameError
from foretell.graph.sources.op_shape import OP_NAMES, op_reference

_WIDTHS = (64, 512, 4096, 32768)
_ROWS = (1, 16, 256, 4096)
_FEW = (1, 8, 64)
_IMAGE_SIZES = (7, 28, 112)
_Grid = Mapping[str, tuple[int, ...]]
_GRIDS: dict[str, list[_Grid]] = {
    "linear": [{"in": (32, 256, 1024, 4096), "out": (32, 256, 1024, 4096), "batch": _ROWS}],
    "bmm": [{"m": (32, 256, 2048), "n": (32, 256, 2048), "k": (32, 128, 1024), "batch": _FEW}],
    "conv2d": [
        {
            "in": (16, 64, 256),
            "out": (16, 64, 256),
            "size": _IMAGE_SIZES,
            "kernel": (1, 3),
            "batch": _FEW,
        },
        {"in": (64,), "out": (64,), "size": _IMAGE_SIZES, "stride": (2,), "batch": _FEW},
        {"in": (64, 256), "out": (64, 256), "size": _IMAGE_SIZES, "groups": (32,), "batch": _FEW},
        *(
            {
                "in": (width,),
                "out": (width,),
                "groups": (width,),
                "size": _IMAGE_SIZES,
                "kernel": (3, 5),
                "batch": _FEW,
            }
            for width in (32, 128, 512)
        ),
    ],
    "attention": [
        {
            "heads": (4, 16),
            "seq": (64, 256, 1024, 4096),
            "dim": (64, 128),
            "causal": (0, 1),
            "batch": (1, 8),
        }
    ],
    "embedding": [{"rows": (1000, 50000), "width": (64, 1024), "seq": (1, 256), "batch": _FEW}],
    "lstm": [{"in": (64, 512), "hidden": (64, 512), "seq": (16, 128), "batch": _FEW}],
    "gru": [{"in": (64, 512), "hidden": (64, 512), "seq": (16, 128), "batch": _FEW}],
    "cross_entropy": [{"classes": (10, 1000, 50000), "batch": _ROWS}],
    "parameters": [{"count": (10**4, 10**6, 10**8), "batch": (1,)}],
}
_GRIDS |= {
    name: [{"channels": (32, 128, 512), "size": _IMAGE_SIZES, "batch": _FEW}]
    for name in ("batch_norm", "group_norm", "max_pool2d", "avg_pool2d")
}
_GRIDS |= {name: [{"width": _WIDTHS, "batch": _ROWS}] for name in OP_NAMES if name not in _GRIDS}


def sweep_ops(names: Iterable[str] = OP_NAMES) -> Iterator[tuple[str, int]]:
    """(reference, batch) over the sizes of each operator, the batches of one shape together."""
    for name in names:
        if name not in OP_NAMES:
            raise UnknownNameError("operator", name, OP_NAMES)
        for grid in _GRIDS[name]:
            sizes = {key: values for key, values in grid.items() if key != "batch"}
            for shape in itertools.product(*sizes.values()):
                reference = op_reference(name, **dict(zip(sizes, shape, strict=True)))
                for batch in grid["batch"]:
                    yield reference, batch
