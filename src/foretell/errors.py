"""Everything Foretell raises on purpose.

    ForetellError
    ├── InputError            the caller's input is wrong (exit code 2)
    │   └── UnknownNameError  a name nobody knows; carries near matches
    └── CannotError           the input is fine, the answer cannot be had (exit code 1)
        ├── CaptureError      a model could not be turned into a Graph
        └── MissingExtraError an optional dependency is not installed

Every message is one sentence that names the input, what is wrong and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 1000


class ForetellError(Exception):
    """Base of all errors raised on purpose; str() is fit to show to a user."""

    exit_code = 1


class InputError(ForetellError):
    """The caller passed something that cannot be meant."""

    exit_code = 2


class UnknownNameError(InputError):
    """A name was looked up and not found."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self._told = (kind, name, tuple(known), hint)
        self.near = near_matches(name, self._told[2])
        advice = f"did you mean {' or '.join(self.near)}?" if self.near else ""
        parts = [p for p in (advice, hint) if p]
        super().__init__(f"unknown {kind} {name!r}" + (": " + "; ".join(parts) if parts else ""))

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[object, ...]]:
        return type(self), self._told  # errors travel between processes


class CannotError(ForetellError):
    """The request is well-formed but cannot be fulfilled."""


class CaptureError(CannotError):
    """A model could not be captured as a Graph."""


class MissingExtraError(CannotError):
    """An optional dependency is needed and absent."""

    def __init__(self, what: str, extra: str) -> None:
        self._told = (what, extra)
        super().__init__(f"{what} needs the '{extra}' extra: pip install 'foretell[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[object, ...]]:
        return type(self), self._told


def described(value: object) -> str:
    """A value of the wrong type, as a message names it."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = getattr(value, "__name__", "")
    return f"the function {name}" if callable(value) and name else f"a {type(value).__name__}"


def one_line(error: object) -> str:
    """What an error says, without line breaks and the middle of endless names."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def near_matches(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` known names that a person may have meant by `name`."""
    names = sorted(set(known))
    lowered = {n.lower(): n for n in names}
    hits = [lowered[h] for h in difflib.get_close_matches(name.lower(), lowered, limit, 0.6)]
    contained = [n for n in names if name and name.lower() in n.lower() and n not in hits]
    return (hits + sorted(contained, key=len))[:limit]
