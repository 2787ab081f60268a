"""Shape rules that torch lacks on the meta device and Hugging Face models need.

- Grouped matrix products, which run the experts of a mixture: the meta kernel refuses all but
  bfloat16, the real ones also take float32 and float16.
- The backward of CTC loss, which has no meta kernel at all.

Both only add to what torch accepts: calls that worked before give what they gave.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

_library: torch.library.Library | None = None  # kernels live as long as their library


@functools.cache
def register_meta_kernels() -> None:
    """Teach torch the missing rules, once per process."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("_grouped_mm", _grouped_mm, "Meta", allow_override=True)
    _library.impl("_ctc_loss_backward", _ctc_loss_backward, "Meta")


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    from torch._meta_registrations import meta_grouped_mm

    as_accepted = left.to(torch.bfloat16), right.to(torch.bfloat16)
    product: torch.Tensor = meta_grouped_mm(*as_accepted, offs, bias)
    return product.to(out_dtype or left.dtype)


def _ctc_loss_backward(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> torch.Tensor:
    return torch.empty_like(log_probs)
