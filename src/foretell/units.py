"""Quantities as people read and write them: durations, bytes, counts, money."""

from __future__ import annotations

import math
import re

from foretell.errors import InputError

_DURATION_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: dict[str, int] = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_SI_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_duration(seconds: float) -> str:
    """3.2e-05 -> '32 µs', 11520 -> '3.2 h'."""
    if not math.isfinite(seconds):
        return "∞" if seconds > 0 else "?"
    for limit, scale, unit in (
        (1e-3, 1e-6, "µs"),
        (1.0, 1e-3, "ms"),
        (120.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
    ):
        if abs(seconds) < limit:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 86400.0)} d"


def format_bytes(count: float) -> str:
    """Binary units: 44347000000 -> '41.3 GiB'."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(count) >= 1024**power:
            return f"{_three_digits(count / 1024**power)} {unit}"
    return f"{count:.0f} B"


def format_count(count: float, unit: str = "") -> str:
    """SI prefixes: 25557032 -> '25.6 M'."""
    for step, prefix in _SI_STEPS:
        if abs(count) >= step:
            return f"{_three_digits(count / step)} {prefix}{unit}"
    return f"{_three_digits(count)} {unit}".rstrip()


def format_usd(amount: float) -> str:
    """Money with cents while cents matter."""
    if abs(amount) < 0.01:
        return f"${amount:.2g}"
    return f"${amount:,.2f}" if abs(amount) < 1000 else f"${amount:,.0f}"


def parse_duration(text: str) -> float:
    """'48h', '20m', '90s', '1.5d' or a plain number of seconds -> seconds."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    unit = match.group(2) or "s" if match else ""
    if not match or unit not in _DURATION_S:
        raise InputError(
            f"duration {text!r} is not understood: write a positive number and ms, s, m, h or d"
        )
    return float(match.group(1)) * _DURATION_S[unit]


def parse_bytes(text: str) -> int:
    """'24GiB', '80GB', '512 MB' or a plain number of bytes -> bytes."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if not match or match.group(2) not in _BYTES:
        raise InputError(f"size {text!r} is not understood: write a number and MB, MiB, GB or GiB")
    return round(float(match.group(1)) * _BYTES[match.group(2)])


def _three_digits(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
