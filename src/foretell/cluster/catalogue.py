"""The devices and links Foretell knows, read from catalogue/*.toml on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from foretell.cluster.device import Device
from foretell.cluster.link import Link
from foretell.cluster.tables import device_from_table, link_from_table
from foretell.errors import UnknownNameError

_DEVICE_FILES = ("nvidia", "amd", "cpu")
LOCAL = "local"
DEVICE_CHOICES = "'foretell devices' lists them"
_OWN = "one of your own can be described in a cluster .toml file"


@cache
def devices() -> Mapping[str, Device]:
    """Every catalogued device by id; `local` (this machine) is found by device() only."""
    found: dict[str, Device] = {}
    for name in _DEVICE_FILES:
        content = _read(name)
        for device_id, own in content["devices"].items():
            where = f"{name}.toml: devices.{device_id}"
            base = found[own["like"]] if "like" in own else None
            table = (content["defaults"] | own) if base is None else own
            if "price_usd_per_hour" in own:
                table = {"price_as_of": content["defaults"]["price_as_of"]} | table
            else:
                table = {key: value for key, value in table.items() if key != "price_as_of"}
            found[device_id] = device_from_table(device_id, table, base, where)
    return MappingProxyType(found)


@cache
def links() -> Mapping[str, Link]:
    """Every catalogued link by id."""
    return MappingProxyType(
        {
            link_id: link_from_table(link_id, table, None, f"links.toml: links.{link_id}")
            for link_id, table in _read("links")["links"].items()
        }
    )


@cache
def aliases() -> Mapping[str, str]:
    """Other names of devices -> their ids, such as a100 -> a100-80gb."""
    return MappingProxyType(
        {alias: known for name in _DEVICE_FILES for alias, known in _read(name)["aliases"].items()}
    )


@cache
def link_aliases() -> Mapping[str, str]:
    """Other names of links -> their ids, such as ndr -> ib-ndr."""
    return MappingProxyType(dict(_read("links")["aliases"]))


@cache
def driver_names() -> Mapping[str, str]:
    """Names as the GPU driver prints them, lower case and without brand -> device ids."""
    names = _read("nvidia")["driver_names"]
    return MappingProxyType({printed.lower(): device_id for printed, device_id in names.items()})


def device(name: str) -> Device:
    """The device of that id or alias, in any case; `local` is this machine's CPU.

    `local@2` is this machine's CPU with two of its cores.
    """
    key = name.strip().lower()
    base, at, cores = key.partition("@")
    if base == LOCAL and (not at or cores.isdecimal()):
        from foretell.cluster.detect import detect_local  # looks names up here in its turn

        return detect_local(int(cores)) if at else detect_local()
    key = aliases().get(key, key)
    if key not in devices():
        known = [*devices(), *aliases(), LOCAL]
        raise UnknownNameError("device", name, known, f"{DEVICE_CHOICES}; {_OWN}")
    return devices()[key]


def link(name: str) -> Link:
    """The link of that id or alias, in any case."""
    key = name.strip().lower()
    key = link_aliases().get(key, key)
    if key not in links():
        known = [*links(), *link_aliases()]
        raise UnknownNameError("link", name, known, f"{link_choices()}; {_OWN}")
    return links()[key]


def link_choices() -> str:
    """The links there are, for whoever named another."""
    return f"use one of {', '.join(links())}"


def search(text: str) -> tuple[Device, ...]:
    """Devices in which every word of `text` occurs, in id, alias, name, vendor or family."""
    words = text.lower().split()
    other_names: dict[str, list[str]] = {}
    for alias, device_id in aliases().items():
        other_names.setdefault(device_id, []).append(alias)

    def described(d: Device) -> str:
        parts = (d.id, d.name, d.vendor, d.architecture, d.family, *other_names.get(d.id, ()))
        return " ".join(parts).lower()

    return tuple(d for d in devices().values() if all(word in described(d) for word in words))


@cache
def _read(name: str) -> dict[str, Any]:
    import tomllib  # only needed once something is looked up

    with open(os.path.join(os.path.dirname(__file__), "catalogue", f"{name}.toml"), "rb") as file:
        return tomllib.load(file)
