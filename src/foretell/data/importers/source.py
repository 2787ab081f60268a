"""What an importer is: where the rows come from, what they may be used for, how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foretell.data.record import Record, Reject

Rows = Iterator[Record | Reject]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One published set of measurements."""

    name: str
    repository: str
    commit: str
    licence: str
    use: str
    """'fit': shipped weights may learn from it; 'check': for validation only."""
    files: tuple[str, ...]
    """Patterns of the files it reads, as upstream names them; each may be gzipped."""
    read: Callable[[Path], Rows]
    """All rows below a folder, taken or rejected, in a fixed order."""


def find(folder: Path, *patterns: str) -> list[Path]:
    """Files anywhere below `folder` that match a pattern, plain or gzipped, in a fixed order."""
    found = {p for pattern in patterns for end in ("", ".gz") for p in folder.rglob(pattern + end)}
    return sorted(p for p in found if p.is_file())
