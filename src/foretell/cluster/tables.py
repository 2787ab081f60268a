"""Reads devices and links out of TOML tables: the catalogue's and the user's are written alike.

Files hold the units people quote (GiB, GB/s, TFLOPS, MHz, microseconds), named in the key; the
objects hold SI. Every error names the file and the key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from foretell.cluster.device import DTYPES, Device
from foretell.cluster.link import Link
from foretell.errors import InputError, UnknownNameError, near_matches

Table = Mapping[str, Any]

# Nothing on earth is outside, in the units of the keys; forecasts inside stay finite.
_LEAST, _MOST = 1e-6, 1e9

# TOML key -> (field, what one unit of it is in SI)
_DEVICE_NUMBERS: dict[str, tuple[str, float]] = {
    "vector_tflops": ("vector_flops_per_s", 1e12),
    "memory_gib": ("memory_bytes", 2**30),
    "memory_bandwidth_gb_per_s": ("memory_bandwidth_bytes_per_s", 1e9),
    "l2_mib": ("l2_bytes", 2**20),
    "clock_mhz": ("clock_hz", 1e6),
    "launch_overhead_us": ("launch_overhead_s", 1e-6),
    "tdp_w": ("tdp_w", 1.0),
}
_DEVICE_COUNTS = ("sm_count", "gpus_per_node", "gpus_per_nic", "year")
_DEVICE_TEXTS = (
    "name",
    "vendor",
    "architecture",
    "family",
    "gpu_link",
    "host_link",
    "network",
    "price_as_of",
    "sources",
)
_WHOLE_BYTES = ("memory_bytes", "l2_bytes")
DEVICE_KEYS = (
    "like",
    "peak_tflops",
    "price_usd_per_hour",
    *_DEVICE_NUMBERS,
    *_DEVICE_COUNTS,
    *_DEVICE_TEXTS,
)
_REQUIRED = {
    "vendor": "vendor",
    "architecture": "architecture",
    "family": "family",
    "peak_flops_per_s": "peak_tflops",
    "vector_flops_per_s": "vector_tflops",
    "memory_bytes": "memory_gib",
    "memory_bandwidth_bytes_per_s": "memory_bandwidth_gb_per_s",
    "l2_bytes": "l2_mib",
    "sm_count": "sm_count",
    "clock_hz": "clock_mhz",
    "gpu_link": "gpu_link",
    "host_link": "host_link",
    "network": "network",
}
_LINK_REQUIRED = {
    "kind": "kind",
    "bandwidth_bytes_per_s": "bandwidth_gb_per_s",
    "latency_s": "latency_us",
}
LINK_KEYS = ("like", "name", "kind", "bandwidth_gb_per_s", "latency_us")


def device_from_table(device_id: str, table: Table, base: Device | None, where: str) -> Device:
    """The device a table describes, on top of `base` if there is one."""
    check_keys(table, DEVICE_KEYS, where)
    values: dict[str, Any] = {"id": device_id, "name": device_id}
    if base is not None:
        values = {f.name: getattr(base, f.name) for f in fields(base)} | values
    for key, (field, unit) in _DEVICE_NUMBERS.items():
        if key in table:
            value = number(table, key, where) * unit
            values[field] = round(value) if field in _WHOLE_BYTES else value
    for key in _DEVICE_COUNTS:
        if key in table:
            values[key] = whole(table, key, where)
    for key in _DEVICE_TEXTS:
        if key in table:
            values[key] = text(table, key, where)
    if "peak_tflops" in table:
        values["peak_flops_per_s"] = dict(values.get("peak_flops_per_s", {})) | _rates(table, where)
    if "price_usd_per_hour" in table:
        low, high = price(table, "price_usd_per_hour", where)
        values |= {"price_usd_per_hour_low": low, "price_usd_per_hour_high": high}
        # A base's date says nothing about a price given here.
        values["price_as_of"] = table.get("price_as_of", "")
    missing = [key for field, key in _REQUIRED.items() if field not in values]
    if missing:
        raise InputError(
            f"{where} lacks {', '.join(missing)}: add them, or start from a known device "
            'with like = "a100-80gb"'
        )
    return Device(**values)


def link_from_table(link_id: str, table: Table, base: Link | None, where: str) -> Link:
    """The link a table describes, on top of `base` if there is one."""
    check_keys(table, LINK_KEYS, where)
    values: dict[str, Any] = {"id": link_id, "name": link_id}
    if base is not None:
        values |= {f.name: getattr(base, f.name) for f in fields(base) if f.name not in values}
    for key in ("name", "kind"):
        if key in table:
            values[key] = text(table, key, where)
    if "bandwidth_gb_per_s" in table:
        values["bandwidth_bytes_per_s"] = number(table, "bandwidth_gb_per_s", where) * 1e9
    if "latency_us" in table:
        values["latency_s"] = number(table, "latency_us", where, zero=True) * 1e-6
    missing = [key for field, key in _LINK_REQUIRED.items() if field not in values]
    if missing:
        raise InputError(
            f"{where} lacks {', '.join(missing)}: add them, or start from a known link "
            'with like = "ib-ndr"'
        )
    return Link(**values)


def check_keys(table: Table, known: Iterable[str], where: str) -> None:
    """Refuse a key nobody reads: it is a typing error more often than not."""
    names = tuple(known)
    for key in table:
        if key not in names:
            hint = "" if near_matches(key, names) else f"known are {', '.join(names)}"
            raise UnknownNameError(f"key in {where}:", key, names, hint)


def number(table: Table, key: str, where: str, *, zero: bool = False) -> float:
    """A finite number above 0 (or from 0 on)."""
    value = table[key]
    wanted = "a number of 0 or more" if zero else "a positive number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {key} is {value!r}: write {wanted} without quotes or units")
    if not 0 <= value < math.inf or (value == 0 and not zero):
        raise InputError(f"{where}: {key} is {value!r}: write {wanted}")
    if value and not _LEAST <= value <= _MOST:
        raise InputError(
            f"{where}: {key} is {value}: write a number between {_LEAST:g} and {_MOST:g} "
            "in the unit of its name"
        )
    return float(value)


def whole(table: Table, key: str, where: str) -> int:
    """A whole number from 1 on."""
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{where}: {key} is {value!r}: write a whole number of 1 or more")
    if value > _MOST:
        raise InputError(f"{where}: {key} is {value}: write at most {_MOST:g}")
    return value


def text(table: Table, key: str, where: str) -> str:
    """A string that says something."""
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {key} is {value!r}: write a text in quotes")
    return value


def subtable(table: Table, key: str, where: str) -> Table:
    """A table, empty when absent."""
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: {key} is {value!r}: write it as a table, [{key}]")
    return value


def price(table: Table, key: str, where: str) -> tuple[float, float]:
    """A price, or [low, high], as (low, high)."""
    value = table[key]
    if not isinstance(value, list):
        exact = number(table, key, where, zero=True)
        return exact, exact
    if len(value) != 2:
        raise InputError(f"{where}: {key} is {value!r}: write one number or [low, high]")
    ends = {f"{key}[{i}]": end for i, end in enumerate(value)}
    low, high = (number(ends, end, where, zero=True) for end in ends)
    if low > high:
        raise InputError(f"{where}: {key} is {value!r}: write the lower price first")
    return low, high


def _rates(table: Table, where: str) -> dict[str, float]:
    where = f"{where}.peak_tflops"
    rates = table["peak_tflops"]
    if not isinstance(rates, Mapping):
        raise InputError(f"{where} is {rates!r}: write it as {{ fp32 = 19.5, bf16 = 312 }}")
    check_keys(rates, DTYPES, where)
    return {dtype: number(rates, dtype, where) * 1e12 for dtype in rates}
