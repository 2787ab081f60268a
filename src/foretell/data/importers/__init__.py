"""Measurements published by others, read in upstream's own file layout: one module per source."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foretell.data.importers.source import Source
from foretell.data.record import Record, Reject
from foretell.errors import InputError, UnknownNameError

NAMES: tuple[str, ...] = (
    "aiconfigurator",
    "elasticflow",
    "gavel",
    "gpumemnet",
    "lambda_dl_benchmark",
    "llm_foundry",
    "lucie",
    "megatron_bridge",
    "megatron_golden",
    "mlperf",
    "nemo",
    "neusight",
    "nvidia_deeplearningexamples",
    "pipedream",
    "pollux",
    "rubick",
    "shockwave",
    "sia",
    "timm",
    "vidur",
    "vtrain",
    "zeus",
)


@dataclass
class Tally:
    """What became of the rows of a source while they are read."""

    kept: int = 0
    rejects: list[Reject] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Rows in all."""
        return self.kept + len(self.rejects)

    def reasons(self) -> Counter[str]:
        """How many rows were rejected for which reason."""
        return Counter(r.reason for r in self.rejects)


def source(name: str) -> Source:
    """A source by its name."""
    if name not in NAMES:
        raise UnknownNameError("source", name, NAMES, "foretell data sources lists them")
    module = importlib.import_module(f"foretell.data.importers.{name}")
    found: Source = module.SOURCE
    return found


def records_of(name: str, folder: Path, tally: Tally | None = None) -> Iterator[Record]:
    """The records of a source below `folder`; `tally` learns what was read and rejected."""
    chosen = source(name)
    counted = Tally() if tally is None else tally
    if not folder.is_dir():
        raise InputError(
            f"folder {str(folder)!r} of source {name!r} does not exist: fetch "
            f"{chosen.repository} and name the folder it is in"
        )
    for row in chosen.read(folder.absolute()):  # names of folders above may tell the hardware
        if isinstance(row, Reject):
            counted.rejects.append(row)
        else:
            counted.kept += 1
            yield row
    if not counted.read:
        raise InputError(
            f"folder {str(folder)!r} holds no rows of source {name!r}: it looks for "
            f"{' and '.join(chosen.files)}"
        )
