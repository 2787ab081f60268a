"""Record every kernel of a step, with the lifetimes of its memory, while it runs on meta tensors.

A dispatch mode sits below autograd and sees each operator of forward and backward. Releases of
memory are seen through weak references on storages, so what is saved for backward is not
guessed: it is what autograd really held.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.errors import CaptureError
from foretell.graph import known
from foretell.graph.cost import Call
from foretell.graph.kinds import KindTable, attributes, spec_of
from foretell.graph.layout import in_order_of_gpu, layout_of
from foretell.graph.lines import line_of_caller
from foretell.graph.memo import Plan, Signature, signature, tensors_in
from foretell.graph.ops import Phase, classify

_NO_KERNEL = frozenset(
    (
        "detach alias lift_fresh lift _unsafe_view _reshape_alias empty empty_like new_empty "
        "empty_strided new_empty_strided empty_permuted resize_ set_ as_strided_"
    ).split()
)
_ACCUMULATE_GRAD = 2**63


class Recorder(TorchDispatchMode):
    """Collects the rows of a Graph. Use as a context manager around forward and backward."""

    def __init__(self, kinds: KindTable, *, most_calls: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kinds = kinds
        self.calls = 0
        """Counted where they are limited."""
        self.most_calls = most_calls
        self.op_kind: list[int] = []
        self.op_phase: list[int] = []
        self.op_module: list[int] = []
        self.op_forward: list[int] = []
        self.op_parameter: list[int] = []
        self.edges: list[tuple[int, int]] = []
        self.storage_nbytes: list[int] = []
        self.storage_alloc: list[int] = []
        self.storage_free: list[int] = []
        self.storage_module: list[int] = []
        self.modules: dict[str, int] = {"": 0}
        self.module_stack: list[int] = []
        self.assumed: dict[str, bool | int | float] = {}
        """Lines that read a number nobody knows, and what they were told."""
        self._live: dict[int, tuple[int, Any]] = {}
        self._writer: list[int] = []
        self._parameter_of: dict[int, int] = {}
        self._forward_by_sequence: dict[int, tuple[int, int]] = {}
        self._plans: dict[Signature, Plan] = {}
        self._traits: dict[Any, tuple[str, bool]] = {}

    def adopt(self, tensor: torch.Tensor, parameter: int = -1) -> int:
        """Register memory that exists before the step; returns its storage number."""
        number = self._storage_number(tensor, alloc=-1)
        if parameter >= 0:
            self._parameter_of.setdefault(number, parameter)
        return number

    def module_index(self, path: str) -> int:
        """Number of a module path, new or known."""
        return self.modules.setdefault(path, len(self.modules))

    def finish(self) -> None:
        """Stop watching: what lives now outlives the step."""
        self._live.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        traits = self._traits.get(func)
        if traits is None:
            traits = self._traits[func] = _traits(func)
        name, no_kernel = traits
        if self.most_calls is not None:
            self._count(name, args)
        if name == "_local_scalar_dense":
            return self._read(args[0])
        if no_kernel:
            out = func(*args, **kwargs)
            for tensor in tensors_in(out):
                self._storage_number(tensor, alloc=len(self.op_kind))
            known.follow(name, func, args, kwargs, tensors_in(args), out)
            return out
        inputs: list[torch.Tensor] = []
        key = signature(func, args, kwargs, inputs)
        plan = self._plans.get(key)
        if plan is None:
            out = in_order_of_gpu(name, inputs, _run_meta(func, args, kwargs))
            op_class, outputs = classify(name), tensors_in(out)
            kind = self.kinds.add(
                Call(
                    name=name,
                    op_class=op_class,
                    inputs=tuple(spec_of(t) for t in inputs),
                    outputs=tuple(spec_of(t) for t in outputs),
                    **attributes(name, args),
                    **layout_of(op_class, inputs, outputs)._asdict(),
                )
            )
            plan = self._plans[key] = Plan(out, inputs, kind)
        else:
            out = plan.replay(func, args, kwargs, inputs)
        if any(t.is_meta for t in tensors_in(out)):
            self._append(plan.kind, name, inputs, out)
            known.follow(name, func, args, kwargs, inputs, out)
        return out

    def _count(self, name: str, args: tuple[Any, ...]) -> None:
        """Add a call, and the pieces it joins or makes; refuse it beyond the limit."""
        pieces = sum(len(a) for a in args if isinstance(a, list))
        if name in ("unbind", "split"):
            rest = args[1:] if name == "unbind" else args[2:]
            size = args[0].shape[rest[0] if rest else 0]
            pieces += size // max(args[1], 1) if name == "split" else size
        self.calls += 1 + pieces
        if self.most_calls is not None and self.calls > self.most_calls:
            raise CaptureError(
                f"the step runs more than {self.most_calls:,} operators: does it loop over the "
                "batch, one sample at a time?"
            )

    def _read(self, tensor: torch.Tensor) -> bool | int | float:
        number = known.scalar_of(tensor)
        if number is None:
            number = known.assumed_scalar(tensor)
            self.assumed[line_of_caller()] = number
        return number

    def _append(self, kind: int, name: str, inputs: list[torch.Tensor], out: Any) -> None:
        index = len(self.op_kind)
        phase, module, forward = self._context(index)
        self.op_kind.append(kind)
        self.op_phase.append(phase)
        self.op_module.append(module)
        self.op_forward.append(forward)
        parameter = -1
        for tensor in inputs:
            number = self._storage_number(tensor, alloc=-1)
            writer = self._writer[number]
            if writer >= 0:
                self.edges.append((writer, index))
            if parameter < 0:
                parameter = self._parameter_of.get(number, -1)
        self.op_parameter.append(parameter)
        for tensor in tensors_in(out):
            number = self._storage_number(tensor, alloc=index, module=module)
            self._writer[number] = index
            if parameter >= 0 and name == "_to_copy":
                self._parameter_of[number] = parameter

    def _context(self, index: int) -> tuple[Phase, int, int]:
        """Phase, module and forward twin of the operator being recorded."""
        module = self.module_stack[-1] if self.module_stack else 0
        node = torch._C._current_autograd_node()
        if node is None or self.module_stack:
            # Autograd numbers its node just before the operator runs; operators without a node
            # of their own may follow under the same number.
            sequence = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
            self._forward_by_sequence.setdefault(sequence, (index, module))
            return (Phase.FORWARD if node is None else Phase.RECOMPUTE), module, -1
        sequence = node._sequence_nr()
        if sequence >= _ACCUMULATE_GRAD:
            return Phase.BACKWARD, 0, -1
        forward, module = self._forward_by_sequence.get(sequence, (-1, 0))
        return Phase.BACKWARD, module, forward

    def _storage_number(self, tensor: torch.Tensor, alloc: int, module: int = 0) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        held = self._live.get(key)
        if held is not None:
            return held[0]
        number = len(self.storage_alloc)
        self.storage_nbytes.append(storage.nbytes())
        self.storage_alloc.append(alloc)
        self.storage_free.append(-1)
        self.storage_module.append(module)
        self._writer.append(-1)
        self._live[key] = (number, weakref.ref(storage, self._on_release(key, number)))
        return number

    def _on_release(self, key: int, number: int) -> Callable[[Any], None]:
        def released(_: Any) -> None:
            held = self._live.get(key)
            if held is not None and held[0] == number:
                del self._live[key]
                self.storage_free[number] = max(len(self.op_kind) - 1, 0)

        return released


def _traits(func: Any) -> tuple[str, bool]:
    """(base name, whether it only makes a view or reserves memory)."""
    name = func._schema.name.split("::")[-1]
    return name, bool(func.is_view) or name in _NO_KERNEL


def _run_meta(func: Any, args: Any, kwargs: Any) -> Any:
    try:
        return func(*args, **kwargs)
    except NotImplementedError as error:
        raise CaptureError(
            f"operator {func} gives a shape that depends on values, or has no shape rule: replace "
            "it, or register a rule with torch.library.register_fake"
        ) from error
