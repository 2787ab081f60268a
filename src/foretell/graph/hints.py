"""What to do about the failures that users' models meet most often."""

from __future__ import annotations

_ADVICE = (
    (
        ("compiled with CUDA", "NVIDIA driver", "No CUDA GPUs"),
        "nothing here needs a GPU: remove .cuda() and device='cuda', or take the input's device",
    ),
    (
        ("expected device", "on the same device", "different from other tensors", "of meta tensor"),
        "a tensor that is neither parameter nor buffer is on the CPU: use register_buffer, or "
        "make it on the input's device",
    ),
    (
        ("SparseTensorImpl", "Sparse"),
        "sparse gradients have no memory that can be followed: build the embedding with "
        "sparse=False",
    ),
    (
        ("nference tensor", "inference_mode"),
        "run forward without torch.inference_mode, or use mode 'infer'",
    ),
    (
        ("TorchScript interpreter",),
        "hand in the module itself instead of its TorchScript form",
    ),
    (
        ("more than 1 value per channel",),
        "batch normalisation cannot train on a single value: use batch 2 or more",
    ),
    (
        ("Storage size calculation overflowed", "Overflow when unpacking", "int too large"),
        "a tensor of this size cannot exist: use smaller sizes",
    ),
)
_USUAL = "check the example inputs, and avoid branches and shapes that depend on tensor values"


def advice_for(error: BaseException, otherwise: str = _USUAL) -> str:
    """What usually helps against an error."""
    text = str(error)
    found = (advice for signs, advice in _ADVICE if any(sign in text for sign in signs))
    return next(found, otherwise)


def reason_of(error: BaseException) -> str:
    """Kind and first line of an error: enough for one sentence."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind = type(error).__name__
    return f"{kind}: {lines[0][:300].rstrip('.')}" if lines else kind
