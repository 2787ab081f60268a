"""The figure of a run shows its curves, its bursts and its numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import CannotError, InputError, MissingExtraError
from foretell.measure import Series, plot_series, save_plot


@pytest.fixture(scope="module")
def series() -> Series:
    wave = np.tile([0.0] * 10 + [1.0] * 10, 4)
    times_s = 0.02 * np.arange(1, 81)
    times_s[50:] += 0.1
    columns = {
        "utilisation": wave,
        "memory_bytes": 1e9 + 1e8 * wave,
        "memory_share": 0.5 + 0.1 * wave,
        "received_bytes_per_s": 12.5e6 * wave,
        "sent_bytes_per_s/eth0": np.zeros(80),
        "sent_bytes_per_s": np.zeros(80),
    }
    return Series(0.0, times_s, columns, 50.0)


def test_every_panel_tells_three_of_the_twelve_numbers(series: Series) -> None:
    figure = plot_series(series, title="a run")
    texts = [[text.get_text() for text in panel.texts] for panel in figure.axes]
    memory, utilisation, received, sent = texts
    assert memory == ["idle", "200 ms", "burst", "225 ms", "level", "60 %"]
    assert utilisation[-1] == "100 %"
    assert received[-1] == "12.5 MB/s"
    assert sent == ["idle", "1.70 s", "burst", "never", "level", "–"]
    assert "1 gap" in figure.axes[-1].get_xlabel()
    assert figure.get_suptitle() == "a run"


@pytest.mark.parametrize(("name", "start"), [("run.png", b"\x89PNG"), ("run.svg", b"<?xml")])
def test_a_plot_is_saved_in_the_format_its_name_says(
    series: Series, tmp_path: Path, name: str, start: bytes
) -> None:
    save_plot(series, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_names_that_cannot_be_written_are_told(series: Series, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"end it in .png, .svg or .pdf"):
        save_plot(series, tmp_path / "run.txt")
    with pytest.raises(CannotError, match="cannot be written"):
        save_plot(series, tmp_path / "nowhere" / "run.png")


def test_without_the_extra_a_plot_says_what_is_missing(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foretell\[plot\]'"):
        plot_series(series)
