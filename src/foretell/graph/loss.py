"""A scalar to differentiate, from whatever a model returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from foretell.errors import CaptureError

Loss = Callable[[Any], torch.Tensor]


def default_loss(out: Any) -> torch.Tensor:
    """A scalar from whatever a model returns.

    The model's own loss if it gives one; cross entropy over classes for a [batch, classes]
    output; otherwise the mean of every floating-point output.
    """
    own = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    tensors = _float_tensors(out)
    if not tensors:
        raise CaptureError(
            "the model returned no floating-point tensor to compute a loss from: "
            "return one, or give a loss function"
        )
    first = tensors[0]
    if len(tensors) == 1 and first.dim() == 0:
        return first
    if isinstance(out, torch.Tensor) and first.dim() == 2 and first.shape[1] > 1:
        return F.cross_entropy(first, class_targets(first.shape[:1], first.device))
    means = [t.float().mean() for t in tensors if t.requires_grad]
    if not means:
        return first.sum()
    return means[0] if len(means) == 1 else torch.stack(means).sum()


def check_loss(loss: Any) -> None:
    """Refuse what cannot be differentiated."""
    if not isinstance(loss, torch.Tensor):
        raise CaptureError(
            f"the loss is a {type(loss).__name__}: it must be a tensor with a single number"
        )
    if loss.numel() != 1:
        raise CaptureError(
            f"the loss has shape {list(loss.shape)}: reduce it to a single number, such as its mean"
        )
    if not loss.requires_grad:
        raise CaptureError(
            "the loss does not depend on any trainable parameter: nothing to train; use mode "
            "'infer', unfreeze parameters, or run forward without torch.no_grad and "
            "torch.inference_mode"
        )


def class_targets(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Labels for a loss: given with the data, so no operator of the step makes them."""
    make = torch.empty if device.type == "meta" else torch.zeros
    return make(tuple(shape), dtype=torch.int64, device=device)


def _float_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _float_tensors(item)]
    return []
