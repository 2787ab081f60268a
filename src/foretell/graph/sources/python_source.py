"""path/file.py:function and package.module:function, and plain nn.Module objects.

The function is the user's own and was named by the user: it is the only code a reference runs.
It returns an nn.Module, or (module, inputs), or (module, inputs, loss). `inputs` is a tensor, a
tuple of arguments or a dict of keyword arguments whose first axes are the batch.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from foretell.errors import CaptureError, InputError, UnknownNameError
from foretell.graph.capture import Subject
from foretell.graph.hints import advice_for, reason_of
from foretell.graph.lines import line_at_fault
from foretell.graph.loss import Loss


def build_python(reference: str) -> Subject:
    """Call the function a reference names and make its result ready to capture."""
    place, _, name = reference.rpartition(":")
    folder = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    with contextlib.redirect_stdout(sys.stderr), _importable(str(folder)):
        module = _load_file(place) if place.endswith(".py") else _load_package(place)
        result = _call(reference, _function(module, place, name))
    parts = result if isinstance(result, tuple) else (result,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        raise InputError(
            f"{reference} returned {type(result).__name__}: it must return an nn.Module, "
            "(module, inputs) or (module, inputs, loss)"
        )
    return subject_from_module(*parts, source=reference)


def _function(module: ModuleType, place: str, name: str) -> Callable[[], Any]:
    function = getattr(module, name, None)
    if not callable(function):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise UnknownNameError(f"function in {place}", name, known)
    found: Callable[[], Any] = function
    return found


def _call(reference: str, function: Callable[[], Any]) -> Any:
    try:
        with torch.device("meta"):
            return function()
    except (Exception, SystemExit) as error:
        advice = advice_for(
            error, "it must work without arguments and return an nn.Module or (module, inputs)"
        )
        raise CaptureError(
            f"calling {reference} failed{line_at_fault(error)}: {reason_of(error)}; {advice}"
        ) from error


def subject_from_module(
    module: torch.nn.Module,
    inputs: Any = None,
    loss: Loss | None = None,
    *,
    source: str | None = None,
) -> Subject:
    """A user's module and example inputs, ready to capture.

    The batch is the size that the first axes of the example inputs share (that of the first
    input where they differ); every axis of an input that is this size and comes first scales.
    """
    if inputs is None:
        inputs = _guess_inputs(module)
    args, kwargs = _as_call(inputs)
    example = _first_batch((args, kwargs))

    def at_batch(batch: int) -> tuple[list[Any], dict[str, Any]]:
        def resize(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                scales = value.dim() > 0 and value.shape[0] == example
                shape = (batch, *value.shape[1:]) if scales else value.shape
                return torch.empty(
                    shape, dtype=value.dtype, device="meta", requires_grad=value.requires_grad
                )
            if type(value) in (tuple, list):
                return type(value)(resize(v) for v in value)
            if isinstance(value, dict):
                return {k: resize(v) for k, v in value.items()}
            return value

        return [resize(a) for a in args], {k: resize(v) for k, v in kwargs.items()}

    return Subject(
        module=module,
        inputs=at_batch,
        loss=loss,
        own=True,
        example_batch=example or 1,
        meta={"source": source or type(module).__name__, "sample": "sample"},
    )


def _as_call(inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return [inputs], {}
    if isinstance(inputs, Mapping):
        return [], dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return list(inputs), {}
    raise InputError(
        f"example inputs are a {type(inputs).__name__}: give a tensor, a tuple of arguments or a "
        "dict of keyword arguments"
    )


def _first_batch(value: Any) -> int:
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        return int(value.shape[0])
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            found = _first_batch(item)
            if found:
                return found
    return 0


def _guess_inputs(module: torch.nn.Module) -> torch.Tensor:
    """An image for a network that starts with a 2-d convolution, a row for a linear one."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d):
            return torch.empty(1, layer.in_channels, 224, 224, device="meta")
        if isinstance(layer, torch.nn.Linear):
            return torch.empty(1, layer.in_features, device="meta")
        if isinstance(layer, torch.nn.Embedding):
            return torch.empty(1, 128, dtype=torch.int64, device="meta")
    raise InputError(
        f"{type(module).__name__} came without example inputs and they cannot be guessed: "
        "return (module, inputs)"
    )


def _load_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise InputError(f"model file {place!r} does not exist: check the path")
    name = "foretell_user_" + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"model file {place!r} cannot be imported: is it a Python file?")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return _import(place, lambda: _execute(path, module))


def _execute(path: Path, module: ModuleType) -> ModuleType:
    """Run a file's text as it is now, past any compiled copy."""
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    return module


@contextlib.contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Let the user's code import what lies beside it."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _load_package(place: str) -> ModuleType:
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise InputError(
            f"model reference {place!r} is not understood: write timm:NAME, hf:NAME, "
            "transformer:..., file.py:function or package.module:function"
        )
    return _import(place, lambda: importlib.import_module(place))


def _import(place: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{place!r} could not be imported{line_at_fault(error)}: {reason_of(error)}"
        ) from error
