"""Capture: run one step of a model on meta tensors and keep what it did as a Graph."""

from __future__ import annotations

import contextlib
import copy
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from foretell.errors import CaptureError, InputError
from foretell.graph.graph import Graph, Parameters, Storages
from foretell.graph.kinds import DTYPES, KindTable, split_batch
from foretell.graph.meta_kernels import register_meta_kernels
from foretell.graph.ops import Phase, Role
from foretell.graph.recorder import Recorder
from foretell.graph.semantics import GpuSemantics
from foretell.graph.whole_rows import assume_whole_rows

Loss = Callable[[Any], torch.Tensor]

# Far above any size a model has by itself, so that divisible by it means: made of the batch.
_PRIMES = (1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081)
_AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
_PURE = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """What of the recipe changes the operators themselves."""

    mode: str = "train"
    precision: str = "fp32"
    channels_last: bool = False
    fused_attention: bool = True
    recompute: tuple[str, ...] = ()
    """Module paths whose activations are computed again in backward."""


@dataclass(kw_only=True)
class Subject:
    """A model ready to be captured: module, inputs as a function of the batch, loss."""

    module: torch.nn.Module
    inputs: Callable[[int], tuple[Sequence[Any], Mapping[str, Any]]]
    loss: Loss | None = None
    training_only: tuple[str, ...] = ()
    """Keyword inputs that inference leaves out, such as labels."""
    meta: dict[str, Any] = field(default_factory=dict)


def capture(subject: Subject, options: CaptureOptions | None = None) -> Graph:
    """The Graph of one step of `subject`, exact at every batch size."""
    options = options or CaptureOptions()
    module = _on_meta(subject.module)
    module.train(options.mode == "train")
    if options.precision in _PURE:
        module.to(_PURE[options.precision])
    prime = _free_prime(module)
    with torch.device("meta"):
        args, kwargs = subject.inputs(prime)
    if options.mode == "infer":
        kwargs = {k: v for k, v in kwargs.items() if k not in subject.training_only}
    args, kwargs = _prepare_inputs(args, kwargs, options)
    if options.channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    recorder = Recorder(KindTable(prime))
    parameters = _adopt_parameters(recorder, module)
    roles = _adopt_others(recorder, module, args, kwargs)
    with _failures_explained(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _run_step(recorder, subject, module, args, kwargs, options)
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    return _assemble(recorder, parameters, roles, grads, subject.meta)


def _on_meta(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself when it is on meta already, else a copy there with its ties intact."""
    tensors = [*module.parameters(), *module.buffers()]
    if all(t.is_meta for t in tensors):
        return module
    memo: dict[int, Any] = {}
    for tensor in tensors:
        shape_only = torch.empty_like(tensor, device="meta")
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = (
            torch.nn.Parameter(shape_only, tensor.requires_grad) if is_parameter else shape_only
        )
    return copy.deepcopy(module, memo)


def _run_step(
    recorder: Recorder,
    subject: Subject,
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
) -> None:
    register_meta_kernels()
    training = options.mode == "train"

    def semantics_of_forward() -> GpuSemantics:
        low = _AUTOCAST.get(options.precision)
        return GpuSemantics(low, fused_attention=options.fused_attention)

    semantics = semantics_of_forward()
    with (
        torch.set_grad_enabled(training),
        _module_paths(recorder, module),
        _recomputing(module, options.recompute, semantics_of_forward),
        torch.device("meta"),
        assume_whole_rows(),
        recorder,
    ):
        with semantics:
            out = module(*args, **kwargs)
        semantics.forget_casts()
        if training:
            loss = (subject.loss or default_loss)(out)
            del out
            if not loss.requires_grad:
                raise CaptureError(
                    "the loss does not depend on any trainable parameter: nothing to train; "
                    "use mode 'infer' or unfreeze parameters"
                )
            loss.backward()
            del loss


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


def _free_prime(module: torch.nn.Module) -> int:
    """A prime that divides no size of the model, so that only the batch is divisible by it."""
    sizes = {d for t in (*module.parameters(), *module.buffers()) for d in t.shape}
    for prime in _PRIMES:
        if not any(size % prime == 0 for size in sizes if size):
            return prime
    raise CaptureError("every probe batch divides a parameter size: this model cannot be rescaled")


def _prepare_inputs(
    args: Sequence[Any], kwargs: Mapping[str, Any], options: CaptureOptions
) -> tuple[list[Any], dict[str, Any]]:
    pure = _PURE.get(options.precision)

    def prepare(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.to("meta")
            if pure is not None and value.is_floating_point():
                value = value.to(pure)
            if options.channels_last and value.dim() == 4:
                value = value.contiguous(memory_format=torch.channels_last)
            return value
        if type(value) in (tuple, list):
            return type(value)(prepare(v) for v in value)
        if isinstance(value, dict):
            return {k: prepare(v) for k, v in value.items()}
        return value

    return [prepare(a) for a in args], {k: prepare(v) for k, v in kwargs.items()}


def _adopt_parameters(recorder: Recorder, module: torch.nn.Module) -> Parameters:
    names: list[str] = []
    numels, dtypes, trainable, owners, shapes = [], [], [], [], []
    for path, parameter in module.named_parameters():
        recorder.adopt(parameter, parameter=len(names))
        names.append(path)
        numels.append(parameter.numel())
        dtypes.append(int(DTYPES[parameter.dtype]))
        trainable.append(parameter.requires_grad)
        owners.append(recorder.module_index(path.rpartition(".")[0]))
        shapes.append(tuple(parameter.shape))
    return Parameters(
        name=tuple(names),
        numel=np.array(numels, dtype=np.int64),
        dtype=np.array(dtypes, dtype=np.int64),
        trainable=np.array(trainable, dtype=np.bool_),
        module=np.array(owners, dtype=np.int64),
        shape=tuple(shapes),
    )


def _adopt_others(
    recorder: Recorder, module: torch.nn.Module, args: Any, kwargs: Any
) -> dict[int, Role]:
    roles = dict.fromkeys(range(len(recorder.storage_alloc)), Role.PARAMETER)
    for buffer in module.buffers():
        roles.setdefault(recorder.adopt(buffer), Role.BUFFER)
    for tensor in _all_tensors((args, kwargs)):
        roles.setdefault(recorder.adopt(tensor), Role.INPUT)
    return roles


def _all_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _all_tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _all_tensors(item)


@contextlib.contextmanager
def _module_paths(recorder: Recorder, root: torch.nn.Module) -> Iterator[None]:
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
def _recomputing(
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
def _failures_explained() -> Iterator[None]:
    """Turn whatever a model raises into one sentence with the line at fault."""
    try:
        yield
    except InputError:
        raise
    except CaptureError as error:
        raise CaptureError(
            f"the model cannot be captured{_line_at_fault(error)}: {error}"
        ) from error
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
        raise CaptureError(
            f"the model could not be run without data{_line_at_fault(error)}: "
            f"{type(error).__name__}: {reason}; check the example inputs, and avoid branches and "
            "shapes that depend on tensor values"
        ) from error


def _line_at_fault(error: BaseException) -> str:
    """The innermost line that is neither ours nor torch's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "foretell/graph" not in f.filename and "/torch/" not in f.filename]
    return f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""


def _assemble(
    recorder: Recorder,
    parameters: Parameters,
    roles: dict[int, Role],
    grads: list[torch.Tensor],
    meta: Mapping[str, Any],
) -> Graph:
    for grad in grads:
        roles[recorder.adopt(grad)] = Role.GRADIENT
    recorder.finish()
    count = len(recorder.op_kind)
    alloc = np.array(recorder.storage_alloc, dtype=np.int64)
    free = np.array(recorder.storage_free, dtype=np.int64)
    free[free < 0] = count
    phase = np.array(recorder.op_phase, dtype=np.int64)
    backward = np.flatnonzero(phase == Phase.BACKWARD)
    turn = int(backward[0]) if len(backward) else count
    role = np.where((alloc >= 0) & (alloc < turn) & (free >= turn), Role.SAVED, Role.TEMPORARY)
    for number, known in roles.items():
        role[number] = known
    edges = np.array(sorted(set(recorder.edges)), dtype=np.int64).reshape(-1, 2)
    prime = recorder.kinds.prime
    return Graph(
        kinds=recorder.kinds.to_kinds(),
        op_kind=np.array(recorder.op_kind, dtype=np.int64),
        op_phase=phase,
        op_module=np.array(recorder.op_module, dtype=np.int64),
        op_forward=np.array(recorder.op_forward, dtype=np.int64),
        op_parameter=np.array(recorder.op_parameter, dtype=np.int64),
        edge_src=edges[:, 0].copy(),
        edge_dst=edges[:, 1].copy(),
        storages=Storages(
            nbytes=np.array(
                [_monomial(n, prime) for n in recorder.storage_nbytes], dtype=np.int64
            ).reshape(-1, 3),
            alloc_op=alloc,
            free_op=free,
            role=role.astype(np.int64),
            module=np.array(recorder.storage_module, dtype=np.int64),
        ),
        parameters=parameters,
        modules=tuple(recorder.modules),
        batch=1,
        meta=dict(meta),
    )


def _monomial(nbytes: int, prime: int) -> tuple[int, int, int]:
    coefficient, power = split_batch(nbytes, prime)
    return tuple(coefficient if power == p else 0 for p in range(3))  # type: ignore[return-value]
