"""The folder a crew works in: tasks come in as files, answers leave as files, each whole."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from foretell.measure.task import Answer, Task

OWNER = "FORETELL_OWNER"
"""Variable that names the process the work is for: without that there is none."""


class Folder:
    """Numbered tasks and answers; one writer for each kind of file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_task(self, number: int, task: Task) -> None:
        """Give a task out."""
        self._write(f"task-{number}.json", task.to_dict())

    def next_task(self) -> tuple[int, Task] | None:
        """The first task without an answer."""
        numbers = sorted(int(p.stem.split("-")[1]) for p in self.path.glob("task-*.json"))
        for number in numbers:
            if not self._answer_file(number).exists():
                data = json.loads((self.path / f"task-{number}.json").read_text())
                return number, Task(**data)
        return None

    def write_answer(self, number: int, answer: Answer) -> None:
        """What came of a task."""
        self._write(self._answer_file(number).name, answer.to_dict())

    def read_answer(self, number: int) -> Answer | None:
        """What came of a task, once it is known."""
        try:
            return Answer(**json.loads(self._answer_file(number).read_text()))
        except FileNotFoundError:
            return None

    def write_failure(self, number: int, answer: Answer) -> None:
        """The last words of a process that ends because its part of a task failed."""
        if self.path.is_dir():
            self._write(f"failure-{number}.json", answer.to_dict())

    def read_failure(self, number: int) -> Answer:
        """Why a crew is gone that was at work on a task."""
        try:
            return Answer(**json.loads((self.path / f"failure-{number}.json").read_text()))
        except FileNotFoundError:
            return Answer(
                outcome="crashed",
                reason="a process was ended from outside, as the kernel does when memory runs out",
            )

    def stop(self) -> None:
        """Send the crew home after its present task."""
        (self.path / "stop").touch()

    def remove(self) -> None:
        """Clear up after an owner that could not do it."""
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def stopped(self) -> bool:
        """Whether there will be no more tasks."""
        return (self.path / "stop").exists() or not self.path.is_dir()

    def _answer_file(self, number: int) -> Path:
        return self.path / f"answer-{number}.json"

    def _write(self, name: str, data: dict[str, Any]) -> None:
        part = self.path / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(data))
        part.replace(self.path / name)
