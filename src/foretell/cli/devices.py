"""foretell devices: what hardware we know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from foretell.units import format_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.cluster import Device


def devices(
    text: Annotated[Optional[str], typer.Argument(help="Show only devices that match.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the devices in the catalogue, or search them: foretell devices a100."""
    import dataclasses
    import json

    from foretell.cli.show import fits_width, print_line, print_table
    from foretell.cluster import devices as all_devices
    from foretell.cluster import search
    from foretell.errors import UnknownNameError

    found = list(search(text)) if text else list(all_devices().values())
    if not found:
        raise UnknownNameError("device", text or "", all_devices())
    if json_output:
        rows = [
            dataclasses.asdict(d) | {"peak_flops_per_s": dict(d.peak_flops_per_s)} for d in found
        ]
        print_line(json.dumps(rows))
        return
    table = _table(found, _COLUMNS)
    if not fits_width(table):
        table = _table(found, {h: show for h, show in _COLUMNS.items() if h != "name"})
    print_table(table)
    print_line("Rates are dense TFLOP/s with fp32 accumulation; prices are per device and hour.")


def _rate(device: Device, dtype: str) -> str:
    return f"{device.peak(dtype) / 1e12:.0f}" if device.supports(dtype) else "–"


def _price(device: Device) -> str:
    price = device.price_usd_per_hour
    return f"{price[0]:.2f}–{price[1]:.2f}" if price else "–"


_COLUMNS: Mapping[str, Callable[[Device], str]] = {
    "id": lambda d: d.id,
    "name": lambda d: d.name,
    ">memory": lambda d: format_bytes(d.memory_bytes),
    ">GB/s": lambda d: f"{d.memory_bandwidth_bytes_per_s / 1e9:.0f}",
    ">fp32": lambda d: _rate(d, "fp32"),
    ">fp16": lambda d: _rate(d, "fp16"),
    ">bf16": lambda d: _rate(d, "bf16"),
    ">fp8": lambda d: _rate(d, "fp8"),
    ">$/h": _price,
}


def _table(found: Iterable[Device], columns: Mapping[str, Callable[[Device], str]]) -> Table:
    from foretell.cli.show import plain_table

    table = plain_table(*columns)
    for device in found:
        table.add_row(*(show(device) for show in columns.values()))
    return table
