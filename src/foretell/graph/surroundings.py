"""What surrounds a step while it is captured: module paths, recomputation, plain failures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from foretell.errors import CaptureError, InputError
from foretell.graph.hints import advice_for, reason_of
from foretell.graph.lines import line_at_fault
from foretell.graph.recorder import Recorder
from foretell.graph.semantics import GpuSemantics


@contextlib.contextmanager
def module_paths(recorder: Recorder, root: torch.nn.Module) -> Iterator[None]:
    """Keep recorder.module_stack equal to the stack of modules being executed."""
    index = {module: recorder.module_index(path) for path, module in root.named_modules()}
    stack = recorder.module_stack

    def enter(module: torch.nn.Module, _: Any) -> None:
        stack.append(index.get(module, stack[-1] if stack else 0))

    def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
        stack.pop()

    hooks = torch.nn.modules.module
    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def recomputing(
    root: torch.nn.Module, paths: Sequence[str], semantics: Callable[[], GpuSemantics]
) -> Iterator[None]:
    """Wrap the named modules in activation checkpointing while the step runs."""

    def contexts() -> tuple[Any, Any]:
        return contextlib.nullcontext(), semantics()

    wrapped: list[torch.nn.Module] = []
    for path in paths:
        try:
            target = root.get_submodule(path)
        except AttributeError as error:
            raise InputError(f"recompute names module {path!r}, which the model lacks") from error
        inner = target.forward

        def forward(*args: Any, _inner: Any = inner, **kwargs: Any) -> Any:
            return checkpoint(
                _inner,
                *args,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=contexts,
                **kwargs,
            )

        target.forward = forward
        wrapped.append(target)
    try:
        yield
    finally:
        for target in wrapped:
            del target.forward


@contextlib.contextmanager
def default_dtype(name: str | None = None) -> Iterator[None]:
    """Make `name` the default number format, and put back whatever it was before."""
    previous = torch.get_default_dtype()
    if name is not None:
        torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


@contextlib.contextmanager
def failures_explained() -> Iterator[None]:
    """Turn whatever a model raises into one sentence with the line at fault."""
    try:
        yield
    except InputError:
        raise
    except CaptureError as error:
        raise CaptureError(
            f"the model cannot be captured{line_at_fault(error)}: {error}"
        ) from error
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"the model could not be run without data{line_at_fault(error)}: {reason_of(error)}; "
            f"{advice_for(error)}"
        ) from error
