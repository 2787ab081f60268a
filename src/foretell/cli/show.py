"""How answers look in a terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from foretell.cluster import Cluster
from foretell.predictors import Forecast
from foretell.predictors.forecast import WAITING
from foretell.units import format_bytes, format_count, format_duration
from foretell.workload import Workload

_BAR_WIDTH = 24
_SHOWN_CLASSES = 6
_WIDTH_IN_FILES = 140
_ANY = 10_000

_console = Console()
if not _console.is_terminal and "COLUMNS" not in os.environ:
    _console = Console(width=_WIDTH_IN_FILES)
_status = Console(stderr=True)


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[None]:
    """A spinner on stderr while something takes its time."""
    if quiet or not _status.is_terminal:
        yield
        return
    with _status.status(what):
        yield


@contextlib.contextmanager
def counted_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr; the yielded function takes (done, total), None while that is unknown."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    quiet = not _status.is_terminal
    with Progress(*columns, console=_status, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextlib.contextmanager
def timed_progress(what: str, budget_s: float) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr that fills as time goes by; the yielded function takes (spent, doing)."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    quiet = not _status.is_terminal
    with Progress(*columns, console=_status, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=budget_s)

        def tell(spent_s: float, doing: str) -> None:
            bar.update(task, completed=spent_s, description=f"{what}: {doing}" if doing else what)

        yield tell


@contextlib.contextmanager
def shared_progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr per thing that goes on; the yielded function takes (thing, share done).

    In a file, a line for each that is done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    quiet = not _status.is_terminal
    with Progress(*columns, console=_status, disable=quiet) as bars:
        known: dict[str, TaskID] = {}

        def tell(what: str, share: float) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=1.0)
            if quiet and share >= 1.0 and not bars.tasks[known[what]].finished:
                _status.print(f"{what}: done")
            bars.update(known[what], completed=share)

        yield tell


def print_line(text: str) -> None:
    """One plain line on stdout."""
    print(text)


def print_table(table: Table) -> None:
    """A table on stdout; lines get longer than a narrow terminal rather than lose a cell."""
    (_console if fits_width(table) else Console(width=_needed(table))).print(table)


def fits_width(table: Table) -> bool:
    """Whether the terminal is wide enough for every cell of the table."""
    return _needed(table) <= _console.width


def _needed(table: Table) -> int:
    return _console.measure(table, options=_console.options.update(max_width=_ANY)).maximum


def _print_text(text: str, style: str) -> None:
    """A styled line on stdout, whole even where the terminal is narrower."""
    _console.print(Text(text, style=style), soft_wrap=True)


def plain_table(*headers: str, title: str | None = None) -> Table:
    """The house style for tables; headers that start with '>' are right-aligned."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for header in headers:
        table.add_column(
            header.lstrip(">"),
            justify="right" if header.startswith(">") else "left",
            no_wrap=True,
        )
    return table


def show_forecast(
    forecast: Forecast, workload: Workload, cluster: Cluster, largest_batch: int | None
) -> None:
    """The whole forecast on one screen."""
    s = forecast.subject
    print_line("")
    _print_text(forecast.title, "bold")
    print_line(
        f"{format_count(float(s['parameters']))} parameters, "
        f"{format_count(float(s['flops_per_sample']), 'FLOP')} per {_sample(s, workload)} "
        "and step, "
        f"batch {s['batch']} per {_copy(workload, cluster)}, {s['mode']}, {s['precision']}"
    )
    if s.get("parallel"):
        print_line(f"plan: {s['parallel']}")
    table = plain_table("", ">forecast", "90 % interval")
    for name, value, interval in forecast.rows():
        table.add_row(name, value, interval)
    device = min(cluster.devices, key=lambda d: d.memory_bytes)
    verdict = Text("yes", style="green") if forecast.fits else Text("no", style="bold red")
    table.add_row(f"fits in {format_bytes(device.memory_bytes)}", verdict, "")
    if largest_batch is not None:
        table.add_row("largest batch that fits", str(largest_batch or "none, not even 1"), "")
    print_table(table)
    print_table(_breakdown("time", forecast.breakdown["phase"], format_duration))
    print_table(_operators(forecast.breakdown["class"]))
    memory = {k: v for k, v in forecast.breakdown["memory"].items() if k != "allocated_peak"}
    print_table(_breakdown("memory", memory, format_bytes))
    if "memory_by_stage" in forecast.breakdown:
        print_table(_stages(forecast.breakdown["memory_by_stage"], device.memory_bytes))
    print_line(f"limited by {s['limited_by']}")
    for note in forecast.notes:
        _print_text(f"note: {note}", "yellow" if not forecast.in_domain else "dim")
    domain = "in domain" if forecast.in_domain else "out of domain"
    _print_text(f"predictor {forecast.predictor}, version {forecast.version}, {domain}", "dim")


def _copy(workload: Workload, cluster: Cluster) -> str:
    """What a batch is for."""
    layout = workload.recipe.layout(cluster.total_devices)
    return "device" if layout.world == layout.dp else "model copy"


def _sample(subject: Mapping[str, object], workload: Workload) -> str:
    tokens = f" of {workload.seq:,} tokens" if workload.seq else ""
    return f"{subject['sample']}{tokens}"


def _stages(used: Mapping[str, float], room_bytes: float) -> Table:
    """Memory of each pipeline rank against what the device has; equal neighbours share a row."""
    table = plain_table("memory by rank", ">", ">", "")
    for name, value in _merged(list(used.items())):
        share = value / room_bytes
        bar = "█" * round(min(share, 1.0) * _BAR_WIDTH)
        style = "red" if share > 1 else ""
        table.add_row(name, format_bytes(value), f"{100 * share:.0f} %", Text(bar, style=style))
    return table


def _merged(items: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """("stage 1", x), ("stage 2", x) -> ("stage 1-2", x)."""
    rows: list[tuple[str, str, float]] = []
    for name, value in items:
        if rows and abs(rows[-1][2] - value) <= 0.005 * value:
            rows[-1] = (rows[-1][0], name, value)
        else:
            rows.append((name, name, value))
    return [
        (first if first == last else f"{first}-{last.split()[-1]}", value)
        for first, last, value in rows
    ]


def _operators(class_s: Mapping[str, float]) -> Table:
    """The longest operator classes, the rest of them in one row, and all that is not computing."""
    computing = [name for name in class_s if name not in WAITING]
    shown, rest = computing[:_SHOWN_CLASSES], computing[_SHOWN_CLASSES:]
    parts = {name: class_s[name] for name in shown}
    parts["rest"] = sum(class_s[name] for name in rest)
    parts |= {name: class_s[name] for name in WAITING if name in class_s}
    return _breakdown("operators", parts, format_duration)


def _breakdown(title: str, parts: Mapping[str, float], show: Callable[[float], str]) -> Table:
    items = [(k, v) for k, v in parts.items() if v > 0]
    total = sum(v for _, v in items) or 1.0
    table = plain_table(title, ">", ">", "")
    for name, value in items:
        share = value / total
        bar = "█" * round(share * _BAR_WIDTH)
        table.add_row(name.replace("_", " "), show(value), f"{100 * share:.0f} %", bar)
    return table
