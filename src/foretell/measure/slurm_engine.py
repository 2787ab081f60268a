"""Measuring by Slurm: portions of jobs as an array job whose tasks append to the store themselves.

The store must be on a file system that the nodes share.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from foretell.data.columns import to_records
from foretell.data.store import Store
from foretell.errors import CannotError, one_line
from foretell.measure.chunks import Chunk, chunks_of
from foretell.measure.runner import Job, Plan, Progress, Report

_PATIENCE_S = 30.0
_LOOK_AGAIN_S = 1.0


def run_on_slurm(jobs: Sequence[Job], store: Store, plan: Plan, progress: Progress) -> Report:
    """Submit, wait, and gather what the array's tasks did; those that left nothing are counted."""
    for tool in ("sbatch", "squeue"):
        if shutil.which(tool) is None:
            raise CannotError(f"--engine slurm needs {tool}: run it where Slurm is installed")
    chunks = chunks_of(jobs, plan)
    folder = (store.directory / f"slurm-{uuid.uuid4().hex[:8]}").resolve()
    folder.mkdir(parents=True)
    for number, chunk in enumerate(chunks):
        (folder / f"chunk-{number}.json").write_text(json.dumps(chunk.to_dict()))
    script = folder / "measure.sbatch"
    script.write_text(_script(chunks, plan, folder, store.directory.resolve()))
    job_id = _call("sbatch", "--parsable", str(script)).split(";")[0].strip()
    try:
        _wait(job_id, folder, chunks, len(jobs), progress)
    except KeyboardInterrupt:
        _call("scancel", job_id)
        raise
    return _gathered(folder, chunks, store)


def run_array_task(folder: Path, number: int, store: Path) -> None:
    """What a task of the array does on its node."""
    chunk = Chunk.from_dict(json.loads((folder / f"chunk-{number}.json").read_text()))
    report = chunk.run(Store(store))
    result = {"ids": [record.id for record in report.records], "left": report.left}
    part = folder / f".done-{number}.json"
    part.write_text(json.dumps(result))
    part.replace(folder / f"done-{number}.json")


def _script(chunks: Sequence[Chunk], plan: Plan, folder: Path, store: Path) -> str:
    run = [sys.executable, "-m", "foretell.measure.slurm_engine", str(folder)]
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=foretell-measure",
        f"#SBATCH --array=0-{len(chunks) - 1}",
        "#SBATCH --nodes=1 --ntasks=1 --requeue",
        f"#SBATCH --cpus-per-task={max(chunk.cores for chunk in chunks)}",
        f"#SBATCH --output={folder}/log-%a",
        *([f"#SBATCH --constraint={shlex.quote(plan.needs)}"] if plan.needs else []),
        f'{shlex.join(run)} "$SLURM_ARRAY_TASK_ID" {shlex.quote(str(store))}',
    ]
    return "\n".join(lines) + "\n"


def _wait(
    job_id: str, folder: Path, chunks: Sequence[Chunk], total: int, progress: Progress
) -> None:
    while True:
        done = sum(
            len(chunk.tasks)
            for number, chunk in enumerate(chunks)
            if (folder / f"done-{number}.json").exists()
        )
        progress(done, total, "")
        if done == total or not _call("squeue", "-h", "-j", job_id, missing_is_empty=True).strip():
            return
        time.sleep(_LOOK_AGAIN_S)


def _gathered(folder: Path, chunks: Sequence[Chunk], store: Store) -> Report:
    report, ids = Report(), set()
    for number, chunk in enumerate(chunks):
        try:
            result = json.loads((folder / f"done-{number}.json").read_text())
        except FileNotFoundError:
            report.left += len(chunk.tasks)
            continue
        ids |= set(result["ids"])
        report.left += result["left"]
    table = store.table(source="foretell")
    report.records = [r for r in to_records(table) if r.id in ids]
    if not report.left:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _call(*command: str, missing_is_empty: bool = False) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotError(
            f"{command[0]} did not answer within {_PATIENCE_S:.0f} s: is slurmctld running?"
        ) from None
    if done.returncode:
        if missing_is_empty and "Invalid job id" in done.stderr:
            return ""
        raise CannotError(f"{command[0]} failed: {one_line(done.stderr)}")
    return done.stdout


if __name__ == "__main__":
    run_array_task(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
