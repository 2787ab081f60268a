"""What to choose from: cases of a file, operators over a grid of sizes, models over batches."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.api import Case, cluster_of, workload_of
from foretell.design.features import Job
from foretell.errors import CaptureError, InputError
from foretell.graph.sources.op_sweep import sweep_ops
from foretell.parallel import place
from foretell.predictors.assemble import memory_constants
from foretell.predictors.memory import rank_memory

_OPERATOR = "op:"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A case that could be measured, with its graph."""

    case: Case
    job: Job

    @property
    def is_operator(self) -> bool:
        """Whether it is a single operator, of which one process times many."""
        return self.case.model.startswith(_OPERATOR)


def cases_in_file(path: Path, **usual: Any) -> list[Case]:
    """One case per line; `usual` fills in what lines leave out."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(f"candidates {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"candidates {str(path)!r} are not UTF-8 text: {error.reason}") from error
    cases = [
        _case_of_line(line, f"line {number} of {path}", usual)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not cases:
        raise InputError(f"candidates {str(path)!r} is empty: write one case per line as JSON")
    return cases


def _case_of_line(line: str, where: str, usual: dict[str, Any]) -> Case:
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise InputError("a case is a JSON object with fields named like the options")
        return Case.from_mapping({**usual, **values})
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg} at column {error.colno}"
        raise InputError(f"{where}: {reason}") from error
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def operator_cases(cluster: str, **options: Any) -> list[Case]:
    """Every operator over its grid of sizes, on one device of the cluster."""
    if not cluster_of(cluster).is_single_device:
        raise InputError(
            f"operators are measured on one device and {cluster!r} has several: name one device"
        )
    return [Case(model=m, batch=b, cluster=cluster, **options) for m, b in sweep_ops()]


def model_cases(
    models: Sequence[str],
    batches: Sequence[int],
    processes: Sequence[int],
    cluster: str,
    **options: Any,
) -> list[Case]:
    """Every model with every batch on every number of processes."""
    if len(processes) > 1 or processes[0] != 1:
        group = cluster_of(cluster)
        if not group.is_single_device:
            raise InputError(
                f"{cluster!r} says how many devices there are, and so does nproc: name one device"
            )
    return [
        Case(model=model, batch=batch, cluster=_times(count, cluster), **options)
        for model in models
        for count in processes
        for batch in batches
    ]


def _times(count: int, cluster: str) -> str:
    return cluster if count == 1 else f"{count}x{cluster}"


def captured(
    cases: Iterable[Case], on_progress: Callable[[int], None] = lambda done: None
) -> tuple[list[Candidate], list[str]]:
    """Candidates that fit in memory, each case once, and why others were left out."""
    found, left_out = [], []
    for done, case in enumerate(dict.fromkeys(cases), start=1):
        try:
            job = workload_of(case)
        except CaptureError as error:
            left_out.append(f"{case.model}: {error}")
            continue
        if _fits(job):
            found.append(Candidate(case, job))
        else:
            left_out.append(f"{case.model} with batch {case.batch} does not fit on {case.cluster}")
        on_progress(done)
    return found, left_out


def _fits(job: Job) -> bool:
    workload, cluster = job
    smallest = min(cluster.devices, key=lambda d: d.memory_bytes)
    needed = rank_memory(place(workload, cluster), memory_constants(smallest))
    return max(m.total_bytes for m in needed) <= smallest.memory_bytes


def plain(case: Case) -> dict[str, Any]:
    """A case as JSON, without what is left at its default."""
    usual = {f.name: f.default for f in dataclasses.fields(Case)}
    return {
        name: value
        for name, value in dataclasses.asdict(case).items()
        if value != usual[name] or name == "cluster"
    }
