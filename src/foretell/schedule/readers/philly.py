"""Philly as Microsoft published it: a JSON list of jobs with their attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from foretell.errors import InputError
from foretell.schedule.readers.rows import BadRow, Left, NoJob, Row, checked, moment_s
from foretell.schedule.readers.text import head_of, open_text


class Philly:
    """All attempts of a job count as one run on the devices of the first."""

    about = "Philly: cluster_job_log (JSON)"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        return "".join(head_of(path, 2)).lstrip().startswith("[")

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All jobs; their places in the list count as lines."""
        with open_text(path) as stream:
            try:
                told = json.load(stream)
            except (ValueError, OSError, EOFError) as error:
                raise InputError(
                    f"trace {str(path)!r} is not whole JSON ({error}): fetch it again"
                ) from error
        for number, job in enumerate(told if isinstance(told, list) else [told], 1):
            try:
                yield checked(_row(number, job))
            except BadRow as error:
                yield Left(number, str(error))
            except NoJob as error:
                yield Left(number, str(error), malformed=False)


def _row(number: int, job: Any) -> Row:
    if not isinstance(job, Mapping):
        raise BadRow("is not an object")
    try:
        attempts, submitted = job["attempts"], str(job["submitted_time"])
        ran = [a for a in attempts if _is_time(a["start_time"]) and _is_time(a["end_time"])]
        if not ran:
            raise NoJob("never ran, or has not ended")
        duration_s = sum(
            moment_s(a["end_time"], "end_time") - moment_s(a["start_time"], "start_time")
            for a in ran
        )
        devices = sum(len(server["gpus"]) for server in ran[0]["detail"])
        return Row(
            line=number,
            id=str(job.get("jobid", number)),
            submit_s=moment_s(submitted, "submitted_time"),
            duration_s=duration_s,
            devices=devices,
            user=str(job.get("user") or ""),
            group=str(job.get("vc") or ""),
        )
    except (KeyError, TypeError) as error:
        raise BadRow(f"lacks {error}") from error


def _is_time(text: Any) -> bool:
    return text not in (None, "", "None")
