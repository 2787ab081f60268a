"""A run's series as one figure: four curves over one time axis, bursts shaded, numbers beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import CannotError, InputError, MissingExtraError
from foretell.measure.bursts import Bursts, curves, series_bursts
from foretell.measure.series import Array, Series
from foretell.units import format_count, format_duration

FORMATS = ("pdf", "png", "svg")
_COLOURS = {
    "memory": "#7a5ba8",
    "utilisation": "#2f6db3",
    "received": "#23876a",
    "sent": "#c2602b",
}
_INK, _FAINT, _GAP = "#2e2e2e", "#7d7d7d", "#c9c9c9"
_SIZE_INCHES = (10.0, 7.2)
_PADDING_INCHES = 0.1
_DOTS_PER_INCH = 150
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
}


def plot_series(series: Series, *, title: str = "", merge_s: float | None = None) -> Any:
    """The matplotlib Figure of a run; it belongs to no window and needs no closing."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise MissingExtraError("plotting a series", "plot") from error
    found = series_bursts(series, merge_s=merge_s)
    captions = _captions(series)
    with matplotlib.rc_context(_STYLE):
        layout = ConstrainedLayoutEngine(h_pad=_PADDING_INCHES, w_pad=_PADDING_INCHES)
        figure = Figure(figsize=_SIZE_INCHES, layout=layout)
        panels = figure.subplots(4, 1, sharex=True)
        for panel, (name, values) in zip(panels, curves(series).items(), strict=True):
            _draw(panel, series, values, found[name], _COLOURS[name])
            as_share = name in ("memory", "utilisation")
            _scale(panel, values, found[name], as_share)
            _label(panel, name, captions[name])
            _tell(panel, found[name], as_share)
        panels[-1].set_xlim(0, series.duration_s)
        panels[-1].set_xlabel(f"seconds · {_how_sampled(series)}", color=_FAINT)
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    return figure


def save_plot(
    series: Series, path: str | Path, *, title: str = "", merge_s: float | None = None
) -> None:
    """Write the figure of a run to a file whose suffix says the format: .png, .svg or .pdf."""
    path = Path(path)
    if path.suffix.lstrip(".") not in FORMATS:
        raise InputError(f"plot {str(path)!r} has no known format: end it in .png, .svg or .pdf")
    figure = plot_series(series, title=title, merge_s=merge_s)
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise CannotError(
            f"plot {str(path)!r} cannot be written ({error.strerror}): choose another place"
        ) from error


def _draw(panel: Any, series: Series, values: Array, found: Bursts, colour: str) -> None:
    for start_s, end_s in found.segments:
        panel.axvspan(start_s, end_s, color=colour, alpha=0.11, linewidth=0)
        level = [found.burst_level] * 2
        panel.plot((start_s, end_s), level, color=_INK, linewidth=0.9, linestyle=(0, (4, 2)))
    for start_s, end_s in series.gaps:
        panel.axvspan(start_s, end_s, facecolor="none", edgecolor=_GAP, hatch="////", linewidth=0)
    edges = np.concatenate(([0.0], series.times_s))
    panel.stairs(values, edges, baseline=None, color=colour, linewidth=1.3)


def _scale(panel: Any, values: Array, found: Bursts, as_share: bool) -> None:
    top, bottom = float(values.max()), float(values.min())
    # Zero is in view, but where that would hide the bursts: most of a job's memory never moves.
    hidden = found.idle_count > 0 and bottom > top / 2
    floor = max(0.0, bottom - (top - bottom) / 2) if hidden else 0.0
    panel.set_ylim(floor, top + 0.12 * (top - floor) if top else 1.0)
    show = _percent if as_share else _bytes_per_s
    panel.yaxis.set_major_locator(_few_ticks())
    panel.yaxis.set_major_formatter(lambda value, _: show(value))
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    panel.set_axisbelow(True)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3)


def _label(panel: Any, name: str, caption: str) -> None:
    panel.set_title(name, loc="left", color=_COLOURS[name], fontweight="bold", fontsize=10.5)
    panel.set_title(caption, loc="right", color=_FAINT, fontsize=8.5)


def _tell(panel: Any, found: Bursts, as_share: bool) -> None:
    """Three of the twelve numbers, right of their panel."""
    level = (_percent if as_share else _bytes_per_s)(found.burst_level)
    lines = [
        ("idle", format_duration(found.idle_s) if found.idle_count else "never"),
        ("burst", format_duration(found.burst_s) if found.burst_count else "never"),
        ("level", level if found.burst_count else "–"),
    ]
    for place, (label, text) in enumerate(lines):
        height = 0.86 - 0.26 * place
        at = {"transform": panel.transAxes, "va": "center"}
        panel.text(1.02, height, label, color=_FAINT, **at)
        panel.text(1.075, height, text, color=_INK, fontweight="bold", **at)


def _captions(series: Series) -> dict[str, str]:
    gpu = "gpu_utilisation" in series.columns
    interfaces = ", ".join(
        name.partition("/")[2]
        for name in series.columns
        if name.startswith("received_bytes_per_s/")
    )
    traffic = f"on {interfaces}" if interfaces else "no interface was sampled"
    return {
        "memory": "share of the time GPU memory was busy" if gpu else "share of the machine",
        "utilisation": "share of the time GPUs computed" if gpu else "share of the threads",
        "received": traffic,
        "sent": traffic,
    }


def _how_sampled(series: Series) -> str:
    missed = len(series.gaps)
    gaps = "no gaps" if not missed else "1 gap" if missed == 1 else f"{missed} gaps"
    return f"{len(series)} samples at {series.rate_hz:.1f} Hz, {gaps}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _bytes_per_s(rate: float) -> str:
    return format_count(rate, "B/s") if rate else "0"
