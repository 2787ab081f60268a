"""Shockwave's throughput table: Gavel's, with some entries measured anew.

Most entries are Gavel's own numbers: who imports both has those twice.
"""

from __future__ import annotations

from pathlib import Path

from foretell.data.importers.gavel import throughputs
from foretell.data.importers.source import Rows, Source, find


def read(folder: Path) -> Rows:
    """All entries of the table."""
    for path in find(folder, *SOURCE.files):
        yield from throughputs(folder, path, SOURCE.name, {})


SOURCE = Source(
    name="shockwave",
    repository="https://github.com/uw-mad-dash/shockwave",
    commit="8a44f4a27a45760520386809b695d51b665b3679",
    licence="MIT",
    use="fit",
    files=("actual_throughputs.json",),
    read=read,
)
