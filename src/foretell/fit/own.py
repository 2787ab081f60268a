"""Measurements of 'foretell measure' as something to fit to: on the device that took them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretell.cluster import Device
from foretell.data import Record
from foretell.data.files import measurements_in
from foretell.errors import InputError

_BY_NAME = "timm:"
"""Models that published measurements name without it."""


def own_records(places: Iterable[Path]) -> list[Record]:
    """Steps and operators on one device each, those of one model side by side.

    "local" is another machine wherever it is read: records that describe theirs are filed under
    its name.
    """
    found = [_filed(r) for place in places for r in measurements_in(place) if _is_single(r)]
    return sorted(found, key=lambda r: (r.model, repr(sorted(r.options.items())), r.batch or 0))


def described(record: Record) -> Device | None:
    """The device a record describes, if that is the one it was taken on."""
    told = record.environment.get("device")
    if not isinstance(told, Mapping) or told.get("id") != record.device:
        return None
    try:
        return Device(**told)
    except TypeError as error:
        raise InputError(f"device {record.device!r} is not described as one: {error}") from error


def _is_single(record: Record) -> bool:
    return record.devices == 1 and record.kind != "collective" and record.time_s is not None


def _filed(record: Record) -> Record:
    device = described(record)
    if device is None:
        return record
    device_id = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    told: dict[str, Any] = {**record.environment["device"], "id": device_id}
    options = {**record.options}
    if "torch" in record.environment:
        options.setdefault("torch_version", str(record.environment["torch"]).partition("+")[0])
    return dataclasses.replace(
        record,
        cluster="",
        device=device_id,
        options=options,
        group=record.group.removeprefix(_BY_NAME),
        origin=record.origin or "measured",
        environment={**record.environment, "device": told},
    )
