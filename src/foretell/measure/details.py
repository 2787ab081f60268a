"""What a run leaves beside its record: pictures of its usage, and tables of its operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.data.export import write_rows
from foretell.errors import InputError
from foretell.measure.plots import save_plot
from foretell.measure.series import Series
from foretell.measure.task import Answer, Task
from foretell.measure.world import World

_COLUMNS = ("operator", "shapes", "calls", "seconds")
_NO_NAME = re.compile(r"[^A-Za-z0-9._=@,+-]+")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Details:
    """Keeps them in two folders; None leaves them out."""

    plots: Path | None = None
    operators: Path | None = None

    def __post_init__(self) -> None:
        for folder in (self.plots, self.operators):
            if folder is not None:
                _make(folder)

    def keep(self, task: Task, world: World, answers: Sequence[Answer]) -> None:
        """Write what the last round of a workload saw."""
        last = answers[-1]
        if self.plots is not None and last.series:
            title = f"{task.options['model']}, batch {task.options.get('batch')}, {world.text}"
            path = self.plots / f"{_name(task, world)}.svg"
            save_plot(Series.from_dict(last.series), path, title=title)
        if self.operators is not None and last.operators:
            rows = ([row[name] for name in _COLUMNS] for row in last.operators)
            write_rows(self.operators / f"{_name(task, world)}.csv", _COLUMNS, rows)


def _name(task: Task, world: World) -> str:
    rest = [f"{k}={v}" for k, v in task.options.items() if k not in ("model", "batch")]
    parts = [task.options["model"], f"batch={task.options.get('batch')}", *rest, world.cluster]
    return _NO_NAME.sub("-", " ".join(map(str, parts)))[:_LONGEST_NAME]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"folder {str(folder)!r} cannot be made ({error.strerror}): name another for --plots "
            "or --profile"
        ) from error
