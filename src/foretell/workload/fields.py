"""Checks what people put into settings: every field in its type, every number in its range."""

from __future__ import annotations

import functools
import math
import numbers
import types
import typing
from typing import Any

from foretell.errors import InputError

_WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
# Far beyond any job, and small enough that no time or cost leaves the range of a float.
_MOST = {
    "batch": 10**9,
    "global_batch": 10**12,
    "image_size": 10**5,
    "seq": 10**9,
    "epochs": 10**9,
    "samples": 10**15,
    "steps": 10**15,
    "tokens": 10**18,
}


def check_fields(settings: object) -> None:
    """Bring every field of a frozen dataclass into its type, or say which cannot be meant."""
    kind: Any = type(settings)
    for name, allowed in _field_types(kind).items():
        value = _typed(name, getattr(settings, name), allowed)
        if name in _MOST and value is not None:
            _check_range(name, value)
        object.__setattr__(settings, name, value)


def _check_range(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name}={_as_float(value):g} must be greater than zero")
    if value > _MOST[name]:
        raise InputError(f"{name}={_as_float(value):g} must be at most {_MOST[name]:.0e}")


@functools.cache
def _field_types(settings: type) -> dict[str, tuple[type, ...]]:
    hints = typing.get_type_hints(settings)
    return {
        name: typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for name, hint in hints.items()
    }


def _typed(name: str, value: Any, allowed: tuple[type, ...]) -> Any:
    """The value in its field's type, or a sentence that says which type it should have."""
    if type(value) in allowed:
        return value
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number:
        number = _as_float(value)
        if int in allowed and (isinstance(value, numbers.Integral) or number.is_integer()):
            return int(value)
        if float in allowed:
            return number
        if name == "torch_version":
            return str(value)
    wanted = next(_WANTED[t] for t in allowed if t in _WANTED)
    raise InputError(f"{name}={value!r} must be {wanted}")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
