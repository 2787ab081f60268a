"""Which published measurements the learned predictor is fitted to, and where they lie."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.data import Record
from foretell.data.importers import records_of
from foretell.errors import InputError

FOLDERS = {
    "llm_foundry": "llm-foundry",
    "mlperf": "mlperf_training",
    "pollux": "pollux_osdi21",
    "sia": "sia_sosp23",
}
"""Sources whose folder has another name."""
_PER_TABLE = 300
"""Operators kept of one kind on one device in one number format."""
_FLEET = ("nvidia_deeplearningexamples", "gavel", "zeus")
"""Sources of training steps on single devices that timm's files say nothing of."""
_TIMM = "timm:"
_PIPEDREAM = "v100-16gb"
"""PipeDream does not name its GPU; 3x3 convolutions in fp32 at 17 to 21 TFLOP/s, which Winograd's
method allows on 15.7, point to this one of those its authors used."""


def data_directory(given: Path | None = None) -> Path:
    """The folder of all sources: as given, else FORETELL_DATA."""
    chosen = given or Path(os.environ.get("FORETELL_DATA", ""))
    if chosen == Path() or not chosen.is_dir():
        raise InputError(
            f"there are no measurements to fit in {str(chosen)!r}: fetch the sources that docs/"
            "howto-fit.md lists and name their folder with --data or FORETELL_DATA"
        )
    return chosen


def folder_of(source: str, data: Path) -> Path:
    """The folder of one source."""
    return data / FOLDERS.get(source, source)


@dataclass(frozen=True)
class Part:
    """Some records of some sources that are fitted together."""

    name: str
    about: str
    sources: Sequence[str]
    read: Callable[[Path], Iterator[Record]]

    def records(self, data: Path) -> list[Record]:
        """All records, those of one model side by side."""
        found = sorted(self.read(data), key=lambda r: (r.model, repr(sorted(r.options.items()))))
        if not found:
            raise InputError(f"part {self.name!r} found no records below {str(data)!r}")
        return found


def _timm(mode: str) -> Callable[[Path], Iterator[Record]]:
    def read(data: Path) -> Iterator[Record]:
        for record in records_of("timm", folder_of("timm", data)):
            if record.options["mode"] == mode and "torch_version" in record.options:
                yield record

    return read


def _operators(source: str, about: str, inside: str = "", device: str = "") -> Part:
    """Single operators of a source; `device` is what ran those that do not say."""

    def read(data: Path) -> Iterator[Record]:
        found = records_of(source, folder_of(source, data))
        single = (r for r in found if r.kind == "operator" and inside in r.origin)
        named = (r if r.device else dataclasses.replace(r, device=device) for r in single)
        return _some_of_each(r for r in named if r.device and r.model.startswith("op:"))

    return Part(source, about, [source], read)


def single_steps(sources: Iterable[str], data: Path) -> Iterator[Record]:
    """Training steps of timm's models on one device; of repeated ones that of the median time.

    Forecasts know no power limit: of steps under several, those under the highest count.
    """
    same: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for source in sources:
        for record in records_of(source, folder_of(source, data)):
            if record.devices == 1 and record.model.startswith(_TIMM):
                key = (source, record.model, record.device, record.batch, repr(record.options))
                same[key].append(record)
    for rows in same.values():
        limits = [float(r.environment.get("power_limit_w", 0)) for r in rows]
        most = [r for r, limit in zip(rows, limits, strict=True) if limit == max(limits)]
        record = sorted(most, key=lambda r: r.time_s or 0.0)[len(most) // 2]
        yield dataclasses.replace(record, group=record.model.removeprefix(_TIMM))


def _some_of_each(records: Iterable[Record]) -> Iterator[Record]:
    """The same few of every table, whatever order they come in."""
    tables: dict[tuple[object, ...], list[tuple[bytes, int, Record]]] = defaultdict(list)
    for number, record in enumerate(records):
        name = record.model.partition(",")[0]
        key = (record.device, name, record.options.get("precision"))
        tables[key].append((_lot(record.origin), number, record))
    for rows in tables.values():
        for _, _, record in sorted(rows)[:_PER_TABLE]:
            yield record


def _lot(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("timm-train", "training steps of vision models", ["timm"], _timm("train")),
        Part("timm-infer", "inference steps of vision models", ["timm"], _timm("infer")),
        Part(
            "fleet",
            "training steps of a few models on other devices",
            _FLEET,
            functools.partial(single_steps, _FLEET),
        ),
        _operators("neusight", "single operators in fp32", "/train/"),
        _operators("aiconfigurator", "matrix products in fp16 to fp8"),
        _operators("vidur", "operators of language models in fp16"),
        _operators("pipedream", "layers in training in fp32", device=_PIPEDREAM),
    )
}
"""What can be fitted to, by name."""
