"""Tables in Markdown files, as vendors publish their figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from foretell.data.importers.rows import LINE, Row, csv_table, distinct, lines, row_of
from foretell.data.importers.source import find


def csv_and_pages(folder: Path, table: str, page: str, column: str = "") -> Iterator[Row]:
    """The rows of CSV files, then those of pages whose tables have the same columns."""
    yield from csv_table(folder, table)
    for path in find(folder, page):
        yield from markdown_file(folder, path, column)


def markdown_file(folder: Path, path: Path, column: str = "") -> Iterator[Row]:
    """The rows of all tables, or of those that have `column`.

    The headings above a table, outermost first, are one more column: `section`.
    """
    headings: list[str] = []
    names: list[str] | None = None
    for line in lines(folder, path):
        if line.flaw:
            yield line
            continue
        cells = _cells(line.text(LINE))
        if cells is None:
            names = None
            headings = _headings(headings, line.text(LINE))
        elif names is None:
            names = distinct(cells)
        elif not _is_rule(cells) and (not column or column in names):
            row = row_of(line.origin, names, cells)
            section = " > ".join(h for h in headings if h)
            yield Row(row.origin, {**row.cells, "section": section}, row.flaw)


def _cells(line: str) -> list[str] | None:
    if not line.startswith("|"):
        return None
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _is_rule(cells: list[str]) -> bool:
    return all(re.fullmatch(r":?-+:?", cell) for cell in cells)


def _headings(above: list[str], line: str) -> list[str]:
    match = re.match(r"(#+)\s+(.*)", line)
    if not match:
        return above
    level = len(match.group(1))
    kept = (above + [""] * level)[: level - 1]
    return [*kept, match.group(2).strip()]
