"""Let torchvision import when its compiled operators do not fit the installed torch.

A torchvision wheel built for another torch (a CUDA build beside a CPU torch, say) fails on import
with "operator torchvision::nms does not exist", because it describes its operators to torch
before checking that they were loaded. timm and transformers import torchvision, so they fail too,
although building a model needs none of those operators. Declaring the two that are described
unconditionally lets the import succeed; calling them still raises, as it should.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys

_MISSING = "torchvision::nms"
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@functools.cache
def repair_torchvision() -> None:
    """Make `import torchvision` work if only its compiled operators are missing.

    Call it before the first import of timm or transformers. It does nothing when torchvision is
    absent or imports as it is, and leaves any other import failure for the importer to report.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if _MISSING not in str(error):
            return
    except (ImportError, OSError):
        return
    else:
        return
    _forget_half_imported()
    _declare_operators()
    importlib.import_module("torchvision")


def _forget_half_imported() -> None:
    for name in [n for n in sys.modules if n.startswith("torchvision.")]:
        del sys.modules[name]


def _declare_operators() -> None:
    import torch

    for schema in _SCHEMAS:
        torch.library.define(
            "torchvision::" + schema.partition("(")[0], schema[schema.index("(") :]
        )
