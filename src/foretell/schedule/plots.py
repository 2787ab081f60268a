"""Pictures of schedules: how long jobs take, how full the cluster is, who runs where."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.errors import MissingExtraError
from foretell.graph.graph import Floats
from foretell.schedule.metrics import usage_of
from foretell.schedule.pool import PoolSpec
from foretell.schedule.sweep import Result
from foretell.schedule.trace import Trace

_COLOURS = (
    "#2f6db3",
    "#c2602b",
    "#23876a",
    "#7a5ba8",
    "#b8901f",
    "#a83a5b",
    "#4a9aa8",
    "#6b6b6b",
)
_INK, _FAINT = "#2e2e2e", "#7d7d7d"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": "#c9c9c9",
    "axes.labelcolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "svg.fonttype": "none",
    "svg.hashsalt": "foretell",
}
_UNSAID = ("Creator", "Date", "Format", "Type")
"""Of a picture's metadata."""
_POINTS = 400
_BARS = 1000
_HOUR_S = 3600.0


def colour_of(number: int) -> str:
    """The same for a policy in all pictures."""
    return _COLOURS[number % len(_COLOURS)]


def distribution(results: Sequence[Result], what: str, label: str) -> str:
    """SVG: the share of jobs below a time; `what` names a column of outcomes."""
    figure, axes = _figure(5.2, 3.2)
    shares = np.linspace(0.0, 1.0, _POINTS)
    for number, result in enumerate(results):
        values = getattr(result.played.outcome, what)
        reached = np.maximum(np.quantile(values, shares), 1.0)
        axes.plot(reached, shares, color=colour_of(number), lw=1.4, label=result.run.policy)
    axes.set_xscale("log")
    axes.set_xlabel(f"{label} (s)")
    axes.set_ylabel("share of jobs")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return _svg(figure)


def over_time(
    trace: Trace, results: Sequence[Result], devices: int, *, waiting: bool = False
) -> str:
    """SVG: the share of devices held, or the jobs that wait, over time."""
    figure, axes = _figure(10.6, 2.6)
    for number, result in enumerate(results):
        usage = usage_of(trace, result.played.history)
        values = usage.waiting if waiting else usage.held / devices
        at_s, means = _means(usage.at_s, values)
        axes.plot(at_s / _HOUR_S, means, color=colour_of(number), lw=1.2, label=result.run.policy)
    axes.set_xlabel("hours")
    axes.set_ylabel("jobs waiting" if waiting else "share of devices held")
    axes.set_ylim(0, None if waiting else 1.02)
    axes.legend(frameon=False, fontsize=8, ncols=len(results), loc="upper right")
    return _svg(figure)


def gantt(result: Result, pools: Sequence[PoolSpec]) -> str:
    """SVG: a row per server, a bar per run, as thick as its share of the server's devices."""
    history = result.played.history
    runs = min(_BARS, len(history.run_job))
    rows, bars, colours = _bars(history, runs, pools)
    height = min(9.0, max(1.6, 0.16 * rows))
    figure, axes = _figure(10.6, height)
    from matplotlib.collections import PolyCollection

    axes.add_collection(PolyCollection(bars, facecolors=colours, edgecolors="none"))
    axes.autoscale_view()
    axes.set_ylim(rows, 0)
    axes.set_xlabel("hours")
    axes.set_ylabel("server")
    return _svg(figure)


def _bars(
    history: Any, runs: int, pools: Sequence[PoolSpec]
) -> tuple[int, list[Floats], list[str]]:
    """Servers in use, corners of bars, and the colour of each job."""
    whole = np.repeat([p.devices_per_server for p in pools], [p.servers for p in pools])
    free_at: dict[tuple[int, int], float] = {}
    bars, colours, last = [], [], 0
    order = sorted(range(runs), key=lambda i: history.run_start_s[i])
    for run in order:
        start_s, end_s = history.run_start_s[run], history.run_end_s[run]
        for at in range(history.run_first[run], history.run_first[run + 1]):
            server, count = history.server[at], history.server_devices[at]
            lanes = [
                n for n in range(whole[server]) if free_at.get((server, n), 0.0) <= start_s + 1e-6
            ][:count]
            for lane in lanes:
                free_at[server, lane] = end_s
                top = server + (lane + 0.08) / whole[server]
                low = server + (lane + 0.92) / whole[server]
                x0, x1 = start_s / _HOUR_S, end_s / _HOUR_S
                bars.append(np.array([(x0, top), (x1, top), (x1, low), (x0, low)]))
                colours.append(colour_of(history.run_job[run]))
            last = max(last, server)
    return last + 1, bars, colours


def _means(at_s: Floats, values: np.ndarray) -> tuple[Floats, Floats]:
    """Means over equal parts of the time, exactly."""
    edges = np.linspace(at_s[0], at_s[-1], min(_POINTS, len(at_s)) + 1)
    whole = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(at_s))])
    reached = np.interp(edges, at_s, whole)
    span_s = np.diff(edges)
    means: Floats = np.diff(reached) / np.where(span_s > 0, span_s, 1.0)
    return (edges[1:] + edges[:-1]) / 2, means


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a report with plots", "plot") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots()


def _svg(figure: Any) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(_UNSAID))
    text = buffer.getvalue()
    return re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text[text.index("<svg") :], count=1)
