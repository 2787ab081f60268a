"""Two workers on two hosts of one machine, and what to ask them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from foretell.measure.namespaces import INTERFACE, HostPair

_ROOT = Path(__file__).resolve().parents[1]


class Workers:
    """A process with one thread on each host; ended on exit."""

    def __init__(self, hosts: HostPair) -> None:
        self.hosts = hosts
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Workers:
        self.folder = tempfile.TemporaryDirectory(prefix="foretell-gloo-")
        meeting = str(Path(self.folder.name, "meeting"))
        paths = (str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONWARNINGS": "ignore",
        }
        self.log = Path(self.folder.name, "log")
        for rank in range(2):
            command = [sys.executable, "-m", "benchmarks.gloo_worker", str(rank), meeting]
            with self.log.open("a") as log:
                self.processes.append(
                    subprocess.Popen(
                        self.hosts.command(rank, command),
                        env=environment,
                        cwd=_ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.folder.cleanup()

    def ask(self, kind: str, **job: Any) -> list[Any]:
        """Both answers to a job."""
        line = json.dumps({"kind": kind, **job})
        for process in self.processes:
            assert process.stdin is not None
            try:
                print(line, file=process.stdin, flush=True)
            except BrokenPipeError:
                raise RuntimeError(f"a worker is gone: {self._last_words()}") from None
        answers = []
        for process in self.processes:
            assert process.stdout is not None
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(f"a worker failed at {line}: {self._last_words()}")
            answers.append(json.loads(answer))
        return answers

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-25:])
