"""Where outside measurements live on this machine, and how to ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from foretell.data import Record
from foretell.data.importers import Tally, records_of
from foretell.fit.sources import FOLDERS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OWN = tuple(sorted((ROOT / "benchmarks" / "measured").glob("*.parquet")))
"""Measurements of this project, which the shipped weights are fitted to as well."""


def data_directory() -> Path | None:
    """FORETELL_DATA, else shared/data beside the checkout; None when there is neither."""
    chosen = Path(os.environ.get("FORETELL_DATA") or ROOT.parent / "shared" / "data")
    return chosen if chosen.is_dir() else None


def required_data() -> Path:
    """The folder of all sources, or a plain message and exit."""
    data = data_directory()
    if data is None:
        raise SystemExit("the measurements are not here: set FORETELL_DATA to their folder")
    return data


def folder_of(source: str) -> Path | None:
    """The folder of one source; None when it is not here."""
    base = data_directory()
    folder = base and base / FOLDERS.get(source, source)
    return folder if folder and folder.is_dir() else None


def require(source: str) -> Path:
    """The folder of one source, or a plain message and exit."""
    folder = folder_of(source)
    if folder is None:
        raise SystemExit(
            f"{source} measurements are not here: fetch them from upstream and set FORETELL_DATA "
            "to the folder that holds them"
        )
    return folder


def measured(source: str, part: str = "", tally: Tally | None = None) -> Iterator[Record]:
    """The records of one source, or of a folder inside it."""
    return records_of(source, require(source) / part, tally)
