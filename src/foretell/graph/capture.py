"""Capture: run one step of a model on meta tensors and keep what it did as a Graph."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from foretell.errors import CaptureError
from foretell.graph.blocks import repeated_blocks
from foretell.graph.graph import Graph, Parameters, Storages
from foretell.graph.kinds import DTYPES, KindTable, split_batch
from foretell.graph.loss import Loss, check_loss, default_loss
from foretell.graph.meta_copy import meta_copy
from foretell.graph.meta_kernels import register_meta_kernels
from foretell.graph.ops import Phase, Role
from foretell.graph.recorder import Recorder
from foretell.graph.semantics import GpuSemantics
from foretell.graph.surroundings import failures_explained, module_paths, recomputing
from foretell.graph.whole_rows import assume_whole_rows

# Far above any size a model has by itself, so that divisible by it means: made of the batch.
_PRIMES = (1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081)
_NEVER_A_SIZE = 2**61 - 1
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
    inference_names: Mapping[str, str] = field(default_factory=dict)
    """Keyword inputs that inference is given under another name: labels feed a decoder."""
    own: bool = False
    """The module is the user's and must stay as it is; built ones are ours to change."""
    example_batch: int = 1
    """The batch of the example inputs."""
    meta: dict[str, Any] = field(default_factory=dict)

    def call(self, batch: int, *, training: bool) -> tuple[Sequence[Any], dict[str, Any]]:
        """What the module is called with, on the device that is the default when asked."""
        args, kwargs = self.inputs(batch)
        if training:
            return args, dict(kwargs)
        names = self.inference_names
        kept = {k: v for k, v in kwargs.items() if k in names or k not in self.training_only}
        return args, {names.get(k, k): v for k, v in kept.items()}


def capture(subject: Subject, options: CaptureOptions | None = None) -> Graph:
    """The Graph of one step of `subject`, recorded once and rescaled to any batch size."""
    return record(subject, options or CaptureOptions())[0]


def record(
    subject: Subject,
    options: CaptureOptions,
    *,
    batch: int | None = None,
    most_calls: int | None = None,
) -> tuple[Graph, int]:
    """The Graph of one step and the number of calls it took.

    Without `batch` the step is run at a prime batch and scales; with it, it is run at that batch
    and holds there only. More than `most_calls` calls are refused.
    """
    with failures_explained(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = meta_copy(subject.module) if subject.own else subject.module
        module.train(options.mode == "train")
        if options.precision in _PURE:
            module.to(_PURE[options.precision])
        prime = _free_prime(module, subject) if batch is None else _NEVER_A_SIZE
        with torch.device("meta"):
            args, kwargs = subject.call(batch or prime, training=options.mode == "train")
        args, kwargs = _prepare_inputs(args, kwargs, options)
        if options.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        recorder = Recorder(KindTable(prime), most_calls=most_calls)
        parameters = _adopt_parameters(recorder, module)
        roles = _adopt_others(recorder, module, args, kwargs)
        _run_step(recorder, subject, module, args, kwargs, options)
        if not recorder.op_kind:
            raise CaptureError("the model runs no operators: there is nothing to forecast")
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        notes = _assumptions(recorder) if subject.own else {}
        meta = {**subject.meta, **notes, "blocks": list(repeated_blocks(module))}
        graph = _assemble(recorder, parameters, roles, grads, meta)
    if batch is not None:
        graph = dataclasses.replace(graph, batch=batch, only_batch=batch)
    return graph, recorder.calls


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
        module_paths(recorder, module),
        recomputing(module, options.recompute, semantics_of_forward),
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
            check_loss(loss)
            loss.backward()
            del loss


def _assumptions(recorder: Recorder) -> dict[str, list[str]]:
    """Notes on what the step was told about values that only data could give."""
    notes = [
        f"{line} reads a value that depends on data: {number} was assumed"
        for line, number in recorder.assumed.items()
    ]
    return {"notes": notes} if notes else {}


def _free_prime(module: torch.nn.Module, subject: Subject) -> int:
    """A prime that divides no size of model or sample, so that only the batch is divisible."""
    with torch.device("meta"):
        sample = subject.inputs(1)
    tensors = (*module.parameters(), *module.buffers(), *_all_tensors(sample))
    sizes = {d for t in tensors for d in t.shape if d}
    for prime in _PRIMES:
        if not any(size % prime == 0 for size in sizes):
            return prime
    raise CaptureError("every probe batch divides a size of the model: it cannot be rescaled")


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
