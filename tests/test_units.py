"""Quantities as people read and write them."""

from __future__ import annotations

import pytest

from foretell.errors import InputError, near_matches
from foretell.units import (
    format_bytes,
    format_count,
    format_duration,
    format_usd,
    parse_bytes,
    parse_duration,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.2e-5, "32.0 µs"), (0.1234, "123 ms"), (90, "90.0 s"), (11520, "3.20 h"), (1e6, "11.6 d")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_bytes_are_binary_and_counts_are_si() -> None:
    assert format_bytes(44_350_000_000) == "41.3 GiB"
    assert format_count(25_557_032) == "25.6 M"
    assert format_usd(1234.5) == "$1,234"


@pytest.mark.parametrize(("text", "seconds"), [("48h", 172800), ("20m", 1200), ("1.5d", 129600)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "count"), [("24GiB", 24 * 2**30), ("80GB", 80 * 10**9)])
def test_sizes_are_read(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "soon", "5 fortnights", "-3h"])
def test_nonsense_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InputError, match="not understood"):
        parse_duration(text)
    with pytest.raises(InputError, match="not understood"):
        parse_bytes(text)


def test_near_matches_find_typos_and_parts() -> None:
    assert near_matches("h10", ["h100-sxm", "h200", "a100"])[0].startswith("h")
    assert near_matches("resnet51", ["resnet50", "vgg"]) == ["resnet50"]
