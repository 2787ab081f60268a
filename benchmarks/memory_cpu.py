"""Predicted peak memory against what PyTorch really allocates on the CPU, model by model.

The peak of a real step comes from the profiler's allocation events, so it is PyTorch's own count.
torch.distributed's MemTracker, which follows tensors of a real step, is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from foretell.graph.capture import CaptureOptions, capture
from foretell.graph.loss import default_loss
from foretell.graph.sources import subject_of
from foretell.predictors.memory import CPU_MEMORY, memory_use
from foretell.workload import Recipe, Workload

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.0),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.0, foreach=True),
}


@dataclass(frozen=True)
class MemoryCase:
    """One model and how it is trained."""

    reference: str
    batch: int
    optimizer: str = "adamw"
    image_size: int | None = None
    seq: int | None = None


CASES = (
    MemoryCase("timm:resnet18", 8),
    MemoryCase("timm:resnet50", 4, "momentum"),
    MemoryCase("timm:vit_tiny_patch16_224", 8),
    MemoryCase("timm:vit_small_patch16_224", 4, "sgd"),
    MemoryCase("timm:efficientnet_b0", 4),
    MemoryCase("timm:mobilenetv3_large_100", 8, "momentum"),
    MemoryCase("timm:convnext_atto", 8),
    MemoryCase("timm:swin_tiny_patch4_window7_224", 2),
    MemoryCase("timm:densenet121", 4),
    MemoryCase("timm:regnety_008", 4, "sgd"),
    MemoryCase("timm:mixer_s32_224", 8),
    MemoryCase("timm:vgg11", 2, "momentum"),
    MemoryCase("timm:xcit_nano_12_p16_224", 4),
    MemoryCase("timm:deit_tiny_patch16_224", 8, "sgd"),
    MemoryCase("transformer:layers=4,hidden=256,heads=4,seq=256,vocab=8000", 4),
    MemoryCase(
        "transformer:layers=4,hidden=256,heads=8,kv_heads=2,seq=256,vocab=8000,gated,rmsnorm,rope,"
        "ffn=704",
        4,
    ),
    MemoryCase("hf:openai-community/gpt2", 1, seq=128),
    MemoryCase("hf:google-bert/bert-base-uncased", 2, seq=64),
    MemoryCase("hf:facebook/opt-125m", 2, "sgd", seq=64),
)


def predicted_peak_bytes(case: MemoryCase) -> float:
    """What Foretell says tensors take at the peak."""
    subject = subject_of(case.reference, image_size=case.image_size, seq=case.seq)
    graph = capture(subject, CaptureOptions())
    recipe = Recipe(batch=case.batch, optimizer=case.optimizer)
    return memory_use(Workload(graph, recipe), CPU_MEMORY).allocated_bytes


@dataclass(frozen=True)
class RealStep:
    """A model with real (if meaningless) numbers, and a step of it to call."""

    run: Callable[[], None]
    module: torch.nn.Module
    optimizer: torch.optim.Optimizer
    inputs: tuple[Any, Any]


def real_step(case: MemoryCase) -> RealStep:
    """The case on the CPU, after one step, so that optimizer state exists."""
    subject = subject_of(case.reference, image_size=case.image_size, seq=case.seq)
    module = subject.module.to_empty(device="cpu").train()
    if hasattr(module, "tie_weights"):
        module.tie_weights()
    for tensor in (*module.parameters(), *module.buffers()):
        with torch.no_grad():
            tensor.zero_() if not tensor.is_floating_point() else tensor.fill_(0.01)
    args, kwargs = _real(subject.inputs(case.batch))
    loss = subject.loss or default_loss
    optimizer = _OPTIMIZERS[case.optimizer](module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        out = module(*args, **kwargs)
        value = loss(out)
        del out
        value.backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    return RealStep(step, module, optimizer, (args, kwargs))


def measured_peak_bytes(case: MemoryCase) -> float:
    """What a real second step allocates at its peak, by the profiler's memory events."""
    step = real_step(case)
    module, state = step.module, step.optimizer.state.values()
    held = _bytes_of((*module.parameters(), *module.buffers(), *_tensors(step.inputs)))
    held += _bytes_of(t for s in state for t in _tensors(list(s.values())))
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        step.run()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return held + peak


def tracked_peak_bytes(case: MemoryCase) -> float:
    """The peak of a real second step by torch.distributed's MemTracker."""
    from torch.distributed._tools.mem_tracker import MemTracker

    step = real_step(case)
    tracker = MemTracker()
    tracker.track_external(step.module, step.optimizer, *_tensors(step.inputs))
    with tracker:
        step.run()
    return float(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def _real(value: Any) -> Any:
    """Meta example inputs as zeros on the CPU."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {k: _real(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_real(v) for v in value)
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _tensors(v)]
    return []


def _bytes_of(tensors: Any) -> int:
    seen = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(seen.values())


def main() -> None:
    """Print the table."""
    header = f"{'model':50} {'batch':>5} {'predicted':>12} {'measured':>12} {'error':>9}"
    print(header + f" {'MemTracker':>12} {'error':>9}")
    errors: list[tuple[float, float]] = []
    for case in CASES:
        predicted, measured = predicted_peak_bytes(case), measured_peak_bytes(case)
        tracked = tracked_peak_bytes(case)
        errors.append((predicted / measured - 1, predicted / tracked - 1))
        print(
            f"{case.reference[:50]:50} {case.batch:5d} {predicted / 2**20:8.1f} MiB "
            f"{measured / 2**20:8.1f} MiB {100 * errors[-1][0]:+7.2f} % "
            f"{tracked / 2**20:8.1f} MiB {100 * errors[-1][1]:+7.2f} %",
            flush=True,
        )
    for name, column in (("profiler", 0), ("MemTracker", 1)):
        off = sorted(100 * abs(e[column]) for e in errors)
        within = sum(o <= 5 for o in off)
        print(
            f"against the {name}: mean {sum(off) / len(off):.2f} %, median "
            f"{off[len(off) // 2]:.2f} %, max {off[-1]:.2f} %, {within} of {len(off)} within 5 %"
        )


if __name__ == "__main__":
    main()
