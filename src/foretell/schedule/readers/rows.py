"""What a log says of a job, whatever its format; and which lines say nothing that can be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from foretell.api import Case
from foretell.schedule.shape import Shape

_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job of a log."""

    line: int
    """Where it stands, from 1."""
    id: str
    submit_s: float
    """Since any fixed time."""
    duration_s: float
    """How long it had its devices; no number where that is to be forecast."""
    devices: int
    user: str = ""
    group: str = ""
    """Project, virtual cluster or account."""
    name: str = ""
    """What recurring jobs have in common."""
    limit_s: float = math.inf
    deadline_s: float = math.inf
    """On the same clock as submit_s."""
    device: str = ""
    """The kind it asks for; any will do if empty."""
    case: Case | None = None
    """What it trains, if that is known."""
    shape: Shape | None = None
    """What its devices do, once that is forecast."""
    iterations: float = math.nan
    """How many it should run, once that is forecast."""
    doubt: float = 0.0
    """Deviation of the logarithm of how long it takes, by the forecast's interval."""

    @property
    def is_forecast(self) -> bool:
        """Whether nobody says how long it is, only what it trains."""
        return self.case is not None and math.isnan(self.duration_s)


@dataclass(frozen=True, slots=True)
class Left:
    """A line that is not part of the trace, and why."""

    line: int
    reason: str
    malformed: bool = True
    """False if the line is right and just not a job to schedule."""


class BadRow(Exception):  # noqa: N818 - it never leaves this package
    """A line is malformed; its text says how."""


class NoJob(Exception):  # noqa: N818
    """A line is right and not a job to schedule; its text says why."""


def rows_of(
    lines: Iterable[tuple[int, Sequence[str]]], read: Callable[[int, Sequence[str]], Row]
) -> Iterator[Row | Left]:
    """Every line as a job, or as the reason why it is none."""
    for number, cells in lines:
        try:
            yield checked(read(number, cells))
        except BadRow as error:
            yield Left(number, str(error))
        except NoJob as error:
            yield Left(number, str(error), malformed=False)


def checked(row: Row) -> Row:
    """The row, if a job can be like that."""
    if row.devices == 0:
        raise NoJob("needs no device")
    if row.duration_s == 0:
        raise NoJob("ran for no time")
    if row.devices < 0:
        raise BadRow(f"{row.devices} devices: a job needs 1 or more")
    if not 0 < row.duration_s < math.inf and not row.is_forecast:
        raise BadRow(f"duration {row.duration_s:g} s: it must be above zero")
    if not math.isfinite(row.submit_s):
        raise BadRow(f"submitted at {row.submit_s}: it must be a time")
    if not row.limit_s > 0:
        raise BadRow(f"time limit {row.limit_s:g} s: it must be above zero")
    return row


def number(text: str, what: str) -> float:
    """A finite number."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadRow(f"{what} {shortened(text)} is not a number")
    return found


def whole(text: str, what: str) -> int:
    """A number without a fraction."""
    found = number(text, what)
    if found != int(found):
        raise BadRow(f"{what} {shortened(text)} is not a whole number")
    return int(found)


def moment_s(text: str, what: str) -> float:
    """Seconds since 1970 of a date, or the number it is."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRow(f"{what} {shortened(text)} is neither a number nor a date") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def shortened(text: str) -> str:
    """A cell as a message shows it."""
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
