"""Reads a cluster from the user's TOML file.

    name = "lab"                    # optional
    oversubscription = 2.0          # optional, 1 or more

    [[nodes]]                       # one or more groups of equal nodes
    device = "a100-80gb"            # a known device, or one described below
    count = 2                       # nodes; 1 if absent
    gpus_per_node = 8               # the device's usual number if absent
    network_link = "ib-hdr"         # the device's usual network if absent
    nics_per_node = 4               # the device's usual number if absent
    gpu_link = "nvlink3"            # the device's usual link if absent
    host_memory_gib = 1024          # optional
    price_usd_per_hour = 1.9        # of one device; a number or [low, high]
    # node_price_usd_per_hour = 15  # or of one node

    [devices.my-gpu]                # optional devices of your own
    like = "a100-80gb"              # start from a known one, or give every key
    memory_gib = 94.5               # units are in the names
    peak_tflops = { bf16 = 400 }    # dtypes left out stay those of the base

    [links.my-fabric]               # optional links of your own
    like = "ib-hdr"
    kind = "roce"                   # nvlink pcie xgmi infiniband roce efa ethernet loopback
    bandwidth_gb_per_s = 25         # 10^9 bytes, one direction, one GPU or one port
    latency_us = 6.5

A table named after a known device or link starts from that one: [links.ib-hdr] with only a
latency_us corrects the latency in this cluster. The keys of a device are those of the catalogue
files, which are the examples to copy from.
"""

from __future__ import annotations

from typing import Any

from foretell.cluster import catalogue
from foretell.cluster.cluster import Cluster, NodeGroup, node_group
from foretell.cluster.device import Device
from foretell.cluster.link import Link
from foretell.cluster.tables import (
    Table,
    check_keys,
    device_from_table,
    link_from_table,
    number,
    price,
    subtable,
    text,
    whole,
)
from foretell.errors import InputError, UnknownNameError

_FILE_KEYS = ("name", "oversubscription", "nodes", "devices", "links")
_NODE_KEYS = (
    "device",
    "count",
    "gpus_per_node",
    "network_link",
    "nics_per_node",
    "gpu_link",
    "host_memory_gib",
    "price_usd_per_hour",
    "node_price_usd_per_hour",
)


def read_cluster_file(path: str) -> Cluster:
    """The cluster a TOML file describes; the module's docstring is its manual."""
    content = _read_toml(path)
    check_keys(content, _FILE_KEYS, path)
    reader = _Reader(path, content)
    nodes = content.get("nodes")
    if not isinstance(nodes, list) or not nodes or not all(isinstance(n, dict) for n in nodes):
        raise InputError(f'{path} has no nodes: add [[nodes]] with device = "a100-80gb"')
    groups = tuple(reader.group(table, f"{path}: nodes {i}") for i, table in enumerate(nodes, 1))
    oversubscription = 1.0
    if "oversubscription" in content:
        oversubscription = number(content, "oversubscription", path)
    if oversubscription < 1:
        raise InputError(f"{path}: oversubscription is {oversubscription}: write 1 or more")
    name = text(content, "name", path) if "name" in content else ""
    return Cluster(groups=groups, oversubscription=oversubscription, name=name)


class _Reader:
    """Looks names up among the file's own devices and links first, then in the catalogue."""

    def __init__(self, path: str, content: Table) -> None:
        self._links: dict[str, Link] = {}
        self._devices: dict[str, Device] = {}
        for name, table in subtable(content, "links", path).items():
            where = f"{path}: links.{name}"
            _check_table(table, where)
            link_base = self._link_base(name, table, where)
            self._links[name.lower()] = link_from_table(name.lower(), table, link_base, where)
        for name, table in subtable(content, "devices", path).items():
            where = f"{path}: devices.{name}"
            _check_table(table, where)
            base = self._device_base(name, table, where)
            self._devices[name.lower()] = device_from_table(name.lower(), table, base, where)

    def group(self, table: Table, where: str) -> NodeGroup:
        check_keys(table, _NODE_KEYS, where)
        if "device" not in table:
            raise InputError(f'{where} names no device: add device = "a100-80gb"')
        device = self.device(text(table, "device", where), where)
        gpus = whole(table, "gpus_per_node", where) if "gpus_per_node" in table else None
        gpus = device.gpus_per_node if gpus is None else gpus
        optional: dict[str, Any] = {}
        for key in ("gpu_link", "network_link"):
            if key in table:
                optional[key] = self.link(text(table, key, where), where)
        if "nics_per_node" in table:
            optional["nics_per_node"] = whole(table, "nics_per_node", where)
        if "host_memory_gib" in table:
            optional["host_memory_bytes"] = round(number(table, "host_memory_gib", where) * 2**30)
        return node_group(
            device,
            count=whole(table, "count", where) if "count" in table else 1,
            gpus_per_node=gpus,
            price_usd_per_hour=_device_price(table, gpus, where),
            find_link=lambda name: self.link(name, where),
            **optional,
        )

    def device(self, name: str, where: str) -> Device:
        own = self._devices.get(name.strip().lower())
        try:
            return own or catalogue.device(name)
        except UnknownNameError:
            known = [*self._devices, *catalogue.devices(), *catalogue.aliases(), catalogue.LOCAL]
            hint = f"{catalogue.DEVICE_CHOICES}; one of your own goes into [devices.{name}]"
            raise UnknownNameError(f"device in {where}:", name, known, hint) from None

    def link(self, name: str, where: str) -> Link:
        own = self._links.get(name.strip().lower())
        try:
            return own or catalogue.link(name)
        except UnknownNameError:
            known = [*self._links, *catalogue.links(), *catalogue.link_aliases()]
            hint = f"{catalogue.link_choices()}; one of your own goes into [links.{name}]"
            raise UnknownNameError(f"link in {where}:", name, known, hint) from None

    def _device_base(self, name: str, table: Table, where: str) -> Device | None:
        if "like" in table:
            return self.device(text(table, "like", where), where)
        return catalogue.devices().get(name.lower())

    def _link_base(self, name: str, table: Table, where: str) -> Link | None:
        if "like" in table:
            return self.link(text(table, "like", where), where)
        return catalogue.links().get(name.lower())


def _device_price(table: Table, gpus: int, where: str) -> tuple[float, float] | None:
    if "node_price_usd_per_hour" in table:
        if "price_usd_per_hour" in table:
            raise InputError(
                f"{where} has price_usd_per_hour and node_price_usd_per_hour: keep one of them"
            )
        low, high = price(table, "node_price_usd_per_hour", where)
        return low / gpus, high / gpus
    return price(table, "price_usd_per_hour", where) if "price_usd_per_hour" in table else None


def _check_table(table: object, where: str) -> None:
    if not isinstance(table, dict):
        raise InputError(f"{where} is {table!r}: write it as a table of its own")


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib  # only needed for files

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"cluster file {path!r} does not exist: check the path") from None
    except OSError as error:
        raise InputError(f"cluster file {path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"cluster file {path!r} is not UTF-8 text: save it as such") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"cluster file {path!r} is not valid TOML: {error}") from None
