"""foretell devices: what hardware we know."""

from __future__ import annotations

from typing import Annotated, Optional

import typer


def devices(
    text: Annotated[Optional[str], typer.Argument(help="Show only devices that match.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the devices in the catalogue, or search them: foretell devices a100."""
    import dataclasses
    import json

    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.cluster import devices as all_devices
    from foretell.cluster import search
    from foretell.errors import UnknownNameError
    from foretell.units import format_bytes

    found = list(search(text)) if text else list(all_devices().values())
    if not found:
        raise UnknownNameError("device", text or "", all_devices())
    if json_output:
        rows = [
            dataclasses.asdict(d) | {"peak_flops_per_s": dict(d.peak_flops_per_s)} for d in found
        ]
        print_line(json.dumps(rows))
        return
    table = plain_table("id", "name", ">memory", ">GB/s", ">fp32", ">fp16", ">bf16", ">fp8", ">$/h")
    for d in found:
        rates = [
            f"{d.peak(t) / 1e12:.0f}" if d.supports(t) else "–"
            for t in ("fp32", "fp16", "bf16", "fp8")
        ]
        price = d.price_usd_per_hour
        table.add_row(
            d.id,
            d.name,
            format_bytes(d.memory_bytes),
            f"{d.memory_bandwidth_bytes_per_s / 1e9:.0f}",
            *rates,
            f"{price[0]:.2f}–{price[1]:.2f}" if price else "–",
        )
    print_table(table)
    print_line("Rates are dense TFLOP/s with fp32 accumulation; prices are per device and hour.")
