"""UsageSampler: starts the sampling process and turns the counters it read into a Series."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import foretell
from foretell.errors import CannotError, InputError, one_line
from foretell.measure.nvml import check_nvml
from foretell.measure.rows import series_of_rows
from foretell.measure.series import Series

DEFAULT_HZ = 50.0
SLOWEST_HZ, FASTEST_HZ = 20.0, 500.0
_PATIENCE_S = 2.0
# The package is found where this one was found; what else lies beside it shadows nothing.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import foretell; del sys.path[0]; "
    "from foretell.measure.sampler_process import main; main()"
)


class UsageSampler:
    """A light process that watches others. One series at a time, any number in turn.

    It ends with `close`, with the `with` block, and by itself when the process that made it does.
    """

    def __init__(self, rate_hz: float = DEFAULT_HZ) -> None:
        if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
            raise InputError(
                f"rate_hz={rate_hz} is out of range: choose {SLOWEST_HZ:g} to {FASTEST_HZ:g}"
            )
        self.rate_hz = float(rate_hz)
        self._job: dict[str, Any] | None = None
        self._facts: dict[str, Any] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        root = str(Path(foretell.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, root, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> UsageSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the sampling process."""
        return self._process.pid

    def start(
        self,
        pids: Sequence[int],
        interfaces: Sequence[str] | None = None,
        *,
        threads: int | None = None,
        devices: Sequence[int | str] = (),
    ) -> None:
        """Watch processes from now on; the first counters are read when this returns.

        `interfaces` are those of the network namespace of the first process, all but the loopback
        unless named. `threads` is how many threads the processes use together at full utilisation;
        without it, as many as they may run on. `devices` are NVIDIA devices, by NVML's index or
        UUID.
        """
        if self._job is not None:
            raise InputError("the sampler is taking a series already: call stop() before start()")
        if not pids:
            raise InputError("pids is empty: name at least one process to watch")
        if threads is not None and threads < 1:
            raise InputError(f"threads={threads} is too few: give at least 1")
        if devices:
            check_nvml()
        job = {
            "do": "start",
            "rate_hz": self.rate_hz,
            "pids": list(dict.fromkeys(pids)),
            "interfaces": None if interfaces is None else list(dict.fromkeys(interfaces)),
            "devices": list(dict.fromkeys(devices)),
        }
        self._facts = self._ask(job)
        self._facts["threads"] = threads or self._facts["threads"]
        self._job = job

    def stop(self) -> Series:
        """Read the counters once more and return what was sampled since the start."""
        if self._job is None:
            raise InputError("the sampler is not taking a series: call start() before stop()")
        job, self._job = self._job, None
        outcome = self._ask({"do": "stop"})
        rows = np.frombuffer(self._receive(outcome["nbytes"]), np.int64)
        return series_of_rows(
            rows.reshape(outcome["samples"], -1),
            rate_hz=self.rate_hz,
            interfaces=self._facts["interfaces"],
            devices=job["devices"],
            threads=self._facts["threads"],
            memory_bytes=self._facts["memory_bytes"],
            sampler_cpu_s=outcome["cpu_s"],
        )

    def close(self) -> None:
        """End the process; a series that was being taken is lost."""
        self._job = None
        if self._process.poll() is None:
            try:
                self._process.communicate(b'{"do": "end"}\n', timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = b""
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (InputError if answer["input"] else CannotError)(answer["error"])
        return answer

    def _receive(self, nbytes: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(nbytes)
        if len(data) < nbytes:
            raise self._ended()
        return data

    def _ended(self) -> CannotError:
        last_words = ""
        if not self._log.closed:
            self._log.seek(0)
            last_words = self._log.read().decode(errors="replace")
        said = f" ({one_line(last_words)})" if last_words else ""
        return CannotError(f"the sampling process has ended{said}: make a new UsageSampler")
