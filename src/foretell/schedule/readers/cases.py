"""Jobs that say what they train: JSON lines, a case of `foretell predict` and when it comes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from foretell.api import Case
from foretell.errors import ForetellError, one_line
from foretell.schedule.readers.rows import BadRow, Left, Row, checked, moment_s, number
from foretell.schedule.readers.text import head_of, lines_of

_TEXTS = ("id", "user", "group", "name", "device")
_LENGTHS = ("epochs", "steps", "tokens")
_JOB = {*_TEXTS, "submit_s", "devices", "duration_s", "limit_s", "deadline_s"}
"""What a line says of the job; everything else is an option of the case."""


class Cases:
    """How long each job is, and what its devices tell each other, is forecast for the cluster."""

    about = "ours: JSON lines, each a case of 'foretell predict' with submit_s and devices"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = head_of(path, 1)
        try:
            first = json.loads(head[0]) if head else None
        except ValueError:
            return False
        return isinstance(first, dict) and "model" in first

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file."""
        for line, text in lines_of(path):
            try:
                yield checked(_row(line, text, unit_s))
            except BadRow as error:
                yield Left(line, str(error))


def _row(line: int, text: str, unit_s: float) -> Row:
    try:
        values = json.loads(text)
    except ValueError:
        raise BadRow("it is not JSON") from None
    if not isinstance(values, dict):
        raise BadRow("it is not a JSON object")
    case = _case({name: value for name, value in values.items() if name not in _JOB})
    if "submit_s" not in values:
        raise BadRow("it has no submit_s: say when the job comes")
    texts = {name: str(values[name]) for name in _TEXTS if name in values}
    times = {
        name: _seconds(values[name], name, unit_s)
        for name in ("duration_s", "limit_s")
        if name in values
    }
    moments = {
        name: _moment_s(values[name], name, unit_s)
        for name in ("submit_s", "deadline_s")
        if name in values
    }
    if "duration_s" not in times and all(getattr(case, name) is None for name in _LENGTHS):
        raise BadRow(f"it does not say how long to train: add {', '.join(_LENGTHS)} or duration_s")
    known = {"id": str(line), "name": case.model, "duration_s": math.nan}
    return Row(
        line=line,
        devices=_devices(values.get("devices", 1)),
        case=case,
        **{**known, **texts, **times, **moments},  # type: ignore[arg-type]
    )


def _case(options: Mapping[str, Any]) -> Case:
    if "cluster" in options:
        raise BadRow("it names a cluster: jobs run on that of --cluster, so say devices instead")
    try:
        return Case.from_mapping(options)
    except ForetellError as error:
        raise BadRow(one_line(error)) from None


def _devices(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRow(f"devices {value!r} is not a whole number")
    return value


def _seconds(value: object, what: str, unit_s: float) -> float:
    return number(str(value), what) * unit_s


def _moment_s(value: object, what: str, unit_s: float) -> float:
    found = moment_s(str(value), what)
    return found * unit_s if isinstance(value, int | float) else found
