"""Tables in Markdown files, as vendors publish their figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from foretell.data.importers.rows import Row, distinct, place, readable, row_of
from foretell.data.importers.source import open_text


def markdown_file(folder: Path, path: Path, column: str = "") -> Iterator[Row]:
    """The rows of all tables, or of those that have `column`.

    The headings above a table, outermost first, are one more column: `section`.
    """
    headings: list[str] = []
    names: list[str] | None = None
    with readable(path), open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            cells = _cells(line)
            if cells is None:
                names = None
                headings = _headings(headings, line)
            elif names is None:
                names = distinct(cells)
            elif not _is_rule(cells) and (not column or column in names):
                row = row_of(f"{place(folder, path)}:{number}", names, cells)
                section = " > ".join(h for h in headings if h)
                yield Row(row.origin, {**row.cells, "section": section}, row.flaw)


def _cells(line: str) -> list[str] | None:
    line = line.strip()
    if not line.startswith("|"):
        return None
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _is_rule(cells: list[str]) -> bool:
    return all(re.fullmatch(r":?-+:?", cell) for cell in cells)


def _headings(above: list[str], line: str) -> list[str]:
    match = re.match(r"(#+)\s+(.*)", line.strip())
    if not match:
        return above
    level = len(match.group(1))
    kept = (above + [""] * level)[: level - 1]
    return [*kept, match.group(2).strip()]
